/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools of memory that is given out in the order of streams: made, destroyed, and the default ones.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest_pool.h"
#include "simdriver/shared_pool.h"

enum {
    POOLS = 1024,
    /* Default pools: the devices', of their memory; of managed memory that is best on a device, on
     * the host, nowhere; the host's. */
    MANAGED_POOLS = SIM_DEVICES,
    MANAGED_HOST_POOL = MANAGED_POOLS + SIM_DEVICES,
    MANAGED_NONE_POOL,
    HOST_POOL,
    OWN_POOLS, /* what programs make */
};

#define GRANULE (2 * MIB)
#define HANDLE_KIND (UINT64_C(6) << 44)

static struct guest_pool pools[POOLS];
static unsigned current[SIM_DEVICES];
static bool any_given; /* since the process began */

/* Handles and pools, under guest.lock */

static CUmemoryPool handle_of(unsigned number)
{
    return (CUmemoryPool)(uintptr_t)(HANDLE_KIND | (uint64_t)(pools[number].gen & 0xfffff) << 24 |
                                     (uint64_t)number << 4);
}

static void pool_begin(unsigned number, unsigned device, uint64_t max_bytes)
{
    uint64_t granule = (uint64_t)guest_state()->header.driver.granule_bytes;

    pools[number] = (struct guest_pool){
        .in_use = true,
        .is_default = number < OWN_POOLS,
        .gen = pools[number].gen,
        .reuse = {1, 1, 1},
        .heap = {.place = {.device = device},
                 .max_bytes = max_bytes,
                 .granule = MAX(GRANULE, granule),
                 .opportunistic = true,
                 .internal = true},
    };
}

static unsigned default_of(unsigned device)
{
    if (!pools[device].in_use)
        pool_begin(device, device, 0);
    return device;
}

static unsigned current_of(unsigned device)
{
    return current[device] ? current[device] : default_of(device);
}

static bool find_pool(CUmemoryPool handle, unsigned *ret_number)
{
    uint64_t word = (uint64_t)(uintptr_t)handle;
    unsigned number = (unsigned)(word >> 4) & 0xfffff;

    if (word >> 44 != HANDLE_KIND >> 44 || number >= POOLS || (word & 15))
        return false;
    if (!pools[number].in_use || pools[number].destroyed || handle_of(number) != handle) {
        guest_meet_stale();
        return false;
    }
    *ret_number = number;
    return true;
}

struct guest_pool *guest_pool_find(CUmemoryPool handle)
{
    unsigned number;

    return find_pool(handle, &number) ? &pools[number] : NULL;
}

struct guest_pool *guest_pool_current(unsigned device)
{
    return &pools[current_of(device)];
}

static void end_if_empty(struct guest_pool *pool)
{
    if (!pool->destroyed)
        return;
    heap_end(&pool->heap);
    if (pool->heap.reserved_bytes)
        return;
    pool->in_use = false;
    pool->gen++;
}

void guest_pools_look(bool waited)
{
    for (unsigned i = 0; i < POOLS; i++) {
        if (!pools[i].in_use)
            continue;
        heap_look(&pools[i].heap, waited);
        if (waited && pools[i].heap.reserved_bytes > pools[i].threshold)
            heap_shrink(&pools[i].heap, pools[i].threshold);
        end_if_empty(&pools[i]);
    }
}

void guest_pools_enter(void)
{
    (void)pthread_mutex_lock(&guest.lock);
    sim_advance_all(guest_state(), sim_lock(guest.sim));
}

void guest_pools_leave(void)
{
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
}

void guest_pools_note_given(void)
{
    __atomic_store_n(&any_given, true, __ATOMIC_RELAXED);
}

bool guest_pools_gave(void)
{
    return __atomic_load_n(&any_given, __ATOMIC_RELAXED);
}

void guest_pools_waited(void)
{
    if (!guest_pools_gave())
        return;
    guest_pools_enter();
    guest_pools_look(true);
    guest_pools_leave();
}

/* Pools */

