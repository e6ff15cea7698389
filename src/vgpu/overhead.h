/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Hidden memory: what the driver takes for itself, for contexts, code, heaps, and tells nobody. Its
 * account is what NVML says of this process less what the ledger has of its allocations:
 *
 *     NVML's figure = allocations, charged as they are made + hidden memory
 *
 * That is settled after every call that is known to take or to give back hidden memory, about once
 * a second while there is work, at the first allocation after a launch of a function not seen
 * before, and before an allocation is refused. What has grown is charged, also beyond the limit:
 * then nothing more is given; but while a call is under way that may yet undo it, only as far as
 * the limit goes. What a context, a module or a heap was charged is remembered with it only to be
 * given back where NVML can't be asked.
 *
 *     if (!overhead_begin(&overhead, device, OVERHEAD_CODE, 0))
 *         return CUDA_ERROR_OUT_OF_MEMORY;
 *     result = REAL(...)(...);
 *     if (overhead_end(&overhead, result == CUDA_SUCCESS, &units) == OVERHEAD_REFUSED) {
 *         undo it
 *         overhead_undone(&overhead, 0);
 *     }
 *
 * Where calls that are not accounted for are let pass, what they take can't be told from hidden
 * memory: then only what grows during our calls is charged, and given back as it was charged.
 *
 * No lock of ours is held meanwhile, except while the first context of a process is made.
 *
 * NVML's figure is believed where the process is found for sure: by its own pid in the host's
 * namespace, or where all that are listed are processes of its namespace; by the host's pid that
 * the node wrote into its slot; by the one pid that was new in the list when its first context had
 * been made. Elsewhere a context is charged the size that the limits say, or else what it was
 * measured to take by the device's total, which is never remembered for another one; code by the
 * device's total.
 */

#include "vgpu/vgpu.h"

enum overhead_of {
    OVERHEAD_CONTEXT,
    OVERHEAD_HEAP, /* of a context: goes with it */
    OVERHEAD_CODE,
};

struct overhead {
    struct vgpu_device *device;
    enum overhead_of of;
    uint64_t charged;      /* units, in advance */
    uint64_t before_bytes; /* of the device, where the process was not found */
    bool exact;            /* nothing was hidden, or charged too much, as it began */
    bool first;            /* nobody knows yet what a context takes, or who we are in NVML */
    unsigned begun;        /* its number on the device */
    bool refused;          /* it is to be undone, and counts as under way until then */
};

enum overhead_outcome {
    OVERHEAD_CHARGED = 1,
    OVERHEAD_REFUSED, /* it exists, and exceeds the limit: undo it, then say so by
                         overhead_undone(). Nothing of it is charged */
    OVERHEAD_NOTHING, /* it was not made: nothing is charged */
};

/* For a heap: the units that it is expected to take; they are charged in advance. */
bool overhead_begin(struct overhead *overhead, struct vgpu_device *device, enum overhead_of of,
                    uint64_t expected);
enum overhead_outcome overhead_end(struct overhead *overhead, bool made, uint64_t *ret_units);

/*
 * A context that was made unseen: charges what NVML says, else what one is known to take. False
 * when that is not known either: it can't be held to the limit.
 */
bool overhead_adopt(struct vgpu_device *device, uint64_t *ret_units);

/* What was made by a call is undone: after OVERHEAD_REFUSED, or for another reason and it was
 * charged so many units for a context. */
void overhead_undone(const struct overhead *overhead, uint64_t units);

/* Something has gone that was charged so much. */
void overhead_gone(struct vgpu_device *device, uint64_t context_units, uint64_t code_units);

/* Of an allocation nothing is left in this process, but others may hold its memory: it is hidden
 * memory from now on, as far as NVML does not say that it has gone. Or something that nobody counts
 * may hold it in this process, of which NVML says all. */
void overhead_left(struct vgpu_device *device, uint64_t units);
void overhead_held(struct vgpu_device *device, uint64_t units);
bool overhead_is_left(const struct vgpu_device *device);

/* Before a program is told what is in use: what may have become less is looked at. */
void overhead_look(struct vgpu_device *device);

/* Brings the account to what NVML says. True when something was given back. */
bool overhead_settle(struct vgpu_device *device);

/* The same if it is due, once for all threads that find it so. */
void overhead_settle_due(struct vgpu_device *device);

/* From now on it is due on every device. */
void overhead_make_due(void);

/* Settles what is due; the watching thread's call. */
void overhead_tick(void);

/* A function is there to be launched that was not before; a launch of a function was tried, in that
 * context. */
void overhead_new_function(void);
void overhead_launched(const void *function, CUcontext context, bool success);
void overhead_forget_functions(void);

enum {
    OVERHEAD_SETS = 4096,
    OVERHEAD_WAYS = 4,
};

extern _Atomic uint64_t overhead_launched_sets[OVERHEAD_SETS][OVERHEAD_WAYS];

/* Code is loaded in each context by itself, also of a kernel that has one handle in all of them. No
 * context is named while only one lives. */
static inline uint64_t overhead_launched_key(const void *function, CUcontext context)
{
    return (uint64_t)(uintptr_t)function +
           (uint64_t)(uintptr_t)context * UINT64_C(0xd6e8feb86659fd93);
}

static inline _Atomic uint64_t *overhead_launched_set(uint64_t key)
{
    return overhead_launched_sets[key * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

/* Whether a function was launched before, so that its code is loaded. False of some that were. */
static inline bool overhead_was_launched(const void *function, CUcontext context)
{
    const uint64_t key = overhead_launched_key(function, context);
    _Atomic uint64_t *set = overhead_launched_set(key);

    for (unsigned i = 0; i < OVERHEAD_WAYS; i++) {
        if (atomic_load_explicit(&set[i], memory_order_relaxed) == key)
            return true;
    }
    return false;
}

/* For whoever allocates. */
struct overhead_moment {
    _Alignas(64) _Atomic unsigned moving; /* allocations that are on their way in or out */
    _Atomic int64_t due_ns;               /* when to settle; coarse clock */
    _Atomic int64_t again_ns;             /* when it may be worth while before a refusal */
};
extern struct overhead_moment overhead_moments[REGION_DEVICES];

static inline struct overhead_moment *overhead_moment(const struct vgpu_device *device)
{
    return &overhead_moments[device - vgpu.devices];
}

/* What was charged for the code behind a handle (a module, a library): remembered, taken out. */
void overhead_remember(const void *handle, struct vgpu_device *device, uint64_t units);
struct overhead_code {
    struct vgpu_device *device; /* NULL: nothing was remembered */
    uint64_t units;
    unsigned context;
};
struct overhead_code overhead_take(const void *handle);
void overhead_end_code(const void *handle, const struct overhead_code *code, bool gone);

void overhead_after_fork(void);
