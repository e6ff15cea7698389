/* SPDX-License-Identifier: Apache-2.0 */

/* The nodes of graphs: adding them, and what they are. */

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/graph_memory.h"
#include "simdriver/guest.h"

static CUresult check(const void *wanted)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    return wanted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Adding nodes */

PUBLIC CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                                    const CUgraphNode *dependencies, size_t count)
{
    CUresult r = check(node);

    if (r != CUDA_SUCCESS)
        return r;
    return graph_insert(node, graph, dependencies, count,
                        &(struct graph_node){.type = CU_GRAPH_NODE_TYPE_EMPTY});
}

static CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct graph_node *ret)
{
    uint32_t context;
    CUresult r;

    if (params->ctx && guest_check() == CUDA_SUCCESS)
        r = guest_find_context(params->ctx, &context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    else
        r = guest_current(&context);
    if (r != CUDA_SUCCESS)
        return r;
    return guest_make_kernel(params, context, ret);
}

PUBLIC CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                        const CUgraphNode *dependencies, size_t count,
                                        const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node like;
    CUresult r = check(params);

    if (r == CUDA_SUCCESS)
        r = make_kernel(params, &like);
    return r == CUDA_SUCCESS ? graph_insert(node, graph, dependencies, count, &like) : r;
}

PUBLIC CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (params)
        memcpy(&wide, params, sizeof(*params));
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, params ? &wide : NULL);
}

static CUresult check_set(const CUDA_MEMSET_NODE_PARAMS *params)
{
    bool managed;

    (void)sim_lock(guest.sim);
    managed = guest_managed_has(params->dst);
    sim_unlock(guest.sim);
    if ((!managed && !guest_has(params->dst)) || !params->width || !params->height ||
        (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_MEMSET_NODE_PARAMS *params, CUcontext handle)
{
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    CUresult r = check(params);

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_context(handle, &like.context))
        return CUDA_ERROR_INVALID_CONTEXT;
    r = check_set(params);
    if (r != CUDA_SUCCESS)
        return r;
    like.context_gen = guest_context(like.context)->gen;
    like.set = *params;
    like.op = guest_make_set(params, like.context);
    return graph_insert(node, graph, dependencies, count, &like);
}

/* Where it runs stays. */
PUBLIC CUresult cuGraphMemsetNodeSetParams(CUgraphNode handle,
                                           const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->type == CU_GRAPH_NODE_TYPE_MEMSET ? params : NULL);

    if (r == CUDA_SUCCESS)
        r = check_set(params);
    if (r != CUDA_SUCCESS)
        return r;
    node->set = *params;
    node->op = guest_make_set(params, node->context);
    return CUDA_SUCCESS;
}

/* Within a device. */
PUBLIC CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_MEMCPY3D *params, CUcontext handle)
{
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    CUresult r = check(params);

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_context(handle, &like.context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (params->dstMemoryType != CU_MEMORYTYPE_DEVICE ||
        params->srcMemoryType != CU_MEMORYTYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    like.context_gen = guest_context(like.context)->gen;
    like.copied_from = params->srcDevice;
    like.set = (CUDA_MEMSET_NODE_PARAMS){
        .dst = params->dstDevice,
        .elementSize = 1,
        .width = params->WidthInBytes,
        .height = params->Height * params->Depth,
    };
    r = check_set(&like.set);
    if (r != CUDA_SUCCESS || !guest_has(params->srcDevice))
        return CUDA_ERROR_INVALID_VALUE;
    like.op = guest_make_copy(&like.set, like.context);
    return graph_insert(node, graph, dependencies, count, &like);
}

PUBLIC CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->type == CU_GRAPH_NODE_TYPE_MEMSET ? params : NULL);

    if (r == CUDA_SUCCESS)
        *params = node->set;
    return r;
}

