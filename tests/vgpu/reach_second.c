/* SPDX-License-Identifier: Apache-2.0 */

/* A second library of the program's, later in the search order, that asks for what comes after it.
 */

#include <dlfcn.h>

__attribute__((visibility("default"))) void *reach_second_next(const char *name);

void *reach_second_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
