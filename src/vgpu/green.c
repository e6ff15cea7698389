/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Green contexts, parts of a device's primary one, which each of them retains. What one takes
 * itself is charged as code is; what is made in it is the primary context's (contexts.c).
 */

#include "vgpu/code.h"
#include "vgpu/compute.h"
#include "vgpu/context_table.h"
#include "vgpu/overhead.h"
#include "vgpu/primary.h"
#include "vgpu/real.h"

/* With the primary context there. */
static CUresult make(CUgreenCtx *context, CUdevResourceDesc desc, struct vgpu_device *device,
                     unsigned int flags)
{
    CUgreenCtx made = NULL;
    enum overhead_outcome outcome;
    struct overhead overhead;
    CUresult result;
    uint64_t units;

    if (!overhead_begin(&overhead, device, OVERHEAD_CODE, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuGreenCtxCreate)(&made, desc, device->handle, flags);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        UNDO(cuGreenCtxDestroy, made);
        overhead_undone(&overhead, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        return result;
    code_remember(made, device, units, 0); /* the primary one's end is not its end */
    *context = made;
    return CUDA_SUCCESS;
}

/* First, so that it is charged as a context is. */
static CUresult retain(CUdevice handle)
{
    struct real_relaxed relaxed = real_relax();
    CUcontext primary;
    CUresult result = cuDevicePrimaryCtxRetain(&primary, handle);

    real_end_relaxed(&relaxed);
    return result;
}

/* Who retained one that was reset still counts as its user. */
static void undo_retain(CUdevice handle, bool was_active)
{
    struct real_relaxed relaxed = real_relax();

    (void)cuDevicePrimaryCtxRelease_v2(handle);
    if (!was_active && primary_is_active(handle))
        (void)cuDevicePrimaryCtxReset_v2(handle);
    real_end_relaxed(&relaxed);
}

/* The green one retains it from now on: that is counted already. */
static void leave_retained(CUdevice handle)
{
    struct real_relaxed relaxed = real_relax();

    (void)REAL(cuDevicePrimaryCtxRelease_v2)(handle);
    real_end_relaxed(&relaxed);
}

PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice handle,
                                 unsigned int flags)
{
    struct vgpu_device *device;
    CUresult result = contexts_may_create(handle, &device);
    bool was_active;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context || !desc)
        return REAL(cuGreenCtxCreate)(context, desc, handle, flags);

    was_active = primary_is_active(handle);
    result = retain(handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = make(context, desc, device, flags);
    if (result == CUDA_SUCCESS)
        leave_retained(handle);
    else
        undo_retain(handle, was_active);
    return result;
}

PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    CUcontext used = NULL;
    struct code code;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuGreenCtxDestroy)(context);
    if (!context || !HAS(cuCtxFromGreenCtx) ||
        REAL(cuCtxFromGreenCtx)(&used, context) != CUDA_SUCCESS)
        used = NULL;
    if (used)
        compute_ending(used);
    code = code_take(context);
    result =
        code.device ? primary_end_green(context, code.device) : REAL(cuGreenCtxDestroy)(context);
    code_end(context, &code, result == CUDA_SUCCESS);
    if (used)
        compute_ended(used, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS)
        atomic_fetch_add(&contexts_epoch_now, 1); /* another may have its handle */
    return result;
}
