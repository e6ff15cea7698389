/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the driver answers to calls that make little sense, and where else a driver might as well
 * answer otherwise: as an H200 does (driver 580.159).
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define ABSENT(call) GIVES(CUDA_ERROR_NOT_FOUND, call)
#define REFUSES(call) GIVES(CUDA_ERROR_NOT_SUPPORTED, call)
#define FULL(call) GIVES(CUDA_ERROR_OUT_OF_MEMORY, call)
#define NO_STATE(call) GIVES(CUDA_ERROR_ILLEGAL_STATE, call)

enum {
    UNTOUCHED = 77,
    EXTERNAL = 1,
    L2_FETCH = 5, /* CU_LIMIT_MAX_L2_FETCH_GRANULARITY */
};

/* A call that fails clears an output, or keeps it. */
#define CLEARS(output, call)                                                                       \
    do {                                                                                           \
        (output) = (__typeof__(output))UNTOUCHED;                                                  \
        call;                                                                                      \
        HOLDS(!(output));                                                                          \
    } while (0)
#define KEEPS(output, call)                                                                        \
    do {                                                                                           \
        (output) = (__typeof__(output))UNTOUCHED;                                                  \
        call;                                                                                      \
        HOLDS((output) == (__typeof__(output))UNTOUCHED);                                          \
    } while (0)

static struct testing t;

/* Without a context, as well. */
static CUcontext leave_context(void)
{
    CUcontext context;

    OK(cuCtxPopCurrent_v2(&context));
    return context;
}

static void before_the_beginning(void)
{
    CUdeviceptr ptr;
    size_t bytes;

    KEEPS(ptr, GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&ptr, 1)));
    KEEPS(bytes, GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAllocPitch_v2(&ptr, &bytes, 1, 1, 4)));
    KEEPS(ptr, GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAllocAsync(&ptr, 1, NULL)));
    KEEPS(ptr, GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemGetAddressRange_v2(&ptr, &bytes, 16)));
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuStreamWaitValue32(NULL, 0, 0, 0));
}

static void outputs_of_memory(void)
{
    CUmemPoolPtrExportData data = {0};
    CUdeviceptr_v1 low;
    CUmemoryPool pool;
    CUdeviceptr ptr;
    unsigned narrow;
    size_t pitch;

    before_the_beginning();
    testing_begin(&t);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    CLEARS(ptr, INVALID(cuMemAlloc_v2(&ptr, 0)));
    CLEARS(ptr, FULL(cuMemAlloc_v2(&ptr, 64 * GIB)));
    CLEARS(low, INVALID(cuMemAlloc(&low, 0)));
    CLEARS(ptr, INVALID(cuMemAllocManaged(&ptr, 1, 4)));
    CLEARS(ptr, FULL(cuMemAllocAsync(&ptr, 64 * GIB, NULL)));
    CLEARS(ptr, FULL(cuMemAllocAsync_ptsz(&ptr, 64 * GIB, NULL)));
    CLEARS(ptr, INVALID(cuMemAllocFromPoolAsync(&ptr, 1, NULL, NULL)));
    CLEARS(ptr, FULL(cuMemAllocFromPoolAsync_ptsz(&ptr, 64 * GIB, pool, NULL)));
    CLEARS(ptr, INVALID(cuMemPoolImportPointer(&ptr, pool, &data)));

    CLEARS(ptr, INVALID(cuMemAllocPitch_v2(&ptr, &pitch, 1, 1, 5)));
    CLEARS(pitch, INVALID(cuMemAllocPitch_v2(&ptr, &pitch, 1, 1, 5)));
    CLEARS(ptr, FULL(cuMemAllocPitch_v2(&ptr, &pitch, 513, UINT64_C(1) << 40, 16)));
    HOLDS(pitch == 1024);
    CLEARS(ptr, FULL(cuMemAllocPitch_v2(&ptr, &pitch, UINT64_C(1) << 63, 1, 8)));
    HOLDS(pitch == UINT64_C(1) << 63);
    CLEARS(low, FULL(cuMemAllocPitch(&low, &narrow, 513, UINT32_MAX, 4)));
    HOLDS(narrow == 1024);

    (void)leave_context();
    CLEARS(ptr, GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&ptr, 1)));
    CLEARS(ptr, GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&ptr, 1, NULL)));
    CLEARS(pitch, GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocPitch_v2(&ptr, &pitch, 1, 1, 4)));
}

