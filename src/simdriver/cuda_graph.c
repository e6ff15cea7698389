/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs: making, launching and destroying them. Their nodes are in cuda_graph_node.c, and what a
 * node of one that is launched may become in cuda_graph_exec.c. */

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/graph_memory.h"
#include "simdriver/guest.h"
#include "simdriver/semaphores.h"

#define FLAGS                                                                                      \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |                                             \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static struct graph *find_graph(CUgraph handle)
{
    return graph_find(handle, GRAPH_MAGIC);
}

static struct graph *find_exec(CUgraphExec handle)
{
    return graph_find(handle, GRAPH_EXEC_MAGIC);
}

PUBLIC CUresult cuGraphCreate(CUgraph *ret, unsigned int flags)
{
    CUresult r = guest_check();
    struct graph *graph;

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret || flags)
        return CUDA_ERROR_INVALID_VALUE;
    graph = graph_new(GRAPH_MAGIC);
    if (graph)
        *ret = (CUgraph)graph;
    return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuGraphClone(CUgraph *ret, CUgraph handle)
{
    const struct graph *graph = find_graph(handle);
    CUresult r = guest_check();
    struct graph *clone;

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret || !graph || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_memory(graph) || graph_has_conditions(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    clone = graph_new(GRAPH_MAGIC);
    if (!clone || !graph_copy(clone, graph)) {
        graph_free(clone);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    clone->original = graph;
    *ret = (CUgraph)clone;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphNodeFindInClone(CUgraphNode *ret, CUgraphNode handle, CUgraph clone_handle)
{
    const struct graph_node *node = graph_find_node(handle);
    const struct graph *clone = find_graph(clone_handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    for (size_t i = 0; ret && node && clone && i < clone->count; i++) {
        if (clone->nodes[i]->origin != node)
            continue;
        *ret = (CUgraphNode)clone->nodes[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* What is launched */

static struct graph_node *add_empty(struct graph *exec, const struct graph_node *origin)
{
    struct graph_node like = {.type = origin->type};
    struct graph_node *node = graph_add(exec, &like);

    if (node)
        node->origin = origin;
    return node;
}

static CUresult flatten(struct graph *exec, const struct graph *graph);

/* What a body may have: kernels, the setting and copying of memory, and such nodes again. */
static bool may_be_body(const struct graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct graph_node *node = graph->nodes[i];

        switch (node->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_MEMSET:
        case CU_GRAPH_NODE_TYPE_EMPTY:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            continue;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (may_be_body(node->child))
                continue;
            return false;
        default:
            return false;
        }
    }
    return true;
}

/* The node, then what it may choose, each followed by one from which it goes on: where all is over,
 * or back to the node. */
static CUresult flatten_bodies(struct graph *exec, const struct graph_node *origin)
{
    struct graph_node *node = add_empty(exec, origin);
    const size_t at = exec->count - 1;
    CUresult r = CUDA_SUCCESS;

    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->decides = origin->decides;
    node->choice = origin->choice;
    node->body_count = origin->body_count;
    node->begins = calloc(origin->body_count + 1, sizeof(*node->begins));
    if (!node->begins)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < origin->body_count && r == CUDA_SUCCESS; i++) {
        node->begins[i] = exec->count;
        r = may_be_body(origin->bodies[i]) ? flatten(exec, origin->bodies[i])
                                           : CUDA_ERROR_NOT_SUPPORTED;
        if (r == CUDA_SUCCESS && !add_empty(exec, origin))
            r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r != CUDA_SUCCESS)
        return r;
    node->begins[origin->body_count] = exec->count;
    for (unsigned i = 0; i < origin->body_count; i++)
        exec->nodes[node->begins[i + 1] - 1]->goes_on =
            1 + (origin->choice == CU_GRAPH_COND_TYPE_WHILE ? at : exec->count);
    return CUDA_SUCCESS;
}

static bool copy_conditions(struct graph *exec, const struct graph *graph)
{
    for (const struct graph_condition *c = graph->conditions; c; c = c->next) {
        if (!graph_add_condition(exec, c))
            return false;
    }
    return true;
}

/* In order, a child's in its place, behind which the child itself does nothing. */
static CUresult flatten(struct graph *exec, const struct graph *graph)
{
    size_t count = 0;
    AUTOFREE struct graph_node **order = graph_order(graph, &count);
    CUresult r = CUDA_SUCCESS;

    if (!order)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count < graph->count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph->is_child && graph_has_memory(graph) && !graph_memory_plan(exec, order, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!copy_conditions(exec, graph))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct graph_node *node;

        if (order[i]->bodies) {
            r = flatten_bodies(exec, order[i]);
            continue;
        }
        if (order[i]->child) {
            r = flatten(exec, order[i]->child);
            node = add_empty(exec, order[i]);
        } else {
            node = graph_add(exec, order[i]);
        }
        if (!node)
            return CUDA_ERROR_OUT_OF_MEMORY;
        node->origin = order[i];
    }
    return r;
}

static bool context_is_there(const struct graph_side *side)
{
    return guest_context(side->context)->gen == side->context_gen;
}

static bool stream_is_there(const struct graph_side *side)
{
    return side->stream && context_is_there(side) &&
           guest_state()->streams[side->stream].gen == side->stream_gen;
}

/* NULL: there is no memory for it. */
static struct graph_side *side_in(struct graph *exec, uint32_t context)
{
    struct graph_side *side = exec->sides;

    while (side && (side->context != context || !context_is_there(side)))
        side = side->next;
    if (side)
        return side;
    side = calloc(1, sizeof(*side));
    if (!side)
        return NULL;
    *side = (struct graph_side){
        .context = context,
        .context_gen = guest_context(context)->gen,
        .next = exec->sides,
    };
    exec->sides = side;
    return side;
}

static void end_sides(struct graph *exec)
{
    while (exec->sides) {
        struct graph_side *side = exec->sides;

        exec->sides = side->next;
        if (side->own_bytes && context_is_there(side))
            guest_discharge_own(side->context, side->own_bytes);
        (void)sim_lock(guest.sim);
        if (stream_is_there(side))
            sim_stream_free(guest_state(), side->stream);
        sim_unlock(guest.sim);
        free(side);
    }
}

/* For each kernel, in its context. Other nodes take none. */
static bool take_own(struct graph *exec)
{
    const uint64_t each = guest_state()->header.driver.graph_node_bytes;

    for (size_t i = 0; each && i < exec->count; i++) {
        const struct graph_node *node = exec->nodes[i];
        struct graph_side *side;

        if (node->type != CU_GRAPH_NODE_TYPE_KERNEL)
            continue;
        side = side_in(exec, node->context);
        if (!side)
            return false;
        side->own_bytes += each;
    }
    for (struct graph_side *side = exec->sides; side; side = side->next) {
        if (guest_charge_own(side->context, side->own_bytes))
            continue;
        for (; side; side = side->next)
            side->own_bytes = 0; /* nothing to be given back */
        return false;
    }
    return true;
}

/* Whether each kernel's context is still there. */
static bool kernels_can_run(const struct graph *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const struct graph_node *node = exec->nodes[i];

        if (node->context && guest_context(node->context)->gen != node->context_gen)
            return false;
    }
    return true;
}

/* Whether each kernel's context has a stack that is large enough, or room for it. */
static bool kernels_have_stack(const struct graph *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const struct graph_node *node = exec->nodes[i];

        if (node->context && guest_grow_stack(node->context, node->context_gen,
                                              node->local_bytes) == CUDA_ERROR_OUT_OF_MEMORY)
            return false;
    }
    return true;
}

static void end_exec(struct graph *exec)
{
    if (!exec)
        return;
    end_sides(exec);
    graph_memory_forget(exec);
    graph_free(exec);
}

static CUresult instantiate(CUgraphExec *ret, struct graph *graph, unsigned long long flags)
{
    struct graph *exec;
    CUresult r;

    if (!ret || !graph || graph->capturing || (flags & ~(unsigned long long)FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct graph_condition *c = graph->conditions; c; c = c->next) {
        if (!c->used)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (graph->exec)
        return CUDA_ERROR_NOT_SUPPORTED;
    exec = graph_new(GRAPH_EXEC_MAGIC);
    r = exec ? flatten(exec, graph) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS && !kernels_can_run(exec))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && !(kernels_have_stack(exec) && take_own(exec)))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        end_exec(exec);
        return r;
    }
    exec->flags = flags;
    if (graph_has_memory(graph) || exec->conditions) {
        exec->source = graph;
        graph->exec = exec;
    }
    *ret = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    CUresult r = guest_check();

    return r == CUDA_SUCCESS ? instantiate(exec, find_graph(graph), flags) : r;
}

PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                      char *log, size_t log_size)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_size)
        log[0] = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

