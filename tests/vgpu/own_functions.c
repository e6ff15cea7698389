/* SPDX-License-Identifier: Apache-2.0 */

/* Linked into a program, makes it one that replaces functions of the C library, as sanitizers and
 * servers do: they ask for the real ones by dlsym when these are first called, which may be by us.
 */

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*callback_fn)(struct dl_phdr_info *info, size_t size, void *data);

__attribute__((visibility("default"))) int dl_iterate_phdr(callback_fn callback, void *data)
{
    static int (*real)(callback_fn callback, void *data);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return real(callback, data);
}

/* Time is the library's own affair: whatever a program makes of it, its clock is the C library's.
 */
static void refuse_library(const void *caller)
{
    Dl_info info;

    if (dladdr(caller, &info) != 0 && strstr(info.dli_fname, "libvgpu"))
        abort();
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static int (*real)(clockid_t clock, struct timespec * ret);

    refuse_library(__builtin_return_address(0));
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, ret);
}

__attribute__((visibility("default"))) int nanosleep(const struct timespec *pause,
                                                     struct timespec *ret_left)
{
    static int (*real)(const struct timespec *pause, struct timespec *ret_left);

    refuse_library(__builtin_return_address(0));
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "nanosleep");
    return real(pause, ret_left);
}
