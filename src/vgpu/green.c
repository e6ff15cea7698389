/* SPDX-License-Identifier: Apache-2.0 */

/* Green contexts, parts of a device's primary one. */

#include "vgpu/code.h"
#include "vgpu/context_table.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"

/* A green context is a part of the device's primary one; what it takes is charged as code is. */
PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice handle,
                                 unsigned int flags)
{
    struct vgpu_device *device;
    CUresult result = contexts_may_create(handle, &device);
    enum overhead_outcome outcome;
    struct overhead overhead;
    uint64_t units;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    if (!overhead_begin(&overhead, device, OVERHEAD_CODE, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        (void)REAL(cuGreenCtxDestroy)(*context);
        overhead_undone(&overhead, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (outcome == OVERHEAD_CHARGED)
        code_remember(*context, device, units);
    return result;
}

/* The context that a green one can be used as is no more; what was allocated in it is the primary
 * one's, and stays. */
static void end_green(CUcontext handle)
{
    struct context_ending ending = context_begin_end(handle);

    if (!ending.row)
        return;
    context_give_back_data(&ending, 0);
    allocations_give_back(ALLOCATION_MANAGED, 0, &ending.managed);
    allocations_give_back(ALLOCATION_HOST, 0, &ending.host);
    allocations_give_back(ALLOCATION_IMPORT, 0, &ending.imports);
    allocations_give_back(ALLOCATION_GRAPHICS, 0, &ending.graphics);
    context_finish_end(&ending, true);
}

PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    bool ours = vgpu_mode() == VGPU_ON;
    struct code code;
    CUcontext used = NULL;
    CUresult result;

    if (!ours)
        return REAL(cuGreenCtxDestroy)(context);
    if (context && REAL(cuCtxFromGreenCtx) &&
        REAL(cuCtxFromGreenCtx)(&used, context) != CUDA_SUCCESS)
        used = NULL;
    code = code_take(context);
    result = REAL(cuGreenCtxDestroy)(context);
    code_end(context, &code, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && used)
        end_green(used);
    return result;
}
