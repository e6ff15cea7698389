/* SPDX-License-Identifier: Apache-2.0 */

/* What comes before what in a graph. */

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"

static CUresult check(const void *wanted)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    return wanted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct list {
    CUgraphNode *nodes, *others; /* NULL: they are only counted */
    size_t room, count;
};

static void list_add(struct list *list, const struct graph_node *node,
                     const struct graph_node *other)
{
    if (list->count < list->room && list->nodes)
        list->nodes[list->count] = (CUgraphNode)(uintptr_t)node;
    if (list->count < list->room && list->others)
        list->others[list->count] = (CUgraphNode)(uintptr_t)other;
    list->count++;
}

/* Where there is more room than nodes the rest is NULL. */
static CUresult list_end(struct list *list, size_t *ret_count)
{
    if (!list->nodes) {
        *ret_count = list->count;
        return CUDA_SUCCESS;
    }
    for (size_t i = list->count; i < list->room; i++)
        list->nodes[i] = NULL;
    *ret_count = MIN(list->count, list->room);
    return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    CUresult r = check(graph ? count : NULL);
    struct list list = {.nodes = nodes};

    if (r != CUDA_SUCCESS)
        return r;
    list.room = nodes ? *count : 0;
    for (size_t i = 0; i < graph->count; i++) {
        if (!roots || !graph->nodes[i]->after_count)
            list_add(&list, graph->nodes[i], NULL);
    }
    return list_end(&list, count);
}

PUBLIC CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, false);
}

PUBLIC CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, nodes, count, true);
}

PUBLIC CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    CUresult r = check(graph ? count : NULL);
    struct list list = {.nodes = from, .others = to};

    if (r != CUDA_SUCCESS)
        return r;
    if (!from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    list.room = from ? *count : 0;
    for (size_t i = 0; i < graph->count; i++) {
        for (size_t k = 0; k < graph->nodes[i]->after_count; k++)
            list_add(&list, graph->nodes[i]->after[k], graph->nodes[i]);
    }
    return list_end(&list, count);
}

PUBLIC CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node ? count : NULL);
    struct list list = {.nodes = nodes};

    if (r != CUDA_SUCCESS)
        return r;
    list.room = nodes ? *count : 0;
    for (size_t i = 0; i < node->after_count; i++)
        list_add(&list, node->after[i], NULL);
    return list_end(&list, count);
}

static bool depends(const struct graph_node *node, const struct graph_node *before)
{
    for (size_t i = 0; i < node->after_count; i++) {
        if (node->after[i] == before)
            return true;
    }
    return false;
}

PUBLIC CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
    const struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node ? count : NULL);
    struct list list = {.nodes = nodes};

    if (r != CUDA_SUCCESS)
        return r;
    list.room = nodes ? *count : 0;
    for (size_t i = 0; i < node->graph->count; i++) {
        if (depends(node->graph->nodes[i], node))
            list_add(&list, node->graph->nodes[i], NULL);
    }
    return list_end(&list, count);
}

static bool are_pairs(const struct graph *graph, const CUgraphNode *from, const CUgraphNode *to,
                      size_t count, bool there)
{
    if (!count)
        return true;
    if (!from || !to || !graph_has_nodes(graph, from, count) || !graph_has_nodes(graph, to, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (from[i] == to[i] || depends(graph_find_node(to[i]), graph_find_node(from[i])) != there)
            return false;
    }
    return true;
}

/* Whether the edges can be added, or, if they are there, taken away. */
static CUresult check_pairs(const struct graph *graph, const CUgraphNode *from,
                            const CUgraphNode *to, size_t count, bool there)
{
    CUresult r = check(graph);

    if (r != CUDA_SUCCESS)
        return r;
    return are_pairs(graph, from, to, count, there) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from,
                                       const CUgraphNode *to, size_t count)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    CUresult r = check_pairs(graph, from, to, count, false);

    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = graph_add_after(graph_find_node(to[i]), graph_find_node(from[i]))
                ? CUDA_SUCCESS
                : CUDA_ERROR_OUT_OF_MEMORY;
    return r;
}

/* In a graph with memory nodes and edges stay. */
PUBLIC CUresult cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode *from,
                                          const CUgraphNode *to, size_t count)
{
    const struct graph *graph = graph_find(handle, GRAPH_MAGIC);
    CUresult r = check_pairs(graph, from, to, count, true);

    if (r != CUDA_SUCCESS)
        return r;
    if (count && graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++)
        graph_forget_after(graph_find_node(to[i]), graph_find_node(from[i]));
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    struct graph_node *node = graph_find_node(handle);
    CUresult r = check(node);

    if (r != CUDA_SUCCESS)
        return r;
    if (node->graph->capturing || node->graph->magic != GRAPH_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_memory(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    graph_remove(node);
    return CUDA_SUCCESS;
}
