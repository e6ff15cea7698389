/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that processes share by handles of 64 bytes. It is charged to whoever allocated it; who
 * opens it takes none. When its maker frees it, or its context ends, others may have it still: then
 * it is hidden memory, charged until NVML says that it has gone, or an orphan, when its maker is
 * dead, until one of the others is charged what NVML counts for it: as with memory that was given
 * out as a descriptor (virtual_share.c, region/orphans.h).
 *
 * A handle does not say who made it: the container's processes note in their region which ones they
 * gave out (region/shares.h). One that is not there is from outside.
 */

#include "vgpu/ipc.h"

#include "base/lock.h"
#include "region/shares.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/given.h"
#include "vgpu/grant.h"
#include "vgpu/hidden.h"
#include "vgpu/pages.h"
#include "vgpu/real.h"

/* Over opening and closing: no count changes in between. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void ipc_after_fork(void)
{
    (void)pthread_mutex_init(&lock, NULL);
}

static unsigned own_slot(void)
{
    return (unsigned)vgpu.region.slot;
}

/* At its maker */

/* A small piece that is shared keeps all of its page from being given back. */
static CUresult share_page(ipc_give_fn driver, void *ret, const void *data, CUdeviceptr base,
                           struct allocation *entry)
{
    struct vgpu_device *device = &vgpu.devices[entry->device];
    CUresult result;

    if (!vgpu_charge(device, VGPU_DATA, PAGE_UNITS))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver(ret, data);
    if (result != CUDA_SUCCESS || !allocations_take(ALLOCATION_ADDRESS, base, entry)) {
        vgpu_discharge(device, VGPU_DATA, PAGE_UNITS);
        return result;
    }
    vgpu_discharge(device, VGPU_DATA, page_give(entry->context, entry->units));
    if (entry->shared)
        vgpu_lend(device, (int64_t)(PAGE_UNITS - entry->units));
    entry->units = PAGE_UNITS;
    (void)allocations_add(ALLOCATION_ADDRESS, base, entry);
    return CUDA_SUCCESS;
}

static CUresult give(ipc_give_fn driver, void *ret, const void *data, CUdeviceptr base)
{
    struct allocation entry;
    CUresult result;

    if (!allocations_look(ALLOCATION_ADDRESS, base, &entry) || !page_is_shared(entry.units))
        return driver(ret, data);
    grant_begin_moving(&vgpu.devices[entry.device]);
    result = share_page(driver, ret, data, base, &entry);
    grant_end_moving(&vgpu.devices[entry.device]);
    return result;
}

static CUdeviceptr base_of(CUdeviceptr ptr)
{
    CUdeviceptr base;
    size_t bytes;

    return REAL(cuMemGetAddressRange_v2)(&base, &bytes, ptr) == CUDA_SUCCESS ? base : ptr;
}

struct dma_buf {
    ipc_give_fn driver;
    const void *data;
    unsigned device;
};

/* As a driver's call: where it can't be watched, what was changed for it is undone. The caller
 * closes it then. */
static CUresult give_watched(void *ret_fd, const void *data)
{
    const struct dma_buf *buf = data;
    CUresult result = buf->driver(ret_fd, buf->data);

    if (result == CUDA_SUCCESS &&
        !given_watch(*(const int *)ret_fd, given_any(buf->device), buf->device))
        return CUDA_ERROR_OPERATING_SYSTEM;
    return result;
}

/* False when it is none of ours. */
static bool keep(CUdeviceptr base, bool kept)
{
    struct allocation_lent lent;
    bool ours = allocations_keep(ALLOCATION_ADDRESS, base, kept, &lent);

    vgpu_lend(&vgpu.devices[lent.device], lent.units);
    return ours;
}

static bool share(CUdeviceptr base)
{
    struct allocation_lent lent;
    bool ours = allocations_share(ALLOCATION_ADDRESS, base, &lent);

    vgpu_lend(&vgpu.devices[lent.device], lent.units);
    return ours;
}

/* Noted before, so that a free does not discharge it, and after: then it is what was given. */
CUresult ipc_give_dma_buf(CUdeviceptr ptr, ipc_give_fn driver, int *ret_fd, const void *data,
                          bool *ret_ours)
{
    const CUdeviceptr base = base_of(ptr);
    struct allocation entry = {0};
    struct dma_buf buf;
    CUresult result;

    (void)allocations_look(ALLOCATION_ADDRESS, base, &entry);
    buf = (struct dma_buf){driver, data, entry.device};
    given_begin(given_any(entry.device), entry.device);
    (void)keep(base, true);
    result = give(give_watched, ret_fd, &buf, base);
    *ret_ours = keep(base, entry.kept || result == CUDA_SUCCESS);
    given_end(given_any(entry.device), entry.device);
    return result;
}

static CUresult get_handle(void *ret_handle, const void *ptr)
{
    return REAL(cuIpcGetMemHandle)(ret_handle, *(const CUdeviceptr *)ptr);
}

/* Nothing is written before the driver has agreed; but nobody has the handle before that, either.
 */
