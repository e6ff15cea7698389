/* SPDX-License-Identifier: Apache-2.0 */

/* What graphs allocate, and what they take to be launched. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/graph_fixture.h"

#define PIECE (2 * MIB)

static CUgraphNode free_after(CUgraphNode before, CUdeviceptr ptr)
{
    CUgraphNode node;

    OK(cuGraphAddMemFreeNode(&node, graph, &before, before ? 1 : 0, ptr));
    return node;
}

static uint64_t attribute(CUgraphMem_attribute which)
{
    cuuint64_t value;

    OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static void launch_and_wait(void)
{
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1000);
    OK(cuStreamSynchronize(t.streams[0]));
}

static void memory_is_taken_late(void)
{
    uint64_t before = graph_begin();
    CUdeviceptr a, b;
    CUgraphNode node;

    node = alloc_after(NULL, 10 * PIECE, &a);
    node = free_after(kernel_after(node, 10), a);
    node = alloc_after(node, 6 * PIECE, &b);
    node = free_after(node, b);
    HOLDS(a != b);
    graph_instantiate();
    HOLDS(testing_used_bytes() == before && attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
    launch_and_wait();
    /* What comes after a free has its place. */
    HOLDS(testing_used_bytes() == before + 10 * PIECE);
    HOLDS(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 10 * PIECE);
    launch_and_wait();
    HOLDS(testing_used_bytes() == before + 10 * PIECE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    HOLDS(testing_used_bytes() == before + 10 * PIECE);
    HOLDS(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before);
    HOLDS(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == 10 * PIECE);
}

static void side_by_side(void)
{
    uint64_t before = graph_begin(), zero = 0;
    CUgraphNode node;
    CUdeviceptr a, b;

    node = alloc_after(NULL, 4 * PIECE, &a);
    (void)free_after(node, a);
    node = alloc_after(NULL, 3 * PIECE, &b);
    (void)free_after(node, b);
    graph_instantiate();
    OK(cuGraphUpload(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before + 7 * PIECE);
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before);
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    HOLDS(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);
    INVALID(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
    launch_and_wait();
    HOLDS(testing_used_bytes() == before + 7 * PIECE);
}

static CUgraphExec temporary(size_t bytes, unsigned long long ns)
{
    CUgraphExec made;
    CUgraphNode node;
    CUdeviceptr ptr;

    OK(cuGraphCreate(&graph, 0));
    node = alloc_after(NULL, bytes, &ptr);
    (void)free_after(kernel_after(node, ns), ptr);
    OK(cuGraphInstantiateWithFlags(&made, graph, 0));
    OK(cuGraphDestroy(graph));
    return made;
}

static void streams_share(void)
{
    uint64_t before = graph_begin();
    CUgraphExec first, second;

    OK(cuGraphDestroy(graph));
    first = temporary(5 * PIECE, 1000);
    second = temporary(8 * PIECE, 1000);
    OK(cuGraphLaunch(first, t.streams[0]));
    OK(cuGraphLaunch(second, t.streams[0]));
    HOLDS(testing_used_bytes() == before + 8 * PIECE);
    /* In another stream it may run beside the other one. */
    OK(cuGraphLaunch(first, t.streams[1]));
    HOLDS(testing_used_bytes() == before + 13 * PIECE);
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before + 13 * PIECE);
    testing_step(10000);
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before);
    OK(cuGraphExecDestroy(first));
    OK(cuGraphExecDestroy(second));
}

