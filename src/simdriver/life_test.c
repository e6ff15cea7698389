/* SPDX-License-Identifier: Apache-2.0 */

/* How memory is given out, who keeps a context alive, and what becomes of handles afterwards. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "driver/nvml.h"
#include "simdriver/testing.h"

#define CONTEXT_BYTES (100 * MIB)

/* The machine's count, which is what NVML and cuMemGetInfo say. */
static uint64_t used_bytes(void)
{
    uint64_t used = testing_used_bytes();
    size_t free_bytes, total;
    nvmlMemory_t memory;
    nvmlDevice_t device;
    CUcontext context;

    HOLDS(nvmlInit_v2() == NVML_SUCCESS);
    HOLDS(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
    HOLDS(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS);
    HOLDS(nvmlShutdown() == NVML_SUCCESS);
    HOLDS(memory.used == used);
    OK(cuCtxGetCurrent(&context));
    if (context && cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS)
        HOLDS(total - free_bytes == used);
    return used;
}

/* A large and some small allocations in granules of this size. */
static void in_granules(uint64_t granule)
{
    CUdeviceptr large, small[8];
    CUcontext context;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    HOLDS(used_bytes() == CONTEXT_BYTES);
    OK(cuMemAlloc_v2(&large, 3 * MIB + 1));
    HOLDS(used_bytes() - CONTEXT_BYTES == (3 * MIB + 1 + granule - 1) / granule * granule);
    OK(cuMemFree_v2(large));
    HOLDS(used_bytes() == CONTEXT_BYTES);

    /* Small ones share, the last one to go gives the granule back. */
    for (size_t i = 0; i < ARRAY_SIZE(small); i++)
        OK(cuMemAlloc_v2(&small[i], 16000));
    HOLDS(used_bytes() - CONTEXT_BYTES ==
          (ARRAY_SIZE(small) * 16384 + granule - 1) / granule * granule);
    for (size_t i = 0; i < ARRAY_SIZE(small) - 1; i++)
        OK(cuMemFree_v2(small[i]));
    HOLDS(used_bytes() - CONTEXT_BYTES == MAX(granule, UINT64_C(16384)));
    OK(cuMemFree_v2(small[ARRAY_SIZE(small) - 1]));
    HOLDS(used_bytes() == CONTEXT_BYTES);

    /* All goes with the context. */
    OK(cuMemAlloc_v2(&large, 5 * MIB + 1));
    OK(cuMemAlloc_v2(&large, 1));
    OK(cuCtxDestroy_v2(context));
    HOLDS(used_bytes() == 0);
}

/* What streams take stays with their context, for its next ones. */
static void streams(void)
{
    const uint64_t each = 557 * KIB;
    uint64_t room = 16 * GIB - 2 * CONTEXT_BYTES;
    CUcontext context, other;
    CUstream stream[3];
    CUdeviceptr rest;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    for (size_t i = 0; i < ARRAY_SIZE(stream); i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    HOLDS(used_bytes() == 2 * CONTEXT_BYTES + 3 * each);
    for (size_t i = 0; i < ARRAY_SIZE(stream); i++)
        OK(cuStreamDestroy_v2(stream[i]));
    HOLDS(used_bytes() == 2 * CONTEXT_BYTES + 3 * each);
    for (size_t i = 0; i < ARRAY_SIZE(stream) - 1; i++)
        OK(cuStreamCreateWithPriority(&stream[i], CU_STREAM_DEFAULT, -1));
    HOLDS(used_bytes() == 2 * CONTEXT_BYTES + 3 * each);

    /* Not for another's, and not beyond what the card has. */
    OK(cuCtxSetCurrent(other));
    OK(cuMemAlloc_v2(&rest, room - 4 * each + 512));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuStreamCreate(&stream[2], CU_STREAM_NON_BLOCKING));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream[2], CU_STREAM_NON_BLOCKING));
    OK(cuMemFree_v2(rest));
    OK(cuCtxDestroy_v2(context));
    HOLDS(used_bytes() == CONTEXT_BYTES);
}

HOLDS_IN(what_streams_take_stays_with_their_context, "stream=557Ki", streams)

static void granule_512(void)
{
    in_granules(512);
}

static void granule_64k(void)
{
    in_granules(64 * KIB);
}

static void granule_2m(void)
{
    in_granules(2 * MIB);
}

static void memory_is_given_out_in_granules(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", granule_512), 0);
    assert_int_equal(testing_run("granule=64Ki", granule_64k), 0);
    assert_int_equal(testing_run("granule=2Mi", granule_2m), 0);
}

static void no_room_for_a_granule(void)
{
    CUdeviceptr large, small;
    CUcontext context;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuMemAlloc_v2(&large, 16 * GIB - CONTEXT_BYTES - MIB));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&small, 512));
    OK(cuMemFree_v2(large));
    OK(cuMemAlloc_v2(&small, 512));
}

static void a_granule_has_to_fit_whole(void **state)
{
    (void)state;
    assert_int_equal(testing_run("granule=2Mi", no_room_for_a_granule), 0);
}

