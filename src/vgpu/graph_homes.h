/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * On which devices the kernels of graphs run. Each runs in the context of its function, or of the
 * stream it was captured in, whatever stream the graph is launched in, and is to be paid for there
 * (compute_admit_spread()).
 *
 * The driver tells a node's function, and a function's module, but not whose that is. So it is
 * remembered of each module as it is loaded, and as a kernel, which has no context, becomes a
 * function of one. Where it is not known, the graph counts as one that runs on each device on which
 * the process has a context. Neither parameters nor an update can bring a node elsewhere.
 *
 * Sets of devices are bits by their place in vgpu.devices. Where a container has one card, nothing
 * of this is done.
 */

#include "vgpu/vgpu.h"

static inline bool graph_homes_matter(void)
{
    return vgpu.device_count > 1;
}

/*
 * Memory is set, or copied there, by a node of that device; NULL: it is not known which. Nor does
 * the driver tell where such a node runs, which need not be where the memory is. An array goes by
 * its handle. Of what a node has other parameters for from now on.
 */
void graph_homes_found_transfer(uint64_t to, const struct vgpu_device *device);
void graph_homes_moved_transfer(CUgraphNode node, CUgraphNodeType type, uint64_t to);
uint64_t graph_homes_target(const CUDA_MEMCPY3D *copy);

/* In the current context: a module is there; a function is, or was launched into a capture. */
void graph_homes_found_module(CUmodule module);
void graph_homes_found_function(const void *function);

void graph_homes_unloaded(CUmodule module);

/* A conditional node was added, with this context, or the current one. Such a node is in no other
 * graph: what has one can't be cloned, nor be a child. */
void graph_homes_found_condition(CUgraphNode node, CUcontext context);

/* What was made executable of a graph, and its end. */
void graph_homes_made(CUgraphExec exec, CUgraph graph);
void graph_homes_ended(CUgraphExec exec);

/* Where its kernels run; nowhere if it has none. */
unsigned graph_homes_of(CUgraphExec exec);
