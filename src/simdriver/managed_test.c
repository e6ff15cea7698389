/* SPDX-License-Identifier: Apache-2.0 */

/* Managed memory: where its pages are, who makes them go, and what is told of them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define PIECE (2 * MIB)
#define INVISIBLE 5 /* CU_MEM_LOCATION_TYPE_INVISIBLE */
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define REFUSES(call) GIVES(CUDA_ERROR_NOT_SUPPORTED, call)

static const struct sim_view *view(void)
{
    static struct sim_view view;

    HOLDS(sim_machine_view(testing_machine(), &view, NULL) == 0);
    return &view;
}

static uint64_t on_device(unsigned gpu)
{
    return view()->processes[0].managed_bytes[gpu];
}

static CUdeviceptr make(uint64_t bytes)
{
    CUdeviceptr ptr;

    OK(cuMemAllocManaged(&ptr, bytes, CU_MEM_ATTACH_GLOBAL));
    return ptr;
}

static int attribute(CUmem_range_attribute attribute, CUdeviceptr ptr, uint64_t bytes)
{
    int value;

    OK(cuMemRangeGetAttribute(&value, sizeof(value), attribute, ptr, bytes));
    return value;
}

static void pages_come_and_go(void)
{
    uint64_t before, process;
    CUdeviceptr ptr, base;
    struct testing t;
    size_t bytes;
    int value;

    testing_begin(&t);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    HOLDS(value == 1);
    before = testing_used_bytes();
    process = view()->processes[0].used_bytes[0];
    INVALID(cuMemAllocManaged(NULL, PIECE, 1));
    INVALID(cuMemAllocManaged(&ptr, 0, 1));
    INVALID(cuMemAllocManaged(&ptr, PIECE, 3));
    INVALID(cuMemAllocManaged(&ptr, PIECE, CU_MEM_ATTACH_SINGLE));

    /* More than the card has is usual. */
    ptr = make(64 * GIB);
    HOLDS(testing_used_bytes() == before);
    HOLDS(view()->processes[0].claimed_bytes[0] == 64 * GIB);
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 5));
    HOLDS(base == ptr && bytes == 64 * GIB);

    /* Touched by a part, a piece is there as a whole; NVML says so of no process. */
    OK(cuMemPrefetchAsync(ptr + PIECE - 1, 2, 0, t.streams[0]));
    HOLDS(testing_used_bytes() == before + 2 * PIECE && on_device(0) == 2 * PIECE);
    HOLDS(view()->processes[0].used_bytes[0] == process);
    OK(cuMemPrefetchAsync(ptr, PIECE, 1, t.streams[0]));
    HOLDS(on_device(0) == PIECE && on_device(1) == PIECE);
    OK(cuMemPrefetchAsync_v2(ptr, 4 * PIECE, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}, 0,
                             t.streams[0]));
    HOLDS(on_device(0) == 0 && on_device(1) == 0 && testing_used_bytes() == before);

    INVALID(cuMemPrefetchAsync(ptr, 64 * GIB + 1, 0, t.streams[0]));
    INVALID(cuMemPrefetchAsync(ptr, 0, 0, t.streams[0]));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(ptr, PIECE, 2, t.streams[0]));
    INVALID(cuMemPrefetchAsync_v2(ptr, PIECE, (CUmemLocation){.type = 9}, 0, t.streams[0]));

    /* No more than there is room for. */
    OK(cuMemPrefetchAsync(ptr, 64 * GIB, 0, t.streams[0]));
    HOLDS(testing_used_bytes() <= 16 * GIB && on_device(0) > 15 * GIB);
    OK(cuMemFree_v2(ptr));
    HOLDS(testing_used_bytes() == before && on_device(0) == 0);
    HOLDS(view()->processes[0].claimed_bytes[0] == 0);
    INVALID(cuMemFree_v2(ptr));

    ptr = make(PIECE);
    OK(cuMemPrefetchAsync(ptr, PIECE, 0, t.streams[0]));
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(testing_used_bytes() == 0 && on_device(0) == 0);
}

