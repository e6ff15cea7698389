/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that is made apart from its addresses (cuMemCreate). It lives while a handle of it, which
 * may be given out several times, or a mapping (virtual_map.c) is there, whichever goes last: so
 * that is counted. It is of no context, and charged to the device that it is made on, whatever
 * device is current; the host's is free. What others may hold of it: virtual_share.c.
 *
 * Where the card is oversubscribed (CUDA_OVERSUBSCRIBE) and has no room, memory is made on the
 * host, charged as ever, unless it asks for properties that the host's has not. Network cards'
 * access, for which programs ask wherever the device has it, is let go. NVML counts it for
 * nobody (vgpu_device.managed_units): it is charged until our last reference has gone, whoever else
 * holds it then, since it is no device's.
 *
 * The lock is held over the driver's calls: what they end must be out of the tables before anybody
 * is given the same handle or address, and no reference may come while the last one goes. Making
 * memory, which may take its time, is outside of it.
 */

#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/given.h"
#include "vgpu/grant.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/real.h"
#include "vgpu/virtual_rows.h"

struct virtual_rows virtual_rows = {.lock = PTHREAD_MUTEX_INITIALIZER};

void virtual_after_fork(void)
{
    (void)pthread_mutex_init(&virtual_rows.lock, NULL);
    virtual_rows.made = virtual_rows.mapped = (struct references){0};
    virtual_share_after_fork();
}

/* The last reference */

struct virtual_end virtual_end_if_last(struct reference_row *row)
{
    struct virtual_end end = {0};

    if (row->handles || row->maps)
        return end;
    if (row->units)
        end = (struct virtual_end){
            .device = &vgpu.devices[row->device],
            .units = row->units,
            .lent = virtual_lent(row),
            .given = row->given,
            .shared = row->shared,
            .held = row->held,
        };
    if (row->spilled) { /* whoever else holds it, that is no device's */
        end.given = 0;
        end.shared = end.held = false;
        end.spilled = true;
    }
    if (row->imported) {
        virtual_count_imports(-1);
        hidden_make_due();
    }
    references_remove(&virtual_rows.made, row);
    return end;
}

void virtual_forget_spilled(const struct virtual_end *end)
{
    if (!end->spilled)
        return;
    atomic_fetch_sub(&end->device->managed_units, end->units);
    managed_count_spilled(-(int64_t)end->units);
}

bool virtual_is_kept(const struct virtual_end *end)
{
    return end->given && given_keep(end->given, (unsigned)(end->device - vgpu.devices), end->units);
}

static void discharge(const struct virtual_end *end)
{
    if (!end->device)
        return;
    virtual_forget_spilled(end);
    if (virtual_is_kept(end))
        hidden_kept(end->device, end->units);
    else if (end->shared)
        hidden_left(end->device, end->units);
    else if (end->held)
        hidden_held(end->device, end->units);
    else
        vgpu_discharge(end->device, VGPU_DATA, end->units);
    vgpu_lend(end->device, -(int64_t)end->lent);
}

/* Making */

/* Where the memory will be. False: in a kind of place that nobody knew of. */
static bool find_place(const CUmemAllocationProp *prop, struct vgpu_device **ret_device)
{
    *ret_device = NULL;
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ret_device = vgpu_device(prop->location.id);
        return true;
    case 0: /* none: the driver says that it makes no sense */
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    default:
        return false;
    }
}

/* There is no room. What makes no sense the driver refuses itself, in its own words; should it ever
 * make such memory, that is undone. */
