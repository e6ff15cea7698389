/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs that programs make themselves: what they are made of, and how it runs. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/graph_fixture.h"

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

    before = graph_begin();
    testing_begin_context(&other, 1);
    other_before = testing_used_on_bytes(1);
    node = kernel_of(&other, kernel_after(NULL, 1000), 2000);
    (void)kernel_after(node, 3000);
    OK(cuGraphKernelNodeGetParams_v2(node, &params));
    OK(cuFuncGetModule(&module, params.func));
    HOLDS(module == other.module && !params.ctx);
    graph_instantiate();
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
    graph_instantiate();
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

    (void)graph_begin();
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

    (void)graph_begin();
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
    graph_instantiate();
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

    (void)graph_begin();
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
    graph_instantiate();
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

    (void)graph_begin();
    first = kernel_after(NULL, 1);
    second = kernel_after(first, 1);
    OK(cuGraphAddDependencies(graph, &second, &first, 1));
    INVALID(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphRemoveDependencies(graph, &second, &first, 1));
    graph_instantiate();
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

/* What a node records, or waits for, may be changed; what was made executable keeps its own. */
static void events_change(void)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    CUgraphNode record, wait;

    (void)graph_begin();
    OK(cuGraphAddEventRecordNode(&record, graph, NULL, 0, t.events[0]));
    OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, t.events[1]));
    graph_instantiate();
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

HOLDS_IN(a_graph_runs_what_was_added_in_order, "", kernels_run)
HOLDS_IN(a_kernel_runs_on_its_own_device, "graph-node=1Mi", kernels_run_on_two_devices)
HOLDS_IN(a_condition_chooses_bodies, "", conditions)
HOLDS_IN(a_child_is_a_copy, "", children)
HOLDS_IN(events_of_nodes_may_change, "event-resolution=1ns", events_change)
HOLDS_IN(a_circle_is_no_graph, "", circles)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_runs_what_was_added_in_order),
        cmocka_unit_test(a_kernel_runs_on_its_own_device),
        cmocka_unit_test(a_condition_chooses_bodies),
        cmocka_unit_test(a_child_is_a_copy),
        cmocka_unit_test(events_of_nodes_may_change),
        cmocka_unit_test(a_circle_is_no_graph),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