static const char image[] =
    "hamisim-module 1\nkernel spin\nmanaged small 1000\nmanaged big 4194304\n";

/* There from the first time on that somebody asks, until their module goes. */
static void variables(void)
{
    CUmodule module, again;
    CUlibrary library;
    const uint64_t together = 512 + 1024 + 2 * PIECE;
    CUdeviceptr ptr, same, base;
    unsigned managed;
    struct testing t;
    size_t bytes;

    testing_begin(&t);
    GIVES(CUDA_ERROR_INVALID_IMAGE,
          cuModuleLoadData(&module, "hamisim-module 1\nmanaged nothing 0\n"));
    GIVES(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "hamisim-module 1\nmanaged much\n"));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleLoadData(&again, image));
    HOLDS(view()->processes[0].claimed_bytes[0] == 0);
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&ptr, &bytes, module, "spin"));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleGetGlobal_v2(&ptr, &bytes, NULL, "big"));
    INVALID(cuModuleGetGlobal_v2(NULL, NULL, module, "big"));
    OK(cuModuleGetGlobal_v2(&ptr, &bytes, module, "big"));
    HOLDS(bytes == 2 * PIECE && view()->processes[0].claimed_bytes[0] == together);
    OK(cuMemGetAddressRange_v2(&base, NULL, ptr));
    HOLDS(base < ptr);
    OK(cuModuleGetGlobal_v2(&same, NULL, module, "big"));
    HOLDS(same == ptr);
    OK(cuModuleGetGlobal_v2(&same, NULL, again, "big"));
    HOLDS(same != ptr && view()->processes[0].claimed_bytes[0] == 2 * together);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr + 5));
    HOLDS(managed == 1);
    OK(cuMemPrefetchAsync(ptr, 1, 0, t.streams[0]));
    HOLDS(on_device(0) == PIECE);
    OK(cuModuleUnload(module));
    HOLDS(on_device(0) == 0 && view()->processes[0].claimed_bytes[0] == together);
    OK(cuModuleUnload(again));
    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetManaged(&ptr, &bytes, library, "small"));
    HOLDS(bytes == 1000 && view()->processes[0].claimed_bytes[0] == together);
    OK(cuLibraryUnload(library));
    HOLDS(view()->processes[0].claimed_bytes[0] == 0);
    INVALID(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));

    OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetModule(&module, library));
    OK(cuModuleGetGlobal_v2(&ptr, &bytes, module, "small"));
    OK(cuLibraryGetManaged(&same, NULL, library, "small"));
    HOLDS(same == ptr);
    GIVES(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(module));
    OK(cuLibraryUnload(library));
    HOLDS(view()->processes[0].claimed_bytes[0] == 0);
    OK(cuMemAlloc_v2(&ptr, 512));
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr));
    HOLDS(managed == 0);
    OK(cuMemFree_v2(ptr));

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetGlobal_v2(&ptr, &bytes, module, "big"));
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(view()->processes[0].claimed_bytes[0] == 0);
}

HOLDS_IN(variables_of_a_module_are_there_until_it_goes, "", variables)

/* Other memory takes their place. */
static void pages_give_way(void)
{
    struct testing t;
    CUdeviceptr managed, ptr;

    testing_begin(&t);
    managed = make(15 * GIB);
    OK(cuMemPrefetchAsync(managed, 15 * GIB, 0, t.streams[0]));
    OK(cuMemAlloc_v2(&ptr, 4 * GIB));
    HOLDS(on_device(0) < 12 * GIB && testing_used_bytes() <= 16 * GIB);
    OK(cuMemFree_v2(ptr));
    OK(cuMemPrefetchAsync(managed, 15 * GIB, CU_DEVICE_CPU, t.streams[0]));
    OK(cuMemPrefetchAsync(managed, 15 * GIB, 0, t.streams[0]));
    HOLDS(on_device(0) == 15 * GIB);
    OK(cuMemFree_v2(managed));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, 16 * GIB));
}

