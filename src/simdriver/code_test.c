/* SPDX-License-Identifier: Apache-2.0 */

/* What a context takes without being asked: by being made, for code, and for its heaps. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/testing.h"

enum {
    STACK = 0,
    FIFO = 1,
    HEAP = 2,
};

#define CONTEXT_BYTES (100 * MIB)
#define THREADS (100 * 2048) /* that the machine can run at once */
#define RACES 300

static const char image[] =
    "hamisim-module 1\nsize=40960\nkernel a\nkernel b\nkernel c\nkernel d\n";

static CUresult launch(CUfunction function)
{
    return testing_launch(function, NULL, 1, 1000, 0);
}

static void begin(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
}

static CUfunction find(CUmodule module, const char *name)
{
    CUfunction function;

    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static void lazily(void)
{
    CUmodule module;
    int mode, loaded;

    begin();
    OK(cuModuleGetLoadingMode(&mode));
    HOLDS(mode == 2);
    OK(cuModuleLoadData(&module, image));
    OK(cuFuncIsLoaded(&loaded, find(module, "a")));
    HOLDS(!loaded && testing_used_bytes() == CONTEXT_BYTES);
    OK(launch(find(module, "a")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 10240);
    OK(cuFuncIsLoaded(&loaded, find(module, "a")));
    HOLDS(loaded);
    OK(launch(find(module, "a")));
    OK(cuFuncLoad(find(module, "b")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 20480);
    OK(cuModuleUnload(module));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
}

/* Of an image whose kernels are not counted all is loaded with the first. */
static void foreign_lazily(void)
{
    CUfunction first, second;
    CUmodule module;

    begin();
    OK(cuModuleLoadData(&module, ".version 8.0"));
    first = find(module, "x");
    second = find(module, "y");
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    OK(launch(second));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + MIB);
    OK(launch(first));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + MIB);
    OK(cuModuleUnload(module));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
}

static void eagerly(void)
{
    CUmodule module;
    int mode;

    begin();
    OK(cuModuleGetLoadingMode(&mode));
    HOLDS(mode == 1);
    OK(cuModuleLoadData(&module, image));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 40960);
    OK(launch(find(module, "a")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 40960);
    OK(cuModuleUnload(module));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY,
          cuModuleLoadData(&module, "hamisim-module 1\nsize=99999999999\n"));
}

static void eagerly_by_the_environment(void)
{
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    eagerly();
}

static void lazily_by_the_environment(void)
{
    (void)setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    lazily();
}

static void code_is_loaded_at_the_first_launch_or_before(void **state)
{
    (void)state;
    (void)unsetenv("CUDA_MODULE_LOADING");
    assert_int_equal(testing_run("loading=lazy", lazily), 0);
    assert_int_equal(testing_run("loading=lazy", foreign_lazily), 0);
    assert_int_equal(testing_run("loading=eager", eagerly), 0);
    assert_int_equal(testing_run("loading=lazy", eagerly_by_the_environment), 0);
    assert_int_equal(testing_run("loading=eager", lazily_by_the_environment), 0);
}

static void load_library(CUlibrary *ret_library, CUkernel *ret_kernel)
{
    OK(cuLibraryLoadData(ret_library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(ret_kernel, *ret_library, "a"));
}

static void library_lazily(void)
{
    CUcontext second;
    CUlibrary library;
    CUkernel kernel;

    begin();
    load_library(&library, &kernel);
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    OK(launch((CUfunction)kernel)); /* a kernel can be launched as it is */
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 10240);
    OK(cuCtxCreate_v2(&second, 0, 0));
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES + 10240);
    OK(launch((CUfunction)kernel));
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES + 20480);
    OK(cuLibraryUnload(library));
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES);
}

static void library_eagerly(void)
{
    CUcontext second;
    CUlibrary library;
    CUkernel kernel;

    begin();
    OK(cuCtxCreate_v2(&second, 0, 0));
    load_library(&library, &kernel);
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES + 2 * 40960);
    OK(launch((CUfunction)kernel));
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES + 2 * 40960);
    OK(cuCtxCreate_v2(&second, 0, 0));
    HOLDS(testing_used_bytes() == 3 * CONTEXT_BYTES + 3 * 40960);
    OK(cuLibraryUnload(library));
    HOLDS(testing_used_bytes() == 3 * CONTEXT_BYTES);
}

