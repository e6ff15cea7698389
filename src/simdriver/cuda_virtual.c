/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that is made apart from its addresses: reserving these, making memory, mapping and sharing
 * it. None of it is a context's, and none of it waits.
 */

#include <unistd.h>

#include "base/util.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"
#include "simdriver/ranges.h"

#define GRANULE (2 * MIB)
#define HANDLE_KIND (UINT64_C(5) << 44)
#define ACCESS_BITS 3u

static uint64_t granule(void)
{
    return MAX(GRANULE, (uint64_t)guest_state()->header.driver.granule_bytes);
}

/* Handles are of holds, made as all handles are: see guest.c. Under the machine's lock. */

uint64_t guest_hold_handle(uint32_t hold)
{
    return HANDLE_KIND | (uint64_t)(guest_state()->holds[hold].gen & 0xfffff) << 24 |
           (uint64_t)hold << 4;
}

bool guest_find_hold(uint64_t handle, uint32_t *ret_hold)
{
    uint32_t i = (uint32_t)(handle >> 4) & 0xfffff;

    if (handle >> 47 || (handle & ~UINT64_C(0xfffffffffff)) != HANDLE_KIND || i >= SIM_HOLDS ||
        (handle & 15))
        return false;
    if (guest_state()->holds[i].owner != (uint32_t)guest.sim->slot + 1 ||
        guest_hold_handle(i) != handle || !guest_state()->holds[i].handles) {
        guest_meet_stale();
        return false;
    }
    *ret_hold = i;
    return true;
}

static struct sim_physical *physical_of(uint32_t hold)
{
    return &guest_state()->physicals[guest_state()->holds[hold].physical];
}

/* Addresses */

PUBLIC CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment,
                                    CUdeviceptr hint, unsigned long long flags)
{
    CUresult r = guest_check_safe();
    uint64_t from;

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes || bytes % granule() || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    from = range_reserve(bytes, MAX((uint64_t)alignment, granule()), hint);
    (void)pthread_mutex_unlock(&guest.lock);
    if (!from)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = from;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
    CUresult r = guest_check_safe();
    bool gone;

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    gone = range_release(ptr, bytes);
    (void)pthread_mutex_unlock(&guest.lock);
    return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Making memory */

/* The host's memory is not for network cards. */
static CUresult read_place(const CUmemAllocationProp *prop, struct sim_physical *ret)
{
    const bool for_cards = prop->allocFlags.gpuDirectRDMACapable;

    ret->device = SIM_DEVICES;
    ret->location_type = (uint32_t)prop->location.type;
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (guest_check_device(prop->location.id) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_DEVICE;
        ret->device = guest.devices[prop->location.id];
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
        return for_cards || prop->requestedHandleTypes ||
                       guest_state()->header.driver.host_memory == SIM_HOST_MEMORY_NODES
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        ret->location_node = prop->location.id;
        return for_cards || prop->location.id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What is asked for, as it is kept; the bytes are the caller's to fill in. */
static CUresult read_prop(const CUmemAllocationProp *prop, struct sim_physical *ret)
{
    const int other_systems = CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT;
    const int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;

    *ret = (struct sim_physical){0};
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(known | other_systems))
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & (other_systems | CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC ||
        prop->allocFlags.usage >
            (CU_MEM_CREATE_USAGE_TILE_POOL | CU_MEM_CREATE_USAGE_HW_DECOMPRESS))
        return CUDA_ERROR_INVALID_VALUE;
    ret->handle_types = (uint32_t)prop->requestedHandleTypes;
    ret->rdma = prop->allocFlags.gpuDirectRDMACapable;
    ret->usage = prop->allocFlags.usage;
    return read_place(prop, ret);
}

PUBLIC CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags option)
{
    struct sim_physical asked;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    r = read_prop(prop, &asked);
    if (r == CUDA_SUCCESS)
        *bytes = granule();
    return r;
}

PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct sim_physical asked;
    CUresult r = guest_check_safe();
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || !bytes || bytes % granule() || flags)
        return CUDA_ERROR_INVALID_VALUE;
    r = read_prop(prop, &asked);
    if (r != CUDA_SUCCESS)
        return r;
    asked.bytes = bytes;
    (void)sim_lock(guest.sim);
    hold = sim_physical_new(guest.sim, &asked);
    if (hold)
        *handle = guest_hold_handle(hold);
    sim_unlock(guest.sim);
    return hold ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult r = guest_check_safe();
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    if (guest_find_hold(handle, &hold)) {
        sim_hold_drop(guest_state(), hold);
        guest_multicast_settle();
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock(guest.sim);
    return r;
}

/* By CUdevice; -1: none of this process'. */
static int ordinal_of(unsigned device)
{
    for (unsigned i = 0; i < guest.device_count; i++) {
        if (guest.devices[i] == device)
            return (int)i;
    }
    return -1;
}

static CUmemAllocationProp prop_of(const struct sim_physical *p)
{
    bool on_device = p->location_type == CU_MEM_LOCATION_TYPE_DEVICE;

    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (int)p->handle_types,
        .location = {.type = (int)p->location_type,
                     .id = on_device ? ordinal_of(p->device) : p->location_node},
        .allocFlags = {.gpuDirectRDMACapable = (unsigned char)p->rdma,
                       .usage = (unsigned short)p->usage},
    };
}

