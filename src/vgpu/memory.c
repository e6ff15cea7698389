/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Linear device memory: checked and charged before the driver is asked, discharged after it took
 * the memory back. What the driver refuses, or has never heard of, it answers itself.
 */

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/grant.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

#define PITCH_ALIGNMENT 512u /* at least; what the driver really took is charged afterwards */

/* There is no room; but a driver that was asked would look at the context first. */
static CUresult refuse_alloc(void)
{
    size_t free_bytes, total;
    CUresult result = REAL(cuMemGetInfo_v2)(&free_bytes, &total);

    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* What is wrong about a call in one that has ended the driver says. */
static bool context_is_alive(void)
{
    CUdevice device;

    return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS;
}

/* What to answer instead of asking the driver; CUDA_SUCCESS to go on. */
static CUresult begin_alloc(struct grant *grant, uint64_t bytes)
{
    enum vgpu_mode mode = vgpu_mode();

    grant->device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !bytes)
        return CUDA_SUCCESS;

    grant->context = context_current();
    if (!grant->context)
        return CUDA_SUCCESS;
    grant->device = vgpu.device_count == 1 ? &vgpu.devices[0] : vgpu_current_device();
    if (!grant->device)
        return CUDA_SUCCESS;

    grant->units = ledger_units(bytes);
    if (!grant->device->granted || (grant->context == CONTEXTS_MAX && context_is_alive()) ||
        !grant_take(grant))
        return refuse_alloc();
    return CUDA_SUCCESS;
}

/* False when it can't be remembered, or its context, which had ended, was made again meanwhile: it
 * is cancelled, and must be given back to the driver. */
static bool enter_alloc(const struct grant *grant, CUdeviceptr ptr)
{
    struct allocation entry;

    if (!grant->device)
        return true;
    entry = (struct allocation){
        .units = grant->units,
        .device = (unsigned)(grant->device - vgpu.devices),
        .context = grant->context,
    };
    if (grant->context == CONTEXTS_MAX || !allocations_add(ALLOCATION_ADDRESS, ptr, &entry)) {
        grant_cancel(grant);
        return false;
    }
    grant_end(grant);
    return true;
}

/* Makes the grant what the driver took. False when that exceeds the limit; then it is cancelled. */
static bool adjust_alloc(struct grant *grant, uint64_t bytes)
{
    uint64_t units = ledger_units(bytes);

    if (!grant->device || units == grant->units)
        return true;
    if (units < grant->units) {
        vgpu_discharge(grant->device, VGPU_DATA, grant->units - units);
    } else if (!vgpu_charge(grant->device, VGPU_DATA, units - grant->units)) {
        grant_cancel(grant);
        return false;
    }
    grant->units = units;
    return true;
}

PUBLIC CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    struct grant grant;
    CUdeviceptr taken;
    CUresult result = begin_alloc(&grant, ptr ? bytes : 0);

    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return REAL(cuMemAlloc_v2)(ptr, bytes);

    result = REAL(cuMemAlloc_v2)(&taken, bytes);
    if (result != CUDA_SUCCESS) {
        grant_cancel(&grant);
        return result;
    }
    if (!enter_alloc(&grant, taken)) {
        (void)REAL(cuMemFree_v2)(taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int bytes)
{
    struct grant grant;
    CUdeviceptr_v1 taken;
    CUresult result = begin_alloc(&grant, ptr ? bytes : 0);

    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return REAL(cuMemAlloc)(ptr, bytes);

    result = REAL(cuMemAlloc)(&taken, bytes);
    if (result != CUDA_SUCCESS) {
        grant_cancel(&grant);
        return result;
    }
    if (!enter_alloc(&grant, taken)) {
        (void)REAL(cuMemFree)(taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    return CUDA_SUCCESS;
}

/* The least that rows of this width take; 0 when the numbers make no sense, which the driver will
 * say. */
static uint64_t pitched_bytes(uint64_t width, uint64_t height)
{
    uint64_t pitch, bytes;

    if (__builtin_add_overflow(width, PITCH_ALIGNMENT - 1, &pitch))
        return 0;
    pitch -= pitch % PITCH_ALIGNMENT;
    return __builtin_mul_overflow(pitch, height, &bytes) ? 0 : bytes;
}

PUBLIC CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                   unsigned int element_bytes)
{
    struct grant grant;
    CUdeviceptr taken;
    size_t row;
    CUresult result = begin_alloc(&grant, ptr && pitch ? pitched_bytes(width, height) : 0);

    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element_bytes);

    result = REAL(cuMemAllocPitch_v2)(&taken, &row, width, height, element_bytes);
    if (result != CUDA_SUCCESS) {
        grant_cancel(&grant);
        return result;
    }
    if (!adjust_alloc(&grant, (uint64_t)row * height) || !enter_alloc(&grant, taken)) {
        (void)REAL(cuMemFree_v2)(taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    *pitch = row;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element_bytes)
{
    struct grant grant;
    CUdeviceptr_v1 taken;
    unsigned int row;
    CUresult result = begin_alloc(&grant, ptr && pitch ? pitched_bytes(width, height) : 0);

    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return REAL(cuMemAllocPitch)(ptr, pitch, width, height, element_bytes);

    result = REAL(cuMemAllocPitch)(&taken, &row, width, height, element_bytes);
    if (result != CUDA_SUCCESS) {
        grant_cancel(&grant);
        return result;
    }
    if (!adjust_alloc(&grant, (uint64_t)row * height) || !enter_alloc(&grant, taken)) {
        (void)REAL(cuMemFree)(taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    *pitch = row;
    return CUDA_SUCCESS;
}

/*
 * The entry is taken out before the driver frees: the moment it has, another thread may be given
 * the same address.
 */
static bool begin_free(CUdeviceptr ptr, struct allocation *entry)
{
    if (vgpu_mode() != VGPU_ON || !allocations_take(ALLOCATION_ADDRESS, ptr, entry))
        return false;
    grant_begin_moving(&vgpu.devices[entry->device]);
    return true;
}

static CUresult end_free(CUdeviceptr ptr, const struct allocation *entry, CUresult result)
{
    if (result == CUDA_SUCCESS)
        vgpu_discharge(&vgpu.devices[entry->device], VGPU_DATA, entry->units);
    else
        (void)allocations_add(ALLOCATION_ADDRESS, ptr, entry);
    grant_end_moving(&vgpu.devices[entry->device]);
    return result;
}

PUBLIC CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    struct allocation entry;

    if (!begin_free(ptr, &entry))
        return REAL(cuMemFree_v2)(ptr);
    return end_free(ptr, &entry, REAL(cuMemFree_v2)(ptr));
}

PUBLIC CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
    struct allocation entry;

    if (!begin_free(ptr, &entry))
        return REAL(cuMemFree)(ptr);
    return end_free(ptr, &entry, REAL(cuMemFree)(ptr));
}

PUBLIC CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    struct allocation entry;

    if (!begin_free(ptr, &entry)) {
        pools_freed();
        return REAL(cuMemFreeAsync)(ptr, stream);
    }
    return end_free(ptr, &entry, REAL(cuMemFreeAsync)(ptr, stream));
}

PUBLIC CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
    struct allocation entry;

    if (!begin_free(ptr, &entry)) {
        pools_freed();
        return REAL(cuMemFreeAsync_ptsz)(ptr, stream);
    }
    return end_free(ptr, &entry, REAL(cuMemFreeAsync_ptsz)(ptr, stream));
}
