/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device memory that the driver takes for itself: contexts, code, heaps. Its size can't be known
 * before, so it is measured, by what NVML says of this process before and after, and then charged;
 * where NVML does not know the process (another pid namespace), by what it says of the whole
 * device. A context's size is remembered in the region, so that the second one is checked before it
 * is made.
 *
 *     if (!hidden_begin(&hidden, device, VGPU_MODULE))
 *         return CUDA_ERROR_OUT_OF_MEMORY;
 *     result = REAL(...)(...);
 *     if (hidden_end(&hidden, result == CUDA_SUCCESS, &units) == HIDDEN_REFUSED)
 *         undo it
 *
 * One at a time in a process. hidden_end() must follow.
 */

#include "vgpu/vgpu.h"

struct hidden {
    struct vgpu_device *device;
    enum vgpu_kind kind;
    uint64_t charged;      /* units, in advance */
    uint64_t before_bytes; /* hidden in this process, as measured */
    bool by_process;       /* measured for this process, not for the device */
    bool first;            /* nobody has measured a context yet */
};

enum hidden_outcome {
    HIDDEN_CHARGED = 1,
    HIDDEN_REFUSED, /* it exists, and exceeds the limit: undo it. Nothing of it is charged */
    HIDDEN_NOTHING, /* it was not made: nothing is charged */
};

bool hidden_begin(struct hidden *hidden, struct vgpu_device *device, enum vgpu_kind kind);
enum hidden_outcome hidden_end(struct hidden *hidden, bool made, uint64_t *ret_units);

/* Remembers under a handle (a module, a library) what was charged for it, and gives it back. */
void hidden_remember(const void *handle, struct vgpu_device *device, uint64_t units);
void hidden_forget(const void *handle);

void hidden_after_fork(void);
