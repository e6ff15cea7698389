/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"
#include "region/ledger.h"
#include "region/limits.h"
#include "vgpu/compute_row.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

enum {
    POOLS = 1024,
    SLOTS = 4096, /* of the table by handle: power of two */
};

#define NONE UINT64_MAX

static struct {
    pthread_mutex_t lock;
    unsigned count; /* pools up to it were ever used */
    _Atomic bool any;
    struct pool pools[POOLS];
    _Atomic(struct pool *) slots[SLOTS];
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In the slots of pools that are gone. */
static struct pool nobody;

void pools_after_fork(void)
{
    (void)pthread_mutex_init(&pools.lock, NULL);
    pool_alloc_after_fork();
    memset(pools.pools, 0, sizeof(pools.pools));
    for (unsigned i = 0; i < SLOTS; i++)
        atomic_store(&pools.slots[i], NULL);
    pools.count = 0;
    atomic_store(&pools.any, false);
}

void pools_lock(void)
{
    lock_mutex(&pools.lock);
}

void pools_unlock(void)
{
    unlock_mutex(&pools.lock);
}

/* The table */

static unsigned slot_of(CUmemoryPool handle)
{
    return (unsigned)((uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

_Static_assert(SLOTS == 1 << 12, "the twelve highest bits choose the slot");

struct pool *pool_find(CUmemoryPool handle)
{
    for (unsigned at = slot_of(handle), i = 0; handle && i < SLOTS; at = (at + 1) % SLOTS, i++) {
        struct pool *pool = atomic_load_explicit(&pools.slots[at], memory_order_acquire);

        if (!pool)
            return NULL;
        if (atomic_load_explicit(&pool->handle, memory_order_relaxed) == handle)
            return pool;
    }
    return NULL;
}

/* With the lock: a slot on the handle's way that is empty, or is nobody's. */
static _Atomic(struct pool *) *free_slot(CUmemoryPool handle)
{
    for (unsigned at = slot_of(handle), i = 0; i < SLOTS; at = (at + 1) % SLOTS, i++) {
        struct pool *pool = atomic_load(&pools.slots[at]);

        if (!pool || pool == &nobody)
            return &pools.slots[at];
    }
    return NULL;
}

/* With the lock: one that is gone and that no allocation on its way has charged beside, or a new
 * one. */
static struct pool *free_pool(void)
{
    for (unsigned i = 0; i < pools.count; i++) {
        if (!atomic_load(&pools.pools[i].handle) && !pools.pools[i].advance)
            return &pools.pools[i];
    }
    return pools.count < POOLS ? &pools.pools[pools.count++] : NULL;
}

static void begin_pool(struct pool *pool, struct vgpu_device *device)
{
    pool->device = device;
    pool->of_graphs = pool->shared = pool->bounded = pool->on_host = false;
    pool->managed = pool->made = pool->ending = false;
    pool->chunk_bytes = POOL_LEAST_CHUNK;
    atomic_store(&pool->charged, 0);
    atomic_store(&pool->room, 0);
    atomic_store(&pool->failed_bytes, UINT64_MAX);
    atomic_store(&pool->failed_room, 0);
}

/* With the lock; NULL when there are too many. */
static struct pool *add_pool(CUmemoryPool handle, struct vgpu_device *device)
{
    _Atomic(struct pool *) *slot = free_slot(handle);
    struct pool *pool = slot ? free_pool() : NULL;

    if (!pool)
        return NULL;
    begin_pool(pool, device);
    atomic_store(&pool->handle, handle);
    atomic_store_explicit(slot, pool, memory_order_release);
    atomic_store(&pools.any, true);
    return pool;
}

bool pool_add_uncharged(CUmemoryPool handle)
{
    bool added;

    pools_lock();
    added = add_pool(handle, NULL) != NULL;
    pools_unlock();
    return added;
}

static struct pool *find_of_graphs(const struct vgpu_device *device)
{
    for (unsigned i = 0; i < pools.count; i++) {
        if (pools.pools[i].of_graphs && pools.pools[i].device == device)
            return &pools.pools[i];
    }
    return NULL;
}

/* Its handle is none of the driver's, and not in the table. */
struct pool *pool_of_graphs(struct vgpu_device *device)
{
    struct pool *pool;

    pools_lock();
    pool = find_of_graphs(device);
    if (!pool && (pool = free_pool())) {
        begin_pool(pool, device);
        pool->of_graphs = true;
        atomic_store(&pool->handle, (CUmemoryPool)pool);
        atomic_store(&pools.any, true);
    }
    pools_unlock();
    return pool;
}

/* With the lock. */
static void remove_pool(struct pool *pool, CUmemoryPool handle)
{
    unsigned at = slot_of(handle);

    while (atomic_load(&pools.slots[at]) != pool)
        at = (at + 1) % SLOTS;
    atomic_store(&pools.slots[at], &nobody);
    atomic_store(&pool->handle, NULL);
}

struct pool *pool_meet(CUmemoryPool handle)
{
    struct pool *pool = NULL;

    for (unsigned i = 0; i < vgpu.device_count && !pool; i++) {
        CUmemoryPool own;

        if (REAL(cuDeviceGetDefaultMemPool)(&own, vgpu.devices[i].handle) != CUDA_SUCCESS ||
            own != handle)
            continue;
        pools_lock();
        pool = pool_find(handle);
        pool = pool ? pool : add_pool(handle, &vgpu.devices[i]);
        pools_unlock();
    }
    return pool;
}

/* On the host */

static bool let_devices_have(CUmemoryPool handle)
{
    CUmemAccessDesc accesses[LIMITS_MAX_DEVICES];

    for (unsigned i = 0; i < vgpu.device_count; i++)
        accesses[i] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = vgpu.devices[i].handle},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    return REAL(cuMemPoolSetAccess)(handle, accesses, vgpu.device_count) == CUDA_SUCCESS;
}

/* Older drivers know only nodes of the host. */
static bool make_on_host(const struct vgpu_device *device, CUmemoryPool *ret_handle)
{
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST},
    };
    CUresult result = REAL(cuMemPoolCreate)(ret_handle, &props);

    if (result != CUDA_SUCCESS) {
        props.location = (CUmemLocation){
            .type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
            .id = managed_host_node(device),
        };
        result = REAL(cuMemPoolCreate)(ret_handle, &props);
    }
    if (result != CUDA_SUCCESS)
        return false;
    if (let_devices_have(*ret_handle))
        return true;
    (void)REAL(cuMemPoolDestroy)(*ret_handle);
    return false;
}

static struct pool *find_on_host(const struct vgpu_device *device)
{
    for (unsigned i = 0; i < pools.count; i++) {
        if (atomic_load(&pools.pools[i].handle) && pools.pools[i].on_host &&
            pools.pools[i].device == device)
            return &pools.pools[i];
    }
    return NULL;
}

/* With the lock. */
static struct pool *add_on_host(struct vgpu_device *device)
{
    CUmemoryPool handle;
    struct pool *pool;

