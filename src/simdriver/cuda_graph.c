/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs: making, launching and destroying them. */

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"

#define GRAPH_MAGIC 0x68706147u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph *unused;

static struct graph *find_graph(void *handle)
{
    struct graph *graph = handle;

    if (!graph || __atomic_load_n(&graph->magic, __ATOMIC_ACQUIRE) == GRAPH_MAGIC)
        return graph;
    guest_meet_stale();
    return NULL;
}

struct graph *graph_new(void)
{
    struct graph *graph;

    (void)pthread_mutex_lock(&lock);
    graph = unused;
    if (graph)
        unused = graph->next_unused;
    (void)pthread_mutex_unlock(&lock);
    if (!graph)
        graph = calloc(1, sizeof(*graph));
    if (graph)
        __atomic_store_n(&graph->magic, GRAPH_MAGIC, __ATOMIC_RELEASE);
    return graph;
}

void graph_free(struct graph *graph)
{
    if (!graph)
        return;
    __atomic_store_n(&graph->magic, 0, __ATOMIC_RELEASE);
    free(TAKE(graph->nodes));
    graph->count = graph->size = 0;
    graph->capturing = false;
    (void)pthread_mutex_lock(&lock);
    graph->next_unused = unused;
    unused = graph;
    (void)pthread_mutex_unlock(&lock);
}

bool graph_add(struct graph *graph, const struct sim_op *op)
{
    if (graph->count == graph->size) {
        size_t size = graph->size ? graph->size * 2 : 16;
        struct graph_node *nodes = realloc(graph->nodes, size * sizeof(*nodes));

        if (!nodes)
            return false;
        graph->nodes = nodes;
        graph->size = size;
    }
    graph->nodes[graph->count++] = (struct graph_node){.op = *op};
    return true;
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle,
                                            unsigned long long flags)
{
    const struct graph *graph = find_graph(handle);
    struct graph *copy;
    CUresult r = guest_check();

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (!exec || !graph || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    copy = graph_new();
    for (size_t i = 0; copy && i < graph->count; i++) {
        if (graph_add(copy, &graph->nodes[i].op))
            continue;
        graph_free(TAKE(copy));
    }
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *exec = (CUgraphExec)copy;
    return CUDA_SUCCESS;
}

static CUresult launch_node(uint32_t stream, const struct graph_node *node)
{
    struct sim_op op = node->op;

    if (guest_is_capturing(stream))
        return guest_capture(stream, &op);
    if (op.kind == SIM_OP_KERNEL)
        return guest_launch(stream, &op);
    if (guest_state()->events[op.target].gen != op.gen)
        return CUDA_ERROR_INVALID_VALUE;
    return op.kind == SIM_OP_RECORD ? guest_record(stream, op.target)
                                    : guest_wait_event(stream, op.target);
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool per_thread)
{
    const struct graph *graph = find_graph(exec);
    CUresult r;
    uint32_t i;

    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    r = graph ? guest_check_legacy(i, false) : CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; r == CUDA_SUCCESS && k < graph->count; k++)
        r = launch_node(i, &graph->nodes[k]);
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

static CUresult destroy(void *handle)
{
    struct graph *graph = find_graph(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!graph || graph->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    return destroy(exec);
}

PUBLIC CUresult cuGraphDestroy(CUgraph graph)
{
    return destroy(graph);
}
