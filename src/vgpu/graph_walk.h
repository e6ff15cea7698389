/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The nodes of a graph, and of the graphs that are nodes of it. */

#include <stdbool.h>

#include "driver/cuda.h"

/*
 * Calls fn with each node and its type, a graph's before those within it, until it returns false.
 * False when it did, or when the driver does not tell, or graphs lie too deep in one another. Of
 * the bodies of conditional nodes the driver tells nothing.
 */
typedef bool (*graph_node_fn)(CUgraphNode node, CUgraphNodeType type, void *arg);
bool graph_walk(CUgraph graph, graph_node_fn fn, void *arg);