    if (!make_on_host(device, &handle))
        return NULL;
    pool = add_pool(handle, device);
    if (pool)
        pool->on_host = true;
    else
        (void)REAL(cuMemPoolDestroy)(handle);
    return pool;
}

struct pool *pool_on_host(struct vgpu_device *device)
{
    struct real_relaxed relaxed;
    struct pool *pool;

    pools_lock();
    pool = find_on_host(device);
    if (!pool) {
        relaxed = real_relax();
        pool = add_on_host(device);
        real_end_relaxed(&relaxed);
    }
    pools_unlock();
    return pool;
}

struct pool *pool_managed_on_host(void)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST},
    };
    struct real_relaxed relaxed = real_relax();
    struct pool *pool = NULL;
    CUmemoryPool handle;

    pools_lock();
    for (unsigned i = 0; i < pools.count && !pool; i++) {
        if (atomic_load(&pools.pools[i].handle) && pools.pools[i].on_host && pools.pools[i].managed)
            pool = &pools.pools[i];
    }
    if (!pool && REAL(cuMemPoolCreate)(&handle, &props) == CUDA_SUCCESS) {
        pool = add_pool(handle, NULL);
        if (pool)
            pool->on_host = pool->managed = true;
        else
            (void)REAL(cuMemPoolDestroy)(handle);
    }
    pools_unlock();
    real_end_relaxed(&relaxed);
    return pool;
}

