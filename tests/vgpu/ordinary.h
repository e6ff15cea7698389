/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a program that is after something else gets at the driver: by dlopen() and dlsym(). It ends
 * where that fails, with 70, and where a call does, with 1. */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cu.h"

static inline void must(int code, const char *what)
{
    if (code == CU_OK)
        return;
    fprintf(stderr, "%s: %s: CUDA error %d\n", program_invocation_short_name, what, code);
    exit(1);
}

static inline void *symbol(const char *name)
{
    static void *library;
    void *found;

    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    found = library ? dlsym(library, name) : NULL;
    if (!found)
        exit(70);
    return found;
}
