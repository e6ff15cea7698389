/* SPDX-License-Identifier: Apache-2.0 */

/*
 * loading LIBRARY: one thread loads a library whose constructor asks for an address while another
 * one calls NVML for the first time, for which that is loaded, too. Says what both got.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "cu.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT sem_t loading_began;
EXPORT cu_proc_v2_fn *loading_asks;
EXPORT int loading_got = -1;

static void *load(void *path)
{
    return dlopen(path, RTLD_NOW);
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void);
    pthread_t thread;
    int status, said;

    if (argc != 2 || !driver || !nvml || sem_init(&loading_began, 0, 0) < 0)
        return 2;
    loading_asks = (cu_proc_v2_fn *)dlsym(driver, "cuGetProcAddress_v2");
    init = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    (void)loading_asks("cuMemAlloc", &found, 12000, 0, &status); /* the driver is open */
    (void)alarm(20);
    if (pthread_create(&thread, NULL, load, argv[1]) != 0)
        return 2;
    (void)sem_wait(&loading_began);
    (void)usleep(50000);
    said = init();
    (void)pthread_join(thread, NULL);
    printf("%d %d\n", said, loading_got);
    return 0;
}