/* What the driver says of a pool */

static uint64_t ask_graphs(const struct pool *pool, CUmemPool_attribute attribute)
{
    CUgraphMem_attribute asked = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                     ? CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                     : CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
    cuuint64_t value = NONE;

    if (REAL(cuDeviceGetGraphMemAttribute)(pool->device->handle, asked, &value) != CUDA_SUCCESS)
        return NONE;
    return value;
}

static uint64_t ask_driver(const struct pool *pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = NONE;

    if (pool->of_graphs)
        return ask_graphs(pool, attribute);
    if (REAL(cuMemPoolGetAttribute)(atomic_load_explicit(&pool->handle, memory_order_relaxed),
                                    attribute, &value) != CUDA_SUCCESS)
        return NONE;
    return value;
}

/* Nobody's capture minds. One that was lost may forbid it still, though it counts no more. */
static uint64_t ask(const struct pool *pool, CUmemPool_attribute attribute)
{
    struct real_relaxed relaxed;
    uint64_t value = NONE;

    if (!atomic_load_explicit(&compute_captures, memory_order_relaxed))
        value = ask_driver(pool, attribute);
    if (value != NONE)
        return value;
    relaxed = real_relax();
    value = ask_driver(pool, attribute);
    real_end_relaxed(&relaxed);
    return value;
}

uint64_t pool_reserved_units(const struct pool *pool)
{
    uint64_t bytes = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);

    return bytes == NONE ? atomic_load(&pool->charged) : ledger_units(bytes);
}

uint64_t pool_room(const struct pool *pool)
{
    uint64_t reserved = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);

    return reserved == NONE || used == NONE ? 0 : reserved - MIN(reserved, used);
}

/* Charges, with the lock held */

/* NVML counts neither what lives on the host nor what moves. */
void pool_set_charged(struct pool *pool, uint64_t units)
{
    uint64_t before = atomic_exchange(&pool->charged, units);

    if (pool->on_host || pool->managed)
        atomic_fetch_add(&pool->device->managed_units, units - before);
    if (pool->on_host)
        managed_count_spilled((int64_t)(units - before));
}

bool pool_give_back(struct pool *pool)
{
    uint64_t charged = atomic_load(&pool->charged), units = pool_reserved_units(pool);

    if (units >= charged)
        return false;
    vgpu_discharge(pool->device, VGPU_DATA, charged - units);
    pool_set_charged(pool, units);
    atomic_store(&pool->room, 0);
    return true;
}

bool pool_take_in(struct pool *pool, uint64_t *advance)
{
    uint64_t charged = atomic_load(&pool->charged), units = pool_reserved_units(pool), own, others;

    if (units <= charged)
        return true;
    own = MIN(*advance, units - charged);
    others = pool->advance - *advance;
    *advance -= own;
    pool->advance -= own;
    charged += own;
    if (units - charged > others) {
        if (!vgpu_try_charge(pool->device, VGPU_DATA, units - charged - others)) {
            pool_set_charged(pool, charged);
            return false;
        }
        charged = units - others;
    }
    pool_set_charged(pool, charged);
    return true;
}

static bool is_of(const struct pool *pool, const struct vgpu_device *device)
{
    return atomic_load(&pool->handle) && pool->device == device;
}

/* Whether it has all back, and the device as well: what is freed may wait for its stream. */
static bool is_empty(const struct pool *pool)
{
    (void)REAL(cuMemPoolTrimTo)(atomic_load(&pool->handle), 0);
    return ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0 &&
           ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0;
}

/* What the program destroyed before it freed all. True when something was given back. */
static bool end_if_empty(struct pool *pool)
{
    CUmemoryPool handle = atomic_load(&pool->handle);
    struct real_relaxed relaxed;
    uint64_t charged;
    bool ended;

    if (!pool->ending)
        return false;
    relaxed = real_relax();
    ended = is_empty(pool) && REAL(cuMemPoolDestroy)(handle) == CUDA_SUCCESS;
    real_end_relaxed(&relaxed);
    if (!ended)
        return false;
    charged = atomic_load(&pool->charged);
    pool_set_charged(pool, 0);
    remove_pool(pool, handle);
    vgpu_discharge(pool->device, VGPU_DATA, charged);
    return charged > 0;
}

