/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One measurement in one process: vgpu.py runs it bare and under libvgpu, in turns, and compares.
 * It reaches the driver by dlopen and dlsym, as programs do, and measures in batches, of which it
 * prints the fastest fifth's median: what the code costs, less what the machine was busy with.
 *
 *   micro launch            ns of a cuLaunchKernel
 *   micro pair LIVE         ns of a cuMemAlloc + cuMemFree beside LIVE allocations
 *   micro pool              ns of a cuMemAllocAsync + cuMemFreeAsync of what the pool has
 *   micro pitch             ns of a cuMemAllocPitch + cuMemFree
 *   micro managed           ns of a cuMemAllocManaged + cuMemFree
 *   micro create            ns of a cuMemCreate + cuMemRelease
 *   micro array             ns of a cuArray3DCreate + cuArrayDestroy
 *   micro oldest LIVE       ns of a cuMemFree of the oldest of LIVE allocations + a cuMemAlloc
 *   micro memory LIVE       bytes of private memory that each of LIVE allocations costs
 *   micro init              nothing but cuInit
 *   micro resize LIMITS     ms until a limit that is changed in that file is told, at most
 */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../tests/vgpu/cu.h"

#define BATCHES 400
#define BATCH 500

static cu_launch_fn *launch;
static cu_alloc_fn *alloc;
static cu_free_fn *release;
static cu_alloc_async_fn *alloc_async;
static cu_free_async_fn *release_async;
static cu_pitch_fn *alloc_pitch;
static cu_managed_fn *alloc_managed;
static cu_create_fn *create;
static cu_free_fn *release_created;
static cu_array_create_fn *create_array;
static cu_ctx_fn *destroy_array;
static cu_handle function;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void must(int code)
{
    if (code == CU_OK)
        return;
    fprintf(stderr, "micro: CUDA error %d\n", code);
    exit(1);
}

static void make_ready(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cu_handle context, module;
    int device;

    if (!driver)
        exit(1);
    must(((cu_init_fn *)dlsym(driver, "cuInit"))(0));
    must(((cu_device_get_fn *)dlsym(driver, "cuDeviceGet"))(&device, 0));
    must(((cu_retain_fn *)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, device));
    must(((cu_ctx_fn *)dlsym(driver, "cuCtxSetCurrent"))(context));
    must(((cu_module_load_fn *)dlsym(driver, "cuModuleLoadData"))(&module, "micro"));
    must(((cu_function_fn *)dlsym(driver, "cuModuleGetFunction"))(&function, module, "spin"));
    launch = (cu_launch_fn *)dlsym(driver, "cuLaunchKernel");
    alloc = (cu_alloc_fn *)dlsym(driver, "cuMemAlloc_v2");
    release = (cu_free_fn *)dlsym(driver, "cuMemFree_v2");
    alloc_async = (cu_alloc_async_fn *)dlsym(driver, "cuMemAllocAsync");
    release_async = (cu_free_async_fn *)dlsym(driver, "cuMemFreeAsync");
    alloc_pitch = (cu_pitch_fn *)dlsym(driver, "cuMemAllocPitch_v2");
    alloc_managed = (cu_managed_fn *)dlsym(driver, "cuMemAllocManaged");
    create = (cu_create_fn *)dlsym(driver, "cuMemCreate");
    release_created = (cu_free_fn *)dlsym(driver, "cuMemRelease");
    create_array = (cu_array_create_fn *)dlsym(driver, "cuArray3DCreate_v2");
    destroy_array = (cu_ctx_fn *)dlsym(driver, "cuArrayDestroy");
}