PUBLIC CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *params)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->type == CU_GRAPH_NODE_TYPE_MEMCPY ? params : NULL);
    int type;

    if (r != CUDA_SUCCESS)
        return r;
    type = node->op.kind ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    *params = (CUDA_MEMCPY3D){
        .srcMemoryType = type,
        .srcDevice = node->copied_from,
        .dstMemoryType = type,
        .dstDevice = node->set.dst,
        .WidthInBytes = node->set.width,
        .Height = node->set.height,
        .Depth = 1,
    };
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                         const CUgraphNode *dependencies, size_t count,
                                         CUgraph child_handle)
{
    const struct graph *from = graph_find(child_handle, GRAPH_MAGIC);
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult r = check(from);

    if (r != CUDA_SUCCESS)
        return r;
    if (from->capturing || (CUgraph)from == graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_memory(from) || graph_has_conditions(from))
        return CUDA_ERROR_NOT_SUPPORTED;
    like.child = graph_new(GRAPH_MAGIC);
    if (!like.child)
        return CUDA_ERROR_OUT_OF_MEMORY;
    like.child->is_child = true;
    r = graph_copy(like.child, from) ? graph_insert(node, graph, dependencies, count, &like)
                                     : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS)
        graph_free(like.child);
    return r;
}

bool guest_make_event(CUevent handle, CUgraphNodeType type, struct graph_node *ret_like)
{
    uint32_t event;
    bool found;

    *ret_like = (struct graph_node){.type = type};
    (void)sim_lock(guest.sim);
    found = guest_find_event(handle, &event);
    if (found)
        ret_like->op = (struct sim_op){
            .kind = type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? SIM_OP_RECORD : SIM_OP_WAIT,
            .target = event,
            .gen = guest_state()->events[event].gen,
        };
    sim_unlock(guest.sim);
    return found;
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count, CUevent handle, CUgraphNodeType type)
{
    struct graph_node like;
    CUresult r = check(node);

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_make_event(handle, type, &like))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_insert(node, graph, dependencies, count, &like);
}

PUBLIC CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *dependencies, size_t count,
                                          CUevent event)
{
    return add_event(node, graph, dependencies, count, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

PUBLIC CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph,
                                        const CUgraphNode *dependencies, size_t count,
                                        CUevent event)
{
    return add_event(node, graph, dependencies, count, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

/* Memory */

/* A program may give it to this device only. */
static bool is_access_to(const struct guest_place *place, const CUmemLocation *to)
{
    return to->type == CU_MEM_LOCATION_TYPE_DEVICE && guest_check_device(to->id) == CUDA_SUCCESS &&
           (place->on_host || place->device == guest.devices[to->id]);
}

static CUresult check_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct guest_place *ret_place)
{
    const CUmemPoolProps *props = &params->poolProps;
    CUresult r;

    if (!params->bytesize || props->handleTypes ||
        (params->accessDescCount && !params->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_pool_place(props, ret_place);
    if (r != CUDA_SUCCESS)
        return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r;
    if (!graph_memory_may_be(ret_place))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < params->accessDescCount; i++) {
        if (!is_access_to(ret_place, &params->accessDescs[i].location))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* One that is instantiated stays as it is. */
PUBLIC CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult r = check(params);
    struct guest_place place;

    if (r == CUDA_SUCCESS)
        r = check_alloc(params, &place);
    if (r != CUDA_SUCCESS)
        return r;
    like.memory = graph_memory_new(&place, params->bytesize);
    if (!like.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = graph_insert(node, graph, dependencies, count, &like);
    if (r == CUDA_SUCCESS)
        params->dptr = like.memory->address;
    graph_memory_drop(like.memory);
    return r;
}

static const struct graph_node *find_taking(const struct graph *graph,
                                            const struct graph_memory *memory)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            graph->nodes[i]->memory == memory)
            return graph->nodes[i];
    }
    return NULL;
}

/* What the graph takes itself it frees afterwards. */
static bool comes_after(const struct graph_node *taking, const CUgraphNode *dependencies,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct graph_node *before = graph_find_node(dependencies[i]);

        if (before == taking || graph_is_before(taking, before))
            return true;
    }
    return false;
}

PUBLIC CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph handle,
                                      const CUgraphNode *dependencies, size_t count,
                                      CUdeviceptr ptr)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    struct graph_node like = {
        .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
        .memory = graph_memory_find(ptr),
    };
    const struct graph_node *taking;
    CUresult r = check(graph);

    if (r != CUDA_SUCCESS)
        return r;
    if (!graph_may_free(graph, like.memory) || (count && !dependencies) ||
        !graph_has_nodes(graph, dependencies, count))
        return CUDA_ERROR_INVALID_VALUE;
    taking = find_taking(graph, like.memory);
    if (taking && !comes_after(taking, dependencies, count))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_insert(node, handle, dependencies, count, &like);
}

