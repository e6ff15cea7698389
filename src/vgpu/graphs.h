/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What graphs allocate. A node has an address and no memory: the driver takes that as a graph is
 * launched, or uploaded, and keeps it for the next launch. What the device has of graph memory is
 * charged, as a pool's is (pools.h).
 *
 * At its instantiation a graph's nodes are looked at: a launch takes no more than they allocate
 * together. That is charged before, and afterwards what the driver says that it took. Where there
 * is no room for it the graph may still do with less, since nodes may use one another's memory, and
 * graphs that of graphs before them: then the graph is uploaded, by one process of a container at a
 * time, and what that took beyond the limit is given back.
 */

#include "vgpu/vgpu.h"

/* Whether any graph of this process may allocate: it has or had a node that does. */
extern _Atomic bool graphs_any;

static inline bool graphs_allocate(void)
{
    return atomic_load_explicit(&graphs_any, memory_order_relaxed);
}

void graphs_will_allocate(void);

/* Around the driver's launch of any graph. An error is the launch's answer, and there is nothing to
 * end. */
struct graphs_launch {
    bool held;                  /* holds the lock: no graph is made, changed or ended */
    CUgraphExec _Atomic *flown; /* instead: it does not end */
    uint64_t advances[REGION_DEVICES];
    bool charged[REGION_DEVICES];
    bool takes[REGION_DEVICES]; /* from those devices, which are looked at afterwards */
};

CUresult graphs_begin_launch(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                             bool per_thread);
void graphs_end_launch(struct graphs_launch *launch);

/*
 * Once all is looked at and before the driver's call, which may wait until there is room in a
 * queue, and that for what another thread does after it made a graph executable. So what is there
 * and takes no memory is launched without the lock: its end waits until then, and so no other one
 * is made of its handle. What the driver makes of it all the same is undone.
 */
void graphs_let_go(struct graphs_launch *launch, CUgraphExec exec);
bool graphs_is_flown(CUgraphExec exec);

/* An upload, charged as a launch is. */
CUresult graphs_upload(CUgraphExec exec, CUstream stream, bool per_thread);

/* Around what makes, changes or ends what may be launched: whether it holds the lock. The end: not
 * while it is launched without the lock. */
bool graphs_begin_change(void);
bool graphs_begin_end(CUgraphExec exec);
void graphs_end_change(bool held);

void graphs_after_fork(void);
