/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes of graphs that may allocate. */

#include <string.h>

#include "vgpu/graph_homes.h"
#include "vgpu/graphs.h"
#include "vgpu/real.h"

enum {
    NODE_PARAMS_SIZE = sizeof(CUgraphNodeParams),
};

PUBLIC CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graphs_will_allocate();
    return REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params);
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

    if (params)
        memcpy((unsigned char *)params + from, taken->own.bytes + from, NODE_PARAMS_SIZE - from);
    if (params && taken->own.head.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        graph_homes_found_condition(node, taken->own.head.conditional.ctx);
}

/* False: it is out of memory. */
static bool expect_node(const CUgraphNodeParams *params)
{
    enum vgpu_mode mode = vgpu_mode();

    if (!params || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return true;
    graphs_will_allocate();
    return mode != VGPU_DENIED;
}

PUBLIC CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    (void)real_driver();
    if (!expect_node(own))
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    if (!expect_node(own))                                                                         \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
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