static CUmemLocation location_of(const struct guest_place *place)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

    if (place->preferred == GUEST_PLACE_HOST)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    if (place->preferred == GUEST_PLACE_NONE)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_NONE};
    while (guest.devices[location.id] != place->device)
        location.id++;
    return location;
}

PUBLIC CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(params);

    if (r != CUDA_SUCCESS)
        return r;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = node->memory->place.managed ? CU_MEM_ALLOCATION_TYPE_MANAGED
                                                               : CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = location_of(&node->memory->place)},
        .bytesize = node->memory->asked_bytes,
        .dptr = node->memory->address,
    };
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *ptr)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(ptr);

    if (r != CUDA_SUCCESS)
        return r;
    if (!node || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *ptr = node->memory->address;
    return CUDA_SUCCESS;
}

/* Conditional nodes */

PUBLIC CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
                                               CUcontext context_handle, unsigned int initial,
                                               unsigned int flags)
{
    struct graph *of = graph_find(graph, GRAPH_MAGIC);
    struct graph_condition *condition;
    CUresult r = check(of ? handle : NULL);
    uint32_t context;

    if (r != CUDA_SUCCESS)
        return r;
    if (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    if (context_handle)
        r = guest_find_context(context_handle, &context) ? CUDA_SUCCESS
                                                         : CUDA_ERROR_INVALID_CONTEXT;
    else
        r = guest_current(&context);
    if (r != CUDA_SUCCESS)
        return r;
    condition = graph_add_condition(of, NULL);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    condition->context = context;
    condition->context_gen = guest_context(context)->gen;
    condition->initial = initial;
    condition->assigns = flags & CU_GRAPH_COND_ASSIGN_DEFAULT;
    *handle = condition->id;
    return CUDA_SUCCESS;
}

static bool may_have_bodies(int type, unsigned count)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return count == 1 || count == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return count == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return count > 0 && count <= 1024;
    default:
        return false;
    }
}

static bool add_bodies(struct graph_node *node, unsigned count)
{
    node->bodies = calloc(count, sizeof(struct graph *));
    for (unsigned i = 0; node->bodies && i < count; i++) {
        node->bodies[i] = graph_new(GRAPH_MAGIC);
        if (!node->bodies[i])
            return false;
        node->bodies[i]->is_child = true;
        node->bodies[i]->around = node->graph;
        node->body_count = i + 1;
    }
    return node->bodies != NULL;
}