static void memory_of_the_host(void)
{
    void *ptr;

    testing_begin(&t);
    OK(cuMemFreeHost(NULL));
    CLEARS(ptr, OK(cuMemAllocHost_v2(&ptr, 0)));
    CLEARS(ptr, OK(cuMemHostAlloc(&ptr, 0, 7)));
    CLEARS(ptr, INVALID(cuMemHostAlloc(&ptr, 1, 8)));
    OK(cuMemHostAlloc(&ptr, 1, 7));
    OK(cuMemFreeHost(ptr));
    (void)leave_context();
    CLEARS(ptr, GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocHost(&ptr, 1)));
}

static void what_memory_there_is(void)
{
    size_t free_bytes, total, one;

    testing_begin(&t);
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuMemGetInfo_v2(&one, NULL));
    HOLDS(one == free_bytes);
    OK(cuMemGetInfo_v2(NULL, &one));
    HOLDS(one == total);
}

/* As many bytes as were asked for, of each kind of memory. */
static void addresses(void)
{
    CUdeviceptr plain, managed, pooled, base;
    size_t bytes;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&plain, 1001));
    OK(cuMemAllocManaged(&managed, 1002, 1));
    OK(cuMemAllocAsync(&pooled, 1003, t.streams[0]));
    (void)leave_context();
    OK(cuMemGetAddressRange_v2(&base, &bytes, plain + 1000));
    HOLDS(base == plain && bytes == 1001);
    OK(cuMemGetAddressRange_v2(NULL, &bytes, managed));
    HOLDS(bytes == 1002);
    OK(cuMemGetAddressRange_v2(&base, &bytes, pooled + 1002));
    HOLDS(base == pooled && bytes == 1003);
    CLEARS(base, ABSENT(cuMemGetAddressRange_v2(&base, &bytes, plain + 1001)));
    CLEARS(bytes, ABSENT(cuMemGetAddressRange_v2(&base, &bytes, 16)));

    INVALID(cuMemAddressReserve(&base, 4096, 0, 0, 0));
    INVALID(cuMemAddressReserve(&base, 3 * MIB, 0, 0, 0));
    OK(cuMemAddressReserve(&base, 2 * MIB, 0, 0, 0));
}

static void access_to_nothing(void)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long flags;

    testing_begin(&t);
    CLEARS(flags, INVALID(cuMemGetAccess(&flags, &here, 16)));
    here.type = 99;
    CLEARS(flags, INVALID(cuMemGetAccess(&flags, &here, 16)));
}

static void ends_need_no_context(void)
{
    CUDA_ARRAY3D_DESCRIPTOR like = {64, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CUdeviceptr ptr;
    CUarray array;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, 1));
    OK(cuArray3DCreate_v2(&array, &like));
    (void)leave_context();
    OK(cuMemFree_v2(ptr));
    INVALID(cuMemFree_v2(ptr));
    OK(cuArrayDestroy(array));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(NULL));
}

