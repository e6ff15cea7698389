/* SPDX-License-Identifier: Apache-2.0 */

/* Allocations from pools: what a pool may grow by is charged before, what it grew by after. */

#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/compute_row.h"
#include "vgpu/grant.h"
#include "vgpu/graphs.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

#define NEAR_LIMIT 16 /* the last such part of a limit */

/* Something was, since it was last found out what may be had again. */
static _Atomic bool freed;

/* Held, with the region's lock for it, by whoever may have to undo what the pool grew by. */
static pthread_mutex_t trying = PTHREAD_MUTEX_INITIALIZER;

void pool_alloc_after_fork(void)
{
    (void)pthread_mutex_init(&trying, NULL);
    atomic_store(&freed, false);
}

void pools_freed(void)
{
    if (!atomic_load_explicit(&freed, memory_order_relaxed))
        atomic_store_explicit(&freed, true, memory_order_relaxed);
}

struct taking {
    struct pool *pool;
    CUmemoryPool handle;        /* which the pool had when it was found, */
    struct vgpu_device *device; /* and whose it was: another thread may destroy it at any time */
    uint64_t advance;           /* units */
    bool tries; /* nothing was charged, and the pool may grow: one at a time in a container */
};

static bool is_there(const struct taking *taking)
{
    return atomic_load(&taking->pool->handle) == taking->handle &&
           taking->pool->device == taking->device;
}

/* The place of a pool that has an advance is not used again. */
static bool charge_advance(struct taking *taking, uint64_t bytes)
{
    struct grant grant = {.device = taking->device, .units = ledger_units(bytes)};
    bool there;

    if (!grant_try(&grant))
        return false;
    pools_lock();
    there = is_there(taking);
    if (there) {
        taking->advance = grant.units;
        taking->pool->advance += grant.units;
    }
    pools_unlock();
    if (!there)
        grant_cancel(&grant);
    return there;
}

/* More than there can be where that has no number. */
static uint64_t in_chunks(uint64_t bytes, uint64_t chunk)
{
    return bytes > UINT64_MAX - chunk ? UINT64_MAX : (bytes + chunk - 1) / chunk * chunk;
}

/* Whether a pool may grow by so much without exceeding the limit, and others as well. */
static bool is_far_from_limit(const struct vgpu_device *device, uint64_t bytes)
{
    uint64_t limit = atomic_load_explicit(&device->limit_units, memory_order_relaxed);
    uint64_t more = ledger_units(bytes) + limit / NEAR_LIMIT;

    return limit == LEDGER_UNITS_MAX ||
           (more < limit && ledger_total(vgpu.region.ext, device->index) <= limit - more);
}

/* For bytes that a pool grows by, in the chunks that it was seen to take, or smaller ones. */
static bool charge_growth(struct taking *taking, uint64_t bytes)
{
    uint64_t most = in_chunks(bytes, taking->pool->chunk_bytes);
    uint64_t least = in_chunks(bytes, POOL_LEAST_CHUNK);

    return charge_advance(taking, most) || (least < most && charge_advance(taking, least));
}

/* Nobody's capture minds. */
static bool trim_to(const struct pool *pool, uint64_t bytes)
{
    struct real_relaxed relaxed = real_relax();
    bool trimmed = REAL(cuMemPoolTrimTo)(atomic_load(&pool->handle), bytes) == CUDA_SUCCESS;

    real_end_relaxed(&relaxed);
    return trimmed;
}

/* Whole chunks that nobody uses make room for others. */
static bool trim(const struct pool *pool)
{
    return trim_to(pool, 0) && pools_settle(pool->device);
}

/*
 * There is no room to grow; but a piece of what the pool has may do: one that is free, or one that
 * the stream has freed itself, which it may have again before it is free for others. It is tried,
 * unless as much was in vain since the last time that something was freed: then the pool grew,
 * which had to be undone. What a pool that is shared grew by can't be: that one is not tried.
 */
static bool may_reuse(struct pool *pool, uint64_t bytes)
{
    if (pool->shared || pool_reserved_units(pool) < ledger_units(bytes))
        return false;
    if (atomic_exchange(&freed, false) || pool_room(pool) > atomic_load(&pool->failed_room))
        atomic_store(&pool->failed_bytes, UINT64_MAX);
    return bytes < atomic_load(&pool->failed_bytes);
}

static bool begin_try(struct taking *taking)
{
    if (!lock_hold_signals())
        return false;
    lock_mutex(&trying);
    taking->tries = region_try(&vgpu.region) == 0;
    if (taking->tries)
        return true;
    unlock_mutex(&trying);
    lock_release_signals();
    return false;
}

