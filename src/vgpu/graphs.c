/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graphs.h"

#include "vgpu/graph_demand.h"
#include "vgpu/real.h"

_Atomic bool graphs_any;

void graphs_will_allocate(void)
{
    if (!graphs_allocate())
        atomic_store(&graphs_any, true);
}

/* Making what is launched */

/* One that nobody can know the demand of is not made. */
static CUresult instantiated(CUgraphExec *exec, CUgraph graph, CUresult result)
{
    struct graph_demand demand = {0};

    if (result != CUDA_SUCCESS || !graphs_allocate() || vgpu_mode() != VGPU_ON)
        return result;
    if (graph_demand_of(&demand, graph) &&
        (!graph_demand_is_any(&demand) || graph_demand_remember(*exec, &demand)))
        return CUDA_SUCCESS;
    (void)REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller's is written when all is well, or by the driver that found something wrong. */
#define INSTANTIATE(name, ...)                                                                     \
    CUgraphExec made = NULL, *own = exec ? &made : NULL;                                           \
    CUresult result;                                                                               \
    bool held;                                                                                     \
                                                                                                   \
    (void)real_driver();                                                                           \
    held = graphs_begin_change();                                                                  \
    result = instantiated(own, graph, REAL(name)(own, __VA_ARGS__));                               \
    graphs_end_change(held);                                                                       \
    if (result == CUDA_SUCCESS)                                                                    \
        *exec = made;                                                                              \
    return result

PUBLIC CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t log_size)
{
    INSTANTIATE(cuGraphInstantiate, graph, error_node, log, log_size);
}

PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                      char *log, size_t log_size)
{
    INSTANTIATE(cuGraphInstantiate_v2, graph, error_node, log, log_size);
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    INSTANTIATE(cuGraphInstantiateWithFlags, graph, flags);
}

typedef CUresult (*with_params_fn)(CUgraphExec *exec, CUgraph graph,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params);

/* What is uploaded at once takes its memory at once: that is done apart, as any upload. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            bool per_thread, with_params_fn driver)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS own = *params;
    bool uploads = graphs_allocate() && (own.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    CUgraphExec made = NULL;
    CUresult result;
    bool held;

    if (uploads)
        own.flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    held = graphs_begin_change();
    result = driver(exec ? &made : NULL, graph, &own);
    params->hErrNode_out = own.hErrNode_out;
    params->result_out = own.result_out;
    result = instantiated(&made, graph, result);
    graphs_end_change(held);
    if (result == CUDA_SUCCESS && uploads) {
        result = graphs_upload(made, own.hUploadStream, per_thread);
        if (result != CUDA_SUCCESS)
            (void)cuGraphExecDestroy(made);
    }
    if (result == CUDA_SUCCESS)
        *exec = made;
    return result;
}

PUBLIC CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    (void)real_driver();
    if (!params)
        return REAL(cuGraphInstantiateWithParams)(exec, graph, NULL);
    return instantiate(exec, graph, params, false, REAL(cuGraphInstantiateWithParams));
}

PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    (void)real_driver();
    if (!params)
        return REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, NULL);
    return instantiate(exec, graph, params, true, REAL(cuGraphInstantiateWithParams_ptsz));
}

/* Whatever of it was replaced: it may allocate what either graph does. */
static CUresult updated(CUgraphExec exec, CUgraph graph, CUresult result)
{
    struct graph_demand demand = {0}, before;

    if (result != CUDA_SUCCESS || !graphs_allocate() || vgpu_mode() != VGPU_ON ||
        !graph_demand_of(&demand, graph) || !graph_demand_is_any(&demand))
        return result;
    for (unsigned i = 0; graph_demand_look(exec, &before) && i < vgpu.device_count; i++) {
        demand.bytes[i] = MAX(demand.bytes[i], before.bytes[i]);
        demand.largest[i] = MAX(demand.largest[i], before.largest[i]);
    }
    (void)graph_demand_remember(exec, &demand);
    return result;
}

PUBLIC CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                  int *update_result)
{
    bool held;
    CUresult result;

    (void)real_driver();
    held = graphs_begin_change();
    result = updated(exec, graph, REAL(cuGraphExecUpdate)(exec, graph, error_node, update_result));
    graphs_end_change(held);
    return result;
}

PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                     CUgraphExecUpdateResultInfo *info)
{
    bool held;
    CUresult result;

    (void)real_driver();
    held = graphs_begin_change();
    result = updated(exec, graph, REAL(cuGraphExecUpdate_v2)(exec, graph, info));
    graphs_end_change(held);
    return result;
}

/* What was made executable of it is looked up in it. */
PUBLIC CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result;
    bool held;

    (void)real_driver();
    held = graphs_begin_change();
    result = REAL(cuGraphDestroy)(graph);
    graphs_end_change(held);
    return result;
}

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct graph_demand demand;
    CUresult result;
    bool held;

    (void)real_driver();
    held = graphs_begin_change();
    result = REAL(cuGraphExecDestroy)(exec);
    if (held && result == CUDA_SUCCESS)
        (void)graph_demand_forget(exec, &demand);
    graphs_end_change(held);
    return result;
}