static void batch_launch(void)
{
    int64_t kernel_ns = 1000;
    void *params[] = {&kernel_ns};

    for (int i = 0; i < BATCH; i++)
        launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

static void batch_pair(void)
{
    cu_ptr ptr;

    for (int i = 0; i < BATCH; i++) {
        alloc(&ptr, 4096);
        release(ptr);
    }
}

static void batch_pool(void)
{
    cu_ptr ptr;

    for (int i = 0; i < BATCH; i++) {
        alloc_async(&ptr, 4096, NULL);
        release_async(ptr, NULL);
    }
}

static void batch_pitch(void)
{
    size_t pitch;
    cu_ptr ptr;

    for (int i = 0; i < BATCH; i++) {
        alloc_pitch(&ptr, &pitch, 500, 8, 4);
        release(ptr);
    }
}

static void batch_managed(void)
{
    cu_ptr ptr;

    for (int i = 0; i < BATCH; i++) {
        alloc_managed(&ptr, 4096, 1);
        release(ptr);
    }
}

static void batch_create(void)
{
    const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    cu_ptr handle;

    for (int i = 0; i < BATCH; i++) {
        create(&handle, 2 << 20, &prop, 0);
        release_created(handle);
    }
}

static void batch_array(void)
{
    const struct cu_array3d shape = {64, 64, 0, 0x20, 1, 0};
    cu_handle array;

    for (int i = 0; i < BATCH; i++) {
        create_array(&array, &shape);
        destroy_array(array);
    }
}

static cu_ptr *ring;
static long ring_size, ring_at;

static void batch_oldest(void)
{
    for (int i = 0; i < BATCH; i++) {
        release(ring[ring_at]);
        alloc(&ring[ring_at], 4096);
        ring_at = (ring_at + 1) % ring_size;
    }
}

static void fill_ring(long live)
{
    ring = calloc((size_t)live, sizeof(*ring));
    if (!ring)
        exit(1);
    for (ring_size = 0; ring_size < live; ring_size++)
        must(alloc(&ring[ring_size], 4096));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * With a rest after each batch, outside of what is measured: no real GPU takes launches as fast as
 * a driver that does nothing, and a share must not be used up by their number alone.
 */
static double measure(void (*batch)(void), unsigned rest_us)
{
    static double ns[BATCHES];
    int64_t begun;

    for (int i = 0; i < 20; i++) {
        batch();
        usleep(rest_us);
    }
    for (int i = 0; i < BATCHES; i++) {
        begun = now_ns();
        batch();
        ns[i] = (double)(now_ns() - begun) / BATCH;
        usleep(rest_us);
    }
    qsort(ns, BATCHES, sizeof(ns[0]), by_value);
    return ns[BATCHES / 10];
}

static long private_bytes(void)
{
    char line[256];
    long kib, sum = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Private_Clean: %ld", &kib) == 1 ||
            sscanf(line, "Private_Dirty: %ld", &kib) == 1)
            sum += kib * 1024;
    if (file)
        fclose(file);
    return sum;
}

static void take(long live)
{
    cu_ptr ptr;

    for (long i = 0; i < live; i++)
        must(alloc(&ptr, 4096));
}

/* Changes the memory's limit to so many MiB, as whoever writes such files does: whole, by rename.
 */
static void change_limit(const char *path, int mib)
{
    char line[4096], other[4096];
    FILE *from = fopen(path, "r"), *to;

    (void)snprintf(other, sizeof(other), "%s.new", path);
    to = fopen(other, "w");
    while (from && to && fgets(line, sizeof(line), from)) {
        if (strncmp(line, "CUDA_DEVICE_MEMORY_LIMIT=", 25) == 0)
            fprintf(to, "CUDA_DEVICE_MEMORY_LIMIT=%dm\n", mib);
        else
            fputs(line, to);
    }
    if (!from || !to || fclose(from) != 0 || fclose(to) != 0 || rename(other, path) != 0)
        exit(1);
}

static double slowest_change_ms(const char *path)
{
    enum { CHANGES = 40, PATIENCE_S = 5 };
    cu_info_fn *info = (cu_info_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemGetInfo_v2");
    int64_t slowest_ns = 0, begun;
    size_t room, total;

    for (int i = 0; i < CHANGES; i++) {
        const int mib = i % 2 ? 2048 : 1024;

        usleep((unsigned)(1000 + 7919 * i % 100000)); /* whatever it is at */
        begun = now_ns();
        change_limit(path, mib);
        do
            must(info(&room, &total));
        while (total != (size_t)mib << 20 && now_ns() - begun < PATIENCE_S * INT64_C(1000000000));
        if (now_ns() - begun > slowest_ns)
            slowest_ns = now_ns() - begun;
    }
    return (double)slowest_ns / 1e6;
}

static const struct pair {
    const char *word;
    void (*batch)(void);
} pairs[] = {
    {"pair", batch_pair},       {"pool", batch_pool},     {"pitch", batch_pitch},
    {"managed", batch_managed}, {"create", batch_create}, {"array", batch_array},
};

int main(int argc, char **argv)
{
    long live = argc > 2 ? atol(argv[2]) : 0, before;

    if (argc < 2)
        return 2;
    make_ready();
    if (strcmp(argv[1], "launch") == 0) {
        printf("%.3f\n", measure(batch_launch, 3000));
    } else if (strcmp(argv[1], "oldest") == 0 && live > 0) {
        fill_ring(live);
        printf("%.3f\n", measure(batch_oldest, 0));
    } else if (strcmp(argv[1], "resize") == 0 && argc > 2) {
        printf("%.3f\n", slowest_change_ms(argv[2]));
    } else if (strcmp(argv[1], "memory") == 0) {
        take(1);
        before = private_bytes();
        take(live);
        printf("%.3f\n", (double)(private_bytes() - before) / (double)live);
    } else {
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
            if (strcmp(argv[1], pairs[i].word) == 0) {
                take(live);
                printf("%.3f\n", measure(pairs[i].batch, 0));
            }
        }
    }
    return 0;
}
