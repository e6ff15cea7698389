/* SPDX-License-Identifier: Apache-2.0 */

/* The nodes of graphs that signal external semaphores, and wait for them. */

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"
#include "simdriver/semaphores.h"

static CUgraphNodeType type_of(bool signals)
{
    return signals ? CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL : CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
}

/* With a hold on the semaphores, which the caller drops. */
static CUresult make(bool signals, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params,
                     struct graph_node *ret_like)
{
    CUresult r = guest_check();

    *ret_like = (struct graph_node){.type = type_of(signals)};
    if (r != CUDA_SUCCESS)
        return r;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    r = semaphores_new(signals, params->extSemArray, params->paramsArray, params->numExtSems,
                       &ret_like->semaphores);
    return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
}

static CUresult add(bool signals, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                    size_t count, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    struct graph_node like;
    CUresult r = make(signals, params, &like);

    if (r != CUDA_SUCCESS)
        return r;
    r = graph_insert(node, graph, dependencies, count, &like);
    semaphores_drop(like.semaphores);
    return r;
}

/* The lists are the node's. */
static CUresult get(bool signals, CUgraphNode handle, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!node || node->type != type_of(signals) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){
        .extSemArray = node->semaphores->list,
        .paramsArray = node->semaphores->params,
        .numExtSems = node->semaphores->count,
    };
    return CUDA_SUCCESS;
}

static CUresult set(bool signals, struct graph_node *node,
                    const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    struct graph_node like;
    CUresult r = make(signals, node && node->type == type_of(signals) ? params : NULL, &like);

    if (r != CUDA_SUCCESS)
        return r;
    graph_set_work(node, &like);
    semaphores_drop(like.semaphores);
    return CUDA_SUCCESS;
}

/* As many as before. */
static CUresult set_launched(bool signals, CUgraphExec exec_handle, CUgraphNode handle,
                             const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(handle);
    const struct graph *exec = graph_find(exec_handle, GRAPH_EXEC_MAGIC);
    struct graph_node *copy = exec && node ? graph_find_copy(exec, node) : NULL;

    if (copy && copy->semaphores && params && params->numExtSems != copy->semaphores->count)
        copy = NULL;
    return set(signals, copy, params);
}

PUBLIC CUresult cuGraphAddExternalSemaphoresSignalNode(
    CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
    const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    return add(true, node, graph, dependencies, count, params);
}

PUBLIC CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *node, CUgraph graph,
                                                     const CUgraphNode *dependencies, size_t count,
                                                     const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    return add(false, node, graph, dependencies, count, params);
}

PUBLIC CUresult cuGraphExternalSemaphoresSignalNodeGetParams(
    CUgraphNode node, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    return get(true, node, params);
}

PUBLIC CUresult cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode node,
                                                           CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    return get(false, node, params);
}

PUBLIC CUresult cuGraphExternalSemaphoresSignalNodeSetParams(
    CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    return set(true, graph_find_node(node), params);
}

PUBLIC CUresult cuGraphExternalSemaphoresWaitNodeSetParams(
    CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    return set(false, graph_find_node(node), params);
}

PUBLIC CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    return set_launched(true, exec, node, params);
}

PUBLIC CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(
    CUgraphExec exec, CUgraphNode node, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    return set_launched(false, exec, node, params);
}
