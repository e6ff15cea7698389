/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that is given out in the order of streams, from pools. A pool is its process', and of a
 * device, whatever context is current. One that is destroyed keeps what is still given out.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/graph_memory.h"
#include "simdriver/guest.h"
#include "simdriver/heap.h"
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
#define REUSES 3 /* attributes that allow one way of it each */

struct pool {
    bool in_use;
    bool destroyed; /* and its memory stays till the last piece is free */
    bool is_default;
    bool imported;
    unsigned gen;
    int reuse[REUSES];
    uint64_t threshold;
    uint32_t access; /* of the host's: the devices that have it, a bit each */
    struct heap heap;
};

static struct pool pools[POOLS];
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

    pools[number] = (struct pool){
        .in_use = true,
        .is_default = number < OWN_POOLS,
        .gen = pools[number].gen,
        .reuse = {1, 1, 1},
        .heap = {.device = device,
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

static void end_if_empty(struct pool *pool)
{
    if (!pool->destroyed)
        return;
    heap_end(&pool->heap);
    if (pool->heap.reserved_bytes)
        return;
    pool->in_use = false;
    pool->gen++;
}

static void look_at_all(bool waited)
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

static void enter(void)
{
    (void)pthread_mutex_lock(&guest.lock);
    sim_advance_all(guest_state(), sim_lock(guest.sim));
}

static void leave(void)
{
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
}

void guest_pools_waited(void)
{
    if (!__atomic_load_n(&any_given, __ATOMIC_RELAXED))
        return;
    enter();
    look_at_all(true);
    leave();
}

/* Pools */

static bool is_on_host(const CUmemPoolProps *props)
{
    return props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
           props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
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
                                                                      : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return props->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_NONE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_props(const CUmemPoolProps *props)
{
    if (!props || props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
        props->allocType < CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->allocType > CU_MEM_ALLOCATION_TYPE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return check_managed_props(props);
    if (is_on_host(props))
        return check_host_props(props);
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (props->handleTypes && props->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_NOT_SUPPORTED;
    return guest_check_device(props->location.id) == CUDA_SUCCESS ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_DEVICE;
}

CUresult guest_pool_place(const CUmemPoolProps *props, unsigned *ret_place)
{
    CUresult r = check_props(props);

    if (r == CUDA_SUCCESS)
        *ret_place = is_on_host(props) ? SIM_DEVICES : guest.devices[props->location.id];
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
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    unsigned device = guest.devices[on_device ? props->location.id : 0];
    struct heap *heap = &pools[number].heap;
    uint32_t context;

    if (!on_device && guest_current(&context) == CUDA_SUCCESS)
        device = guest_context(context)->device;
    pool_begin(number, device, props->maxSize);
    heap->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    heap->on_host = !heap->managed && is_on_host(props);
    heap->shared = props->handleTypes != 0;
    heap->preferred = on_device           ? props->location.id
                      : is_on_host(props) ? GUEST_PLACE_HOST
                                          : GUEST_PLACE_NONE;
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
    enter();
    number = free_pool();
    if (number) {
        begin_with(number, props);
        *pool = handle_of(number);
    }
    leave();
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
    __atomic_store_n(&any_given, true, __ATOMIC_RELAXED);
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
    enter();
    r = destroy(pool);
    leave();
    return r;
}

PUBLIC CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    enter();
    if (find_pool(pool, &number)) {
        heap_look(&pools[number].heap, false);
        heap_shrink(&pools[number].heap, keep);
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    leave();
    return r;
}

static bool is_reuse(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static CUresult get_attribute(struct pool *pool, CUmemPool_attribute attribute, void *value)
{
    const struct heap *heap = &pool->heap;

    heap_look(&pool->heap, false);
    if (is_reuse(attribute)) {
        *(int *)value = pool->reuse[attribute - 1];
        return CUDA_SUCCESS;
    }
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = heap->reserved_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = heap->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = heap->used_bytes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = heap->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_reuse(struct pool *pool, CUmemPool_attribute attribute, int allowed)
{
    pool->reuse[attribute - 1] = allowed != 0;
    pool->heap.opportunistic = pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC - 1];
    pool->heap.internal = pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES - 1];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    struct heap *heap = &pool->heap;

    if (is_reuse(attribute))
        return set_reuse(pool, attribute, *(const int *)value);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
            heap->used_high = heap->used_bytes;
        else
            heap->reserved_high = heap->reserved_bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

PUBLIC CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult r = guest_check_safe();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    r = find_pool(pool, &number) ? get_attribute(&pools[number], attribute, value)
                                 : CUDA_ERROR_INVALID_VALUE;
    leave();
    return r;
}

PUBLIC CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    r = find_pool(pool, &number) ? set_attribute(&pools[number], attribute, value)
                                 : CUDA_ERROR_INVALID_VALUE;
    leave();
    return r;
}

/* To the host's pools any device is given access, and from none it is taken. */
static CUresult set_host_access(struct pool *pool, const CUmemAccessDesc *access)
{
    uint32_t bit;

    if (guest_check_device(access->location.id) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_DEVICE;
    bit = UINT32_C(1) << guest.devices[access->location.id];
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    pool->access |= bit;
    return CUDA_SUCCESS;
}

/* A device always has access to its own pools; no other one has. */
static CUresult set_access(struct pool *pool, const CUmemAccessDesc *access)
{
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->heap.on_host || pool->heap.managed)
        return set_host_access(pool, access);
    if (guest_check_device(access->location.id) != CUDA_SUCCESS ||
        guest.devices[access->location.id] != pool->heap.device)
        return CUDA_ERROR_INVALID_DEVICE;
    return access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!access)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    if (!find_pool(pool, &number))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
        r = set_access(&pools[number], &access[i]);
    leave();
    return r;
}

static bool has_access(const struct pool *pool, unsigned device)
{
    if (pool->heap.managed)
        return true;
    return pool->heap.on_host ? pool->access >> device & 1 : pool->heap.device == device;
}

PUBLIC CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    CUresult r = guest_check();
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_check_device(location->id);
    if (r != CUDA_SUCCESS)
        return r;
    enter();
    if (!find_pool(pool, &number))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *flags = has_access(&pools[number], guest.devices[location->id])
                     ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    leave();
    return r;
}

/* The devices' pools */

static CUresult get_pool(CUmemoryPool *pool, CUdevice device, unsigned (*which)(unsigned device))
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    *pool = handle_of(which(guest.devices[device]));
    leave();
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, default_of);
}