static void functions_by_name(void)
{
    CUdriverProcAddressQueryResult told;
    static const CUuuid unknown = {{1}};
    const void *table;
    void *found, *per_thread;

    testing_begin(&t);
    CLEARS(found, OK(cuGetProcAddress_v2("cuMemAllok", &found, 13000, 0, &told)));
    HOLDS(told == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CLEARS(found, OK(cuGetProcAddress_v2("cuMemAllocAsync", &found, 4000, 0, &told)));
    HOLDS(told == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ABSENT(cuGetProcAddress_v2("cuMemAllocAsync", &found, 4000, 0, NULL));
    KEEPS(found, ABSENT(cuGetProcAddress("cuMemAllok", &found, 13000, 0)));
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &per_thread, 13000, 2, &told));
    HOLDS(told == CU_GET_PROC_ADDRESS_SUCCESS);
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &found, 13000, 3, NULL));
    HOLDS(found == per_thread);
    OK(cuGetProcAddress("cuMemAllocAsync", &found, 13000, 1));
    HOLDS(found != per_thread);
    INVALID(cuGetProcAddress("cuMemAllocAsync", &found, 13000, 4));
    OK(cuGetProcAddress("cuInit", &found, 13050, 0));
    KEEPS(found, INVALID(cuGetProcAddress("cuInit", &found, 13051, 0)));
    KEEPS(told, INVALID(cuGetProcAddress_v2("cuInit", &found, 13051, 0, &told)));
    CLEARS(table, INVALID(cuGetExportTable(&table, &unknown)));
}

static void contexts(void)
{
    CUcontext primary;
    unsigned flags;
    size_t value;
    int least, greatest;

    testing_begin(&t);
    OK(cuCtxGetFlags(&flags));
    HOLDS(flags == 8);
    INVALID(cuDevicePrimaryCtxSetFlags_v2(0, 8));
    OK(cuDevicePrimaryCtxSetFlags_v2(0, 2));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    INVALID(cuDevicePrimaryCtxSetFlags(0, 8));
    OK(cuCtxPushCurrent_v2(primary));
    OK(cuCtxGetFlags(&flags));
    HOLDS(flags == (8 | 2));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(primary));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(primary));
    INVALID(cuCtxDestroy(NULL));

    GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&value, 9));
    GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(9, 1));
    INVALID(cuCtxGetLimit(&value, 10));
    INVALID(cuCtxSetLimit(10, 1));
    OK(cuCtxGetLimit(&value, L2_FETCH));
    HOLDS(value == 64);
    INVALID(cuCtxSetLimit(L2_FETCH, 129));
    OK(cuCtxSetLimit(L2_FETCH, 128));
    OK(cuCtxGetLimit(&value, L2_FETCH));
    HOLDS(value == 128);

    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    HOLDS(least == 0 && greatest == -5);
}

static void priorities(void)
{
    static const int cases[][2] = {{0, 0}, {-3, -3}, {-5, -5}, {-6, -5}, {1, 0}, {-1000, -5}};
    CUstream stream;
    int priority;

    testing_begin(&t);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        OK(cuStreamCreateWithPriority(&stream, 0, cases[i][0]));
        OK(cuStreamGetPriority(stream, &priority));
        HOLDS(priority == cases[i][1]);
        OK(cuStreamDestroy_v2(stream));
    }
    OK(cuStreamGetPriority(t.streams[0], &priority));
    HOLDS(priority == 0);
    OK(cuStreamGetPriority_ptsz(NULL, &priority));
    HOLDS(priority == 0);
    INVALID(cuStreamGetPriority(t.streams[0], NULL));
}

static void code(void)
{
    CUfunction function;
    CUdeviceptr ptr;
    CUmodule module;
    size_t bytes;

    testing_begin(&t);
    INVALID(cuModuleLoad(&module, ""));
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent"));
    INVALID(cuModuleGetFunction(&function, t.module, ""));
    CLEARS(ptr, INVALID(cuModuleGetGlobal_v2(&ptr, &bytes, t.module, "")));
    CLEARS(ptr, ABSENT(cuModuleGetGlobal_v2(&ptr, &bytes, t.module, "none")));
    CLEARS(bytes, ABSENT(cuModuleGetGlobal_v2(&ptr, &bytes, t.module, "none")));
}

static void libraries_keep_outputs(void)
{
    CUlibrary library;
    CUdeviceptr ptr;
    size_t bytes;

    testing_begin(&t);
    OK(cuLibraryLoadData(&library, "hamisim-module 1\nsize=1\nkernel a\n", NULL, NULL, 0, NULL,
                         NULL, 0));
    KEEPS(ptr, ABSENT(cuLibraryGetManaged(&ptr, &bytes, library, "none")));
    OK(cuLibraryUnload(library));
}

