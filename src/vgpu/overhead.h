/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Calls that take hidden memory (hidden.h): what they take is known once they return, and what
 * exceeds the limit then is undone. What a context, a module or a heap was charged is remembered
 * with it only to be given back where NVML can't be asked.
 *
 *     if (!overhead_begin(&overhead, device, OVERHEAD_CODE, 0))
 *         return CUDA_ERROR_OUT_OF_MEMORY;
 *     result = REAL(...)(...);
 *     if (overhead_end(&overhead, result == CUDA_SUCCESS, &units) == OVERHEAD_REFUSED) {
 *         undo it
 *         overhead_undone(&overhead, 0);
 *     }
 *
 * No lock of ours is held meanwhile, except for a context while it is not known what one takes on
 * this device, or by which pid NVML lists this process: such contexts are made one at a time in a
 * container. The first one that is measured tells all its processes what a context takes.
 *
 * Code that has no room is there until it is undone. Who loads such again and again would have the
 * card full for half of the time: so after one that was refused the next load of the process waits,
 * fifty times as long as that one was there, and no longer than half a minute.
 *
 * NVML's figure is believed where this process is found for sure (usage.h). Elsewhere a context is
 * charged the size that the limits say, or else what it was measured to take by the device's total,
 * which is never remembered for another one; code by the device's total.
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
    int64_t began_ns;      /* of code */
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

void overhead_after_fork(void);
