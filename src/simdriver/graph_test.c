/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs that programs make themselves, and what they allocate. */

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
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define REFUSES(call) GIVES(CUDA_ERROR_NOT_SUPPORTED, call)

static struct testing t;
static CUgraph graph;
static CUgraphExec exec;

static uint64_t begin(void)
{
    testing_begin(&t);
    OK(cuGraphCreate(&graph, 0));
    return testing_used_bytes();
}

static CUgraphNode kernel_of(const struct testing *where, CUgraphNode before, uint64_t ns)
{
    void *params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        where->kernel, 100, 1, 1, 32, 1, 1, 0, params, NULL, NULL, NULL,
    };
    CUgraphNode node;

    OK(cuGraphAddKernelNode_v2(&node, graph, &before, before ? 1 : 0, &kernel));
    return node;
}

static CUgraphNode kernel_after(CUgraphNode before, uint64_t ns)
{
    return kernel_of(&t, before, ns);
}

static CUgraphNode alloc_after(CUgraphNode before, size_t bytes, CUdeviceptr *ret_ptr)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes,
    };
    CUgraphNode node;

    OK(cuGraphAddMemAllocNode(&node, graph, &before, before ? 1 : 0, &params));
    *ret_ptr = params.dptr;
    return node;
}

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

static void instantiate(void)
{
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void launch_and_wait(void)
{
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1000);
    OK(cuStreamSynchronize(t.streams[0]));
}

/* Whatever context is current, and wherever the graph is launched. */
static void kernels_run_on_two_devices(void)
{
    CUDA_KERNEL_NODE_PARAMS params;
    uint64_t before, other_before;
    struct testing other;
    CUgraphNode node;
    CUlibrary library;
    CUmodule module;
    CUkernel kernel;
    CUgraph like;
    int changed;

    before = begin();
    testing_begin_context(&other, 1);
    other_before = testing_used_on_bytes(1);
    node = kernel_of(&other, kernel_after(NULL, 1000), 2000);
    (void)kernel_after(node, 3000);
    OK(cuGraphKernelNodeGetParams_v2(node, &params));
    OK(cuFuncGetModule(&module, params.func));
    HOLDS(module == other.module && !params.ctx);
    instantiate();
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(5500);
    HOLDS(testing_busy_ns() == 3500 && testing_busy_on_ns(1) == 2000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    testing_step(500);
    OK(cuStreamQuery(t.streams[0]));
    OK(cuGraphLaunch(exec, other.streams[0]));
    testing_step(10000);
    HOLDS(testing_busy_ns() == 8000 && testing_busy_on_ns(1) == 4000);
    OK(cuGraphExecDestroy(exec));
    HOLDS(testing_used_bytes() == before && testing_used_on_bytes(1) == other_before);
    instantiate();
    HOLDS(testing_used_bytes() == before + 2 * MIB);
    HOLDS(testing_used_on_bytes(1) == other_before + MIB);

    /* Neither its parameters nor an update may bring a node elsewhere. */
    params.func = t.kernel;
    params.ctx = t.context;
    INVALID(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    OK(cuGraphClone(&like, graph));
    OK(cuGraphNodeFindInClone(&node, node, like));
    OK(cuGraphKernelNodeSetParams_v2(node, &params));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, like, NULL, &changed));
    HOLDS(changed == CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);

    /* A kernel that is no context's runs where it was added. */
    OK(cuLibraryLoadData(&library, "hamisim-module 1\nsize=4096\nkernel work\n", NULL, NULL, 0,
                         NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "work"));
    params = (CUDA_KERNEL_NODE_PARAMS){NULL, 100,    1,   1, 32, 1, 1, 0, params.kernelParams,
                                       NULL, kernel, NULL};
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
    OK(cuGraphKernelNodeGetParams_v2(node, &params));
    HOLDS(!params.func && params.kern == kernel && params.ctx == other.context);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuFuncGetModule(&module, (CUfunction)kernel));

    /* A context takes with it what runs there. */
    OK(cuCtxDestroy_v2(other.context));
    OK(cuCtxSetCurrent(t.context));
    INVALID(cuGraphLaunch(exec, t.streams[0]));
    OK(cuGraphExecDestroy(exec));
    INVALID(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static CUgraph *add_condition(CUgraph to, int type, unsigned bodies, unsigned value,
                              CUgraphConditionalHandle *ret_handle)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.type = type, .size = bodies, .ctx = t.context},
    };
    CUgraphNode node;

    OK(cuGraphConditionalHandleCreate(&params.conditional.handle, to, t.context, value,
                                      CU_GRAPH_COND_ASSIGN_DEFAULT));
    OK(cuGraphAddNode(&node, to, NULL, 0, &params));
    *ret_handle = params.conditional.handle;
    return params.conditional.phGraph_out;
}

