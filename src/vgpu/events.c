/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Events of the library's own, by which it measures what is launched. A program that guesses the
 * handle of one could record it anew, so that a kernel seems to have ended before it did. To
 * whoever would change one the library answers what the driver says of what is no event. To read
 * one harms nobody. The attributes of a launch record none of ours: the driver takes there only
 * events without times.
 */

#include "vgpu/compute_row.h"
#include "vgpu/real.h"

static unsigned slot_of(const void *event, unsigned try)
{
    return ((unsigned)(((uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15)) >> 40) + try) %
           COMPUTE_EVENTS;
}

void compute_note_event(struct compute_row *row, void *event)
{
    for (unsigned i = 0; i < COMPUTE_EVENTS; i++) {
        void *_Atomic *slot = &row->events[slot_of(event, i)];

        if (atomic_load_explicit(slot, memory_order_relaxed))
            continue;
        atomic_store_explicit(slot, event, memory_order_relaxed);
        return;
    }
}

static bool row_has(const struct compute_row *row, const void *event)
{
    const void *here = event;

    for (unsigned i = 0; here && i < COMPUTE_EVENTS; i++) {
        here = atomic_load_explicit(&row->events[slot_of(event, i)], memory_order_relaxed);
        if (here == event)
            return true;
    }
    return false;
}

bool compute_is_own_event(CUevent event)
{
    unsigned count = atomic_load_explicit(&compute_table.count, memory_order_acquire);

    for (unsigned i = 0; event && i < count; i++) {
        const struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (row && row->looked_in && row_has(row, event))
            return true;
    }
    return false;
}

#define UNLESS_OWN(name, event, ...)                                                               \
    (void)real_driver();                                                                           \
    return compute_is_own_event(event) ? CUDA_ERROR_INVALID_HANDLE : REAL(name)(__VA_ARGS__)

PUBLIC CUresult cuEventRecord(CUevent event, CUstream stream)
{
    UNLESS_OWN(cuEventRecord, event, event, stream);
}

PUBLIC CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    UNLESS_OWN(cuEventRecord_ptsz, event, event, stream);
}

PUBLIC CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    UNLESS_OWN(cuEventRecordWithFlags, event, event, stream, flags);
}

PUBLIC CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    UNLESS_OWN(cuEventRecordWithFlags_ptsz, event, event, stream, flags);
}

PUBLIC CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    UNLESS_OWN(cuCtxRecordEvent, event, context, event);
}

PUBLIC CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event)
{
    UNLESS_OWN(cuGreenCtxRecordEvent, event, context, event);
}

PUBLIC CUresult cuEventDestroy(CUevent event)
{
    UNLESS_OWN(cuEventDestroy, event, event);
}

PUBLIC CUresult cuEventDestroy_v2(CUevent event)
{
    UNLESS_OWN(cuEventDestroy_v2, event, event);
}

PUBLIC CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                          const CUgraphNode *dependencies, size_t count,
                                          CUevent event)
{
    UNLESS_OWN(cuGraphAddEventRecordNode, event, node, graph, dependencies, count, event);
}

PUBLIC CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    UNLESS_OWN(cuGraphEventRecordNodeSetEvent, event, node, event);
}

PUBLIC CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                   CUevent event)
{
    UNLESS_OWN(cuGraphExecEventRecordNodeSetEvent, event, exec, node, event);
}
