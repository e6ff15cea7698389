/* SPDX-License-Identifier: Apache-2.0 */

/* Linked into a program, makes it one that replaces functions of the C library, as sanitizers and
 * servers do: they ask for the real ones by dlsym when these are first called, which may be by us.
 */

#include <dlfcn.h>
#include <link.h>

typedef int (*callback_fn)(struct dl_phdr_info *info, size_t size, void *data);

__attribute__((visibility("default"))) int dl_iterate_phdr(callback_fn callback, void *data)
{
    static int (*real)(callback_fn callback, void *data);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return real(callback, data);
}