PUBLIC CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t log_size)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_size);
}

static CUresult upload(CUgraphExec handle, CUstream stream, bool per_thread)
{
    struct graph *exec = find_exec(handle);
    uint32_t i;
    CUresult r = guest_enter_stream(stream, per_thread, &i);

    if (r != CUDA_SUCCESS)
        return r;
    r = exec ? guest_check_legacy(i, false) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && guest_is_capturing(i))
        r = guest_check_wait(i);
    if (r == CUDA_SUCCESS && graph_has_memory(exec))
        r = graph_memory_map(exec, i);
    sim_unlock(guest.sim);
    return r;
}

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread)
{
    const unsigned long long uploads = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUgraphExec made;
    CUresult r;

    if (!params)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = cuGraphInstantiateWithFlags(exec ? &made : NULL, graph, params->flags & ~uploads);
    params->hErrNode_out = NULL;
    params->result_out =
        r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (r != CUDA_SUCCESS)
        return r;
    if (params->flags & uploads)
        r = upload(made, params->hUploadStream, per_thread);
    if (r == CUDA_SUCCESS)
        *exec = made;
    else
        (void)cuGraphExecDestroy(made);
    return r;
}

PUBLIC CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return instantiate_with(exec, graph, params, false);
}

PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return instantiate_with(exec, graph, params, true);
}