static void captures(void)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    const void *edges;
    CUgraph graph;
    size_t count;

    testing_begin(&t);
    KEEPS(edges, OK(cuStreamGetCaptureInfo_v3(t.streams[0], &status, NULL, &graph, &nodes, &edges,
                                              &count)));
    KEEPS(edges, INVALID(cuStreamGetCaptureInfo_v3_ptsz(t.streams[0], NULL, NULL, &graph, &nodes,
                                                        &edges, &count)));
    CLEARS(graph, NO_STATE(cuStreamEndCapture(NULL, &graph)));
    CLEARS(graph, NO_STATE(cuStreamEndCapture(CU_STREAM_LEGACY, &graph)));
    NO_STATE(cuEventRecordWithFlags(t.events[0], t.streams[0], EXTERNAL));
    NO_STATE(cuEventRecordWithFlags_ptsz(t.events[0], NULL, EXTERNAL));
    NO_STATE(cuStreamWaitEvent(t.streams[0], t.events[0], EXTERNAL));
    INVALID(cuStreamWaitEvent(t.streams[0], t.events[0], 2));

    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamGetCaptureInfo_v3(t.streams[0], &status, NULL, &graph, &nodes, &edges, &count));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && !edges);
    OK(cuEventRecordWithFlags(t.events[0], t.streams[0], EXTERNAL));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphDestroy(graph));
    (void)leave_context();
    CLEARS(graph, GIVES(CUDA_ERROR_INVALID_CONTEXT, cuStreamEndCapture(NULL, &graph)));
}

static void old_ways_to_write_values(void)
{
    CUstreamBatchMemOpParams list[1] = {0};
    CUdeviceptr ptr;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, 8));
    REFUSES(cuStreamWaitValue32(t.streams[0], ptr, 0, 0));
    REFUSES(cuStreamWaitValue32_ptsz(t.streams[0], ptr, 0, 0));
    REFUSES(cuStreamWaitValue64(t.streams[0], ptr, 0, 0));
    REFUSES(cuStreamWriteValue32(t.streams[0], ptr, 0, 0));
    REFUSES(cuStreamWriteValue64_ptsz(t.streams[0], ptr, 0, 0));
    REFUSES(cuStreamBatchMemOp(t.streams[0], 1, list, 0));
    REFUSES(cuStreamBatchMemOp_ptsz(t.streams[0], 0, NULL, 0));
    OK(cuStreamWaitValue32_v2(t.streams[0], ptr, 0, 0));
    OK(cuStreamWriteValue64_v2_ptsz(t.streams[0], ptr, 0, 0));
}

