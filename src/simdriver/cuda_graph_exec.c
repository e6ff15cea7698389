/* SPDX-License-Identifier: Apache-2.0 */

/* Other parameters for a node of what is launched; the graph that it was made of stays as it is. */

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"

PUBLIC CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node_handle,
                                                  const CUDA_KERNEL_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(node_handle);
    const struct graph *exec = graph_find(handle, GRAPH_EXEC_MAGIC);
    struct graph_node *copy = exec && node ? graph_find_copy(exec, node) : NULL;
    struct graph_node like;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!copy || !params || copy->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_make_kernel(params, context, &like);
    if (r == CUDA_SUCCESS && like.context != copy->context)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        graph_set_work(copy, &like);
    return r;
}

PUBLIC CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (params)
        memcpy(&wide, params, sizeof(*params));
    return cuGraphExecKernelNodeSetParams_v2(exec, node, params ? &wide : NULL);
}

static CUresult set_exec_event(CUgraphExec handle, CUgraphNode node_handle, CUevent event,
                               CUgraphNodeType type)
{
    const struct graph_node *node = graph_find_node(node_handle);
    const struct graph *exec = graph_find(handle, GRAPH_EXEC_MAGIC);
    struct graph_node *copy = exec && node ? graph_find_copy(exec, node) : NULL;
    struct graph_node like;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!copy || copy->type != type || !guest_make_event(event, type, &like))
        return CUDA_ERROR_INVALID_VALUE;
    graph_set_work(copy, &like);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                   CUevent event)
{
    return set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

PUBLIC CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return set_exec_event(exec, node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

/* Other types keep what they have. */
PUBLIC CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         CUgraphNodeParams *params)
{
    if (!params)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphExecKernelNodeSetParams_v2(exec, node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return set_exec_event(exec, node, params->event.event, params->type);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        return cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, node,
                                                                &params->semaphores.params);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, node,
                                                              &params->semaphores.params);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
