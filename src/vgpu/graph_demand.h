/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the nodes of a graph allocate together, by device: of a graph, and, by their handles, of
 * those graphs that may be launched and allocate.
 */

#include "vgpu/vgpu.h"

struct graph_demand {
    uint64_t bytes[REGION_DEVICES], largest[REGION_DEVICES];
};

/* Adds up what a graph's nodes allocate, also those of graphs in it; false when that can't be
 * known. */
bool graph_demand_of(struct graph_demand *demand, CUgraph graph);
bool graph_demand_is_any(const struct graph_demand *demand);

/* Of what may be launched. False: there is no memory for it; nothing is known of it. */
bool graph_demand_remember(CUgraphExec exec, const struct graph_demand *demand);
bool graph_demand_look(CUgraphExec exec, struct graph_demand *ret);
bool graph_demand_forget(CUgraphExec exec, struct graph_demand *ret);

void graph_demand_after_fork(void);
