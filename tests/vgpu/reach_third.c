/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A library of the program's own that looks the driver up by itself. Twice built: as it is it opens
 * the driver (LINKED undefined), or it is linked with it and asks for what it can see.
 */

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *reach_third_find(const char *name);
EXPORT void *reach_third_next(void);

/* The lookup that comes after this library. */
void *reach_third_next(void)
{
    void *volatile found = dlsym(RTLD_NEXT, "dlsym"); /* no tail call: the caller is to be seen */

    return found;
}

#ifdef LINKED
extern int cuDriverGetVersion(int *version);
int (*reach_third_keeps)(int *) = cuDriverGetVersion;

void *reach_third_find(const char *name)
{
    void *volatile found = dlsym(RTLD_DEFAULT, name); /* nor here */

    return found;
}
#else
void *reach_third_find(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    return driver ? dlsym(driver, name) : (void *)0;
}
#endif