static void left_over(void)
{
    uint64_t before = graph_begin();
    CUdeviceptr a, base;
    CUgraphExec frees;
    CUgraphNode node;
    size_t bytes;

    (void)alloc_after(NULL, 3 * PIECE, &a);
    graph_instantiate();
    INVALID(cuMemFree_v2(a));
    launch_and_wait();
    INVALID(cuGraphLaunch(exec, t.streams[0]));
    OK(cuMemGetAddressRange_v2(&base, &bytes, a + 100));
    HOLDS(base == a && bytes == 3 * PIECE);
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before + 3 * PIECE);
    OK(cuMemFreeAsync(a, t.streams[0]));
    INVALID(cuMemFree_v2(a));
    launch_and_wait();

    /* Another graph frees it, too. */
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemFreeNode(&node, graph, NULL, 0, a));
    INVALID(cuGraphAddMemFreeNode(&node, graph, NULL, 0, a));
    OK(cuGraphInstantiateWithFlags(&frees, graph, 0));
    OK(cuGraphLaunch(frees, t.streams[0]));
    INVALID(cuGraphLaunch(frees, t.streams[0]));

    /* It outlives all that made it. */
    launch_and_wait();
    OK(cuGraphExecDestroy(frees));
    OK(cuGraphExecDestroy(exec));
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before + 3 * PIECE);
    OK(cuMemFree_v2(a));
    OK(cuDeviceGraphMemTrim(0));
    HOLDS(testing_used_bytes() == before);
}

static void freed_by_the_next_launch(void)
{
    uint64_t before = graph_begin();
    CUdeviceptr a;

    (void)alloc_after(NULL, 3 * PIECE, &a);
    OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    launch_and_wait();
    launch_and_wait();
    HOLDS(testing_used_bytes() == before + 3 * PIECE);
    OK(cuMemFree_v2(a));
}

static void what_memory_forbids(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    uint64_t before = graph_begin();
    CUgraphExec second;
    CUgraphNode node, freed, other;
    CUgraph clone;
    CUdeviceptr a, b;

    node = alloc_after(NULL, PIECE, &a);
    INVALID(cuGraphAddMemFreeNode(&freed, graph, NULL, 0, a));
    freed = free_after(node, a);
    INVALID(cuGraphAddMemFreeNode(&freed, graph, &node, 1, a));
    INVALID(cuGraphAddMemFreeNode(&freed, graph, &node, 1, 0x1234));
    REFUSES(cuGraphDestroyNode(node));
    REFUSES(cuGraphRemoveDependencies(graph, &node, &freed, 1));
    REFUSES(cuGraphClone(&clone, graph));
    OK(cuGraphCreate(&clone, 0));
    REFUSES(cuGraphAddChildGraphNode(&other, clone, NULL, 0, graph));
    INVALID(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
    params.hUploadStream = t.streams[0];
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    HOLDS(testing_used_bytes() == before + PIECE);
    REFUSES(cuGraphInstantiateWithFlags(&second, graph, 0));
    OK(cuGraphExecDestroy(exec));
    graph_instantiate();
    OK(cuGraphDestroy(clone));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSES(cuGraphLaunch(exec, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &clone));
    OK(cuGraphDestroy(clone));
    OK(cuDeviceGraphMemTrim(0));

    /* More than there is. */
    OK(cuMemAlloc_v2(&b, 16 * GIB - before));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, t.streams[0]));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload(exec, t.streams[0]));
    OK(cuMemFree_v2(b));
    HOLDS(testing_used_bytes() == before && attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuGraphLaunch(exec, t.streams[0]));
}

static void captured(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    uint64_t before = graph_begin();
    CUgraphNode nodes[8];
    CUdeviceptr a, b, other;
    size_t count = 8;

    OK(cuGraphDestroy(graph));
    OK(cuMemAllocAsync(&other, PIECE, t.streams[1]));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&a, 100, t.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 1, 100, 0));
    INVALID(cuMemFreeAsync(other, t.streams[0]));
    OK(cuMemFreeAsync(a, t.streams[0]));
    INVALID(cuMemFreeAsync(a, t.streams[0]));
    OK(cuMemAllocAsync(&b, 100, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphGetNodes(graph, nodes, &count));
    HOLDS(count == 4);
    OK(cuGraphMemAllocNodeGetParams(nodes[0], &params));
    HOLDS(params.dptr == a);
    OK(cuGraphMemFreeNodeGetParams(nodes[2], &other));
    HOLDS(other == a);
    graph_instantiate();
    HOLDS(testing_used_bytes() == before + PIECE);
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before + 3 * PIECE);
    OK(cuMemFree_v2(b));
    testing_step(1000);
    OK(cuCtxDestroy_v2(t.context));
    OK(cuDeviceGraphMemTrim(0));
}

