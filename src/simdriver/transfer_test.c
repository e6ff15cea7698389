/* SPDX-License-Identifier: Apache-2.0 */

/* Setting memory, and copies: within a device, and from and to the host's memory of each kind. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
/* A gibibyte, at 2000 bytes a nanosecond. */
#define SET_NS (int64_t)(1000 + GIB / 2000)
#define COPY_NS (int64_t)(1000 + 2 * GIB / 2000)

static struct testing t;
static CUdeviceptr ptr, other;

static void begin(void)
{
    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, 2 * GIB));
    OK(cuMemAlloc_v2(&other, GIB));
}

static void kept_busy(void)
{
    const CUDA_MEMCPY3D layers = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = ptr,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = other,
        .WidthInBytes = MIB,
        .Height = 16,
        .Depth = 64,
    };
    CUdeviceptr tos[] = {other, other + GIB / 2}, froms[] = {ptr, ptr};
    size_t sizes[] = {GIB / 2, GIB / 2};
    int64_t before;

    OK(cuMemsetD32Async(ptr, 1, GIB / 4, t.streams[0]));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    testing_step(SET_NS);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == SET_NS);
    OK(cuMemsetD2D8Async(ptr, MIB, 1, MIB, 1024, t.streams[0]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == 2 * SET_NS);

    /* A copy reads as much as it writes. */
    before = testing_busy_ns();
    OK(cuMemcpyDtoDAsync_v2(other, ptr + GIB, GIB, t.streams[0]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() - before == COPY_NS);
    before = testing_busy_ns();
    OK(cuMemcpy3DAsync_v2(&layers, t.streams[0]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() - before == COPY_NS);

    before = testing_busy_ns();
    OK(cuMemcpyBatchAsync_v2(tos, froms, sizes, 2, NULL, NULL, 0, t.streams[0]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() - before == 2 * SET_NS);

    before = testing_busy_ns();
    INVALID(cuMemcpyBatchAsync_v2(tos, froms, sizes, 0, NULL, NULL, 0, t.streams[0]));
    OK(cuMemsetD8_v2(ptr, 1, 0));
    INVALID(cuMemsetD8_v2(ptr, 1, 2 * GIB + 1));
    INVALID(cuMemsetD32_v2(ptr, 1, UINT64_MAX / 2));
    INVALID(cuMemsetD2D32_v2(ptr, 0, 1, UINT64_MAX / 2, 3));
    INVALID(cuMemsetD8_v2(16, 1, 1));
    INVALID(cuMemcpyDtoD_v2(ptr, other, GIB + 1));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == before);
}

static void in_graphs(void)
{
    CUDA_MEMSET_NODE_PARAMS params = {.elementSize = 4, .width = GIB / 4, .height = 1}, got;
    CUDA_MEMCPY3D copied;
    CUgraphNode nodes[2];
    CUgraphNodeType type;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;
    size_t count = 2;

    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD8Async(ptr, 1, GIB, t.streams[0]));
    OK(cuMemcpyAsync(other, ptr, GIB, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == 0);

    OK(cuGraphGetNodes(graph, nodes, &count));
    OK(cuGraphNodeGetType(nodes[0], &type));
    HOLDS(count == 2 && type == CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuGraphMemsetNodeGetParams(nodes[0], &got));
    HOLDS(got.dst == ptr && got.width == GIB);
    OK(cuGraphNodeGetType(nodes[1], &type));
    HOLDS(type == CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphMemcpyNodeGetParams(nodes[1], &copied));
    HOLDS(copied.dstDevice == other && copied.srcDevice == ptr && copied.WidthInBytes == GIB);

    params.dst = ptr;
    OK(cuGraphAddMemsetNode(&node, graph, &nodes[1], 1, &params, t.context));
    params.elementSize = 3;
    INVALID(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, t.context));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, t.streams[1]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == 2 * SET_NS + COPY_NS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void added(void)
{
    CUDA_MEMSET_NODE_PARAMS params = {.dst = ptr, .elementSize = 1, .width = GIB, .height = 1};
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = ptr,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = other,
        .WidthInBytes = GIB / 2,
        .Height = 1,
        .Depth = 2,
    };
    CUDA_MEMSET_NODE_PARAMS got;
    CUgraphNode set, copied;
    CUgraphExec exec;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemcpyNode(&copied, graph, NULL, 0, &copy, t.context));
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    GIVES(CUDA_ERROR_NOT_SUPPORTED,
          cuGraphAddMemcpyNode(&copied, graph, NULL, 0, &copy, t.context));
    OK(cuGraphAddMemsetNode(&set, graph, &copied, 1, &params, t.context));
    params.dst = 16;
    INVALID(cuGraphMemsetNodeSetParams(set, &params));
    params.dst = other;
    params.width = GIB / 2;
    OK(cuGraphMemsetNodeSetParams(set, &params));
    INVALID(cuGraphMemsetNodeSetParams(copied, &params));
    OK(cuGraphMemsetNodeGetParams(set, &got));
    HOLDS(got.dst == other && got.width == GIB / 2);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, t.streams[1]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == COPY_NS + 1000 + (int64_t)(GIB / 2 / 2000));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* The ways to copy between memory of a device, or of the host, and a buffer of the program's. */
