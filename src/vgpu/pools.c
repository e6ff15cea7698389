/* SPDX-License-Identifier: Apache-2.0 */

/* The table of pools, and the charges of what they have. */

#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/compute_row.h"
#include "vgpu/managed.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

enum {
    POOLS = 1024,
    SLOTS = 4096, /* of the table by handle: power of two */
};

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
    pool->managed = pool->roams = pool->made = pool->ending = false;
    pool->chunk_bytes = POOL_LEAST_CHUNK;
    atomic_store(&pool->charged, 0);
    atomic_store(&pool->room, 0);
    atomic_store(&pool->failed_bytes, UINT64_MAX);
    atomic_store(&pool->failed_room, 0);
}

struct pool *pool_add(CUmemoryPool handle, struct vgpu_device *device)
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
    added = pool_add(handle, NULL) != NULL;
    pools_unlock();
    return added;
}

struct pool *pool_next(unsigned *at)
{
    while (*at < pools.count) {
        struct pool *pool = &pools.pools[(*at)++];

        if (atomic_load(&pool->handle))
            return pool;
    }
    return NULL;
}

static struct pool *find_of_graphs(const struct vgpu_device *device)
{
    struct pool *pool;

    for (unsigned at = 0; (pool = pool_next(&at));) {
        if (pool->of_graphs && pool->device == device)
            return pool;
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

void pool_remove(struct pool *pool, CUmemoryPool handle)
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
        pool = pool ? pool : pool_add(handle, &vgpu.devices[i]);
        pools_unlock();
    }
    return pool;
}

/* What the driver says of a pool */

static uint64_t ask_graphs(const struct pool *pool, CUmemPool_attribute attribute)
{
    CUgraphMem_attribute asked = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                     ? CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                     : CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
    cuuint64_t value = POOL_UNKNOWN;

    if (REAL(cuDeviceGetGraphMemAttribute)(pool->device->handle, asked, &value) != CUDA_SUCCESS)
        return POOL_UNKNOWN;
    return value;
}

static uint64_t ask_driver(const struct pool *pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = POOL_UNKNOWN;

    if (pool->of_graphs)
        return ask_graphs(pool, attribute);
    if (REAL(cuMemPoolGetAttribute)(atomic_load_explicit(&pool->handle, memory_order_relaxed),
                                    attribute, &value) != CUDA_SUCCESS)
        return POOL_UNKNOWN;
    return value;
}

/* Nobody's capture minds. One that was lost may forbid it still, though it counts no more. */
static uint64_t ask(const struct pool *pool, CUmemPool_attribute attribute)
{
    struct real_relaxed relaxed;
    uint64_t value = POOL_UNKNOWN;

    if (!atomic_load_explicit(&compute_captures, memory_order_relaxed))
        value = ask_driver(pool, attribute);
    if (value != POOL_UNKNOWN)
        return value;
    relaxed = real_relax();
    value = ask_driver(pool, attribute);
    real_end_relaxed(&relaxed);
    return value;
}

uint64_t pool_reserved_units(const struct pool *pool)
{
    uint64_t bytes = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);

    return bytes == POOL_UNKNOWN ? atomic_load(&pool->charged) : ledger_units(bytes);
}

uint64_t pool_used(const struct pool *pool)
{
    return ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

uint64_t pool_room(const struct pool *pool)
{
    uint64_t reserved = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = pool_used(pool);

    return reserved == POOL_UNKNOWN || used == POOL_UNKNOWN ? 0 : reserved - MIN(reserved, used);
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
    if (pool->shared && pool->device)
        vgpu_lend(pool->device, (int64_t)(units - before));
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

bool pool_is_empty(const struct pool *pool)
{
    (void)REAL(cuMemPoolTrimTo)(atomic_load(&pool->handle), 0);
    return pool_used(pool) == 0 && ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0;
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
    ended = pool_is_empty(pool) && REAL(cuMemPoolDestroy)(handle) == CUDA_SUCCESS;
    real_end_relaxed(&relaxed);
    if (!ended)
        return false;
    charged = atomic_load(&pool->charged);
    pool_set_charged(pool, 0);
    pool_remove(pool, handle);
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
    struct pool *pool;
    bool gave = false;

    if (!atomic_load_explicit(&pools.any, memory_order_acquire))
        return false;
    relaxed = real_relax();
    pools_lock();
    for (unsigned at = 0; (pool = pool_next(&at));) {
        if (pool->device == device)
            gave |= settle(pool);
    }
    pools_unlock();
    real_end_relaxed(&relaxed);
    return gave;
}

int64_t pools_surplus(const struct vgpu_device *device)
{
    const struct pool *pool;
    int64_t surplus = 0;

    for (unsigned at = 0; (pool = pool_next(&at));) {
        if (pool->device == device && !pool->on_host && !pool->managed)
            surplus += (int64_t)atomic_load(&pool->charged) - (int64_t)pool_reserved_units(pool);
    }
    return surplus;
}

/* Where a program trims a pool, or waits, pools give back. */

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