PUBLIC CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return get_pool(pool, device, current_of);
}

PUBLIC CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult r = guest_check_device(device);
    unsigned number;

    if (r != CUDA_SUCCESS)
        return r;
    enter();
    if (find_pool(pool, &number) && !pools[number].imported && !pools[number].heap.on_host &&
        !pools[number].heap.managed && pools[number].heap.device == guest.devices[device])
        current[guest.devices[device]] = number;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    leave();
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
    if (is_of_device(location, type))
        return cuDeviceGetDefaultMemPool(pool, location->id);
    props.location = *location;
    r = check_props(&props);
    if (r != CUDA_SUCCESS)
        return r;
    enter();
    number = default_number(&props);
    if (!pools[number].in_use)
        begin_with(number, &props);
    *pool = handle_of(number);
    leave();
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

/* Memory */

/* A stream that has a handle needs no context. Under both locks. */
static CUresult find_stream(CUstream handle, bool per_thread, uint32_t *ret_stream)
{
    uint32_t context = 0;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS &&
        (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD))
        return r;
    return guest_find_stream(handle, per_thread, context, ret_stream);
}

static unsigned device_of(uint32_t stream)
{
    return guest_context(guest_state()->streams[stream].context)->device;
}

/* In a capture: the graph's, in a pool's place. */
static CUresult capture_take(CUdeviceptr *ret_ptr, size_t bytes, unsigned place, uint32_t stream)
{
    struct graph_node like = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .memory = graph_memory_new(place, bytes),
    };
    uint64_t address;
    CUresult r;

    if (!like.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    address = like.memory->address;
    r = guest_capture_node(stream, &like);
    graph_memory_drop(like.memory);
    if (r == CUDA_SUCCESS)
        *ret_ptr = address;
    return r;
}

static CUresult capture_give(CUdeviceptr ptr, uint32_t stream)
{
    struct graph_node like = {
        .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
        .memory = graph_memory_find(ptr),
    };

    if (!graph_may_free(guest_capture_graph(stream), like.memory))
        return CUDA_ERROR_INVALID_VALUE;
    return guest_capture_node(stream, &like);
}