static void add_kernel(CUgraph to, CUfunction function, uint64_t ns, uint64_t second)
{
    void *params[] = {&ns, &second};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        function, 100, 1, 1, 32, 1, 1, 0, params, NULL, NULL, NULL,
    };
    CUgraphNode node;

    OK(cuGraphAddKernelNode_v2(&node, to, NULL, 0, &kernel));
}

static int64_t busy_of(CUgraph of)
{
    int64_t before = testing_busy_ns();

    OK(cuGraphInstantiateWithFlags(&exec, of, 0));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1000000);
    OK(cuStreamQuery(t.streams[0]));
    OK(cuGraphExecDestroy(exec));
    return testing_busy_ns() - before;
}

static void conditions(void)
{
    CUgraphConditionalHandle outer, inner, unused;
    CUfunction counting;
    CUgraph *bodies, *nested, choice, other;
    CUgraphExec second;
    CUmodule module;

    (void)begin();
    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=0\nkernel count counts\n"));
    OK(cuModuleGetFunction(&counting, module, "count"));

    /* Five times, and in each twice of the inner one, the first time: it then is 0. */
    bodies = add_condition(graph, CU_GRAPH_COND_TYPE_WHILE, 1, 5, &outer);
    add_kernel(bodies[0], counting, 100, outer);
    nested = add_condition(bodies[0], CU_GRAPH_COND_TYPE_WHILE, 1, 2, &inner);
    add_kernel(nested[0], counting, 1000, inner);
    HOLDS(busy_of(graph) == 5 * 100 + 2 * 1000);
    HOLDS(busy_of(graph) == 5 * 100 + 2 * 1000);

    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    REFUSES(cuGraphInstantiateWithFlags(&second, graph, 0));
    REFUSES(cuGraphClone(&other, graph));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSES(cuGraphLaunch(exec, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &other));
    OK(cuGraphDestroy(other));
    INVALID(cuGraphDestroy(bodies[0]));
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(exec));

    for (unsigned value = 0; value < 4; value++) {
        OK(cuGraphCreate(&choice, 0));
        bodies = add_condition(choice, CU_GRAPH_COND_TYPE_SWITCH, 3, value, &outer);
        for (unsigned i = 0; i < 3; i++)
            add_kernel(bodies[i], t.kernel, 1000 * (i + 1), 0);
        bodies = add_condition(choice, CU_GRAPH_COND_TYPE_IF, 2, value, &outer);
        add_kernel(bodies[0], t.kernel, 10000, 0);
        add_kernel(bodies[1], t.kernel, 20000, 0);
        HOLDS(busy_of(choice) == (value < 3 ? 1000 * (value + 1) : 0) + (value ? 10000 : 20000));
        OK(cuGraphConditionalHandleCreate(&unused, choice, NULL, 0, 0));
        INVALID(cuGraphInstantiateWithFlags(&exec, choice, 0));
        OK(cuGraphDestroy(choice));
    }

    /* What may not be in a body, or in a child there. */
    for (int i = 0; i < 3; i++) {
        CUgraphNode node;
        CUdeviceptr ptr;

        OK(cuGraphCreate(&choice, 0));
        bodies = add_condition(choice, CU_GRAPH_COND_TYPE_IF, 1, 1, &outer);
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, t.events[0]));
        if (i == 0)
            OK(cuGraphAddEventRecordNode(&node, bodies[0], NULL, 0, t.events[0]));
        if (i == 1)
            OK(cuGraphAddChildGraphNode(&node, bodies[0], NULL, 0, graph));
        graph = bodies[0];
        if (i == 2)
            (void)alloc_after(NULL, 4096, &ptr);
        REFUSES(cuGraphInstantiateWithFlags(&exec, choice, 0));
        OK(cuGraphDestroy(choice));
    }
}