static CUresult copy_rows(CUdeviceptr at, int type, bool back)
{
    char buffer[512];
    const CUDA_MEMCPY2D there = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = buffer,
        .dstMemoryType = type,
        .dstDevice = at,
        .WidthInBytes = sizeof(buffer),
        .Height = 1,
    };
    const CUDA_MEMCPY3D here = {
        .srcMemoryType = type,
        .srcDevice = at,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = other,
        .WidthInBytes = MIB,
        .Height = 1,
        .Depth = 1,
    };

    return back ? cuMemcpy3DAsync_v2(&here, t.streams[0]) : cuMemcpy2D_v2(&there);
}

/* As an H200 answers for each kind of memory on the host (driver 580.159). */
static void copied_to_and_fro(CUdeviceptr at, CUresult as_devices)
{
    char buffer[512];

    GIVES(as_devices, cuMemcpyDtoH_v2(buffer, at, sizeof(buffer)));
    GIVES(as_devices, cuMemcpyDtoHAsync_v2(buffer, at, sizeof(buffer), t.streams[0]));
    GIVES(as_devices, cuMemcpyHtoD_v2(at, buffer, sizeof(buffer)));
    GIVES(as_devices, cuMemcpyHtoDAsync_v2(at, buffer, sizeof(buffer), t.streams[0]));
    GIVES(as_devices, cuMemcpyDtoD_v2(at, other, MIB));
    GIVES(as_devices, cuMemcpyDtoDAsync_v2(other, at, MIB, t.streams[0]));
    GIVES(as_devices, cuMemcpyPeer(other, t.context, at, t.context, MIB));
    GIVES(as_devices, cuMemcpyPeerAsync(at, t.context, other, t.context, MIB, t.streams[0]));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)buffer, at, sizeof(buffer)));
    OK(cuMemcpyAsync(at, other, MIB, t.streams[0]));
    GIVES(as_devices, copy_rows(at, CU_MEMORYTYPE_DEVICE, false));
    GIVES(as_devices, copy_rows(at, CU_MEMORYTYPE_DEVICE, true));
    OK(copy_rows(at, CU_MEMORYTYPE_UNIFIED, false));
    OK(copy_rows(at, CU_MEMORYTYPE_UNIFIED, true));
    INVALID(cuMemcpyDtoH_v2(buffer, 16, sizeof(buffer)));
    INVALID(cuMemcpyHtoD_v2(at, NULL, sizeof(buffer)));
    INVALID(cuMemcpyAsync(at, other, 4 * MIB, t.streams[0]));
    OK(cuStreamSynchronize(t.streams[0]));
}

static unsigned int type_of(CUdeviceptr at)
{
    unsigned int type;

    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    return type;
}

