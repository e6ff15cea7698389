/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What holds memory that is mapped beside its handles and mappings: tiles of sparse arrays,
 * multicast objects and logical endpoints, which take none of their own. How often they hold it
 * nobody counts.
 */

#include <string.h>
#include <sys/mman.h>

#include "vgpu/real.h"
#include "vgpu/vgpu.h"
#include "vgpu/virtual.h"

/* Tiles */

enum {
    MAP_LIST = 16, /* that need no memory of their own */
};

/* False: of memory that nobody was given. */
static bool mark_mapped(const CUarrayMapInfo *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP &&
            !virtual_mark_held(list[i].memHandle.memHandle, "cuMemMapArrayAsync"))
            return false;
    }
    return true;
}

typedef CUresult (*map_array_fn)(CUarrayMapInfo *list, unsigned int count, CUstream stream);

/* The driver gets what was looked at: another thread could change the caller's list. */
static CUresult map_copied(const CUarrayMapInfo *list, unsigned count, CUstream stream,
                           map_array_fn driver)
{
    CUarrayMapInfo few[MAP_LIST];
    size_t bytes = count * sizeof(*list);
    CUarrayMapInfo *own = few;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (count > MAP_LIST)
        own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(own, list, bytes);
    if (mark_mapped(own, count))
        result = driver(own, count, stream);
    if (own != few)
        (void)munmap(own, bytes);
    return result;
}

PUBLIC CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    if (vgpu_mode() != VGPU_ON || !list || !count)
        return REAL(cuMemMapArrayAsync)(list, count, stream);
    return map_copied(list, count, stream, REAL(cuMemMapArrayAsync));
}

PUBLIC CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    if (vgpu_mode() != VGPU_ON || !list || !count)
        return REAL(cuMemMapArrayAsync_ptsz)(list, count, stream);
    return map_copied(list, count, stream, REAL(cuMemMapArrayAsync_ptsz));
}

/* Multicast. The driver is let wait for the other devices: no lock is held over its calls. */

PUBLIC CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                  const CUmulticastObjectProp *prop)
{
    CUmemGenericAllocationHandle made;
    CUresult result;

    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON || !handle)
        return REAL(cuMulticastCreate)(handle, prop);
    result = REAL(cuMulticastCreate)(&made, prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (!virtual_remember_free(made)) {
        UNDO(cuMemRelease, made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = made;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                   CUmemGenericAllocationHandle memory, size_t memory_offset,
                                   size_t bytes, unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON && !virtual_mark_held(memory, "cuMulticastBindMem"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuMulticastBindMem)(handle, offset, memory, memory_offset, bytes, flags);
}

PUBLIC CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                    CUdeviceptr ptr, size_t bytes, unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON && !virtual_mark_held_at(ptr, "cuMulticastBindAddr"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuMulticastBindAddr)(handle, offset, ptr, bytes, flags);
}

PUBLIC CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                      size_t offset, CUmemGenericAllocationHandle memory,
                                      size_t memory_offset, size_t bytes, unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON && !virtual_mark_held(memory, "cuMulticastBindMem_v2"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuMulticastBindMem_v2)(handle, device, offset, memory, memory_offset, bytes, flags);
}

PUBLIC CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                       size_t offset, CUdeviceptr ptr, size_t bytes,
                                       unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON && !virtual_mark_held_at(ptr, "cuMulticastBindAddr_v2"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuMulticastBindAddr_v2)(handle, device, offset, ptr, bytes, flags);
}

/* Logical endpoints, which other machines reach as other devices reach a multicast object. */

PUBLIC CUresult cuLogicalEndpointBindMem(CUlogicalEndpointId endpoint, CUdevice device,
                                         cuuint64_t offset, CUmemGenericAllocationHandle memory,
                                         cuuint64_t memory_offset, cuuint64_t bytes,
                                         unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON && !virtual_mark_held(memory, "cuLogicalEndpointBindMem"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuLogicalEndpointBindMem)(endpoint, device, offset, memory, memory_offset, bytes,
                                          flags);
}

PUBLIC CUresult cuLogicalEndpointBindAddr(CUlogicalEndpointId endpoint, CUdevice device,
                                          cuuint64_t offset, void *ptr, cuuint64_t bytes,
                                          unsigned long long flags)
{
    if (vgpu_mode() == VGPU_ON &&
        !virtual_mark_held_at((CUdeviceptr)(uintptr_t)ptr, "cuLogicalEndpointBindAddr"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuLogicalEndpointBindAddr)(endpoint, device, offset, ptr, bytes, flags);
}
