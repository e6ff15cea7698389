/* SPDX-License-Identifier: Apache-2.0 */

/* The pools that a program makes, is told of by the driver, and destroys. */

#include "region/limits.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

bool pools_know_place(const CUmemLocation *location, const char *name)
{
    return location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
           !vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "nobody knows such a place for memory");
}

bool pools_refuse_graph(const CUmemLocation *location, const char *name)
{
    return location->type != CU_MEM_LOCATION_TYPE_DEVICE &&
           vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "managed memory of graphs can't be charged");
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
static struct pool *add(CUmemoryPool handle, const CUmemLocation *location,
                        CUmemAllocationType type, struct vgpu_device *device)
{
    struct pool *pool = pool_add(handle, device);

    if (!pool || type != CU_MEM_ALLOCATION_TYPE_MANAGED)
        return pool;
    pool->roams = location->type != CU_MEM_LOCATION_TYPE_DEVICE;
    if (!device)
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
    added = add(made, &own.location, own.allocType, device);
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
    return pool_find(handle) || add(handle, location, type, device);
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
    *ret_used = pool->shared ? POOL_UNKNOWN : pool_used(pool);
    *ret_charged = 0;
    if (pool->ending || pool->on_host) /* ours, which a piece's attribute may have told of */
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->managed && pool->made && !pool_is_empty(pool))
        return end_later(pool, handle);
    result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS) {
        *ret_charged = atomic_load(&pool->charged);
        pool_set_charged(pool, 0);
        pool_remove(pool, handle);
    }
    return result;
}

/* What stays given out when a pool is destroyed, the driver alone sees going: hidden memory. */
PUBLIC CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    struct vgpu_device *device = NULL;
    uint64_t charged = 0, used = 0, lent = 0;
    struct pool *pool;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemPoolDestroy)(handle);
    pools_lock();
    pool = pool_find(handle);
    if (pool) {
        device = pool->device;
        lent = device && pool->shared ? atomic_load(&pool->charged) : 0;
        vgpu_lend(device, (int64_t)lent); /* until what becomes of it is known */
        result = destroy(pool, handle, &charged, &used);
    } else {
        result = REAL(cuMemPoolDestroy)(handle);
    }
    pools_unlock();
    if (charged && used)
        hidden_left(device, charged);
    else if (charged)
        vgpu_discharge(device, VGPU_DATA, charged);
    vgpu_lend(device, -(int64_t)lent);
    return result;
}
