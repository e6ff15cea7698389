/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The host's memory that the driver keeps in place. It is the container's cgroup's to limit: here
 * it passes, and is counted in the region for whoever watches.
 */

#include "vgpu/host.h"

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/real.h"

void host_count(int64_t units)
{
    if (units)
        atomic_fetch_add(&vgpu.region.ext->slots[vgpu.region.slot].pinned,
                         (uint64_t)(units * LEDGER_UNIT));
}

/* What is not remembered, for want of memory, is not counted either. */
static CUresult pinned(const void *ptr, uint64_t bytes, CUresult result)
{
    struct allocation entry = {.units = ledger_units(bytes)};

    if (result != CUDA_SUCCESS || vgpu_mode() != VGPU_ON)
        return result;
    entry.context = context_current();
    if (entry.context < CONTEXTS_MAX &&
        allocations_add(ALLOCATION_HOST, (uint64_t)(uintptr_t)ptr, &entry))
        host_count((int64_t)entry.units);
    return result;
}

/* Taken out before the driver frees: then another thread may be given the same address. */
static bool begin_free(const void *ptr, struct allocation *entry)
{
    return vgpu_mode() == VGPU_ON && context_take(ALLOCATION_HOST, (uint64_t)(uintptr_t)ptr, entry);
}

static CUresult end_free(const void *ptr, bool known, const struct allocation *entry,
                         CUresult result)
{
    if (known && (result == CUDA_SUCCESS ||
                  !context_put_back(ALLOCATION_HOST, (uint64_t)(uintptr_t)ptr, entry)))
        host_count(-(int64_t)entry->units);
    return result;
}

PUBLIC CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
    CUresult result;

    (void)real_driver();
    result = REAL(cuMemHostAlloc)(ptr, bytes, flags);
    return pinned(result == CUDA_SUCCESS ? *ptr : NULL, bytes, result);
}

PUBLIC CUresult cuMemAllocHost(void **ptr, unsigned int bytes)
{
    CUresult result;

    (void)real_driver();
    result = REAL(cuMemAllocHost)(ptr, bytes);
    return pinned(result == CUDA_SUCCESS ? *ptr : NULL, bytes, result);
}

PUBLIC CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
    CUresult result;

    (void)real_driver();
    result = REAL(cuMemAllocHost_v2)(ptr, bytes);
    return pinned(result == CUDA_SUCCESS ? *ptr : NULL, bytes, result);
}

PUBLIC CUresult cuMemHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
    (void)real_driver();
    return pinned(ptr, bytes, REAL(cuMemHostRegister)(ptr, bytes, flags));
}

PUBLIC CUresult cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
    (void)real_driver();
    return pinned(ptr, bytes, REAL(cuMemHostRegister_v2)(ptr, bytes, flags));
}

PUBLIC CUresult cuMemFreeHost(void *ptr)
{
    struct allocation entry;
    bool known = begin_free(ptr, &entry);

    (void)real_driver();
    return end_free(ptr, known, &entry, REAL(cuMemFreeHost)(ptr));
}

PUBLIC CUresult cuMemHostUnregister(void *ptr)
{
    struct allocation entry;
    bool known = begin_free(ptr, &entry);

    (void)real_driver();
    return end_free(ptr, known, &entry, REAL(cuMemHostUnregister)(ptr));
}
