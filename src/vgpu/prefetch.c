/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prefetches of managed memory, and advice. A prefetch is a hint, as advice is. One that would
 * bring memory to a device that it is not charged to is made to the place where it may be: so the
 * driver still says what is wrong about the call.
 */

#include "vgpu/managed.h"
#include "vgpu/real.h"

/* The device that is asked for, or else where the range may be: what may be anywhere may be on any
 * device that was given. What is no device the driver says. */
static CUdevice permitted(CUdeviceptr ptr, size_t bytes, CUdevice device)
{
    const struct vgpu_device *known = vgpu_device(device);
    CUdevice home = known ? managed_home(ptr, bytes) : CU_DEVICE_INVALID;

    if (home != CU_DEVICE_INVALID)
        return home;
    return known && !known->granted ? CU_DEVICE_CPU : device;
}

static CUmemLocation permitted_location(CUdeviceptr ptr, size_t bytes, CUmemLocation location)
{
    CUdevice device;

    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return location;
    device = permitted(ptr, bytes, location.id);
    if (device == CU_DEVICE_CPU)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    location.id = device;
    return location;
}

/* Prefetches */

/* The body of a function whose call moves pages: where they may be stays as it is looked up. */
#define PLACED(call)                                                                               \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    managed_hold_places();                                                                         \
    result = call;                                                                                 \
    managed_end_placing();                                                                         \
    return result

PUBLIC CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
{
    PLACED(REAL(cuMemPrefetchAsync)(ptr, bytes, permitted(ptr, bytes, device), stream));
}

PUBLIC CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr ptr, size_t bytes, CUdevice device,
                                        CUstream stream)
{
    PLACED(REAL(cuMemPrefetchAsync_ptsz)(ptr, bytes, permitted(ptr, bytes, device), stream));
}

PUBLIC CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t bytes, CUmemLocation location,
                                      unsigned int flags, CUstream stream)
{
    PLACED(REAL(cuMemPrefetchAsync_v2)(ptr, bytes, permitted_location(ptr, bytes, location), flags,
                                       stream));
}

PUBLIC CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr ptr, size_t bytes, CUmemLocation location,
                                           unsigned int flags, CUstream stream)
{
    PLACED(REAL(cuMemPrefetchAsync_v2_ptsz)(ptr, bytes, permitted_location(ptr, bytes, location),
                                            flags, stream));
}

static bool are_all_granted(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (!vgpu.devices[i].granted)
            return false;
    }
    return true;
}

/* Many at once are not looked into. */
static bool refuses_batch(const char *name)
{
    return (managed_is_any() || !are_all_granted()) && vgpu_mode() == VGPU_ON &&
           vgpu_refuses(VGPU_WORD_UNACCOUNTED, name,
                        "it may move what the limit has no room for to the device");
}

#define BATCH(name)                                                                                \
    PUBLIC CUresult name(CUdeviceptr *ptrs, size_t *bytes, size_t count, CUmemLocation *locations, \
                         size_t *indices, size_t location_count, unsigned long long flags,         \
                         CUstream stream)                                                          \
    {                                                                                              \
        PLACED(count &&refuses_batch(#name) ? CUDA_ERROR_NOT_SUPPORTED                             \
                                            : REAL(name)(ptrs, bytes, count, locations, indices,   \
                                                         location_count, flags, stream));          \
    }

BATCH(cuMemPrefetchBatchAsync)
BATCH(cuMemPrefetchBatchAsync_ptsz)
BATCH(cuMemDiscardAndPrefetchBatchAsync)
BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)

/* Advice */

/* Whether it could, whatever place it names, make pages of what is kept on the host go to a device.
 */
static bool would_move(CUmem_advise advice)
{
    return advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION ||
           advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
}

static bool is_kept(CUdeviceptr ptr, size_t bytes, CUmem_advise advice)
{
    return would_move(advice) && managed_home(ptr, bytes) == CU_DEVICE_CPU;
}

PUBLIC CUresult cuMemAdvise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device)
{
    CUresult result;

    (void)real_driver();
    managed_hold_places();
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        device = permitted(ptr, bytes, device);
    if (is_kept(ptr, bytes, advice))
        result = REAL(cuMemAdvise)(ptr, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
    else
        result = REAL(cuMemAdvise)(ptr, bytes, advice, device);
    managed_end_placing();
    return result;
}

PUBLIC CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t bytes, CUmem_advise advice,
                               CUmemLocation location)
{
    CUresult result;

    (void)real_driver();
    managed_hold_places();
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        location = permitted_location(ptr, bytes, location);
    if (is_kept(ptr, bytes, advice))
        result = REAL(cuMemAdvise)(ptr, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
    else
        result = REAL(cuMemAdvise_v2)(ptr, bytes, advice, location);
    managed_end_placing();
    return result;
}
