/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pools of ours on the host: what an oversubscribed device has no room for comes from one, and the
 * managed memory that the limit has no room for from another. They are made when they are wanted
 * first, and stay.
 */

#include "region/limits.h"
#include "vgpu/managed.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

/* There is, or was, one that holds what a device has no room for. */
static _Atomic bool spills;

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
    struct pool *pool;

    for (unsigned at = 0; (pool = pool_next(&at));) {
        if (pool->on_host && pool->device == device)
            return pool;
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
    pool = pool_add(handle, device);
    if (pool) {
        pool->on_host = true;
        atomic_store(&spills, true);
    } else {
        (void)REAL(cuMemPoolDestroy)(handle);
    }
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

bool pools_spilled(CUdeviceptr ptr)
{
    CUmemoryPool handle = NULL;
    const struct pool *pool = NULL;

    if (atomic_load(&spills) &&
        REAL(cuPointerGetAttribute)(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr) ==
            CUDA_SUCCESS)
        pool = pool_find(handle);
    return pool && pool->on_host && !pool->managed;
}

static struct pool *find_managed_on_host(void)
{
    struct pool *pool;

    for (unsigned at = 0; (pool = pool_next(&at));) {
        if (pool->on_host && pool->managed)
            return pool;
    }
    return NULL;
}

struct pool *pool_managed_on_host(void)
{
    const CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST},
    };
    struct real_relaxed relaxed = real_relax();
    CUmemoryPool handle;
    struct pool *pool;

    pools_lock();
    pool = find_managed_on_host();
    if (!pool && REAL(cuMemPoolCreate)(&handle, &props) == CUDA_SUCCESS) {
        pool = pool_add(handle, NULL);
        if (pool)
            pool->on_host = pool->managed = pool->roams = true;
        else
            (void)REAL(cuMemPoolDestroy)(handle);
    }
    pools_unlock();
    real_end_relaxed(&relaxed);
    return pool;
}
