/* SPDX-License-Identifier: Apache-2.0 */

/* Linked into a program as a library of its own, begins with CUDA as it is loaded. */

#include <dlfcn.h>
#include <stdlib.h>

#include "cu.h"

static void __attribute__((constructor)) begin(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cu_init_fn *init;

    if (!driver)
        return;
    *(void **)&init = dlsym(driver, "cuInit");
    if (!init || init(0) != CU_OK)
        abort();
}
