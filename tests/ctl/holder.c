/* SPDX-License-Identifier: Apache-2.0 */

/* holder BYTES SECONDS: holds so much device memory on card 0 for so long. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver/cuda.h"

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        __typeof__(&name) call_ = (__typeof__(&name))dlsym(library, #name);                        \
        CUresult result_ = call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;                      \
                                                                                                   \
        if (result_ != CUDA_SUCCESS) {                                                             \
            (void)fprintf(stderr, "%s: error %d\n", #name, (int)result_);                          \
            return 3;                                                                              \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 0;
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr memory;
    CUcontext context;
    CUdevice device;

    if (!library) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuCtxCreate_v2, &context, 0, device);
    CALL(cuMemAlloc_v2, &memory, argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    (void)nanosleep(&time, NULL);
    return 0;
}