static bool settle(struct pool *pool)
{
    bool gave = pool_give_back(pool);

    return end_if_empty(pool) || gave;
}

bool pools_settle(struct vgpu_device *device)
{
    struct real_relaxed relaxed;
    bool gave = false;

    if (!atomic_load_explicit(&pools.any, memory_order_acquire))
        return false;
    relaxed = real_relax();
    pools_lock();
    for (unsigned i = 0; i < pools.count; i++) {
        if (is_of(&pools.pools[i], device))
            gave |= settle(&pools.pools[i]);
    }
    pools_unlock();
    real_end_relaxed(&relaxed);
    return gave;
}

int64_t pools_surplus(const struct vgpu_device *device)
{
    int64_t surplus = 0;

    for (unsigned i = 0; i < pools.count; i++) {
        if (is_of(&pools.pools[i], device) && !pools.pools[i].on_host && !pools.pools[i].managed)
            surplus += (int64_t)atomic_load(&pools.pools[i].charged) -
                       (int64_t)pool_reserved_units(&pools.pools[i]);
    }
    return surplus;
}

/* Pools */

bool pools_know_place(const CUmemLocation *location, const char *name)
{
    return location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
           !vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "nobody knows such a place for memory");
}

static struct vgpu_device *device_at(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? vgpu_device(location->id) : NULL;
}

/* Whom a pool is charged to; NULL: nobody. */
static struct vgpu_device *device_of(const CUmemLocation *location, CUmemAllocationType type)
{
    struct vgpu_device *device = device_at(location);

    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return device;
    if (atomic_load(&vgpu.managed) == LIMITS_MANAGED_FREE)
        return NULL;
    device = device ? device : vgpu_current_device();
    return device ? device : &vgpu.devices[0];
}

/* With the lock; NULL when there are too many. */
static struct pool *add(CUmemoryPool handle, struct vgpu_device *device, CUmemAllocationType type)
{
    struct pool *pool = add_pool(handle, device);

    if (!pool || !device || type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return pool;
    pool->managed = true;
    managed_expect_pools();
    return pool;
}

PUBLIC CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    enum vgpu_mode mode = vgpu_mode();
    struct vgpu_device *device;
    CUmemPoolProps own;
    CUmemoryPool made;
    struct pool *added;
    CUresult result;

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !pool || !props)
        return REAL(cuMemPoolCreate)(pool, props);
    own = *props;
    if (!pools_know_place(&own.location, "cuMemPoolCreate"))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = REAL(cuMemPoolCreate)(&made, &own);
    if (result != CUDA_SUCCESS)
        return result;
    device = device_of(&own.location, own.allocType);
    pools_lock();
    added = add(made, device, own.allocType);
    if (added) {
        added->shared = own.handleTypes != 0;
        added->bounded = own.maxSize != 0;
        added->made = true;
    }
    pools_unlock();
    if (!added) {
        (void)REAL(cuMemPoolDestroy)(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pool = made;
    return CUDA_SUCCESS;
}

/*
 * The driver's own pools, by a place and a kind of memory (CUDA 13). Those of devices are known
 * without (pool_meet()); from one in a place that nobody knows nothing is allocated. With the lock
 * from the question on: no pool ends in between, whose handle another one might have.
 */

static bool meet(CUmemoryPool handle, const CUmemLocation *location, CUmemAllocationType type,
                 struct vgpu_device *device)
{
    if (type != CU_MEM_ALLOCATION_TYPE_MANAGED && location->type != CU_MEM_LOCATION_TYPE_HOST &&
        location->type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return true;
    return pool_find(handle) || add(handle, device, type);
}

#define MEET(name)                                                                                 \
    struct vgpu_device *device;                                                                    \
    CUmemLocation own;                                                                             \
    CUmemoryPool got;                                                                              \
    CUresult result;                                                                               \
                                                                                                   \
    if (vgpu_mode() != VGPU_ON || !pool || !location)                                              \
        return REAL(name)(pool, location, type);                                                   \
    own = *location;                                                                               \
    device = device_of(&own, type);                                                                \
    pools_lock();                                                                                  \
    result = REAL(name)(&got, &own, type);                                                         \
    if (result == CUDA_SUCCESS && !meet(got, &own, type, device))                                  \
        result = CUDA_ERROR_OUT_OF_MEMORY;                                                         \
    pools_unlock();                                                                                \
    if (result == CUDA_SUCCESS)                                                                    \
        *pool = got;                                                                               \
    return result

PUBLIC CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                       CUmemAllocationType type)
{
    MEET(cuMemGetDefaultMemPool);
}

PUBLIC CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    MEET(cuMemGetMemPool);
}