PUBLIC CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
    CUresult r = guest_check();
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    if (guest_find_hold(handle, &hold))
        *prop = prop_of(physical_of(hold));
    else
        r = CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    return r;
}

/* Mapping */

static CUresult map(const struct mapping *asked, uint64_t handle)
{
    struct mapping mapping = *asked;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    (void)sim_lock(guest.sim);
    if (guest_find_hold(handle, &mapping.hold) &&
        mapping.bytes <= physical_of(mapping.hold)->bytes && range_map(&mapping)) {
        guest_state()->holds[mapping.hold].maps++;
        r = CUDA_SUCCESS;
    }
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes || ptr % granule() || bytes % granule() || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    guest_multicast_wait(handle);
    sim_unlock(guest.sim);
    (void)pthread_mutex_lock(&guest.lock);
    r = map(&(struct mapping){.from = ptr, .bytes = bytes}, handle);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

static void unmap_one(struct mapping *mapping)
{
    uint32_t hold = mapping->hold;

    range_unmap(mapping);
    guest_state()->holds[hold].maps--;
    sim_hold_settle(guest_state(), hold);
}

PUBLIC CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    CUresult r = guest_check_safe();
    struct mapping *first;
    size_t count;

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    count = bytes ? range_run(ptr, bytes, &first) : 0;
    for (size_t i = 0; i < count; i++)
        unmap_one(first);
    guest_multicast_settle();
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The place of a location in a mapping's access; no device reaches another's memory here. */
static CUresult place_of(const CUmemLocation *location, unsigned *ret_place)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (guest_check_device(location->id) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_DEVICE;
        *ret_place = guest.devices[location->id];
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *ret_place = RANGE_ACCESS_HOST;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_access(const struct mapping *mapping, unsigned place)
{
    const struct sim_physical *p = physical_of(mapping->hold);

    if (p->team)
        return CUDA_SUCCESS;
    if (place == RANGE_ACCESS_HOST)
        return p->device == SIM_DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return p->device == SIM_DEVICES || p->device == place ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_descriptor(const struct mapping *first, size_t count,
                                 const CUmemAccessDesc *access, unsigned *ret_place)
{
    CUresult r = place_of(&access->location, ret_place);

    if (r == CUDA_SUCCESS && access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
        r = check_access(&first[i], *ret_place);
    return r;
}

static CUresult set_access(struct mapping *first, size_t count, const CUmemAccessDesc *access,
                           size_t descriptors)
{
    unsigned place;

    for (size_t k = 0; k < descriptors; k++) {
        CUresult r = check_descriptor(first, count, &access[k], &place);

        if (r != CUDA_SUCCESS)
            return r;
    }
    for (size_t k = 0; k < descriptors; k++) {
        (void)place_of(&access[k].location, &place);
        for (size_t i = 0; i < count; i++) {
            first[i].access &= ~((uint64_t)ACCESS_BITS << 2 * place);
            first[i].access |= (uint64_t)access[k].flags << 2 * place;
        }
    }
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access,
                               size_t count)
{
    CUresult r = guest_check_safe();
    struct mapping *first;
    size_t run;

    if (r != CUDA_SUCCESS)
        return r;
    if (!access || !count || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    run = range_run(ptr, bytes, &first);
    r = run ? set_access(first, run, access, count) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr ptr)
{
    const struct mapping *mapping;
    CUresult r = guest_check();
    unsigned place;

    GUEST_CLEAR(flags);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    r = place_of(location, &place);
    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    mapping = range_find(ptr);
    if (mapping)
        *flags = mapping->access >> 2 * place & ACCESS_BITS;
    (void)pthread_mutex_unlock(&guest.lock);
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    const struct mapping *mapping;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    mapping = range_find((uint64_t)(uintptr_t)address);
    if (mapping) {
        guest_state()->holds[mapping->hold].handles++;
        *handle = guest_hold_handle(mapping->hold);
    }
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Sharing */

PUBLIC CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
    CUresult r = guest_check();
    uint32_t hold;
    int fd = -1;

    if (r != CUDA_SUCCESS)
        return r;
    if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    if (!guest_find_hold(handle, &hold) || !(physical_of(hold)->handle_types & (unsigned)type))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        fd = sim_export_new(guest.sim, guest_state()->holds[hold].physical, false);
    sim_unlock(guest.sim);
    if (r != CUDA_SUCCESS)
        return r;
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                               void *shareable, CUmemAllocationHandleType type)
{
    CUresult r = guest_check_safe();
    uint32_t physical, hold = 0;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    physical = sim_export_find(guest.sim, (int)(intptr_t)shareable);
    if (!physical)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_state()->physicals[physical].device < SIM_DEVICES &&
             ordinal_of(guest_state()->physicals[physical].device) < 0)
        r = CUDA_ERROR_INVALID_DEVICE;
    else
        hold = sim_hold_new(guest.sim, physical);
    if (hold)
        *handle = guest_hold_handle(hold);
    else if (r == CUDA_SUCCESS)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    sim_unlock(guest.sim);
    return r;
}
