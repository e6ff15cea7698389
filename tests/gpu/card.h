/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The driver as the tests on a real GPU use it: known by its exports alone, so that they need
 * neither NVIDIA's headers nor its compiler. Whatever fails ends the program, with a line that says
 * what.
 */

#include <stddef.h>
#include <stdint.h>

typedef void *handle;
typedef unsigned long long address;

enum {
    OK = 0,
    OUT_OF_MEMORY = 2,
    MULTIPROCESSORS = 16, /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    NON_BLOCKING = 1,
    HIGHEST_PRIORITY = -5,
    DEVICE = 1,   /* CU_MEM_LOCATION_TYPE_DEVICE */
    PINNED = 1,   /* CU_MEM_ALLOCATION_TYPE_PINNED */
    GLOBAL = 1,   /* CU_MEM_ATTACH_GLOBAL */
    FLOAT = 0x20, /* CU_AD_FORMAT_FLOAT */
};

struct location {
    int type, id;
};

struct allocation_prop {
    int type, handle_types;
    struct location location;
    void *metadata;
    unsigned char flags[8];
};

struct pool_props {
    int type, handle_types;
    struct location location;
    void *security;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};

struct array_shape {
    size_t width, height;
    int format;
    unsigned channels;
};

#define FUNCTIONS(X)                                                                               \
    X(cuInit, (unsigned))                                                                          \
    X(cuDeviceGetAttribute, (int *, int, int))                                                     \
    X(cuDevicePrimaryCtxRetain, (handle *, int))                                                   \
    X(cuCtxSetCurrent, (handle))                                                                   \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, (address *, size_t))                                                          \
    X(cuMemAllocPitch_v2, (address *, size_t *, size_t, size_t, unsigned))                         \
    X(cuMemAllocManaged, (address *, size_t, unsigned))                                            \
    X(cuMemFree_v2, (address))                                                                     \
    X(cuMemHostAlloc, (void **, size_t, unsigned))                                                 \
    X(cuMemFreeHost, (void *))                                                                     \
    X(cuMemCreate, (address *, size_t, const struct allocation_prop *, unsigned long long))        \
    X(cuMemRelease, (address))                                                                     \
    X(cuMemAllocAsync, (address *, size_t, handle))                                                \
    X(cuMemAllocFromPoolAsync, (address *, size_t, handle, handle))                                \
    X(cuMemFreeAsync, (address, handle))                                                           \
    X(cuMemPoolCreate, (handle *, const struct pool_props *))                                      \
    X(cuMemPoolTrimTo, (handle, size_t))                                                           \
    X(cuMemPoolSetAttribute, (handle, int, void *))                                                \
    X(cuDeviceGetDefaultMemPool, (handle *, int))                                                  \
    X(cuArrayCreate_v2, (handle *, const struct array_shape *))                                    \
    X(cuArrayDestroy, (handle))                                                                    \
    X(cuModuleLoadData, (handle *, const void *))                                                  \
    X(cuModuleGetFunction, (handle *, handle, const char *))                                       \
    X(cuStreamCreate, (handle *, unsigned))                                                        \
    X(cuStreamCreateWithPriority, (handle *, unsigned, int))                                       \
    X(cuStreamSynchronize, (handle))                                                               \
    X(cuEventCreate, (handle *, unsigned))                                                         \
    X(cuEventRecord, (handle, handle))                                                             \
    X(cuEventQuery, (handle))                                                                      \
    X(cuEventSynchronize, (handle))                                                                \
    X(cuEventElapsedTime, (float *, handle, handle))                                               \
    X(cuStreamBeginCapture_v2, (handle, int))                                                      \
    X(cuStreamEndCapture, (handle, handle *))                                                      \
    X(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long))                         \
    X(cuGraphLaunch, (handle, handle))                                                             \
    X(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                       unsigned, handle, void **, void **))

#define DECLARE(name, arguments) extern int(*name) arguments;
FUNCTIONS(DECLARE)
#undef DECLARE

extern int multiprocessors;
extern handle context,
    stream; /* the primary context, current in the first thread, and a stream of it */
extern handle work_function, nothing_function, witness_function, stamp_function;

void must(int result, const char *what);

/* CLOCK_MONOTONIC */
double now_ns(void);

void open_driver(void);

/* The kernels:
 * work(n, out): n times ten dependent multiplications, so that it takes as long as n is;
 * nothing(): none;
 * witness(ns, gaps, most): looks at the GPU's timer so long, and notes each time that was more than
 * 20 us: their number in gaps[0], then from when until when each was, at most so many; stamp(out):
 * the GPU's timer. */
void load_kernels(void);

/* Keeps every multiprocessor busy. Another one may run beside it, and what they get together is
 * some more than one gets (H200: a tenth). */
void launch_work(uint32_t iterations, handle into);

/* Leaves no room for another one: together they get what one gets. */
void launch_full(uint32_t iterations, handle into);

void launch(handle function, unsigned blocks, unsigned threads, handle into, void **parameters);

handle new_stream(void);

/* Without times. */
handle new_event(void);

/* random.c and slices.c: what work.c says of them */

int run_random(unsigned seed, double scale, double seconds, int saturates);
int run_threads(uint32_t iterations, double seconds, unsigned count);
int run_slices(uint32_t fill, double seconds, unsigned ahead);