static void pools_of_no_device(void)
{
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 7};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = nowhere};
    CUmemoryPool pool;
    uint64_t bytes;

    testing_begin(&t);
    INVALID(cuMemPoolCreate(&pool, &props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    INVALID(cuMemPoolCreate(&pool, &props));
    INVALID(cuDeviceGetMemPool(&pool, 7));
    INVALID(cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    INVALID(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    INVALID(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    INVALID(cuDeviceSetMemPool(7, pool));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDefaultMemPool(&pool, 7));
    GIVES(CUDA_ERROR_INVALID_DEVICE,
          cuDeviceGetGraphMemAttribute(7, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
}

/* That of a context which is not current. */
static void waiting_for_a_context(void)
{
    struct testing other;

    testing_begin(&t);
    testing_begin_context(&other, 1);
    OK(testing_launch(t.kernel, t.streams[0], 1, 3 * NS_PER_MS, 0));
    OK(cuCtxSynchronize_v2(other.context));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    OK(cuCtxSynchronize_v2(t.context));
    OK(cuStreamQuery(t.streams[0]));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize_v2(NULL));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize_v2(t.context));
}

static void what_is_no_handle(void)
{
    CUipcEventHandle of_event = {{1}};
    CUipcMemHandle of_memory = {{1}};
    CUdeviceptr ptr;
    CUevent event;

    testing_begin(&t);
    GIVES(CUDA_ERROR_MAP_FAILED, cuIpcOpenEventHandle(&event, of_event));
    INVALID(cuIpcOpenMemHandle_v2(&ptr, of_memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    (void)leave_context();
    INVALID(cuIpcOpenMemHandle_v2(&ptr, of_memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    INVALID(cuIpcOpenMemHandle(&ptr, of_memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static CUDA_LAUNCH_PARAMS launch_of(const struct testing *testing, CUstream stream)
{
    return (CUDA_LAUNCH_PARAMS){
        .function = testing->kernel,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .hStream = stream,
    };
}

static void launches_on_several_devices(void)
{
    CUDA_LAUNCH_PARAMS list[3];
    struct testing other;

    testing_begin(&t);
    testing_begin_context(&other, 1);
    list[0] = list[2] = launch_of(&t, t.streams[0]);
    list[1] = launch_of(&other, other.streams[0]);
    OK(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    INVALID(cuLaunchCooperativeKernelMultiDevice(list, 3, 0));
    list[1] = launch_of(&t, t.streams[1]);
    INVALID(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
    list[1].function = NULL;
    INVALID(cuLaunchCooperativeKernelMultiDevice(list, 2, 0));
}

HOLDS_IN(allocations_clear_their_outputs, "", outputs_of_memory)
HOLDS_IN(the_hosts_memory_may_be_none, "", memory_of_the_host)
HOLDS_IN(half_of_what_memory_there_is_may_be_asked, "", what_memory_there_is)
HOLDS_IN(memory_is_as_large_as_was_asked, "", addresses)
HOLDS_IN(access_to_nothing_is_none, "", access_to_nothing)
HOLDS_IN(memory_is_freed_without_a_context, "", ends_need_no_context)
HOLDS_IN(a_function_that_is_none_is_told_by_the_status, "", functions_by_name)
HOLDS_IN(contexts_have_flags_and_limits, "", contexts)
HOLDS_IN(streams_have_priorities, "", priorities)
HOLDS_IN(no_name_is_invalid, "", code)
HOLDS_IN(libraries_keep_their_outputs, "", libraries_keep_outputs)
HOLDS_IN(without_a_capture_there_is_nothing_to_tell, "", captures)
HOLDS_IN(values_are_written_the_new_way, "", old_ways_to_write_values)
HOLDS_IN(a_device_that_is_not_there_has_no_pool, "", pools_of_no_device)

static void any_context_can_be_waited_for(void **state)
{
    (void)state;
    assert_int_equal(testing_run_unstopped("", waiting_for_a_context), 0);
}

HOLDS_IN(bytes_that_are_no_handle_are_found_out, "", what_is_no_handle)
HOLDS_IN(a_device_is_launched_on_once, "", launches_on_several_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_clear_their_outputs),
        cmocka_unit_test(the_hosts_memory_may_be_none),
        cmocka_unit_test(half_of_what_memory_there_is_may_be_asked),
        cmocka_unit_test(memory_is_as_large_as_was_asked),
        cmocka_unit_test(access_to_nothing_is_none),
        cmocka_unit_test(memory_is_freed_without_a_context),
        cmocka_unit_test(a_function_that_is_none_is_told_by_the_status),
        cmocka_unit_test(contexts_have_flags_and_limits),
        cmocka_unit_test(streams_have_priorities),
        cmocka_unit_test(no_name_is_invalid),
        cmocka_unit_test(libraries_keep_their_outputs),
        cmocka_unit_test(without_a_capture_there_is_nothing_to_tell),
        cmocka_unit_test(values_are_written_the_new_way),
        cmocka_unit_test(a_device_that_is_not_there_has_no_pool),
        cmocka_unit_test(any_context_can_be_waited_for),
        cmocka_unit_test(bytes_that_are_no_handle_are_found_out),
        cmocka_unit_test(a_device_is_launched_on_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