static void attached(void)
{
    CUcontext context, same, other;
    CUdevice device;

    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxAttach(&same, 0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuCtxAttach(&same, 1));
    OK(cuCtxAttach(&same, 0));
    HOLDS(same == context);
    OK(cuCtxDetach(context));
    HOLDS(used_bytes() == CONTEXT_BYTES);
    OK(cuCtxGetDevice(&device));

    /* Only the current one can be detached; destroying it asks nobody. */
    OK(cuCtxCreate_v2(&other, 0, 0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach(context));
    OK(cuCtxAttach(&same, 0));
    OK(cuCtxDestroy_v2(other));
    HOLDS(used_bytes() == CONTEXT_BYTES);
    OK(cuCtxDetach(context));
    HOLDS(used_bytes() == 0);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
}

static void a_context_lives_while_it_is_attached(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", attached), 0);
}

static void primary(void)
{
    CUcontext context, same;
    unsigned flags;
    CUdeviceptr ptr;
    int active;

    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&ptr, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    HOLDS(used_bytes() == CONTEXT_BYTES + MIB);
    OK(cuDevicePrimaryCtxRetain(&context, 0));

    /* All in it is gone at once, but two retains are still owed. */
    OK(cuDevicePrimaryCtxReset_v2(0));
    HOLDS(used_bytes() == 0);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    HOLDS(!active);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&ptr, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRetain(&same, 0));
    HOLDS(same == context && used_bytes() == CONTEXT_BYTES);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    HOLDS(used_bytes() == CONTEXT_BYTES);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    HOLDS(used_bytes() == 0);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
}

static void a_primary_contexts_retains_outlast_a_reset(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", primary), 0);
}

static void by_table(void)
{
    static const CUuuid id = {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9,
                               0x39, 0x12, 0xfd, 0x9d, 0xf9}};
    static const CUuuid unknown;
    CUcontext context, current;
    const void *table = NULL;
    unsigned flags;
    int active;

    GIVES(CUDA_ERROR_INVALID_VALUE, cuGetExportTable(&table, &unknown));
    OK(cuGetExportTable(&table, &id));
    HOLDS(*(const size_t *)table == 10 * sizeof(void *));
    OK(cuInit(0));
    OK((*(CUresult(*const *)(CUcontext *, CUdevice))((const char *)table + 2 * sizeof(void *)))(
        &context, 0));
    OK(cuCtxGetCurrent(&current));
    HOLDS(!current);
    HOLDS(used_bytes() == CONTEXT_BYTES);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    HOLDS(active);
    OK(cuCtxSetCurrent(context));
    OK(cuCtxSynchronize());
}

static void a_table_makes_primary_contexts(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", by_table), 0);
}

/* Handles of what is gone */

static struct testing t;
static CUgraph graph;
static CUlibrary library;

static void make_stale(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], 0));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphDestroy(graph));
    OK(cuLibraryLoadData(&library, ".version", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryUnload(library));
    OK(cuModuleUnload(t.module));
    OK(cuEventDestroy_v2(t.events[0]));
    OK(cuStreamDestroy_v2(t.streams[0]));
}

static CUresult use_stream(void)
{
    return cuStreamQuery(t.streams[0]);
}

static CUresult use_event(void)
{
    return cuEventRecord(t.events[0], t.streams[1]);
}

static CUresult use_function(void)
{
    return testing_launch(t.kernel, t.streams[1], 1, 1, 0);
}

static CUresult use_module(void)
{
    return cuModuleUnload(t.module);
}

static CUresult use_library(void)
{
    return cuLibraryUnload(library);
}

static CUresult use_graph(void)
{
    CUgraphExec exec;

    return cuGraphInstantiateWithFlags(&exec, graph, 0);
}

static CUresult use_context(void)
{
    CUcontext context;

    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxDestroy_v2(context));
    return cuCtxSetCurrent(context);
}

static const struct {
    CUresult (*use)(void);
    CUresult error;
} stale_uses[] = {
    {use_stream, CUDA_ERROR_INVALID_HANDLE},   {use_event, CUDA_ERROR_INVALID_HANDLE},
    {use_function, CUDA_ERROR_INVALID_HANDLE}, {use_module, CUDA_ERROR_INVALID_HANDLE},
    {use_library, CUDA_ERROR_INVALID_HANDLE},  {use_graph, CUDA_ERROR_INVALID_VALUE},
    {use_context, CUDA_ERROR_INVALID_CONTEXT},
};

static size_t stale_number;

static void stale_is_an_error(void)
{
    make_stale();
    for (size_t i = 0; i < ARRAY_SIZE(stale_uses); i++)
        GIVES(stale_uses[i].error, stale_uses[i].use());
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
}

static void stale_is_a_crash(void)
{
    make_stale();
    (void)signal(SIGSEGV, SIG_DFL);
    (void)stale_uses[stale_number].use();
    _exit(3);
}

static void what_was_none_is_an_error(void)
{
    CUcontext current;

    make_stale();
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(NULL));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(NULL));
    OK(cuCtxCreate_v2(&current, 0, 0));
    OK(cuCtxSetCurrent(t.context));
    OK(cuCtxPushCurrent_v2(current));
    OK(cuCtxPushCurrent_v2(t.context));
    OK(cuCtxDestroy_v2(current));
    OK(cuCtxPopCurrent_v2(NULL));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
}

static void a_stale_handle_is_an_error_or_the_end(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", stale_is_an_error), 0);
    assert_int_equal(testing_run("stale-handles=crash", what_was_none_is_an_error), 0);
    for (stale_number = 0; stale_number < ARRAY_SIZE(stale_uses); stale_number++) {
        int status = testing_run("stale-handles=crash", stale_is_a_crash);

        print_message("number %zu\n", stale_number);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGSEGV);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_streams_take_stays_with_their_context),
        cmocka_unit_test(memory_is_given_out_in_granules),
        cmocka_unit_test(a_granule_has_to_fit_whole),
        cmocka_unit_test(a_context_lives_while_it_is_attached),
        cmocka_unit_test(a_primary_contexts_retains_outlast_a_reset),
        cmocka_unit_test(a_table_makes_primary_contexts),
        cmocka_unit_test(a_stale_handle_is_an_error_or_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
