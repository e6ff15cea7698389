/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded beside the library, as a profiler is: its dlsym and dlopen go on to those that come
 * next. It finds them when they are first called, by a dlsym that it has from a dlvsym.
 */

#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *dlsym_fn(void *handle, const char *name);
typedef void *dlopen_fn(const char *path, int flags);

static dlsym_fn *next_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static dlsym_fn *next;

    for (size_t i = 0; !next && i < sizeof(versions) / sizeof(versions[0]); i++)
        next = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    return next;
}

EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    return next_dlsym()(handle, name);
}

EXPORT void *dlopen(const char *path, int flags)
{
    static dlopen_fn *next;

    if (!next)
        next = (dlopen_fn *)dlsym(RTLD_NEXT, "dlopen");
    return next(path, flags);
}