static void of_pools_of_the_host(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemoryPool pool;
    CUdeviceptr at;

    begin();
    for (int type = CU_MEM_LOCATION_TYPE_HOST; type <= CU_MEM_LOCATION_TYPE_HOST_NUMA; type++) {
        props.location.type = type;
        OK(cuMemPoolCreate(&pool, &props));
        OK(cuMemAllocFromPoolAsync(&at, 2 * MIB, pool, t.streams[0]));
        HOLDS(type_of(at) == CU_MEMORYTYPE_HOST);
        copied_to_and_fro(at, CUDA_ERROR_INVALID_VALUE);
    }
    HOLDS(testing_busy_ns() == 0);
    OK(cuMemsetD8_v2(at, 1, MIB));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() > 0);
}

static void of_mapped_memory(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;

    begin();
    for (int type = CU_MEM_LOCATION_TYPE_HOST; type <= CU_MEM_LOCATION_TYPE_HOST_NUMA; type++) {
        prop.location.type = type;
        OK(cuMemCreate(&handle, 2 * MIB, &prop, 0));
        OK(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
        OK(cuMemMap(at, 2 * MIB, 0, handle, 0));
        HOLDS(type_of(at) == CU_MEMORYTYPE_HOST);
        copied_to_and_fro(at, CUDA_SUCCESS);
    }
    HOLDS(testing_busy_ns() == 0);
}

/* In the stream's order, and what does not return before it is done waits for that. */
static void in_order_of_streams(void)
{
    char buffer[512];
    CUgraphNodeType type;
    CUgraphNode node;
    CUgraph graph;
    size_t count = 1;

    begin();
    OK(cuMemsetD32Async(ptr, 1, GIB / 4, t.streams[0]));
    OK(cuMemcpyDtoHAsync_v2(buffer, ptr, sizeof(buffer), t.streams[0]));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    testing_step(SET_NS);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == SET_NS);

    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemcpyHtoDAsync_v2(ptr, buffer, sizeof(buffer), t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphNodeGetType(node, &type));
    HOLDS(count == 1 && type == CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyDtoH_v2(buffer, ptr, sizeof(buffer)));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(t.streams[0], &graph));
}

/* What the device writes to comes there. */
static void of_managed_memory(void)
{
    CUdeviceptr managed;
    uint64_t before;

    begin();
    OK(cuMemAllocManaged(&managed, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    before = testing_used_bytes();
    OK(cuMemsetD8_v2(managed, 1, 64 * MIB));
    HOLDS(testing_used_bytes() == before + 64 * MIB);
    INVALID(cuMemsetD8_v2(managed, 1, 64 * MIB + 1));
}

static void busy(void)
{
    begin();
    kept_busy();
}

static void graphs(void)
{
    begin();
    in_graphs();
}

static void nodes(void)
{
    begin();
    added();
}

HOLDS_IN(memory_is_set_and_copied_by_the_multiprocessors, "", busy)
HOLDS_IN(captured_it_is_a_node, "", graphs)
HOLDS_IN(so_is_one_that_is_added, "", nodes)
HOLDS_IN(managed_memory_comes_to_be_set, "", of_managed_memory)
HOLDS_IN(a_pools_memory_on_the_host_is_no_devices, "", of_pools_of_the_host)
HOLDS_IN(what_is_mapped_of_the_host_is, "", of_mapped_memory)
HOLDS_IN(copies_of_the_hosts_memory_keep_their_place, "", in_order_of_streams)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_set_and_copied_by_the_multiprocessors),
        cmocka_unit_test(captured_it_is_a_node),
        cmocka_unit_test(so_is_one_that_is_added),
        cmocka_unit_test(managed_memory_comes_to_be_set),
        cmocka_unit_test(a_pools_memory_on_the_host_is_no_devices),
        cmocka_unit_test(what_is_mapped_of_the_host_is),
        cmocka_unit_test(copies_of_the_hosts_memory_keep_their_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
