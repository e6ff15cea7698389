/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools that processes share. What a pool has is charged to its maker; who imports it, or a pointer
 * of it, takes none. Like memory that is given out as a descriptor (virtual_share.c) a pool that
 * was given out says who made it, and what is left of it after its end is hidden memory: of its
 * maker, or, when that one is dead, of whoever NVML counts it for.
 */

#include "base/cleanup.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"
#include "vgpu/virtual.h"

static bool is_fd(CUmemAllocationHandleType type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/* With the lock: no pool ends in between. */
static CUresult export_fd(int *ret_fd, CUmemoryPool handle, CUmemAllocationHandleType type,
                          unsigned long long flags)
{
    CUresult result = REAL(cuMemPoolExportToShareableHandle)(ret_fd, handle, type, flags);

    if (result == CUDA_SUCCESS && pool_find(handle))
        virtual_mark_descriptor(*ret_fd);
    return result;
}

PUBLIC CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
    AUTOCLOSE int fd = -1;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !shareable || !is_fd(type))
        return REAL(cuMemPoolExportToShareableHandle)(shareable, pool, type, flags);
    pools_lock();
    result = export_fd(&fd, pool, type, flags);
    pools_unlock();
    if (result == CUDA_SUCCESS)
        *(int *)shareable = take_fd(&fd);
    return result;
}

/* The driver is asked first, since it is its affair to say what is no import at all. */
PUBLIC CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
    CUmemoryPool made;
    CUresult result;

    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON || !pool)
        return REAL(cuMemPoolImportFromShareableHandle)(pool, shareable, type, flags);
    result = REAL(cuMemPoolImportFromShareableHandle)(&made, shareable, type, flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (!(is_fd(type) && virtual_is_of_container((int)(intptr_t)shareable)) &&
        vgpu_refuses(VGPU_WORD_IMPORT, "cuMemPoolImportFromShareableHandle",
                     "no living process of this container made that pool"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!pool_add_uncharged(made))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        (void)REAL(cuMemPoolDestroy)(made);
    else
        *pool = made;
    return result;
}

PUBLIC CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool,
                                       CUmemPoolPtrExportData *data)
{
    struct allocation entry = {0};
    CUdeviceptr got;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !ptr)
        return REAL(cuMemPoolImportPointer)(ptr, pool, data);
    *ptr = 0; /* as a real driver leaves it */
    virtual_begin_import();
    result = REAL(cuMemPoolImportPointer)(&got, pool, data);
    entry.context = context_current();
    if (result == CUDA_SUCCESS && !allocations_add(ALLOCATION_POOL_IMPORT, got, &entry)) {
        UNDO(cuMemFree_v2, got);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    virtual_end_import(result == CUDA_SUCCESS ? virtual_device_at(got) : NULL,
                       result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS)
        return result;
    (void)watch_start();
    *ptr = got;
    return CUDA_SUCCESS;
}

bool pool_begin_free_import(CUdeviceptr ptr, struct allocation *entry)
{
    return virtual_has_imports() && allocations_take(ALLOCATION_POOL_IMPORT, ptr, entry);
}

void pool_end_free_import(CUdeviceptr ptr, const struct allocation *entry, bool gone)
{
    if (!gone) {
        (void)allocations_add(ALLOCATION_POOL_IMPORT, ptr, entry);
        return;
    }
    virtual_count_imports(-1);
    hidden_make_due();
}