static void end_try(const struct taking *taking)
{
    if (!taking->tries)
        return;
    region_tried(&vgpu.region);
    unlock_mutex(&trying);
    lock_release_signals();
}

static void note_failure(struct pool *pool, uint64_t bytes)
{
    atomic_store(&pool->room, 0);
    atomic_store(&pool->failed_bytes, MIN(bytes, atomic_load(&pool->failed_bytes)));
    atomic_store(&pool->failed_room, pool_room(pool));
}

/*
 * Far from the limit a pool that has room, and is not shared, is let take, and is charged what it
 * grew by all the same. Elsewhere, and where it may have no piece that is large enough, all that it
 * might grow by is charged before. False: there is no room.
 */
static bool prepare(struct taking *taking, uint64_t bytes)
{
    struct pool *pool = taking->pool;
    uint64_t room = atomic_load_explicit(&pool->room, memory_order_relaxed);

    if (!taking->device)
        return true;
    if (room < bytes)
        room = pool_room(pool);
    if (room >= bytes && !pool->shared &&
        is_far_from_limit(taking->device, in_chunks(bytes, pool->chunk_bytes))) {
        atomic_store_explicit(&pool->room, room - bytes, memory_order_relaxed);
        return true;
    }
    return charge_growth(taking, bytes) || (trim(pool) && charge_growth(taking, bytes)) ||
           (may_reuse(pool, bytes) && begin_try(taking));
}

/* The moment of an advance is over. */
static void end_advance(struct taking *taking, bool charged)
{
    struct grant grant = {.device = taking->device, .units = taking->advance};

    taking->pool->advance -= taking->advance;
    if (taking->advance)
        vgpu_discharge(grant.device, VGPU_DATA, grant.units);
    if (charged)
        grant_end(&grant);
}

/* As if all work with it were done: that needs a current context, which an allocation in a stream
 * that has a handle does not. */