PUBLIC CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    const struct graph *exec = find_exec(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, false);
}

PUBLIC CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    return upload(exec, stream, true);
}

static bool does_work(const struct graph_node *node)
{
    return node->op.kind == SIM_OP_KERNEL || node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ||
           node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ||
           node->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || node->semaphores;
}

/* NULL: no stream can be made. */
static const struct graph_side *side_with_stream(struct graph *exec, uint32_t context)
{
    struct graph_side *side = side_in(exec, context);

    if (!side || stream_is_there(side))
        return side;
    side->stream = sim_stream_new(guest_state(), context, CU_STREAM_NON_BLOCKING);
    if (!side->stream)
        return NULL;
    side->stream_gen = guest_state()->streams[side->stream].gen;
    return side;
}

/* A stream waits for all that another one has to do. */
static CUresult follow(uint32_t stream, uint32_t other)
{
    const struct sim_stream *st = &guest_state()->streams[other];
    struct sim_op op = {.kind = SIM_OP_WAIT, .target = other, .gen = st->gen, .seq = st->tail};

    return guest_append(stream, &op);
}

/* A kernel runs in its own context, wherever the graph is launched. */
static CUresult launch_aside(struct graph *exec, uint32_t stream, const struct graph_node *node)
{
    struct sim_op op = node->op;
    const struct graph_side *side;
    uint32_t aside;
    CUresult r;

    if (guest_context(node->context)->gen != node->context_gen)
        return CUDA_ERROR_INVALID_VALUE;
    side = side_with_stream(exec, node->context);
    if (!side)
        return CUDA_ERROR_OUT_OF_MEMORY;
    aside = side->stream;
    sim_advance(guest_state(), guest_context(node->context)->device, sim_now(guest_state()));
    r = follow(aside, stream);
    if (r == CUDA_SUCCESS)
        r = guest_launch(aside, &op);
    return r == CUDA_SUCCESS ? follow(stream, aside) : r;
}

static CUresult launch_semaphores(uint32_t stream, const struct semaphores *semaphores)
{
    CUresult r = semaphores_enqueue(stream, semaphores);

    return r == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : r;
}

static CUresult launch_node(struct graph *exec, uint32_t stream, const struct graph_node *node)
{
    struct sim_op op = node->op;

    if (!does_work(node))
        return CUDA_SUCCESS;
    if (guest_is_capturing(stream))
        return op.kind == SIM_OP_KERNEL || node->semaphores ? guest_capture_node(stream, node)
                                                            : guest_capture(stream, &op);
    if (node->semaphores)
        return launch_semaphores(stream, node->semaphores);
    if (op.kind == SIM_OP_KERNEL && node->context != guest_state()->streams[stream].context)
        return launch_aside(exec, stream, node);
    if (op.kind == SIM_OP_KERNEL)
        return guest_launch(stream, &op);
    if (node->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
        return guest_append(stream, &op);
    if (guest_state()->events[op.target].gen != op.gen)
        return CUDA_ERROR_INVALID_VALUE;
    return op.kind == SIM_OP_RECORD ? guest_record(stream, op.target)
                                    : guest_wait_event(stream, op.target);
}

/* A graph with memory is no other one's child, so that no capture can have it. */
static CUresult prepare_memory(struct graph *exec, uint32_t stream)
{
    if (guest_is_capturing(stream))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!graph_memory_may_launch(exec))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_memory_map(exec, stream);
}