static bool is_on_host(const CUmemPoolProps *props)
{
    return props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
           props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static bool is_best_on_host(const CUmemPoolProps *props)
{
    return is_on_host(props) || props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* The host is one node; older drivers know it by its number only. */
static CUresult check_host_props(const CUmemPoolProps *props)
{
    bool is_node = props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;

    if (props->handleTypes || (is_node && props->location.id != 0) ||
        (!is_node && guest_state()->header.driver.host_memory == SIM_HOST_MEMORY_NODES))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Of managed memory: its place is where it is best, if there is one. */
static CUresult check_managed_props(const CUmemPoolProps *props)
{
    if (props->handleTypes || props->maxSize)
        return CUDA_ERROR_INVALID_VALUE;
    switch (props->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return guest_check_device(props->location.id) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return props->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
    case CU_MEM_LOCATION_TYPE_NONE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult check_props(const CUmemPoolProps *props)
{
    if (!props || props->allocType < CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->allocType > CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return check_managed_props(props);
    if (is_on_host(props))
        return check_host_props(props);
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes && props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return guest_check_device(props->location.id) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

/* Of properties that make sense. The current device counts what is of none. */
static void find_place(const CUmemPoolProps *props, struct guest_place *ret)
{
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    uint32_t context;

    ret->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    ret->device = guest.devices[on_device ? props->location.id : 0];
    if (!on_device && guest_current(&context) == CUDA_SUCCESS)
        ret->device = guest_context(context)->device;
    ret->on_host = !ret->managed && is_on_host(props);
    ret->preferred = on_device                ? props->location.id
                     : is_best_on_host(props) ? GUEST_PLACE_HOST
                                              : GUEST_PLACE_NONE;
}

CUresult guest_pool_place(const CUmemPoolProps *props, struct guest_place *ret)
{
    CUresult r = check_props(props);

    if (r == CUDA_SUCCESS)
        find_place(props, ret);
    return r;
}

static unsigned free_pool(void)
{
    for (unsigned i = OWN_POOLS; i < POOLS; i++) {
        if (!pools[i].in_use)
            return i;
    }
    return 0;
}

/* A pool with such properties, which make sense. */
static void begin_with(unsigned number, const CUmemPoolProps *props)
{
    struct guest_place place;

    find_place(props, &place);
    pool_begin(number, place.device, props->maxSize);
    pools[number].heap.place = place;
    pools[number].heap.shared = props->handleTypes != 0;
}

PUBLIC CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    r = check_props(props);
    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    number = free_pool();
    if (number) {
        begin_with(number, props);
        *pool = handle_of(number);
    }
    guest_pools_leave();
    return number ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct heap *shared_pool_find(CUmemoryPool handle, bool *ret_imported)
{
    unsigned number;

    if (!find_pool(handle, &number))
        return NULL;
    *ret_imported = pools[number].imported;
    return &pools[number].heap;
}

CUmemoryPool shared_pool_new(unsigned device)
{
    unsigned number = free_pool();

    if (!number)
        return NULL;
    pool_begin(number, device, 0);
    pools[number].imported = true;
    guest_pools_note_given();
    return handle_of(number);
}

static CUresult destroy(CUmemoryPool handle)
{
    unsigned number;

    if (!find_pool(handle, &number) || pools[number].is_default)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < SIM_DEVICES; i++)
        current[i] = current[i] == number ? 0 : current[i];
    pools[number].destroyed = true;
    heap_look(&pools[number].heap, false);
    end_if_empty(&pools[number]);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    r = destroy(pool);
    guest_pools_leave();
    return r;
}

PUBLIC CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    if (find_pool(pool, &number)) {
        heap_look(&pools[number].heap, false);
        heap_shrink(&pools[number].heap, keep);
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    guest_pools_leave();
    return r;
}

/* The devices' pools */

/* To all of these but cuDeviceGetDefaultMemPool() a device that is not there is a bad value. */
static CUresult check_device_value(CUdevice device)
{
    CUresult r = guest_check_device(device);

    return r == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : r;
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice device, unsigned (*which)(unsigned device))
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    guest_pools_enter();
    *pool = handle_of(which(guest.devices[device]));
    guest_pools_leave();
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, default_of);
}

PUBLIC CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult r = check_device_value(device);

    return r == CUDA_SUCCESS ? get_pool(pool, device, current_of) : r;
}

PUBLIC CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult r = check_device_value(device);
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    if (find_pool(pool, &number) && !pools[number].imported && !pools[number].heap.place.on_host &&
        !pools[number].heap.place.managed &&
        pools[number].heap.place.device == guest.devices[device])
        current[guest.devices[device]] = number;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    guest_pools_leave();
    return r;
}

/* By a place and a kind of memory */

static bool is_of_device(const CUmemLocation *location, CUmemAllocationType type)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

static unsigned default_number(const CUmemPoolProps *props)
{
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return HOST_POOL;
    if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return MANAGED_POOLS + guest.devices[props->location.id];
    return is_on_host(props) ? MANAGED_HOST_POOL : MANAGED_NONE_POOL;
}

PUBLIC CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                       CUmemAllocationType type)
{
    CUresult r = guest_check();
    CUmemPoolProps props = {.allocType = type};
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_of_device(location, type)) {
        r = check_device_value(location->id);
        return r == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, location->id) : r;
    }
    props.location = *location;
    r = check_props(&props);
    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    number = default_number(&props);
    if (!pools[number].in_use)
        begin_with(number, &props);
    *pool = handle_of(number);
    guest_pools_leave();
    return CUDA_SUCCESS;
}

/* Of other places than devices no pool but the default one is current here. */
PUBLIC CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    return location && is_of_device(location, type) ? cuDeviceGetMemPool(pool, location->id)
                                                    : cuMemGetDefaultMemPool(pool, location, type);
}

PUBLIC CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                CUmemoryPool pool)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!location)
        return CUDA_ERROR_INVALID_VALUE;
    return is_of_device(location, type) ? cuDeviceSetMemPool(location->id, pool)
                                        : CUDA_ERROR_NOT_SUPPORTED;
}

CUmemoryPool guest_pool_of(uint64_t address, unsigned *ret_device)
{
    uint64_t from, bytes;
    CUmemoryPool handle = NULL;
    struct heap *heap;

    guest_pools_enter();
    heap = heap_range(address, &from, &bytes);
    for (unsigned i = 0; heap && i < POOLS; i++) {
        if (&pools[i].heap != heap)
            continue;
        handle = handle_of(i);
        *ret_device = heap->place.on_host ? SIM_DEVICES : heap->place.device;
    }
    guest_pools_leave();
    return handle;
}