PUBLIC CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    CUipcMemHandle made;
    CUdeviceptr base;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !handle)
        return REAL(cuIpcGetMemHandle)(handle, ptr);
    base = base_of(ptr);
    result = give(get_handle, &made, &ptr, base);
    if (result != CUDA_SUCCESS)
        return result;
    /* What is none of ours takes no memory that anybody charged: others may have it as they can. */
    if (share(base) &&
        !share_add(vgpu.region.ext, own_slot(), share_hash(&made, sizeof(made)), base))
        vgpu_say(VGPU_WORD_IMPORT, "%u pieces of memory are shared already: one more can't be",
                 REGION_SHARES);
    *handle = made;
    return CUDA_SUCCESS;
}

/* dma-bufs keep it. */
static bool is_kept(const struct vgpu_device *device, uint64_t units)
{
    const unsigned index = (unsigned)(device - vgpu.devices);

    return units && given_keep(given_any(index), index, units);
}

void ipc_freed(struct vgpu_device *device, CUdeviceptr ptr, const struct allocation *entry,
               uint64_t units)
{
    share_remove(vgpu.region.ext, own_slot(), ptr);
    if (entry->kept && is_kept(device, units))
        hidden_kept(device, units);
    else
        hidden_left(device, units);
    vgpu_lend(device, -(int64_t)entry->units);
}

void ipc_context_ended(struct vgpu_device *device, const struct allocations_bag *data)
{
    const struct region_ext *ext = vgpu.region.ext;

    for (unsigned i = 0; i < REGION_SHARES; i++) {
        CUdeviceptr ptr = atomic_load(&ext->shares[i].address);
        struct allocation entry;

        if (atomic_load(&ext->shares[i].owner) == own_slot() + 1 &&
            !(allocations_look(ALLOCATION_ADDRESS, ptr, &entry) && entry.shared))
            share_remove(vgpu.region.ext, own_slot(), ptr);
    }
    if (data->shared_units)
        hidden_left(device, data->shared_units);
    if (is_kept(device, data->kept_units))
        hidden_kept(device, data->kept_units);
    else if (data->kept_units)
        hidden_left(device, data->kept_units);
    vgpu_lend(device, -(int64_t)(data->shared_units + data->kept_units));
}

/* At the others */

/* With the lock held. */
static bool count_open(CUdeviceptr ptr, const struct vgpu_device *device, unsigned context)
{
    struct allocation entry = {.device = (unsigned)(device - vgpu.devices), .context = context};

    (void)allocations_take(ALLOCATION_IMPORT, ptr, &entry);
    entry.units++;
    return allocations_add(ALLOCATION_IMPORT, ptr, &entry);
}

/* With the lock held. */
static void count_close(CUdeviceptr ptr)
{
    struct allocation entry;

    if (!context_take(ALLOCATION_IMPORT, ptr, &entry))
        return;
    if (--entry.units)
        (void)allocations_add(ALLOCATION_IMPORT, ptr, &entry);
    virtual_count_imports(-1);
}

typedef CUresult (*open_fn)(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags);

/* With the lock held. The driver is asked first: what is no handle at all is its affair to say. */
static CUresult open_locked(CUdeviceptr *ret_ptr, const CUipcMemHandle *handle, unsigned int flags,
                            open_fn driver)
{
    struct vgpu_device *device;
    CUdeviceptr got;
    CUresult result;

    virtual_begin_import();
    result = driver(&got, *handle, flags);
    if (result != CUDA_SUCCESS) {
        virtual_end_import(NULL, false);
        return result;
    }
    device = vgpu_current_device();
    if (!device || !device->granted)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!share_is_known(vgpu.region.ext, share_hash(handle, sizeof(*handle))) &&
             vgpu_refuses(VGPU_WORD_IMPORT, "cuIpcOpenMemHandle",
                          "no living process of this container shares that memory"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!count_open(got, device, context_current()))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *ret_ptr = got;
    else
        UNDO(cuIpcCloseMemHandle, got);
    virtual_end_import(result == CUDA_SUCCESS ? virtual_device_at(got) : NULL,
                       result == CUDA_SUCCESS);
    return result;
}

static CUresult open_memory(CUdeviceptr *ptr, const CUipcMemHandle *handle, unsigned int flags,
                            open_fn driver)
{
    enum vgpu_mode mode = vgpu_mode();
    CUdeviceptr opened = 0;
    CUipcMemHandle own;
    CUresult result;

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !ptr)
        return driver(ptr, *handle, flags);
    own = *handle;
    lock_mutex(&lock);
    result = open_locked(&opened, &own, flags, driver);
    unlock_mutex(&lock);
    if (result != CUDA_SUCCESS)
        return result;
    (void)watch_start();
    *ptr = opened;
    return result;
}

/* Where the driver has no such call nobody looks into the handle: on arm64 it is passed by address.
 */
PUBLIC CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    (void)real_driver();
    if (!HAS(cuIpcOpenMemHandle))
        return CUDA_ERROR_NOT_FOUND;
    return open_memory(ptr, &handle, flags, REAL(cuIpcOpenMemHandle));
}

PUBLIC CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    (void)real_driver();
    if (!HAS(cuIpcOpenMemHandle_v2))
        return CUDA_ERROR_NOT_FOUND;
    return open_memory(ptr, &handle, flags, REAL(cuIpcOpenMemHandle_v2));
}

PUBLIC CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuIpcCloseMemHandle)(ptr);
    lock_mutex(&lock);
    result = REAL(cuIpcCloseMemHandle)(ptr);
    if (result == CUDA_SUCCESS)
        count_close(ptr);
    unlock_mutex(&lock);
    if (result == CUDA_SUCCESS)
        hidden_make_due();
    return result;
}
