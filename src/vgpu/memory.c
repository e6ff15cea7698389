/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Linear device memory: checked and charged before the driver is asked, discharged after it took
 * the memory back. What the driver refuses, or has never heard of, it answers itself.
 */

#include "vgpu/memory.h"

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/grant.h"
#include "vgpu/ipc.h"
#include "vgpu/managed.h"
#include "vgpu/pages.h"
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

/* Charges the piece, and lets it in. False: there is no room. */
static bool take_piece(struct grant *grant)
{
    uint64_t small_before;

    for (;;) {
        grant->units = page_need(grant->context, grant->piece, &small_before);
        if (!grant_take(grant))
            return false;
        if (page_claim(grant->context, grant->piece, small_before))
            return true;
        grant_cancel(grant);
    }
}

CUresult alloc_begin(struct grant *grant, uint64_t bytes)
{
    enum vgpu_mode mode = vgpu_mode();
    CUresult result;

    grant->device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !bytes)
        return CUDA_SUCCESS;
    result = grant_find_place(grant);
    if (result != CUDA_SUCCESS || !grant->device)
        return result;
    if (!grant->device->granted || (grant->context == CONTEXTS_MAX && context_is_alive()))
        return refuse_alloc();
    grant->piece = page_piece(ledger_units(bytes));
    return take_piece(grant) ? CUDA_SUCCESS : refuse_alloc();
}

void alloc_cancel(struct grant *grant)
{
    if (!grant->device)
        return;
    grant->units = page_give(grant->context, grant->piece);
    grant_cancel(grant);
}

bool alloc_enter(struct grant *grant, uint64_t handle)
{
    struct allocation entry;

    if (!grant->device)
        return true;
    entry = (struct allocation){
        .units = grant->piece,
        .device = (unsigned)(grant->device - vgpu.devices),
        .context = grant->context,
    };
    if (grant->context == CONTEXTS_MAX || !allocations_add(ALLOCATION_ADDRESS, handle, &entry)) {
        alloc_cancel(grant);
        return false;
    }
    if (grant_is_in_place(grant)) {
        grant_end(grant);
        return true;
    }
    /* An end that is over has given back what is charged. */
    if (context_take(ALLOCATION_ADDRESS, handle, &entry)) {
        grant->context = entry.context;
        alloc_cancel(grant);
    } else {
        grant_end(grant);
    }
    return false;
}

/* Makes the grant what the driver took. False when that exceeds the limit; then it is cancelled. */
static bool adjust_alloc(struct grant *grant, uint64_t bytes)
{
    const uint64_t piece = page_piece(ledger_units(bytes));
    struct vgpu_device *device = grant->device;
    bool fits;

    if (!device || piece == grant->piece)
        return true;
    grant_begin_moving(device);
    alloc_cancel(grant);
    grant->piece = piece;
    fits = take_piece(grant);
    grant_end_moving(device);
    if (!fits)
        grant->device = NULL;
    return fits;
}

/* The card has no room: if it is oversubscribed, the memory is made on the host, where it shares no
 * page: it leaves the pages, and is charged by its own size. False: the grant is cancelled. */
static bool spill_alloc(CUdeviceptr *ptr, uint64_t bytes, struct grant *grant)
{
    struct vgpu_device *device = grant->device;
    bool spilled;

    grant_begin_moving(device);
    alloc_cancel(grant);
    grant->units = grant->piece;
    spilled =
        atomic_load(&vgpu.oversubscribed) && grant_take(grant) && managed_spill(ptr, bytes, grant);
    grant_end_moving(device);
    return spilled;
}

/* An output as a real driver leaves it where it refuses: it clears it first (seen on 580.159). So
 * do we, before anything is charged: where it can't be written, nothing is. */
#define CLEAR(output)                                                                              \
    do {                                                                                           \
        if ((output) && vgpu_mode() == VGPU_ON)                                                    \
            *(output) = 0;                                                                         \
    } while (0)

