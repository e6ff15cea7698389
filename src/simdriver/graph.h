/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Graphs, as captures make them: nodes in the order in which they were captured, which is one that
 * their dependencies allow. A launch does them one after the other.
 */

#include <stdbool.h>
#include <stddef.h>

#include "simdriver/state.h"

struct graph_node {
    struct sim_op op; /* of a record and a wait: the event and its generation */
    bool followed;    /* another node depends on it */
};

/* A CUgraph, and a CUgraphExec; never freed, only used again. */
struct graph {
    uint32_t magic;
    uint32_t capturing; /* belongs to a capture that goes on */
    size_t count, size;
    struct graph_node *nodes;
    struct graph *next_unused;
};

struct graph *graph_new(void);
void graph_free(struct graph *graph);

/* Appends a node: false when there is no memory. */
bool graph_add(struct graph *graph, const struct sim_op *op);
