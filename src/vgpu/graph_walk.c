/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graph_walk.h"

#include <sys/mman.h>

#include "vgpu/real.h"

enum {
    FEW_NODES = 64, /* that need no memory of their own to be listed */
    CHILDREN = 64,  /* graphs in graphs in graphs that are looked into */
};

struct walk {
    graph_node_fn fn;
    void *arg;
};

static bool walk_graph(const struct walk *walk, CUgraph graph, unsigned depth);

static bool walk_nodes(const struct walk *walk, const CUgraphNode *nodes, size_t count,
                       unsigned depth)
{
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;

        if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS ||
            !walk->fn(nodes[i], type, walk->arg))
            return false;
        if (type != CU_GRAPH_NODE_TYPE_GRAPH)
            continue;
        if (REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) != CUDA_SUCCESS ||
            !walk_graph(walk, child, depth + 1))
            return false;
    }
    return true;
}

static bool walk_graph(const struct walk *walk, CUgraph graph, unsigned depth)
{
    CUgraphNode few[FEW_NODES], *nodes = few;
    size_t count = 0, bytes;
    bool known;

    if (depth > CHILDREN || REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS)
        return false;
    bytes = count * sizeof(CUgraphNode);
    if (count > FEW_NODES)
        nodes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return false;
    known = !count || REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS;
    known = known && walk_nodes(walk, nodes, count, depth);
    if (nodes != few)
        (void)munmap(nodes, bytes);
    return known;
}

bool graph_walk(CUgraph graph, graph_node_fn fn, void *arg)
{
    const struct walk walk = {fn, arg};

    return walk_graph(&walk, graph, 0);
}
