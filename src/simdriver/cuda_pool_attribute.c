/* SPDX-License-Identifier: Apache-2.0 */

/* What pools say of themselves and can be told, and who has access to them. */

#include "base/util.h"
#include "simdriver/guest_pool.h"

static bool is_reuse(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

static CUresult get_attribute(struct guest_pool *pool, CUmemPool_attribute attribute, void *value)
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

static CUresult set_reuse(struct guest_pool *pool, CUmemPool_attribute attribute, int allowed)
{
    pool->reuse[attribute - 1] = allowed != 0;
    pool->heap.opportunistic = pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC - 1];
    pool->heap.internal = pool->reuse[CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES - 1];
    return CUDA_SUCCESS;
}

static CUresult set_attribute(struct guest_pool *pool, CUmemPool_attribute attribute,
                              const void *value)
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
    struct guest_pool *found;

    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    guest_pools_enter();
    found = guest_pool_find(pool);
    r = found ? get_attribute(found, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    guest_pools_leave();
    return r;
}

PUBLIC CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult r = guest_check();
    struct guest_pool *found;

    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    guest_pools_enter();
    found = guest_pool_find(pool);
    r = found ? set_attribute(found, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    guest_pools_leave();
    return r;
}

/* To the host's pools any device is given access, and from none it is taken. */
static CUresult set_host_access(struct guest_pool *pool, const CUmemAccessDesc *access)
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
static CUresult set_access(struct guest_pool *pool, const CUmemAccessDesc *access)
{
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->heap.place.on_host || pool->heap.place.managed)
        return set_host_access(pool, access);
    if (guest_check_device(access->location.id) != CUDA_SUCCESS ||
        guest.devices[access->location.id] != pool->heap.place.device)
        return CUDA_ERROR_INVALID_DEVICE;
    return access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    CUresult r = guest_check();
    struct guest_pool *found;

    if (r != CUDA_SUCCESS)
        return r;
    if (!access)
        return CUDA_ERROR_INVALID_VALUE;
    guest_pools_enter();
    found = guest_pool_find(pool);
    if (!found)
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
        r = set_access(found, &access[i]);
    guest_pools_leave();
    return r;
}

static bool has_access(const struct guest_pool *pool, unsigned device)
{
    if (pool->heap.place.managed)
        return true;
    return pool->heap.place.on_host ? pool->access >> device & 1
                                    : pool->heap.place.device == device;
}

PUBLIC CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    CUresult r = guest_check();
    struct guest_pool *found;

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_check_device(location->id);
    if (r != CUDA_SUCCESS)
        return r;
    guest_pools_enter();
    found = guest_pool_find(pool);
    if (!found)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *flags = has_access(found, guest.devices[location->id]) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    guest_pools_leave();
    return r;
}
