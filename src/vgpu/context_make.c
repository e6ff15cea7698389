/* SPDX-License-Identifier: Apache-2.0 */

/* Making contexts that are not primary. */

#include "vgpu/context_table.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"

/* What to answer instead of making a context here; CUDA_SUCCESS to go on. No device: nothing to
 * account. */
CUresult contexts_may_create(CUdevice handle, struct vgpu_device **ret_device)
{
    enum vgpu_mode mode = vgpu_mode();

    *ret_device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (mode != VGPU_ON)
        return CUDA_SUCCESS;

    *ret_device = vgpu_device(handle);
    return *ret_device && !(*ret_device)->granted ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* The five functions that make a context differ in their arguments only. */
struct making {
    CUcontext *context;
    CUcontext made;
    struct vgpu_device *device;
    struct overhead overhead;
};

static CUresult begin_context(struct making *making, CUcontext *context, CUdevice handle)
{
    CUresult result;

    *making = (struct making){.context = context};
    result = contexts_may_create(handle, &making->device);
    if (result != CUDA_SUCCESS)
        return result;

    if (!context)
        making->device = NULL;
    if (making->device && (contexts_are_full() ||
                           !overhead_begin(&making->overhead, making->device, OVERHEAD_CONTEXT, 0)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Where the driver shall put the context: not before it is granted into the caller's variable. */
static CUcontext *context_target(struct making *making)
{
    return making->device ? &making->made : making->context;
}

static CUresult end_context(struct making *making, CUresult result)
{
    enum overhead_outcome outcome;
    uint64_t units;

    if (!making->device)
        return result;

    outcome = overhead_end(&making->overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_NOTHING)
        return result;
    if (outcome == OVERHEAD_CHARGED) {
        struct context context = {
            .handle = making->made,
            .device = making->device,
            .units = units,
            .users = 1,
        };

        if (contexts_add(&context)) {
            *making->context = making->made;
            return result;
        }
    }
    UNDO(cuCtxDestroy_v2, making->made);
    overhead_undone(&making->overhead, units);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v2)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinities,
                               unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v3)(context_target(&making), affinity, affinities,
                                                     flags, device));
}

PUBLIC CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making,
                       REAL(cuCtxCreate_v4)(context_target(&making), params, flags, device));
}