/* As it is when the launch is made: nothing but counting kernels changes it meanwhile. */
static size_t next_after(const struct graph *exec, size_t k)
{
    const struct graph_node *node = exec->nodes[k];
    struct graph_condition *condition;
    unsigned body;

    if (node->counts) {
        condition = graph_find_condition(exec, node->values[1]);
        if (condition && condition->value)
            condition->value--;
    }
    if (!node->begins)
        return node->goes_on ? node->goes_on - 1 : k + 1;
    condition = graph_find_condition(exec, node->decides);
    body = condition ? condition->value : UINT_MAX;
    if (node->choice != CU_GRAPH_COND_TYPE_SWITCH)
        body = body ? 0 : 1;
    if (node->choice == CU_GRAPH_COND_TYPE_WHILE && body)
        body = node->body_count;
    return node->begins[MIN(body, node->body_count)];
}

static CUresult launch_nodes(struct graph *exec, uint32_t stream)
{
    CUresult r = CUDA_SUCCESS;

    for (struct graph_condition *c = exec->conditions; c; c = c->next)
        c->value = c->assigns ? c->initial : c->value;
    for (size_t k = 0; r == CUDA_SUCCESS && k < exec->count; k = next_after(exec, k))
        r = launch_node(exec, stream, exec->nodes[k]);
    return r;
}

static CUresult launch(CUgraphExec handle, CUstream stream, bool per_thread)
{
    struct graph *exec = find_exec(handle);
    bool has_memory;
    CUresult r;
    uint32_t i;

    /* The limit may have been lowered since it was made. */
    if (exec && kernels_can_run(exec) && !kernels_have_stack(exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    has_memory = exec && graph_has_memory(exec);
    r = exec ? guest_check_legacy(i, false) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && has_memory)
        r = prepare_memory(exec, i);
    if (r == CUDA_SUCCESS && exec->conditions && guest_is_capturing(i))
        r = CUDA_ERROR_NOT_SUPPORTED; /* it would be a child */
    if (r == CUDA_SUCCESS)
        r = launch_nodes(exec, i);
    if (r == CUDA_SUCCESS && has_memory)
        graph_memory_launched(exec);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false);
}

PUBLIC CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true);
}

/* Other parameters for all that is launched */

static unsigned semaphores_of(const struct graph_node *node)
{
    return node->semaphores ? node->semaphores->count : 0;
}

/* What may become different is what kernels do, and which events and semaphores are meant. */
static int compare(const struct graph *exec, const struct graph *like)
{
    if (exec->count != like->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->nodes[i]->type != like->nodes[i]->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (exec->nodes[i]->memory != like->nodes[i]->memory ||
            semaphores_of(exec->nodes[i]) != semaphores_of(like->nodes[i]))
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        if (exec->nodes[i]->context != like->nodes[i]->context)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult update(struct graph *exec, const struct graph *graph, int *ret)
{
    struct graph *like = graph_new(GRAPH_EXEC_MAGIC);
    CUresult r = like ? flatten(like, graph) : CUDA_ERROR_OUT_OF_MEMORY;

    *ret = CU_GRAPH_EXEC_UPDATE_ERROR;
    if (r == CUDA_SUCCESS && (exec->conditions || like->conditions))
        r = CUDA_ERROR_NOT_SUPPORTED; /* not simulated */
    if (r == CUDA_SUCCESS) {
        *ret = compare(exec, like);
        if (*ret != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            r = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    for (size_t i = 0; r == CUDA_SUCCESS && i < like->count; i++)
        graph_set_work(exec->nodes[i], like->nodes[i]);
    end_exec(like);
    return r;
}

PUBLIC CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle, CUgraphNode *error_node,
                                  int *result)
{
    struct graph *exec = find_exec(handle), *graph = find_graph(graph_handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!exec || !graph || !result || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    if (error_node)
        *error_node = NULL;
    return update(exec, graph, result);
}

PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                     CUgraphExecUpdateResultInfo *info)
{
    CUgraphNode ignored;

    if (!info)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    info->errorNode = info->errorFromNode = NULL;
    return cuGraphExecUpdate(exec, graph, &ignored, &info->result);
}

/* What graphs left over stays till it is freed. */

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    struct graph *exec = find_exec(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    end_exec(exec);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphDestroy(CUgraph handle)
{
    struct graph *graph = find_graph(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!graph || graph->capturing || graph->is_child)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}