static void library_without_room(void)
{
    CUcontext second;
    CUlibrary library;
    CUdeviceptr ptr;
    CUkernel kernel;

    begin();
    load_library(&library, &kernel);
    OK(cuMemAlloc_v2(&ptr, 16 * GIB - 2 * CONTEXT_BYTES - 2 * 40960 + 512));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&second, 0, 0));
    HOLDS(testing_used_bytes() == 16 * GIB - CONTEXT_BYTES - 40960 + 512);
    OK(cuMemFree_v2(ptr));
    OK(cuMemAlloc_v2(&ptr, 16 * GIB - CONTEXT_BYTES - 2 * 40960 + 512));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY,
          cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    HOLDS(testing_used_bytes() == 16 * GIB - 40960 + 512);
}

static void a_library_is_loaded_in_every_context_that_needs_it(void **state)
{
    (void)state;
    assert_int_equal(testing_run("loading=lazy", library_lazily), 0);
    assert_int_equal(testing_run("loading=eager", library_eagerly), 0);
    assert_int_equal(testing_run("loading=eager", library_without_room), 0);
}

/* A call that is on its way in another thread, while this one moves the clock. */
struct call {
    pthread_t thread;
    CUcontext context;
    CUfunction function;
    CUresult (*make)(struct call *call);
    CUresult result;
    int returned;
};

static void *call_main(void *data)
{
    struct call *call = data;

    OK(cuCtxSetCurrent(call->context));
    call->result = call->make(call);
    __atomic_store_n(&call->returned, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void call_begin(struct call *call)
{
    OK(cuCtxGetCurrent(&call->context));
    HOLDS(pthread_create(&call->thread, NULL, call_main, call) == 0);
}

static bool returns_within(const struct call *call, unsigned ms)
{
    for (; ms && !__atomic_load_n(&call->returned, __ATOMIC_ACQUIRE); ms--)
        (void)usleep(1000);
    return __atomic_load_n(&call->returned, __ATOMIC_ACQUIRE);
}

static CUresult call_end(struct call *call)
{
    HOLDS(returns_within(call, 5000));
    HOLDS(pthread_join(call->thread, NULL) == 0);
    return call->result;
}

static CUresult make_launch(struct call *call)
{
    return launch(call->function);
}

/* A kernel waits for another one, whose code is loaded only once the first has ended. */
static void load_deadlock(void)
{
    static const char text[] = "hamisim-module 1\nsize=8192\nkernel w waits\nkernel p posts\n";
    struct call call = {.make = make_launch};
    struct testing t;
    CUmodule module;

    testing_begin(&t);
    OK(cuModuleLoadData(&module, text));
    OK(testing_launch(find(module, "w"), t.streams[0], 1, 1000, 0));
    call.function = find(module, "p");
    call_begin(&call);
    testing_step(NS_PER_S);
    HOLDS(!returns_within(&call, 300));
    _exit(0);
}

static void load_while_another_runs(void)
{
    struct testing t;
    CUmodule module;

    testing_begin(&t);
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_S, 0));
    OK(cuModuleLoadData(&module, image));
    OK(testing_launch(find(module, "a"), t.streams[1], 1, 1000, 0));
}

static void loading_may_wait_for_the_context(void **state)
{
    (void)state;
    assert_int_equal(testing_run("loading=lazy load-waits=yes", load_deadlock), 0);
    assert_int_equal(testing_run("loading=lazy", load_while_another_runs), 0);
}

/* Heaps */

static void set_limits(bool keeps)
{
    size_t value;

    begin();
    OK(cuCtxSetLimit(HEAP, 108 * MIB));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 100 * MIB);
    OK(cuCtxSetLimit(FIFO, 11 * MIB));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 110 * MIB);
    OK(cuCtxSetLimit(STACK, 2048));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + 110 * MIB + THREADS * 1024);
    OK(cuCtxGetLimit(&value, STACK));
    HOLDS(value == 2048);

    OK(cuCtxSetLimit(HEAP, 8 * MIB));
    OK(cuCtxGetLimit(&value, HEAP));
    HOLDS(value == 8 * MIB);
    OK(cuCtxSetLimit(FIFO, MIB));
    OK(cuCtxSetLimit(STACK, 1024));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + (keeps ? 110 * MIB : 0));
    OK(cuCtxSetLimit(HEAP, 58 * MIB));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + (keeps ? 110 * MIB : 50 * MIB));

    /* What can't be had changes nothing. */
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(STACK, 1 << 20));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit(HEAP, SIZE_MAX));
    GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(9, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, -1));
    OK(cuCtxGetLimit(&value, STACK));
    HOLDS(value == 1024);
}

static void limits_keep(void)
{
    set_limits(true);
}

static void limits_shrink(void)
{
    set_limits(false);
}

static void heaps_grow_with_limits_and_stay_grown(void **state)
{
    (void)state;
    assert_int_equal(testing_run("heaps=keep", limits_keep), 0);
    assert_int_equal(testing_run("heaps=shrink", limits_shrink), 0);
}