/* From a pool, or the current one of the stream's device. */
static CUresult take(CUdeviceptr *ret_ptr, size_t bytes, const CUmemoryPool *handle,
                     CUstream stream_handle, bool per_thread)
{
    CUresult r = CUDA_SUCCESS;
    uint32_t stream;
    unsigned number;
    uint64_t ptr;

    if (handle && (!find_pool(*handle, &number) || pools[number].imported))
        return CUDA_ERROR_INVALID_VALUE;
    r = find_stream(stream_handle, per_thread, &stream);
    if (r == CUDA_SUCCESS)
        r = guest_check_legacy(stream, false);
    if (r != CUDA_SUCCESS)
        return r;
    if (!handle)
        number = current_of(device_of(stream));
    if (guest_is_capturing(stream) && pools[number].heap.managed)
        return CUDA_ERROR_NOT_SUPPORTED; /* by no graph here */
    if (guest_is_capturing(stream))
        return capture_take(ret_ptr, bytes,
                            pools[number].heap.on_host ? SIM_DEVICES : pools[number].heap.device,
                            stream);
    ptr = heap_take(&pools[number].heap, bytes, stream);
    if (!ptr)
        return CUDA_ERROR_OUT_OF_MEMORY;
    __atomic_store_n(&any_given, true, __ATOMIC_RELAXED);
    *ret_ptr = ptr;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *ptr, size_t bytes, const CUmemoryPool *pool, CUstream stream,
                         bool per_thread)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    r = take(ptr, bytes, pool, stream, per_thread);
    leave();
    return r;
}

PUBLIC CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    return allocate(ptr, bytes, NULL, stream, false);
}

PUBLIC CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    return allocate(ptr, bytes, NULL, stream, true);
}

PUBLIC CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    return allocate(ptr, bytes, &pool, stream, false);
}

PUBLIC CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    return allocate(ptr, bytes, &pool, stream, true);
}

/* What cuMemAlloc gave may be freed here as well, and what comes from a pool by cuMemFree. */
static CUresult give(CUdeviceptr ptr, CUstream handle, bool per_thread)
{
    uint32_t stream;
    struct heap_piece *piece;
    struct heap *heap;
    CUresult r = find_stream(handle, per_thread, &stream);

    if (r == CUDA_SUCCESS)
        r = guest_check_legacy(stream, false);
    if (r != CUDA_SUCCESS)
        return r;
    if (guest_is_capturing(stream))
        return capture_give(ptr, stream);
    if (stream == guest_context(guest_state()->streams[stream].context)->legacy)
        sim_join_legacy(guest_state(), stream);
    piece = heap_find(ptr, &heap);
    if (piece) {
        heap_give(piece, stream);
        return CUDA_SUCCESS;
    }
    return shared_pool_free(ptr) || guest_free_locked(ptr) || guest_graph_free(ptr)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream, bool per_thread)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr)
        return CUDA_SUCCESS;
    enter();
    r = give(ptr, stream, per_thread);
    look_at_all(false);
    leave();
    return r;
}

PUBLIC CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    return free_async(ptr, stream, false);
}

PUBLIC CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
    return free_async(ptr, stream, true);
}

bool guest_pool_free(uint64_t address)
{
    struct heap_piece *piece;
    struct heap *heap;
    bool found;

    if (!__atomic_load_n(&any_given, __ATOMIC_RELAXED))
        return false;
    enter();
    piece = heap_find(address, &heap);
    if (piece)
        heap_give(piece, 0);
    found = piece || shared_pool_free(address);
    look_at_all(false);
    leave();
    return found;
}

bool guest_pool_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    bool found;

    if (!__atomic_load_n(&any_given, __ATOMIC_RELAXED))
        return false;
    enter();
    found =
        heap_range(address, ret_from, ret_bytes) || shared_pool_range(address, ret_from, ret_bytes);
    leave();
    return found;
}

CUmemoryPool guest_pool_of(uint64_t address, unsigned *ret_device)
{
    uint64_t from, bytes;
    CUmemoryPool handle = NULL;
    struct heap *heap;

    enter();
    heap = heap_range(address, &from, &bytes);
    for (unsigned i = 0; heap && i < POOLS; i++) {
        if (&pools[i].heap != heap)
            continue;
        handle = handle_of(i);
        *ret_device = heap->on_host ? SIM_DEVICES : heap->device;
    }
    leave();
    return handle;
}