static void advice(void)
{
    CUdeviceptr ptr;
    struct testing t;
    int list[3];

    testing_begin(&t);
    ptr = make(8 * PIECE);
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, PIECE) == CU_DEVICE_INVALID);
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, ptr, PIECE) ==
          CU_DEVICE_INVALID);
    INVALID(cuMemAdvise(ptr, 8 * PIECE, 0, 0));
    INVALID(cuMemAdvise(ptr, 9 * PIECE, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    GIVES(CUDA_ERROR_INVALID_DEVICE,
          cuMemAdvise(ptr, PIECE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 7));
    OK(cuMemAdvise(ptr, 4 * PIECE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(cuMemAdvise(ptr, 8 * PIECE, CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
    OK(cuMemAdvise_v2(ptr, 8 * PIECE, CU_MEM_ADVISE_SET_ACCESSED_BY,
                      (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}));
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, 4 * PIECE) == CU_DEVICE_CPU);
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, 5 * PIECE) ==
          CU_DEVICE_INVALID);
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, 8 * PIECE) == 1);
    OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, ptr, PIECE));
    HOLDS(list[0] == 1 && list[1] == CU_DEVICE_INVALID && list[2] == CU_DEVICE_INVALID);
    INVALID(cuMemRangeGetAttribute(list, 3, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, ptr, PIECE));
    INVALID(cuMemRangeGetAttribute(list, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, PIECE));
    INVALID(cuMemRangeGetAttribute(NULL, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, PIECE));
    OK(cuMemAdvise(ptr, 8 * PIECE, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ptr, PIECE) == 0);
}