static void stack_for_a_kernel(void)
{
    CUcontext context;
    CUmodule module;
    size_t value;

    begin();
    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=0\nkernel deep local=5120\n"
                                 "kernel deeper local=99999999\nkernel flat local=512\n"));
    OK(launch(find(module, "flat")));
    OK(cuFuncLoad(find(module, "deep")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    OK(launch(find(module, "deep")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 4096);
    OK(cuCtxGetLimit(&value, STACK));
    HOLDS(value == 5120);
    OK(launch(find(module, "flat")));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, launch(find(module, "deeper")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 4096);

    /* A limit is what the context has from then on, until the next launch. */
    testing_step(NS_PER_MS);
    OK(cuCtxSetLimit(STACK, 3072));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 2048);
    OK(launch(find(module, "flat")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 2048);
    OK(launch(find(module, "deep")));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 4096);
    OK(cuModuleUnload(module));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 4096);
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxDestroy_v2(context));
    HOLDS(testing_used_bytes() == 0);
}

static void the_stack_grows_by_what_a_kernel_needs(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", stack_for_a_kernel), 0);
}

static void stack_for_a_graph(void)
{
    CUgraphExec exec;
    CUstream stream;
    CUmodule module;
    CUgraph graph;
    size_t value;

    begin();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=0\nkernel deep local=5000\n"));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(testing_launch(find(module, "deep"), stream, 1, 1000, 0));
    OK(cuStreamEndCapture(stream, &graph));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES + THREADS * 3984);
    OK(cuCtxGetLimit(&value, STACK));
    HOLDS(value == 5008);
    OK(cuCtxSetLimit(STACK, 1024));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    OK(cuGraphLaunch(exec, stream));
    OK(cuCtxGetLimit(&value, STACK));
    HOLDS(value == 5008);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void the_stack_grows_as_a_graph_becomes_executable(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", stack_for_a_graph), 0);
}

/* Contexts with a kernel come and go, while other threads launch it. */
struct racer {
    pthread_t thread;
    CUcontext context;
    CUfunction function;
    CUkernel kernel;
    int ends;
    unsigned strange;
};

static bool is_answer_of_a_race(CUresult r)
{
    return r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_HANDLE || r == CUDA_ERROR_INVALID_CONTEXT ||
           r == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void *race_launches(void *data)
{
    struct racer *racer = data;

    while (!__atomic_load_n(&racer->ends, __ATOMIC_ACQUIRE)) {
        CUfunction function = __atomic_load_n(&racer->function, __ATOMIC_ACQUIRE);
        CUmodule module;
        int value;

        (void)cuCtxSetCurrent(__atomic_load_n(&racer->context, __ATOMIC_ACQUIRE));
        racer->strange += !is_answer_of_a_race(launch(function));
        racer->strange += !is_answer_of_a_race(launch((CUfunction)racer->kernel));
        racer->strange += !is_answer_of_a_race(cuFuncGetModule(&module, function));
        racer->strange += !is_answer_of_a_race(cuFuncGetAttribute(&value, 3, function));
        if (cuModuleLoadData(&module, image) == CUDA_SUCCESS)
            (void)cuModuleUnload(module);
    }
    return NULL;
}

static void launches_race(void)
{
    static const char deep[] = "hamisim-module 1\nsize=40960\nkernel deep local=5120\n";
    struct racer racers[3] = {0};
    CUlibrary library;
    CUmodule module;

    begin();
    OK(cuLibraryLoadData(&library, deep, NULL, NULL, 0, NULL, NULL, 0));
    for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
        OK(cuLibraryGetKernel(&racers[i].kernel, library, "deep"));
        HOLDS(pthread_create(&racers[i].thread, NULL, race_launches, &racers[i]) == 0);
    }
    for (unsigned i = 0; i < RACES; i++) {
        CUcontext context;

        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuModuleLoadData(&module, deep));
        for (size_t j = 0; j < ARRAY_SIZE(racers); j++) {
            __atomic_store_n(&racers[j].context, context, __ATOMIC_RELEASE);
            __atomic_store_n(&racers[j].function, find(module, "deep"), __ATOMIC_RELEASE);
        }
        (void)usleep(i % 4 * 50);
        OK(cuCtxDestroy_v2(context));
    }
    for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
        __atomic_store_n(&racers[i].ends, 1, __ATOMIC_RELEASE);
        HOLDS(pthread_join(racers[i].thread, NULL) == 0);
        HOLDS(!racers[i].strange);
    }
    OK(cuLibraryUnload(library));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
}

static void a_launch_of_what_another_thread_ends_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(testing_run("loading=lazy", launches_race), 0);
    assert_int_equal(testing_run("loading=eager", launches_race), 0);
}

