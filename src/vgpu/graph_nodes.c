/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes of graphs that may allocate, and those that set or copy memory (graph_homes.h). */

#include <string.h>

#include "vgpu/compute_row.h"
#include "vgpu/contexts.h"
#include "vgpu/graph_homes.h"
#include "vgpu/graphs.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

enum {
    NODE_PARAMS_SIZE = sizeof(CUgraphNodeParams),
};

/* Whether a node may allocate so. Managed memory of a device is that device's as any; of no device
 * drivers have none (H200, driver 580), and nobody could tell where it is. */
static CUresult expect_memory(const CUDA_MEM_ALLOC_NODE_PARAMS *params, const char *name)
{
    const CUmemLocation *place = &params->poolProps.location;
    enum vgpu_mode mode = vgpu_mode();

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graphs_will_allocate();
    if (mode != VGPU_ON)
        return CUDA_SUCCESS;
    if (params->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED &&
        pools_refuse_graph(place, name))
        return CUDA_ERROR_NOT_SUPPORTED;
    return pools_know_place(place, name) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* The driver is given what was looked at, and says in it where the memory will be. */
PUBLIC CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUDA_MEM_ALLOC_NODE_PARAMS own;
    CUresult result;

    (void)real_driver();
    if (!params)
        return REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, NULL);
    own = *params;
    result = expect_memory(&own, "cuGraphAddMemAllocNode");
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, &own);
    if (result == CUDA_SUCCESS)
        params->dptr = own.dptr;
    return result;
}

/* Where a node runs; the driver takes no context for the current one. */
static void found_transfer(uint64_t to, CUcontext context)
{
    if (graph_homes_matter() && vgpu_mode() == VGPU_ON)
        graph_homes_found_transfer(to, context ? contexts_device(context) : vgpu_current_device());
}

PUBLIC CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS own;

    (void)real_driver();
    if (!params)
        return REAL(cuGraphAddMemsetNode)(node, graph, dependencies, count, NULL, context);
    own = *params;
    found_transfer(own.dst, context);
    return REAL(cuGraphAddMemsetNode)(node, graph, dependencies, count, &own, context);
}

PUBLIC CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_MEMCPY3D *params, CUcontext context)
{
    CUDA_MEMCPY3D own;

    (void)real_driver();
    if (!params)
        return REAL(cuGraphAddMemcpyNode)(node, graph, dependencies, count, NULL, context);
    own = *params;
    found_transfer(graph_homes_target(&own), context);
    return REAL(cuGraphAddMemcpyNode)(node, graph, dependencies, count, &own, context);
}

PUBLIC CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    CUDA_MEMSET_NODE_PARAMS own;

    (void)real_driver();
    if (!params)
        return REAL(cuGraphMemsetNodeSetParams)(node, NULL);
    own = *params;
    graph_homes_moved_transfer(node, CU_GRAPH_NODE_TYPE_MEMSET, own.dst);
    return REAL(cuGraphMemsetNodeSetParams)(node, &own);
}

PUBLIC CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    CUDA_MEMCPY3D own;

    (void)real_driver();
    if (!params)
        return REAL(cuGraphMemcpyNodeSetParams)(node, NULL);
    own = *params;
    graph_homes_moved_transfer(node, CU_GRAPH_NODE_TYPE_MEMCPY, graph_homes_target(&own));
    return REAL(cuGraphMemcpyNodeSetParams)(node, &own);
}

/*
 * A node may be of any type. The driver is given what was looked at: in the caller's memory another
 * thread could change the type in between. What the driver says of a node there, the caller finds
 * where it looks for it, except for the type.
 */
struct node_params {
    union {
        CUgraphNodeParams head;
        _Alignas(16) unsigned char bytes[NODE_PARAMS_SIZE];
    } own;
};

/* Where the driver finds them, NULL when there are none. */
static CUgraphNodeParams *take_params(const CUgraphNodeParams *params, struct node_params *taken)
{
    if (!params)
        return NULL;
    memcpy(taken->own.bytes, params, NODE_PARAMS_SIZE);
    return &taken->own.head;
}

static void give_params(const struct node_params *taken, CUgraphNode node,
                        CUgraphNodeParams *params)
{
    const size_t from = offsetof(CUgraphNodeParams, reserved0);
    const size_t size = NODE_PARAMS_SIZE - from;
    unsigned char *to = (unsigned char *)params + from;

    /* The driver leaves those of most types as they are, and they may be where nobody can write. */
    if (params && memcmp(to, taken->own.bytes + from, size) != 0)
        memcpy(to, taken->own.bytes + from, size);
    if (params && taken->own.head.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        graph_homes_found_condition(node, taken->own.head.conditional.ctx);
}

/* It would be recorded by the graph. */
static bool names_own_event(const CUgraphNodeParams *params)
{
    return params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
           compute_is_own_event(params->event.event);
}

static void expect_transfer(const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        found_transfer(params->set.params.dst, params->set.context);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        found_transfer(graph_homes_target(&params->copy.params), params->copy.context);
}

/* An error is the answer. */
static CUresult expect_node(CUgraphNodeParams *params, const char *name)
{
    if (!params)
        return CUDA_SUCCESS;
    if (names_own_event(params))
        return CUDA_ERROR_INVALID_HANDLE;
    expect_transfer(params);
    return params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? expect_memory(&params->alloc, name)
                                                        : CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    (void)real_driver();
    result = expect_node(own, "cuGraphAddNode");
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGraphAddNode)(node, graph, dependencies, count, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, node ? *node : NULL, params);
    return result;
}

/* The body of a function that adds a node with edges. */
#define ADD_NODE(name)                                                                             \
    struct node_params taken;                                                                      \
    CUgraphNodeParams *own = take_params(params, &taken);                                          \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    result = expect_node(own, #name);                                                              \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = REAL(name)(node, graph, dependencies, edges, count, own);                             \
    if (result == CUDA_SUCCESS)                                                                    \
        give_params(&taken, node ? *node : NULL, params);                                          \
    return result

PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    ADD_NODE(cuGraphAddNode_v2);
}

PUBLIC CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    ADD_NODE(cuGraphAddNode_v3);
}

/* What a node was found to be for, and the context in its other parameters, are noted both: the
 * driver may follow either. */
#define SET_NODE(name)                                                                             \
    struct node_params taken;                                                                      \
    CUgraphNodeParams *own = take_params(params, &taken);                                          \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    if (own && names_own_event(own))                                                               \
        return CUDA_ERROR_INVALID_HANDLE;                                                          \
    if (own)                                                                                       \
        change_transfer(node, own);                                                                \
    result = REAL(name)(node, own);                                                                \
    if (result == CUDA_SUCCESS)                                                                    \
        give_params(&taken, NULL, params);                                                         \
    return result

static void change_transfer(CUgraphNode node, const CUgraphNodeParams *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        graph_homes_moved_transfer(node, params->type, params->set.params.dst);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        graph_homes_moved_transfer(node, params->type, graph_homes_target(&params->copy.params));
    expect_transfer(params);
}

PUBLIC CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    SET_NODE(cuGraphNodeSetParams);
}

PUBLIC CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
    SET_NODE(cuGraphNodeSetParams_v2);
}

/* Memory that a node sets, or copies to, stays of the context that it was of, by the driver. */
PUBLIC CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    (void)real_driver();
    if (own && names_own_event(own))
        return CUDA_ERROR_INVALID_HANDLE;
    result = REAL(cuGraphExecNodeSetParams)(exec, node, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, NULL, params);
    return result;
}