/* A node's place may be the host, by its properties or by those of a captured stream's pool. */
static void on_the_host(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST}},
        .bytesize = 32 * GIB, /* no device has as much */
    };
    uint64_t before = graph_begin();
    CUmemPoolProps props = params.poolProps;
    CUmemoryPool pool;
    CUgraphNode node;
    CUdeviceptr ptr;

    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuGraphMemAllocNodeGetParams(node, &params));
    HOLDS(params.poolProps.location.type == CU_MEM_LOCATION_TYPE_HOST);
    (void)free_after(node, params.dptr);
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    INVALID(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    graph_instantiate();
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before && attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    graph_instantiate();
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before);
    OK(cuMemFree_v2(ptr)); /* it was left over */
    OK(cuGraphLaunch(exec, t.streams[0]));
}

static void not_on_the_host(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_HOST}},
        .bytesize = PIECE,
    };
    CUmemoryPool pool;
    CUgraphNode node;
    CUdeviceptr ptr;

    (void)graph_begin();
    REFUSES(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuMemPoolCreate(&pool, &params.poolProps));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    REFUSES(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
}

/* In their context, in its granules beside what else is its own; other nodes take none. */
static void kernels_take_memory(void)
{
    uint64_t before = graph_begin(), after;
    CUgraphExec other;
    CUgraphNode node;
    CUgraph child;

    for (unsigned i = 0; i < 40; i++) {
        OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
        (void)kernel_after(NULL, 1);
    }
    HOLDS(testing_used_bytes() == before);
    graph_instantiate();
    after = testing_used_bytes();
    HOLDS(after - before == 40 * 3328);
    OK(cuGraphExecDestroy(exec));
    HOLDS(testing_used_bytes() == before);

    OK(cuGraphClone(&child, graph));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    graph_instantiate();
    HOLDS(testing_used_bytes() - before == 80 * 3328);
    OK(cuGraphInstantiateWithFlags(&other, child, 0));
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(testing_used_bytes() == 0);
    OK(cuGraphExecDestroy(exec)); /* which has nothing any more */
    HOLDS(testing_used_bytes() == 0);
    OK(cuGraphExecDestroy(other));
    OK(cuGraphDestroy(child));
    OK(cuGraphDestroy(graph));
}

HOLDS_IN(kernels_of_what_can_be_launched_take_memory, "graph-node=3328", kernels_take_memory)
HOLDS_IN(memory_is_taken_at_the_launch_and_kept, "", memory_is_taken_late)
HOLDS_IN(what_may_run_at_once_has_memory_each, "", side_by_side)
HOLDS_IN(graphs_of_a_stream_share_memory, "", streams_share)
HOLDS_IN(what_a_graph_leaves_over_lives_on, "", left_over)
HOLDS_IN(a_launch_may_free_what_the_last_one_left, "", freed_by_the_next_launch)
HOLDS_IN(memory_forbids_some_things, "", what_memory_forbids)
HOLDS_IN(a_capture_allocates_for_its_graph, "", captured)
HOLDS_IN(memory_may_be_the_hosts, "graph-places=host", on_the_host)
HOLDS_IN(memory_is_the_hosts_by_an_option_only, "", not_on_the_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_what_can_be_launched_take_memory),
        cmocka_unit_test(memory_is_taken_at_the_launch_and_kept),
        cmocka_unit_test(what_may_run_at_once_has_memory_each),
        cmocka_unit_test(graphs_of_a_stream_share_memory),
        cmocka_unit_test(what_a_graph_leaves_over_lives_on),
        cmocka_unit_test(a_launch_may_free_what_the_last_one_left),
        cmocka_unit_test(memory_forbids_some_things),
        cmocka_unit_test(a_capture_allocates_for_its_graph),
        cmocka_unit_test(memory_may_be_the_hosts),
        cmocka_unit_test(memory_is_the_hosts_by_an_option_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