bool pools_home(CUdeviceptr ptr, CUdevice *ret_home)
{
    CUmemoryPool handle = NULL;
    const struct pool *pool = NULL;

    if (REAL(cuPointerGetAttribute)(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr) ==
        CUDA_SUCCESS)
        pool = pool_find(handle);
    if (!pool || !pool->managed)
        return false;
    *ret_home = pool->on_host ? CU_DEVICE_CPU : pool->device->handle;
    return true;
}

/*
 * Managed memory that is given out when its pool is destroyed nobody sees going but the pool: so it
 * is destroyed when it has all back.
 */
static CUresult end_later(struct pool *pool, CUmemoryPool handle)
{
    cuuint64_t nothing = 0;

    (void)REAL(cuMemPoolSetAttribute)(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing);
    pool->ending = true;
    return CUDA_SUCCESS;
}

/* With the lock; what was charged for it stays the caller's to give back. */
static CUresult destroy(struct pool *pool, CUmemoryPool handle, uint64_t *ret_charged,
                        uint64_t *ret_used)
{
    CUresult result;

    if (pool->device)
        (void)pool_give_back(pool);
    /* What others hold of it nobody tells. */
    *ret_used = pool->shared ? NONE : ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    *ret_charged = 0;
    if (pool->ending || pool->on_host) /* ours, which a piece's attribute may have told of */
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->managed && pool->made && !is_empty(pool))
        return end_later(pool, handle);
    result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS) {
        *ret_charged = atomic_load(&pool->charged);
        pool_set_charged(pool, 0);
        remove_pool(pool, handle);
    }
    return result;
}

/* What stays given out when a pool is destroyed, the driver alone sees going: hidden memory. */
PUBLIC CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct vgpu_device *device = NULL;
    uint64_t charged = 0, used = 0;
    struct pool *pool;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemPoolDestroy)(handle);
    pools_lock();
    pool = pool_find(handle);
    if (pool) {
        device = pool->device;
        result = destroy(pool, handle, &charged, &used);
    } else {
        result = REAL(cuMemPoolDestroy)(handle);
    }
    pools_unlock();
    if (charged && used)
        hidden_left(device, charged);
    else if (charged)
        vgpu_discharge(device, VGPU_DATA, charged);
    return result;
}

static void settle_all(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        (void)pools_settle(&vgpu.devices[i]);
}

PUBLIC CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemPoolTrimTo)(pool, keep);
    result = REAL(cuMemPoolTrimTo)(pool, keep);
    settle_all();
    return result;
}

/* Where a program waits, pools give back. */

static CUresult waited(CUresult result)
{
    if (atomic_load_explicit(&pools.any, memory_order_relaxed) && vgpu_mode() == VGPU_ON) {
        settle_all();
        pools_freed();
    }
    return result;
}

#define WAIT(name, ...)                                                                            \
    (void)real_driver();                                                                           \
    return waited(REAL(name)(__VA_ARGS__))

PUBLIC CUresult cuStreamSynchronize(CUstream stream)
{
    WAIT(cuStreamSynchronize, stream);
}

PUBLIC CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    WAIT(cuStreamSynchronize_ptsz, stream);
}

PUBLIC CUresult cuEventSynchronize(CUevent event)
{
    WAIT(cuEventSynchronize, event);
}

PUBLIC CUresult cuCtxSynchronize(void)
{
    WAIT(cuCtxSynchronize);
}

PUBLIC CUresult cuCtxSynchronize_v2(CUcontext context)
{
    WAIT(cuCtxSynchronize_v2, context);
}