static void attributes(void)
{
    static const char deep[] = "hamisim-module 1\nsize=0\nkernel deep local=5120\n";
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    CUmodule module;
    int value;

    begin();
    OK(cuModuleLoadData(&module, deep));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, find(module, "deep")));
    HOLDS(value == 5120);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    HOLDS(value == 100);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
    HOLDS(value * 100 == THREADS);

    OK(cuLibraryLoadData(&library, deep, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "deep"));
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel, 0));
    HOLDS(value == 5120);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function));
    HOLDS(value == 5120);
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);

    /* Each answers for its own kind of handle. */
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&value, 3, (CUfunction)kernel));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuKernelGetAttribute(&value, 3, (CUkernel)function, 0));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuKernelGetAttribute(&value, 3, kernel, 9));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuKernelGetAttribute(NULL, 3, kernel, 0));
}

static void what_a_kernel_needs_of_the_stack_is_told(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", attributes), 0);
}

static CUresult make_limit(struct call *call)
{
    (void)call;
    return cuCtxSetLimit(STACK, 2048);
}

static void limit_waits(void)
{
    struct call call = {.make = make_limit};
    struct testing t;

    testing_begin(&t);
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_MS, 0));
    call_begin(&call);
    HOLDS(!returns_within(&call, 200));
    testing_step(NS_PER_MS);
    OK(call_end(&call));
}

static void the_stack_changes_once_earlier_work_is_done(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", limit_waits), 0);
}

/* Making a context, while a neighbour allocates and frees */

static CUresult make_context(struct call *call)
{
    (void)call;
    return cuCtxCreate_v2(&call->context, 0, 0);
}

/* Steps through the 100 ms in quarters, at each of which memory is taken. */
static void make_slowly(struct call *call, void (*meanwhile)(unsigned quarter))
{
    call_begin(call);
    for (unsigned i = 0; i < 4; i++) {
        (void)usleep(150000);
        HOLDS(!__atomic_load_n(&call->returned, __ATOMIC_ACQUIRE));
        if (meanwhile)
            meanwhile(i);
        testing_step(25 * NS_PER_MS);
    }
    OK(call_end(call));
}

/* The neighbour's calls go on, and what is in use grows bit by bit beside them. */
static void allocate_and_free(unsigned quarter)
{
    CUdeviceptr ptr;

    OK(cuMemAlloc_v2(&ptr, GIB));
    HOLDS(testing_used_bytes() == GIB + CONTEXT_BYTES + (quarter + 1) * CONTEXT_BYTES / 4);
    OK(cuMemFree_v2(ptr));
}

static void slow_context(void)
{
    struct call first = {.make = make_context}, second = {.make = make_context};

    OK(cuInit(0));
    make_slowly(&first, NULL);
    OK(cuCtxSetCurrent(first.context));
    HOLDS(testing_used_bytes() == CONTEXT_BYTES);
    make_slowly(&second, allocate_and_free);
    HOLDS(testing_used_bytes() == 2 * CONTEXT_BYTES);
}

static void a_context_can_take_its_time(void **state)
{
    (void)state;
    assert_int_equal(testing_run("context-time=100ms", slow_context), 0);
}

static void no_room_half_way(void)
{
    struct call first = {.make = make_context}, second = {.make = make_context};
    CUdeviceptr ptr;

    OK(cuInit(0));
    make_slowly(&first, NULL);
    OK(cuCtxSetCurrent(first.context));
    OK(cuMemAlloc_v2(&ptr, 16 * GIB - CONTEXT_BYTES - 60 * MIB));
    call_begin(&second);
    for (unsigned i = 0; i < 40 && !returns_within(&second, 50); i++)
        testing_step(25 * NS_PER_MS);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, call_end(&second));
    HOLDS(testing_used_bytes() == 16 * GIB - 60 * MIB);
}

static void a_context_that_finds_no_room_half_way_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(testing_run("context-time=100ms", no_room_half_way), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_is_loaded_at_the_first_launch_or_before),
        cmocka_unit_test(a_library_is_loaded_in_every_context_that_needs_it),
        cmocka_unit_test(loading_may_wait_for_the_context),
        cmocka_unit_test(heaps_grow_with_limits_and_stay_grown),
        cmocka_unit_test(the_stack_grows_by_what_a_kernel_needs),
        cmocka_unit_test(the_stack_grows_as_a_graph_becomes_executable),
        cmocka_unit_test(a_launch_of_what_another_thread_ends_is_an_error_and_leaves_nothing),
        cmocka_unit_test(what_a_kernel_needs_of_the_stack_is_told),
        cmocka_unit_test(the_stack_changes_once_earlier_work_is_done),
        cmocka_unit_test(a_context_can_take_its_time),
        cmocka_unit_test(a_context_that_finds_no_room_half_way_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