/* A kernel brings what it touches, but for what is best kept on the host. */
static void kernels_touch(void)
{
    struct testing t;
    CUdeviceptr ptr;
    CUfunction touch;
    CUmodule module;

    testing_begin(&t);
    ptr = make(8 * PIECE);
    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=4096\nkernel touch touches\n"));
    OK(cuModuleGetFunction(&touch, module, "touch"));
    OK(cuMemAdvise(ptr, 3 * PIECE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(testing_launch(touch, t.streams[0], 1, 1000, ptr + 5));
    HOLDS(on_device(0) == 5 * PIECE);
    OK(testing_launch(touch, t.streams[0], 1, 1000, 12345));
    HOLDS(on_device(0) == 5 * PIECE);
}

static void attaching(void)
{
    struct testing t;
    CUdeviceptr ptr;

    testing_begin(&t);
    ptr = make(PIECE);
    OK(cuStreamAttachMemAsync(t.streams[0], ptr, 0, CU_MEM_ATTACH_SINGLE));
    OK(cuStreamAttachMemAsync(t.streams[0], ptr, PIECE, CU_MEM_ATTACH_GLOBAL));
    INVALID(cuStreamAttachMemAsync(t.streams[0], ptr, PIECE - 1, CU_MEM_ATTACH_HOST));
    INVALID(cuStreamAttachMemAsync(NULL, ptr, 0, CU_MEM_ATTACH_SINGLE));
    INVALID(cuStreamAttachMemAsync(t.streams[0], ptr + 1, 0, CU_MEM_ATTACH_SINGLE));
    INVALID(cuStreamAttachMemAsync(t.streams[0], ptr, 0, 3));
}

static CUmemoryPool managed_pool(int type)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
        .location = {.type = type},
    };
    CUmemoryPool pool;

    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static uint64_t reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;

    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

static void pools_move(void)
{
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_NONE},
                  device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemoryPool pool, other, same, host;
    int asked[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    CUdeviceptr ptr, second;
    struct testing t;
    unsigned managed;
    uint64_t before;
    int ordinal;

    testing_begin(&t);
    before = testing_used_bytes();
    props.maxSize = PIECE;
    INVALID(cuMemPoolCreate(&pool, &props));
    props.maxSize = 0;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    INVALID(cuMemPoolCreate(&pool, &props));

    /* It takes nothing where it is given out, as much as it may be. */
    pool = managed_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemAllocFromPoolAsync(&ptr, 64 * GIB, pool, t.streams[0]));
    OK(cuMemAllocFromPoolAsync(&second, 1000, pool, t.streams[0]));
    HOLDS(reserved(pool) == 64 * GIB + PIECE && testing_used_bytes() == before);
    HOLDS(view()->processes[0].claimed_bytes[0] == 64 * GIB + PIECE);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr + 1));
    OK(cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr + 1));
    HOLDS(managed == 1 && same == pool);
    OK(cuPointerGetAttributes(ARRAY_SIZE(asked), asked, (void *[]){&managed, &same, &ordinal},
                              ptr));
    HOLDS(managed == 1 && same == pool && ordinal == 0);
    OK(cuPointerGetAttributes(ARRAY_SIZE(asked), asked, (void *[]){&managed, &same, &ordinal}, 5));
    HOLDS(managed == 0 && !same && ordinal == 0);
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, PIECE) == 0);
    OK(cuMemPrefetchAsync(ptr, 3 * PIECE, 1, t.streams[0]));
    OK(cuMemPrefetchAsync(second, 1000, 0, t.streams[0]));
    HOLDS(on_device(1) == 3 * PIECE && on_device(0) == PIECE);
    OK(cuMemFreeAsync(ptr, t.streams[0]));
    HOLDS(on_device(1) == 3 * PIECE);
    OK(cuStreamSynchronize(t.streams[0]));
    HOLDS(on_device(1) == 0 && reserved(pool) == PIECE);
    OK(cuMemPoolDestroy(pool));
    HOLDS(on_device(0) == PIECE);
    OK(cuMemFree_v2(second));
    HOLDS(testing_used_bytes() == before);

    /* What is best on the host is not brought by a kernel. */
    host = managed_pool(CU_MEM_LOCATION_TYPE_HOST);
    OK(cuMemAllocFromPoolAsync(&ptr, PIECE, host, t.streams[0]));
    HOLDS(attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, PIECE) == CU_DEVICE_CPU);
    INVALID(cuDeviceSetMemPool(0, host));

    /* By a place and a kind there is one that nobody made. */
    OK(cuMemGetDefaultMemPool(&pool, &device, CU_MEM_ALLOCATION_TYPE_MANAGED));
    OK(cuMemGetMemPool(&same, &device, CU_MEM_ALLOCATION_TYPE_MANAGED));
    OK(cuMemGetDefaultMemPool(&other, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
    HOLDS(pool == same && pool != other);
    INVALID(cuMemPoolDestroy(pool));
    INVALID(cuMemGetDefaultMemPool(&other, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    device.type = CU_MEM_LOCATION_TYPE_HOST;
    OK(cuMemGetDefaultMemPool(&other, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
    HOLDS(other != pool);
    OK(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
    OK(cuMemAllocFromPoolAsync(&second, PIECE, other, t.streams[0]));
    OK(cuMemPrefetchAsync(ptr, PIECE, 0, t.streams[0]));
    INVALID(cuMemPrefetchAsync(second, PIECE, 0, t.streams[0]));
    HOLDS(on_device(0) == PIECE);
}

/* A node of a graph that allocates memory of a kind at a place. */
static CUresult add_node(CUgraph graph, CUmemAllocationType kind, int place, CUdeviceptr *ret_ptr)
{
    CUDA_MEM_ALLOC_NODE_PARAMS told = {0},
                               params = {
                                   .poolProps = {.allocType = kind, .location = {.type = place}},
                                   .bytesize = 4 * PIECE,
                               };
    CUgraphNode node;
    CUresult r = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);

    if (r != CUDA_SUCCESS)
        return r;
    OK(cuGraphMemAllocNodeGetParams(node, &told));
    HOLDS(told.poolProps.allocType == kind && (int)told.poolProps.location.type == place);
    *ret_ptr = params.dptr;
    return CUDA_SUCCESS;
}

/* The device's as any: it does not move. */
static void graphs_allocate(void)
{
    CUmemoryPool pool;
    struct testing t;
    CUdeviceptr ptr;
    CUgraphExec exec;
    uint64_t before;
    CUgraph graph;
    int preferred;

    testing_begin(&t);
    before = testing_used_bytes();
    OK(cuGraphCreate(&graph, 0));
    OK(add_node(graph, CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, &ptr));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    HOLDS(testing_used_bytes() == before);
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before + 4 * PIECE);
    INVALID(cuMemRangeGetAttribute(&preferred, sizeof(preferred),
                                   CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, ptr, PIECE));
    INVALID(cuMemAdvise(ptr, PIECE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    INVALID(cuMemPrefetchAsync(ptr, PIECE, CU_DEVICE_CPU, t.streams[0]));
    OK(cuMemsetD8_v2(ptr, 1, PIECE));
    HOLDS(testing_used_bytes() == before + 4 * PIECE);
    INVALID(cuGraphLaunch(exec, t.streams[0]));
    OK(cuMemFreeAsync(ptr, t.streams[0]));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before);

    /* In a capture, as its pool has it. */
    pool = managed_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
    OK(cuMemFreeAsync(ptr, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before + PIECE);
}

/* As an H200 answers (driver 580.159). */
static void graphs_have_places(void)
{
    static const struct {
        CUmemAllocationType kind;
        int place;
        CUresult pool, node;
    } cases[] = {
        {0, CU_MEM_LOCATION_TYPE_DEVICE, 1, 1},
        {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_NONE, 1, 1},
        {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0},
        {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 1, 1},
        {CU_MEM_ALLOCATION_TYPE_PINNED, INVISIBLE, 1, 1},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_NONE, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0, 0},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0, 801},
        {CU_MEM_ALLOCATION_TYPE_MANAGED, INVISIBLE, 801, 801},
        {3, CU_MEM_LOCATION_TYPE_DEVICE, 1, 1},
    };
    struct testing t;
    CUdeviceptr ptr;
    CUgraph graph;

    testing_begin(&t);
    OK(cuGraphCreate(&graph, 0));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CUmemPoolProps props = {.allocType = cases[i].kind, .location = {.type = cases[i].place}};
        CUmemoryPool pool;

        GIVES(cases[i].pool, cuMemPoolCreate(&pool, &props));
        GIVES(cases[i].node, add_node(graph, cases[i].kind, cases[i].place, &ptr));
    }
    OK(cuGraphDestroy(graph));
}

/* As drivers before CUDA 13. */
static void graphs_do_not(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = PIECE,
    };
    CUmemoryPool pool;
    struct testing t;
    CUgraphNode node;
    CUdeviceptr ptr;
    CUgraph graph;

    testing_begin(&t);
    OK(cuGraphCreate(&graph, 0));
    REFUSES(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuGraphDestroy(graph));
    pool = managed_pool(CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSES(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
}

HOLDS_IN(pages_are_where_they_were_last_wanted, "", pages_come_and_go)
HOLDS_IN(pages_give_way_to_other_memory, "", pages_give_way)
HOLDS_IN(advice_is_told_again, "", advice)
HOLDS_IN(a_kernel_brings_what_it_touches, "", kernels_touch)
HOLDS_IN(memory_is_attached_whole, "", attaching)
HOLDS_IN(a_pools_pages_move, "", pools_move)
HOLDS_IN(graphs_allocate_it, "", graphs_allocate)
HOLDS_IN(graphs_allocate_on_devices_alone, "", graphs_have_places)
HOLDS_IN(graphs_of_old_drivers_do_not, "graph-places=device", graphs_do_not)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_where_they_were_last_wanted),
        cmocka_unit_test(variables_of_a_module_are_there_until_it_goes),
        cmocka_unit_test(pages_give_way_to_other_memory),
        cmocka_unit_test(advice_is_told_again),
        cmocka_unit_test(a_kernel_brings_what_it_touches),
        cmocka_unit_test(memory_is_attached_whole),
        cmocka_unit_test(a_pools_pages_move),
        cmocka_unit_test(graphs_allocate_it),
        cmocka_unit_test(graphs_allocate_on_devices_alone),
        cmocka_unit_test(graphs_of_old_drivers_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