static CUresult refuse_create(size_t bytes, const CUmemAllocationProp *prop,
                              unsigned long long flags)
{
    CUmemGenericAllocationHandle made;
    size_t granule = 0;
    CUresult result =
        REAL(cuMemGetAllocationGranularity)(&granule, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (result == CUDA_SUCCESS && !flags && granule && bytes % granule == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuMemCreate)(&made, bytes, prop, flags);
    if (result == CUDA_SUCCESS) {
        UNDO(cuMemRelease, made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* Whether it would do as well on the host, but for its speed. */
static bool may_live_on_host(const CUmemAllocationProp *prop)
{
    const int by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

    return prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           !(prop->requestedHandleTypes & ~by_descriptor) && !prop->allocFlags.compressionType &&
           !prop->allocFlags.usage;
}

/* What the card has no room for, though the limit has. A descriptor is given of memory on a node
 * alone, and older drivers make no other; none makes the host's for network cards (H200, driver
 * 580). */
static bool create_on_host(CUmemGenericAllocationHandle *ret_made, size_t bytes,
                           CUmemAllocationProp prop, const struct vgpu_device *device)
{
    prop.allocFlags.gpuDirectRDMACapable = 0;
    prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    if (!prop.requestedHandleTypes && REAL(cuMemCreate)(ret_made, bytes, &prop, 0) == CUDA_SUCCESS)
        return true;
    prop.location = (CUmemLocation){
        .type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
        .id = managed_host_node(device),
    };
    return REAL(cuMemCreate)(ret_made, bytes, &prop, 0) == CUDA_SUCCESS;
}

static CUresult make(CUmemGenericAllocationHandle *ret_made, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags,
                     const struct grant *grant, bool *ret_spilled)
{
    CUresult result = REAL(cuMemCreate)(ret_made, bytes, prop, flags);

    *ret_spilled = result == CUDA_ERROR_OUT_OF_MEMORY && grant->device &&
                   atomic_load(&vgpu.oversubscribed) && may_live_on_host(prop) &&
                   create_on_host(ret_made, bytes, *prop, grant->device);
    return *ret_spilled ? CUDA_SUCCESS : result;
}

static void count_spilled(const struct grant *grant, size_t bytes)
{
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    managed_count_spilled((int64_t)grant->units);
    managed_say_spilled(grant->device, bytes);
}

/* False when there is no memory to remember it. */
static bool remember(CUmemGenericAllocationHandle handle, const struct grant *grant, bool spilled)
{
    struct reference_row *row;
    bool room;

    lock_mutex(&virtual_rows.lock);
    room = references_reserve(&virtual_rows.made);
    if (room) {
        row = references_add(&virtual_rows.made, handle);
        row->handles = 1;
        row->units = grant->device ? grant->units : 0;
        row->device = grant->device ? (uint32_t)(grant->device - vgpu.devices) : 0;
        row->spilled = spilled;
    }
    unlock_mutex(&virtual_rows.lock);
    return room;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags,
                       struct grant *grant)
{
    CUmemGenericAllocationHandle made = 0;
    CUresult result;
    bool spilled;

    if (grant->device && (!grant->device->granted || !grant_take(grant)))
        return refuse_create(bytes, prop, flags);
    result = make(&made, bytes, prop, flags, grant, &spilled);
    if (result == CUDA_SUCCESS && !remember(made, grant, spilled)) {
        UNDO(cuMemRelease, made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        grant_cancel(grant);
        return result;
    }
    if (spilled)
        count_spilled(grant, bytes);
    if (grant->device)
        grant_end(grant);
    *handle = made;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    enum vgpu_mode mode = vgpu_mode();
    struct grant grant = {.units = ledger_units(bytes)};
    CUmemAllocationProp own;

    if (!handle || !prop || !bytes || (mode != VGPU_ON && mode != VGPU_DENIED))
        return REAL(cuMemCreate)(handle, bytes, prop, flags);
    own = *prop; /* which another thread could change after it was looked at */
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!find_place(&own, &grant.device) &&
        vgpu_refuses(VGPU_WORD_UNACCOUNTED, "cuMemCreate", "nobody knows such a place for memory"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, bytes, &own, flags, &grant);
}

bool virtual_remember_free(CUmemGenericAllocationHandle handle)
{
    return remember(handle, &(struct grant){0}, false);
}

/* Handles */

bool virtual_refuses_unknown(const char *name)
{
    return vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "nobody knows where the memory is");
}

PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct virtual_end end = {0};
    struct vgpu_device *device;
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemRelease)(handle);
    lock_mutex(&virtual_rows.lock);
    row = references_find(&virtual_rows.made, handle);
    device = row && row->units ? &vgpu.devices[row->device] : NULL;
    if (device)
        grant_begin_moving(device);
    result = REAL(cuMemRelease)(handle);
    /* A handle that only mappings hold is none to release: what the driver makes of it is open. */
    if (result == CUDA_SUCCESS && row && row->handles) {
        row->handles--;
        end = virtual_end_if_last(row);
    }
    unlock_mutex(&virtual_rows.lock);
    if (!end.shared && !end.held)
        discharge(&end);
    if (device)
        grant_end_moving(device);
    if (end.shared || end.held)
        discharge(&end);
    return result;
}

PUBLIC CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUmemGenericAllocationHandle got = 0; /* which another thread could change where it goes */
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !handle)
        return REAL(cuMemRetainAllocationHandle)(handle, address);
    lock_mutex(&virtual_rows.lock);
    result = REAL(cuMemRetainAllocationHandle)(&got, address);
    row = result == CUDA_SUCCESS ? references_find(&virtual_rows.made, got) : NULL;
    if (row)
        row->handles++;
    unlock_mutex(&virtual_rows.lock);
    if (result == CUDA_SUCCESS)
        *handle = got;
    return result;
}

/* A program that made memory on its card hears that it is there, for the access that it will set;
 * but not that network cards may have what they can't. */
PUBLIC CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp own;
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !prop)
        return REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
    lock_mutex(&virtual_rows.lock);
    result = REAL(cuMemGetAllocationPropertiesFromHandle)(&own, handle);
    row = references_find(&virtual_rows.made, handle);
    if (result == CUDA_SUCCESS && row && row->spilled)
        own.location = (CUmemLocation){
            .type = CU_MEM_LOCATION_TYPE_DEVICE,
            .id = vgpu.devices[row->device].handle,
        };
    unlock_mutex(&virtual_rows.lock);
    if (result == CUDA_SUCCESS)
        *prop = own;
    return result;
}
