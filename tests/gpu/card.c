/* SPDX-License-Identifier: Apache-2.0 */

#include "card.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEFINE(name, arguments) int(*name) arguments;
FUNCTIONS(DEFINE)
#undef DEFINE

static const char image[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry work(.param .u32 n, .param .u64 out) {\n"
    "    .reg .u32 %left;\n"
    "    .reg .u64 %out;\n"
    "    .reg .f32 %x;\n"
    "    .reg .pred %more, %odd;\n"
    "    ld.param.u32 %left, [n];\n"
    "    ld.param.u64 %out, [out];\n"
    "    mov.f32 %x, 0f3F800001;\n"
    "again:\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    fma.rn.f32 %x, %x, %x, %x;\n"
    "    sub.u32 %left, %left, 1;\n"
    "    setp.gt.u32 %more, %left, 0;\n"
    "    @%more bra again;\n"
    "    setp.eq.f32 %odd, %x, 0f00000000;\n"
    "    @%odd st.global.f32 [%out], %x;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry nothing() {\n"
    "    ret;\n"
    "}\n"
    ".visible .entry witness(.param .u64 ns, .param .u64 gaps, .param .u32 most) {\n"
    "    .reg .u64 %ns, %gaps, %begun, %last, %now, %apart, %at;\n"
    "    .reg .u32 %count, %most;\n"
    "    .reg .pred %p;\n"
    "    ld.param.u64 %ns, [ns];\n"
    "    ld.param.u64 %gaps, [gaps];\n"
    "    ld.param.u32 %most, [most];\n"
    "    mov.u64 %begun, %globaltimer;\n"
    "    mov.u64 %last, %begun;\n"
    "again:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %apart, %now, %last;\n"
    "    setp.lt.u64 %p, %apart, 20000;\n"
    "    @%p bra next;\n"
    "    ld.volatile.global.u32 %count, [%gaps];\n"
    "    setp.ge.u32 %p, %count, %most;\n"
    "    @%p bra next;\n"
    "    mul.wide.u32 %at, %count, 16;\n"
    "    add.u64 %at, %at, %gaps;\n"
    "    st.volatile.global.u64 [%at+8], %last;\n"
    "    st.volatile.global.u64 [%at+16], %now;\n"
    "    add.u32 %count, %count, 1;\n"
    "    st.volatile.global.u32 [%gaps], %count;\n"
    "next:\n"
    "    mov.u64 %last, %now;\n"
    "    sub.u64 %apart, %now, %begun;\n"
    "    setp.lt.u64 %p, %apart, %ns;\n"
    "    @%p bra again;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry stamp(.param .u64 out) {\n"
    "    .reg .u64 %out, %now;\n"
    "    ld.param.u64 %out, [out];\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    st.volatile.global.u64 [%out], %now;\n"
    "    ret;\n"
    "}\n";

int multiprocessors;
handle context, stream;
handle work_function, nothing_function, witness_function, stamp_function;

void must(int result, const char *what)
{
    if (result == OK)
        return;
    printf("failed: %s gives %d\n", what, result);
    exit(1);
}

void open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!driver) {
        printf("failed: %s\n", dlerror());
        exit(1);
    }
#define FIND(name, arguments)                                                                      \
    if (!(name = (int(*) arguments)dlsym(driver, #name))) {                                        \
        printf("failed: no %s\n", #name);                                                          \
        exit(1);                                                                                   \
    }
    FUNCTIONS(FIND)
#undef FIND
    must(cuInit(0), "cuInit");
    must(cuDeviceGetAttribute(&multiprocessors, MULTIPROCESSORS, 0), "cuDeviceGetAttribute");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
}

void load_kernels(void)
{
    handle module;

    must(cuModuleLoadData(&module, image), "cuModuleLoadData");
    must(cuModuleGetFunction(&work_function, module, "work"), "cuModuleGetFunction");
    must(cuModuleGetFunction(&nothing_function, module, "nothing"), "cuModuleGetFunction");
    must(cuModuleGetFunction(&witness_function, module, "witness"), "cuModuleGetFunction");
    must(cuModuleGetFunction(&stamp_function, module, "stamp"), "cuModuleGetFunction");
}

double now_ns(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

void launch(handle function, unsigned blocks, unsigned threads, handle into, void **parameters)
{
    must(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, into, parameters, NULL),
         "cuLaunchKernel");
}

static void launch_blocks(unsigned each, uint32_t iterations, handle into)
{
    /* The simulated driver takes the first eight bytes for nanoseconds. */
    uint64_t wide = iterations, out = 0;
    void *parameters[] = {&wide, &out};

    launch(work_function, each * (unsigned)multiprocessors, 256, into, parameters);
}

void launch_work(uint32_t iterations, handle into)
{
    launch_blocks(2, iterations, into);
}

void launch_full(uint32_t iterations, handle into)
{
    enum { THREADS = 2048 }; /* of a multiprocessor, at most */

    launch_blocks(THREADS / 256, iterations, into);
}

handle new_stream(void)
{
    handle made;

    must(cuStreamCreate(&made, NON_BLOCKING), "cuStreamCreate");
    return made;
}

handle new_event(void)
{
    enum { DISABLE_TIMING = 2 };
    handle made;

    must(cuEventCreate(&made, DISABLE_TIMING), "cuEventCreate");
    return made;
}