static bool free_at_once(CUdeviceptr ptr, CUstream stream)
{
    CUcontext context, before;
    bool gone;

    if (REAL(cuMemFree_v2)(ptr) == CUDA_SUCCESS)
        return true;
    if (REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS ||
        REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
        return false;
    gone = REAL(cuMemFree_v2)(ptr) == CUDA_SUCCESS;
    (void)REAL(cuCtxPopCurrent_v2)(&before);
    return gone;
}

/* Gives it back, and what the pool grew by. Nobody's capture minds. */
static void undo(struct pool *pool, CUdeviceptr ptr, CUstream stream)
{
    struct real_relaxed relaxed = real_relax();

    if (!free_at_once(ptr, stream))
        (void)REAL(cuMemFreeAsync)(ptr, stream);
    real_end_relaxed(&relaxed);
    (void)trim_to(pool, atomic_load(&pool->charged) * LEDGER_UNIT);
    /* What it gave back may have been less than what it grew by, and other memory. */
    if (pool_reserved_units(pool) > atomic_load(&pool->charged))
        (void)trim_to(pool, 0);
}

void pool_charge_anyway(struct pool *pool)
{
    uint64_t charged = atomic_load(&pool->charged), units = pool_reserved_units(pool);

    if (units <= charged + pool->advance)
        return;
    vgpu_charge_anyway(pool->device, VGPU_DATA, units - charged - pool->advance);
    pool_set_charged(pool, units - pool->advance);
}

static void remember_chunk(struct pool *pool, uint64_t before, uint64_t bytes)
{
    uint64_t grown = (atomic_load(&pool->charged) - before) * LEDGER_UNIT;

    if (grown > pool->chunk_bytes && bytes <= pool->chunk_bytes)
        pool->chunk_bytes = grown;
}

/* The pool was destroyed in the meantime, and what it gave lives on: hidden memory. */
static void leave(struct taking *taking, uint64_t bytes)
{
    uint64_t units = taking->advance;

    if (units) {
        pools_lock();
        taking->pool->advance -= units;
        pools_unlock();
        grant_end_moving(taking->device);
    } else {
        units = ledger_units(bytes);
        vgpu_charge_anyway(taking->device, VGPU_DATA, units);
    }
    hidden_left(taking->device, units);
}

/* After the driver gave it. */
static CUresult finish(struct taking *taking, uint64_t bytes, CUdeviceptr ptr, CUstream stream)
{
    struct pool *pool = taking->pool;
    bool advanced = taking->advance > 0, fits;
    uint64_t before;

    if (!taking->device)
        return CUDA_SUCCESS;
    if (!advanced &&
        pool_reserved_units(pool) == atomic_load_explicit(&pool->charged, memory_order_relaxed) &&
        is_there(taking))
        return CUDA_SUCCESS;

    pools_lock();
    if (!is_there(taking)) {
        pools_unlock();
        leave(taking, bytes);
        return CUDA_SUCCESS;
    }
    (void)pool_give_back(pool);
    before = atomic_load(&pool->charged);
    fits = pool_take_in(pool, &taking->advance);
    if (fits) {
        remember_chunk(pool, before, bytes);
    } else {
        undo(pool, ptr, stream);
        pool_charge_anyway(pool);
        (void)pool_give_back(pool);
        note_failure(pool, bytes);
    }
    end_advance(taking, advanced);
    pools_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void cancel(struct taking *taking)
{
    if (!taking->device)
        return;
    atomic_store(&taking->pool->room, 0);
    if (!taking->advance)
        return;
    pools_lock();
    end_advance(taking, true);
    pools_unlock();
}

typedef CUresult (*from_pool_fn)(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream);

/* What an allocation takes from, and in what order. */
struct order {
    CUmemoryPool pool;
    CUstream stream;
    bool per_thread;
    from_pool_fn driver;
};

/* Of a pool that nobody knew of; what is none the driver says. */
static CUresult take_unknown(CUdeviceptr *ptr, size_t bytes, const struct order *order)
{
    struct real_relaxed relaxed = real_relax();
    cuuint64_t value;
    CUresult result =
        REAL(cuMemPoolGetAttribute)(order->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);

    real_end_relaxed(&relaxed);
    if (result != CUDA_SUCCESS)
        return result;
    if (vgpu_refuses(VGPU_WORD_UNACCOUNTED, "cuMemAllocFromPoolAsync",
                     "nobody knows where the pool's memory is"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return order->driver(ptr, bytes, order->pool, order->stream);
}

/* *ret_full: that it is the driver which has no room. */
static CUresult take_known(CUdeviceptr *ptr, size_t bytes, struct pool *pool,
                           const struct order *order, bool *ret_full)
{
    struct taking taking = {.pool = pool, .handle = order->pool, .device = pool->device};
    CUdeviceptr taken;
    CUresult result;

    if (!prepare(&taking, in_chunks(bytes, LEDGER_UNIT)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = order->driver(&taken, bytes, order->pool, order->stream);
    if (taking.tries)
        lock_hold_faults();
    *ret_full = result == CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = finish(&taking, bytes, taken, order->stream);
    else
        cancel(&taking);
    end_try(&taking);
    if (result == CUDA_SUCCESS)
        *ptr = taken;
    return result;
}

/*
 * What an oversubscribed card has no room for comes from a pool on the host: it is had and freed in
 * the order of streams, as the card's. Not from a pool that is shared, whose pieces others are to
 * have, or that has a size of its own.
 */
static bool may_live_on_host(const struct pool *pool)
{
    return atomic_load(&vgpu.oversubscribed) && pool->device && !pool->shared && !pool->bounded &&
           !pool->on_host && !pool->managed;
}

/* Where it is the limit that has no room, what the host's pool has is there to be had again. */
static CUresult take_on_host(CUdeviceptr *ptr, size_t bytes, struct vgpu_device *device,
                             struct order order, bool card_is_full)
{
    struct pool *host = pool_on_host(device);

    if (!host || (!card_is_full && pool_room(host) < bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    order.pool = atomic_load(&host->handle);
    if (take_known(ptr, bytes, host, &order, &card_is_full) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed_say_spilled(device, bytes);
    return CUDA_SUCCESS;
}

/* Managed memory that the limit has no room for is made all the same, and stays on the host. */
static CUresult take_kept(CUdeviceptr *ptr, size_t bytes, const struct vgpu_device *device,
                          struct order order)
{
    struct pool *host = pool_managed_on_host();
    CUresult result;

    if (!host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    order.pool = atomic_load(&host->handle);
    managed_begin_placing();
    result = order.driver(ptr, bytes, order.pool, order.stream);
    managed_end_placing();
    if (result == CUDA_SUCCESS)
        managed_say_kept(device, bytes);
    return result;
}

static CUresult take_anywhere(CUdeviceptr *ptr, size_t bytes, struct pool *pool,
                              const struct order *order)
{
    struct vgpu_device *device = pool->device;
    bool may = may_live_on_host(pool), full = false;
    bool kept = pool->managed && atomic_load(&vgpu.managed) == LIMITS_MANAGED_RESIDENT;
    CUresult result = take_known(ptr, bytes, pool, order, &full);

    if (result == CUDA_ERROR_OUT_OF_MEMORY && kept)
        return take_kept(ptr, bytes, device, *order);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && may)
        result = take_on_host(ptr, bytes, device, *order, full);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && device && !full)
        vgpu_count_refusal(device, REGION_REFUSAL_DATA);
    return result;
}

/* It becomes a graph's. */
static CUresult capture(CUdeviceptr *ptr, size_t bytes, const struct pool *pool,
                        const struct order *order)
{
    const CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_NONE};

    if (pool->roams && pools_refuse_graph(&nowhere, "cuMemAllocFromPoolAsync"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return order->driver(ptr, bytes, order->pool, order->stream);
}

/* Whether the capture, which no call ends meanwhile, was not lost: it ends with its thread. */
static bool is_still_captured(const struct order *order)
{
    const struct launch where = {.stream = order->stream, .per_thread = order->per_thread};

    return compute_is_capturing(&where);
}

static CUresult take_captured(CUdeviceptr *ptr, size_t bytes, struct pool *pool,
                              const struct order *order)
{
    struct taking taking = {.pool = pool, .handle = order->pool, .device = pool->device};
    CUdeviceptr taken;
    CUresult result = capture(&taken, bytes, pool, order);

    if (result == CUDA_SUCCESS && !is_still_captured(order))
        result = finish(&taking, bytes, taken, order->stream);
    if (result == CUDA_SUCCESS)
        *ptr = taken;
    return result;
}

static CUresult take(CUdeviceptr *ptr, size_t bytes, const struct order *order)
{
    struct pool *pool = pool_find(order->pool);
    CUresult result;

    pool = pool ? pool : pool_meet(order->pool);
    if (!pool)
        return take_unknown(ptr, bytes, order);
    /* Whether it becomes a graph's another thread may still decide, by a capture that it begins. */
    graphs_will_allocate();
    if (compute_begin_captured(order->stream, order->per_thread)) {
        result = take_captured(ptr, bytes, pool, order);
        compute_end_captured();
        return result;
    }
    if (pool->ending)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->device && !pool->device->granted)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return take_anywhere(ptr, bytes, pool, order);
}

/* The one that a stream's device allocates from. */
static CUresult find_current(CUstream stream, bool per_thread, CUmemoryPool *ret_pool)
{
    struct vgpu_device *device = &vgpu.devices[0];
    CUresult result;

    if (vgpu.device_count != 1 || !stream || stream == CU_STREAM_LEGACY ||
        stream == CU_STREAM_PER_THREAD) {
        result = compute_stream_device(stream, per_thread, &device);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return REAL(cuDeviceGetMemPool)(ret_pool, device->handle);
}

static CUresult take_from(CUdeviceptr *ptr, size_t bytes, const struct order *order)
{
    enum vgpu_mode mode = vgpu_mode();

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !ptr || !bytes)
        return order->driver(ptr, bytes, order->pool, order->stream);
    *ptr = 0; /* as a real driver leaves it */
    return take(ptr, bytes, order);
}

PUBLIC CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    (void)real_driver();
    return take_from(ptr, bytes,
                     &(struct order){pool, stream, false, REAL(cuMemAllocFromPoolAsync)});
}

PUBLIC CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    (void)real_driver();
    return take_from(ptr, bytes,
                     &(struct order){pool, stream, true, REAL(cuMemAllocFromPoolAsync_ptsz)});
}

typedef CUresult (*alloc_fn)(CUdeviceptr *ptr, size_t bytes, CUstream stream);

/* The pool that was looked at is the one that is taken from, whatever another thread makes current
 * in between. */
static CUresult take_current(CUdeviceptr *ptr, size_t bytes, struct order order, alloc_fn driver)
{
    enum vgpu_mode mode = vgpu_mode();
    CUresult result;

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !ptr || !bytes)
        return driver(ptr, bytes, order.stream);
    *ptr = 0; /* as a real driver leaves it */
    result = find_current(order.stream, order.per_thread, &order.pool);
    return result == CUDA_SUCCESS ? take(ptr, bytes, &order) : result;
}

PUBLIC CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    (void)real_driver();
    return take_current(ptr, bytes,
                        (struct order){NULL, stream, false, REAL(cuMemAllocFromPoolAsync)},
                        REAL(cuMemAllocAsync));
}

PUBLIC CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    (void)real_driver();
    return take_current(ptr, bytes,
                        (struct order){NULL, stream, true, REAL(cuMemAllocFromPoolAsync_ptsz)},
                        REAL(cuMemAllocAsync_ptsz));
}