PUBLIC CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    struct grant grant;
    CUdeviceptr taken;
    CUresult result;

    CLEAR(ptr);
    result = alloc_begin(&grant, ptr ? bytes : 0);
    if (result == CUDA_SUCCESS && !grant.device)
        return REAL(cuMemAlloc_v2)(ptr, bytes);
    if (result != CUDA_SUCCESS)
        return result;

    result = REAL(cuMemAlloc_v2)(&taken, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return spill_alloc(ptr, bytes, &grant) ? CUDA_SUCCESS : result;
    if (result != CUDA_SUCCESS) {
        alloc_cancel(&grant);
        return result;
    }
    if (!alloc_enter(&grant, taken)) {
        UNDO(cuMemFree_v2, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int bytes)
{
    struct grant grant;
    CUdeviceptr_v1 taken;
    CUresult result;

    CLEAR(ptr);
    result = alloc_begin(&grant, ptr ? bytes : 0);
    if (result == CUDA_SUCCESS && !grant.device)
        return REAL(cuMemAlloc)(ptr, bytes);
    if (result != CUDA_SUCCESS)
        return result;

    result = REAL(cuMemAlloc)(&taken, bytes);
    if (result != CUDA_SUCCESS) {
        alloc_cancel(&grant);
        return result;
    }
    if (!alloc_enter(&grant, taken)) {
        UNDO(cuMemFree, taken);
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

/* The pitch is told where there is no room for what makes sense, as well. */
static size_t told_pitch(CUresult refused, size_t width, unsigned element_bytes)
{
    const bool is_known = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;

    return refused == CUDA_ERROR_OUT_OF_MEMORY && is_known ? pitched_bytes(width, 1) : 0;
}

PUBLIC CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                   unsigned int element_bytes)
{
    struct grant grant;
    CUdeviceptr taken;
    size_t row = 0;
    CUresult result;

    CLEAR(ptr);
    CLEAR(pitch);
    result = alloc_begin(&grant, ptr && pitch ? pitched_bytes(width, height) : 0);
    if (result == CUDA_SUCCESS && !grant.device)
        return REAL(cuMemAllocPitch_v2)(ptr, pitch, width, height, element_bytes);
    if (result != CUDA_SUCCESS) {
        if (pitch)
            *pitch = told_pitch(result, width, element_bytes);
        return result;
    }

    result = REAL(cuMemAllocPitch_v2)(&taken, &row, width, height, element_bytes);
    *pitch = row;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        if (!spill_alloc(ptr, pitched_bytes(width, height), &grant))
            return result;
        *pitch = pitched_bytes(width, 1);
        return CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        alloc_cancel(&grant);
        return result;
    }
    if (!adjust_alloc(&grant, (uint64_t)row * height) || !alloc_enter(&grant, taken)) {
        UNDO(cuMemFree_v2, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element_bytes)
{
    struct grant grant;
    CUdeviceptr_v1 taken;
    unsigned int row = 0;
    CUresult result;

    CLEAR(ptr);
    CLEAR(pitch);
    result = alloc_begin(&grant, ptr && pitch ? pitched_bytes(width, height) : 0);
    if (result == CUDA_SUCCESS && !grant.device)
        return REAL(cuMemAllocPitch)(ptr, pitch, width, height, element_bytes);
    if (result != CUDA_SUCCESS) {
        if (pitch)
            *pitch = (unsigned int)told_pitch(result, width, element_bytes);
        return result;
    }

    result = REAL(cuMemAllocPitch)(&taken, &row, width, height, element_bytes);
    *pitch = row;
    if (result != CUDA_SUCCESS) {
        alloc_cancel(&grant);
        return result;
    }
    if (!adjust_alloc(&grant, (uint64_t)row * height) || !alloc_enter(&grant, taken)) {
        UNDO(cuMemFree, taken);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = taken;
    return CUDA_SUCCESS;
}

bool alloc_begin_free(uint64_t handle, struct allocation *entry)
{
    if (vgpu_mode() != VGPU_ON || !context_take(ALLOCATION_ADDRESS, handle, entry))
        return false;
    grant_begin_moving(&vgpu.devices[entry->device]);
    return true;
}

CUresult alloc_end_free(uint64_t handle, const struct allocation *entry, CUresult result)
{
    struct vgpu_device *device = &vgpu.devices[entry->device];

    bool gone = result == CUDA_SUCCESS;

    if (!gone)
        gone = !context_put_back(ALLOCATION_ADDRESS, handle, entry);
    if (gone && !entry->shared)
        vgpu_discharge(device, VGPU_DATA, page_give(entry->context, entry->units));
    grant_end_moving(device);
    if (gone && entry->shared)
        ipc_freed(device, handle, entry, page_give(entry->context, entry->units));
    return result;
}

/* What is not linear memory may be managed, or a pool's: this process', or another one's. */
enum other {
    OTHER_NONE,
    OTHER_MANAGED,
    OTHER_IMPORT,
};

static enum other begin_other(CUdeviceptr ptr, struct allocation *entry)
{
    if (vgpu_mode() != VGPU_ON)
        return OTHER_NONE;
    if (managed_begin_free(ptr, entry))
        return OTHER_MANAGED;
    return pool_begin_free_import(ptr, entry) ? OTHER_IMPORT : OTHER_NONE;
}

static CUresult end_other(CUdeviceptr ptr, enum other other, const struct allocation *entry,
                          CUresult result)
{
    if (other == OTHER_MANAGED)
        managed_end_free(ptr, entry, result == CUDA_SUCCESS);
    else if (other == OTHER_IMPORT)
        pool_end_free_import(ptr, entry, result == CUDA_SUCCESS);
    return result;
}

PUBLIC CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    struct allocation entry;
    enum other other;

    if (!alloc_begin_free(ptr, &entry)) {
        other = begin_other(ptr, &entry);
        return end_other(ptr, other, &entry, REAL(cuMemFree_v2)(ptr));
    }
    return alloc_end_free(ptr, &entry, REAL(cuMemFree_v2)(ptr));
}

PUBLIC CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
    struct allocation entry;

    if (!alloc_begin_free(ptr, &entry))
        return REAL(cuMemFree)(ptr);
    return alloc_end_free(ptr, &entry, REAL(cuMemFree)(ptr));
}

PUBLIC CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    struct allocation entry;
    enum other other;

    if (!alloc_begin_free(ptr, &entry)) {
        other = begin_other(ptr, &entry);
        pools_freed();
        return end_other(ptr, other, &entry, REAL(cuMemFreeAsync)(ptr, stream));
    }
    return alloc_end_free(ptr, &entry, REAL(cuMemFreeAsync)(ptr, stream));
}

PUBLIC CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
    struct allocation entry;
    enum other other;

    if (!alloc_begin_free(ptr, &entry)) {
        other = begin_other(ptr, &entry);
        pools_freed();
        return end_other(ptr, other, &entry, REAL(cuMemFreeAsync_ptsz)(ptr, stream));
    }
    return alloc_end_free(ptr, &entry, REAL(cuMemFreeAsync_ptsz)(ptr, stream));
}
