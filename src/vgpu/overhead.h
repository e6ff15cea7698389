/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Driver overhead: device memory that the driver takes for itself, for contexts, code, heaps. Its
 * size can't be known before, so it is measured, by what NVML says of this process before and
 * after, and then charged; where NVML does not know the process (another pid namespace), by what it
 * says of the whole device. A context's size is remembered in the region, so that the second one is
 * checked before it is made.
 *
 *     if (!overhead_begin(&overhead, device, VGPU_MODULE))
 *         return CUDA_ERROR_OUT_OF_MEMORY;
 *     result = REAL(...)(...);
 *     if (overhead_end(&overhead, result == CUDA_SUCCESS, &units) == OVERHEAD_REFUSED)
 *         undo it
 *
 * One at a time in a process. overhead_end() must follow.
 */

#include "vgpu/vgpu.h"

struct overhead {
    struct vgpu_device *device;
    enum vgpu_kind kind;
    uint64_t charged;      /* units, in advance */
    uint64_t before_bytes; /* of this process, as measured */
    bool by_process;       /* measured for this process, not for the device */
    bool first;            /* nobody has measured a context yet */
};

enum overhead_outcome {
    OVERHEAD_CHARGED = 1,
    OVERHEAD_REFUSED, /* it exists, and exceeds the limit: undo it. Nothing of it is charged */
    OVERHEAD_NOTHING, /* it was not made: nothing is charged */
};

bool overhead_begin(struct overhead *overhead, struct vgpu_device *device, enum vgpu_kind kind);
enum overhead_outcome overhead_end(struct overhead *overhead, bool made, uint64_t *ret_units);

/* Remembers under a handle (a module, a library) what was charged for it, and gives it back. */
void overhead_remember(const void *handle, struct vgpu_device *device, uint64_t units);
void overhead_forget(const void *handle);

void overhead_after_fork(void);