static void kernels_run(void)
{
    CUgraphNode nodes[8], from[8], to[8];
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNodeType type;
    CUgraphNode first, second, third;
    uint64_t ns = 9000;
    void *list[] = {&ns};
    size_t count = 8;

    (void)begin();
    first = kernel_after(NULL, 1000);
    second = kernel_after(first, 2000);
    OK(cuGraphAddEmptyNode(&third, graph, NULL, 0));
    OK(cuGraphAddDependencies(graph, &second, &third, 1));
    INVALID(cuGraphAddDependencies(graph, &second, &third, 1));
    OK(cuGraphNodeGetType(second, &type));
    HOLDS(type == CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphGetNodes(graph, nodes, &count));
    HOLDS(count == 3 && nodes[0] == first && nodes[2] == third && !nodes[3]);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    HOLDS(count == 1);
    count = 8;
    OK(cuGraphGetEdges(graph, from, to, &count));
    HOLDS(count == 2 && from[1] == second && to[1] == third);
    OK(cuGraphKernelNodeGetParams_v2(second, &params));
    HOLDS(params.func == t.kernel && *(uint64_t *)params.kernelParams[0] == 2000);
    instantiate();
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(10000);
    HOLDS(testing_busy_ns() == 3000);

    /* What is launched has parameters of its own. */
    params.kernelParams = list;
    OK(cuGraphExecKernelNodeSetParams_v2(exec, first, &params));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(20000);
    HOLDS(testing_busy_ns() == 3000 + 11000);
    OK(cuGraphDestroyNode(second));
    OK(cuGraphNodeGetDependencies(third, NULL, &count));
    HOLDS(count == 0);
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, t.streams[0]));
    OK(cuGraphExecDestroy(exec));
    testing_step(20000);
    HOLDS(testing_busy_ns() == 3000 + 2 * 11000);
    INVALID(cuGraphLaunch((CUgraphExec)graph, t.streams[0]));
}

static void children(void)
{
    CUgraph child, clone, inside;
    CUgraphNode node, twin;
    int result;

    (void)begin();
    (void)kernel_after(NULL, 1000);
    child = graph;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    (void)kernel_after(node, 500);
    OK(cuGraphChildGraphNodeGetGraph(node, &inside));
    HOLDS(inside != child);
    INVALID(cuGraphDestroy(inside));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&twin, node, clone));
    HOLDS(twin != node);
    OK(cuGraphDestroy(child));
    instantiate();
    OK(cuGraphExecUpdate(exec, clone, NULL, &result));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(10000);
    HOLDS(testing_busy_ns() == 1500);
    OK(cuGraphDestroyNode(twin));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, clone, NULL, &result));
    HOLDS(result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(clone));
}