/* Of one context, as all kernels of its bodies have to be. */
static CUresult add_conditional(CUgraphNode *ret, CUgraph handle, const CUgraphNode *dependencies,
                                size_t count, CUgraphNodeParams *params)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL}, *node;
    struct graph_condition *condition =
        graph ? graph_find_condition(graph, params->conditional.handle) : NULL;
    uint32_t context;
    CUresult r = CUDA_SUCCESS;

    if (!condition || condition->used ||
        !may_have_bodies(params->conditional.type, params->conditional.size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!params->conditional.ctx)
        r = guest_current(&context);
    else if (!guest_find_context(params->conditional.ctx, &context))
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && context != condition->context)
        r = CUDA_ERROR_INVALID_VALUE;
    like.decides = condition->id;
    like.choice = params->conditional.type;
    if (r == CUDA_SUCCESS)
        r = graph_insert(ret, handle, dependencies, count, &like);
    if (r != CUDA_SUCCESS)
        return r;
    node = graph_find_node(*ret);
    if (!add_bodies(node, params->conditional.size)) {
        graph_remove(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    condition->used = true;
    params->conditional.phGraph_out = (CUgraph *)node->bodies;
    return CUDA_SUCCESS;
}

/* Any type */

PUBLIC CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params)
{
    CUresult r = check(params);

    if (r != CUDA_SUCCESS)
        return r;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &params->kernel);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(node, graph, dependencies, count);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cuGraphAddMemsetNode(node, graph, dependencies, count, &params->set.params,
                                    params->set.context);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(node, graph, dependencies, count, &params->copy.params,
                                    params->copy.context);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (params->graph.ownership)
            return CUDA_ERROR_NOT_SUPPORTED;
        return cuGraphAddChildGraphNode(node, graph, dependencies, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(node, graph, dependencies, count, params->event.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(node, graph, dependencies, count, params->event.event);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        return cuGraphAddExternalSemaphoresSignalNode(node, graph, dependencies, count,
                                                      &params->semaphores.params);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return cuGraphAddExternalSemaphoresWaitNode(node, graph, dependencies, count,
                                                    &params->semaphores.params);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(node, graph, dependencies, count, &params->alloc);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return add_conditional(node, graph, dependencies, count, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(node, graph, dependencies, count, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* No edge has data here. */
PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, params);
}

PUBLIC CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

/* What a node is */

PUBLIC CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node ? type : NULL);

    if (r == CUDA_SUCCESS)
        *type = node->type;
    return r;
}

PUBLIC CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *graph)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->child ? graph : NULL);

    if (r == CUDA_SUCCESS)
        *graph = (CUgraph)node->child;
    return r;
}

static CUresult get_event(CUgraphNode handle, CUevent *event, CUgraphNodeType type)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->type == type ? event : NULL);

    /* Also when that event is gone. */
    if (r == CUDA_SUCCESS)
        *event = guest_event_handle(node->op.target, node->op.gen);
    return r;
}

PUBLIC CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

PUBLIC CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static CUresult set_event(CUgraphNode handle, CUevent event, CUgraphNodeType type)
{
    struct graph_node *node = graph_find_node(handle), like;
    CUresult r = check(node && node->type == type ? event : NULL);

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_make_event(event, type, &like))
        return CUDA_ERROR_INVALID_VALUE;
    graph_set_work(node, &like);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_event(node, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

PUBLIC CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return set_event(node, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

PUBLIC CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node && node->type == CU_GRAPH_NODE_TYPE_KERNEL ? params : NULL);

    if (r == CUDA_SUCCESS)
        *params = node->kernel;
    return r;
}

PUBLIC CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide;
    CUresult r = cuGraphKernelNodeGetParams_v2(node, params ? &wide : NULL);

    if (r == CUDA_SUCCESS)
        memcpy(params, &wide, sizeof(*params));
    return r;
}

PUBLIC CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle,
                                              const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_node *node = graph_find_node(handle), like;
    CUresult r = check(node && node->type == CU_GRAPH_NODE_TYPE_KERNEL ? params : NULL);

    if (r == CUDA_SUCCESS)
        r = make_kernel(params, &like);
    if (r != CUDA_SUCCESS)
        return r;
    graph_set_work(node, &like);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (params)
        memcpy(&wide, params, sizeof(*params));
    return cuGraphKernelNodeSetParams_v2(node, params ? &wide : NULL);
}

/* Other types keep what they have. */
PUBLIC CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    CUresult r = check(params);

    if (r != CUDA_SUCCESS)
        return r;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphKernelNodeSetParams_v2(node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cuGraphMemsetNodeSetParams(node, &params->set.params);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return set_event(node, params->event.event, params->type);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
        return cuGraphExternalSemaphoresSignalNodeSetParams(node, &params->semaphores.params);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return cuGraphExternalSemaphoresWaitNodeSetParams(node, &params->semaphores.params);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

PUBLIC CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams *params)
{
    return cuGraphNodeSetParams(node, params);
}
