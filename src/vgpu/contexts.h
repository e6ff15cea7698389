/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The contexts of this process. A context holds device memory of its own, and so does the code that
 * is loaded into it; neither size can be known before, so they are measured, by what NVML says of
 * this process before and after, and charged. What would exceed the limit is undone again.
 */

#include <stdbool.h>

#include "vgpu/allocations.h"
#include "vgpu/vgpu.h"

enum {
    CONTEXTS_MAX = 4096,
};

/*
 * The calling thread's current context, entered if new: its number, 0 when there is none,
 * CONTEXTS_MAX where it can't be held to the limit, or is on a device that is not granted: nothing
 * is given there (vgpu_gives_nothing()).
 */
unsigned context_current(void);

/* A heap of the context has grown, or shrunk: what was charged for it goes with it. The largest
 * that a limit (CUlimit) was set to so far; 0: it was not set. */
enum {
    CONTEXT_HEAPS = 3,
};
void context_heap_grew(unsigned number, CUlimit limit, size_t value, int64_t units);
size_t context_largest_heap(unsigned number, CUlimit limit);

/* Takes out an entry of what goes with contexts (allocations.h), also of one that is about to end.
 */
bool context_take(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry);

/* Puts it back, since the driver has not freed it. False: its context has ended meanwhile, which
 * has not found it; the caller discharges it. */
bool context_put_back(enum allocation_kind kind, uint64_t handle, const struct allocation *entry);

/* The device of a context that is known, NULL of others. */
struct vgpu_device *contexts_device(CUcontext handle);

/* How many contexts are known to live: with one, it need not be asked which is current. */
extern _Atomic unsigned contexts_live;

/* Changes whenever a context comes or goes. Never 0. */
extern _Atomic unsigned contexts_epoch_now;
static inline unsigned contexts_epoch(void)
{
    return atomic_load_explicit(&contexts_epoch_now, memory_order_acquire);
}