static void circles(void)
{
    CUgraphNode first, second;

    (void)begin();
    first = kernel_after(NULL, 1);
    second = kernel_after(first, 1);
    OK(cuGraphAddDependencies(graph, &second, &first, 1));
    INVALID(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphRemoveDependencies(graph, &second, &first, 1));
    instantiate();
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

static void memory_is_taken_late(void)
{
    uint64_t before = begin();
    CUdeviceptr a, b;
    CUgraphNode node;

    node = alloc_after(NULL, 10 * PIECE, &a);
    node = free_after(kernel_after(node, 10), a);
    node = alloc_after(node, 6 * PIECE, &b);
    node = free_after(node, b);
    HOLDS(a != b);
    instantiate();
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
    uint64_t before = begin(), zero = 0;
    CUgraphNode node;
    CUdeviceptr a, b;

    node = alloc_after(NULL, 4 * PIECE, &a);
    (void)free_after(node, a);
    node = alloc_after(NULL, 3 * PIECE, &b);
    (void)free_after(node, b);
    instantiate();
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
    uint64_t before = begin();
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
    uint64_t before = begin();
    CUdeviceptr a, base;
    CUgraphExec frees;
    CUgraphNode node;
    size_t bytes;

    (void)alloc_after(NULL, 3 * PIECE, &a);
    instantiate();
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
    uint64_t before = begin();
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
    uint64_t before = begin();
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
    instantiate();
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
    uint64_t before = begin();
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
    instantiate();
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
    uint64_t before = begin();
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
    instantiate();
    OK(cuGraphLaunch(exec, t.streams[0]));
    HOLDS(testing_used_bytes() == before && attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    instantiate();
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

    (void)begin();
    REFUSES(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    OK(cuMemPoolCreate(&pool, &params.poolProps));
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    REFUSES(cuMemAllocFromPoolAsync(&ptr, PIECE, pool, t.streams[0]));
}

/* In their context, in its granules beside what else is its own; other nodes take none. */
static void kernels_take_memory(void)
{
    uint64_t before = begin(), after;
    CUgraphExec other;
    CUgraphNode node;
    CUgraph child;

    for (unsigned i = 0; i < 40; i++) {
        OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
        (void)kernel_after(NULL, 1);
    }
    HOLDS(testing_used_bytes() == before);
    instantiate();
    after = testing_used_bytes();
    HOLDS(after - before == 40 * 3328);
    OK(cuGraphExecDestroy(exec));
    HOLDS(testing_used_bytes() == before);

    OK(cuGraphClone(&child, graph));
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    instantiate();
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

/* What a node records, or waits for, may be changed; what was made executable keeps its own. */
static void events_change(void)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    CUgraphNode record, wait;

    (void)begin();
    OK(cuGraphAddEventRecordNode(&record, graph, NULL, 0, t.events[0]));
    OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, t.events[1]));
    instantiate();
    INVALID(cuGraphEventWaitNodeSetEvent(record, t.events[2]));
    INVALID(cuGraphExecEventWaitNodeSetEvent(exec, record, t.events[2]));
    INVALID(cuGraphExecEventRecordNodeSetEvent(exec, record, (CUevent)exec));
    OK(cuGraphEventRecordNodeSetEvent(record, t.events[2]));
    OK(cuGraphEventWaitNodeSetEvent(wait, t.events[3]));
    OK(cuGraphExecEventRecordNodeSetEvent(exec, record, t.events[4]));
    OK(cuGraphExecEventWaitNodeSetEvent(exec, wait, t.events[5]));

    /* A wait for what was never recorded is over. */
    OK(testing_launch(t.kernel, t.streams[1], 100, 50000, 0));
    OK(cuEventRecord(t.events[5], t.streams[1]));
    OK(cuGraphLaunch(exec, t.streams[0]));
    OK(cuEventRecord(t.events[6], t.streams[0]));
    testing_step(40000);
    HOLDS(cuEventQuery(t.events[6]) == CUDA_ERROR_NOT_READY);
    testing_step(10000);
    OK(cuEventQuery(t.events[6]));
    HOLDS(testing_between(t.events[4], t.events[6]) == 50000);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&(float){0}, t.events[0], t.events[6]));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime_v2(&(float){0}, t.events[2], t.events[6]));

    params.event.event = t.events[7];
    OK(cuGraphExecNodeSetParams(exec, record, &params));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1000);
    OK(cuEventElapsedTime_v2(&(float){0}, t.events[7], t.events[6]));
    OK(cuGraphNodeSetParams(record, &params));
    INVALID(cuGraphNodeSetParams(wait, &params));
}

HOLDS_IN(kernels_of_what_can_be_launched_take_memory, "graph-node=3328", kernels_take_memory)
HOLDS_IN(a_graph_runs_what_was_added_in_order, "", kernels_run)
HOLDS_IN(a_kernel_runs_on_its_own_device, "graph-node=1Mi", kernels_run_on_two_devices)
HOLDS_IN(a_condition_chooses_bodies, "", conditions)
HOLDS_IN(a_child_is_a_copy, "", children)
HOLDS_IN(events_of_nodes_may_change, "event-resolution=1ns", events_change)
HOLDS_IN(a_circle_is_no_graph, "", circles)
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
        cmocka_unit_test(a_graph_runs_what_was_added_in_order),
        cmocka_unit_test(a_kernel_runs_on_its_own_device),
        cmocka_unit_test(a_condition_chooses_bodies),
        cmocka_unit_test(a_child_is_a_copy),
        cmocka_unit_test(events_of_nodes_may_change),
        cmocka_unit_test(a_circle_is_no_graph),
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
