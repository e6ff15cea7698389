/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Managed memory moves between host and device by itself, as it is touched: so what may be on the
 * device at once is charged, to the device that is current where it is made. What the limit has no
 * room for is made all the same, and lives on the host: the driver is told that it is best kept
 * there, which it follows at faults, and it is never moved by a prefetch. The policies "full" and
 * "free" (region/limits.h) refuse it, and charge nothing.
 *
 * Where the card is oversubscribed (CUDA_OVERSUBSCRIBE), the limit may have room for what the card
 * has none for: linear memory is made of managed memory then, charged as ever, and kept on the
 * host. An entry of it is marked as shared.
 *
 * To NVML, managed pages are of no process: what is charged for them is left out where hidden
 * memory is measured (vgpu_device.managed_units).
 */

#include "vgpu/managed.h"

#include "base/glibc.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/grant.h"
#include "vgpu/managed_table.h"
#include "vgpu/real.h"

/* How many there are, or were: while there is none nobody looks for one. */
static _Atomic bool any;

/*
 * Held alone over making and freeing, and by others from looking up where memory may be to the
 * driver's answer: another thread may know an address before it is given out, and what is there
 * may be other memory after it was freed.
 */
static pthread_rwlock_t placing = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

void managed_after_fork(void)
{
    placing = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    atomic_store(&any, false);
    managed_variables_after_fork();
}

void managed_give_back(const struct allocation *entry)
{
    struct vgpu_device *device = &vgpu.devices[entry->device];

    grant_begin_moving(device);
    atomic_fetch_sub(&device->managed_units, entry->units);
    vgpu_discharge(device, VGPU_DATA, entry->units);
    grant_end_moving(device);
    if (entry->shared)
        managed_count_spilled(-(int64_t)entry->units);
}

/* With the lock. The driver has just given the address, so what is remembered of it has gone: an
 * address that outlived its context was freed as another thread had it. */
bool managed_remember(CUdeviceptr ptr, const struct grant *grant, uint64_t units, bool spilled)
{
    struct allocation entry = {
        .units = units,
        .shared = spilled,
        .device = (unsigned)(grant->device - vgpu.devices),
        .context = grant->context,
    };
    struct allocation gone;

    if (allocations_take(ALLOCATION_MANAGED, ptr, &gone))
        managed_give_back(&gone);
    if (!atomic_load_explicit(&any, memory_order_relaxed))
        atomic_store(&any, true);
    return grant->context != CONTEXTS_MAX && allocations_add(ALLOCATION_MANAGED, ptr, &entry);
}

void managed_hold_places(void)
{
    lock_read(&placing);
}

bool managed_is_any(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

void managed_begin_placing(void)
{
    lock_write(&placing);
}

void managed_end_placing(void)
{
    unlock_rwlock(&placing);
}

void managed_expect_pools(void)
{
    atomic_store(&any, true);
}

/*
 * Asked once it is remembered and counted. It leaves if its context has ended meanwhile: that end
 * has given it back, or did not know of it. It also leaves if a signal's handler made another
 * context current, of the same device or not: it may live in that one, and the end of the one that
 * is remembered would give it back early. Of other memory that is found as hidden memory; NVML
 * lists no managed pages. Without the lock over making and freeing, which ends of contexts take
 * with theirs.
 */
static bool stays(CUdeviceptr ptr, const struct grant *grant)
{
    struct allocation entry;
    bool is_there;

    if (context_current() == grant->context)
        return true;
    managed_begin_placing();
    is_there = allocations_take(ALLOCATION_MANAGED, ptr, &entry);
    if (is_there)
        UNDO(cuMemFree_v2, ptr);
    managed_end_placing();
    if (is_there)
        managed_give_back(&entry);
    return false;
}

/* There was room, and it is charged. */
static CUresult make_charged(CUdeviceptr *ptr, size_t bytes, unsigned int flags,
                             const struct grant *grant)
{
    CUdeviceptr made = 0;
    CUresult result;

    managed_begin_placing();
    result = REAL(cuMemAllocManaged)(&made, bytes, flags);
    if (result == CUDA_SUCCESS && !managed_remember(made, grant, grant->units, false)) {
        UNDO(cuMemFree_v2, made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    managed_end_placing();
    if (result != CUDA_SUCCESS) {
        grant_cancel(grant);
        return result;
    }
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    if (!stays(made, grant))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        *ptr = made;
    grant_end(grant);
    return result;
}

bool managed_keep_on_host(CUdeviceptr ptr, size_t bytes, const struct vgpu_device *device)
{
    if (REAL(cuMemAdvise)(ptr, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU) !=
        CUDA_SUCCESS)
        return false;
    /* So that the device reads it where it is. */
    (void)REAL(cuMemAdvise)(ptr, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device->handle);
    return true;
}

/* Makes what is kept on the host, charged or not. */
static CUresult place_on_host(CUdeviceptr *ret_made, size_t bytes, unsigned int flags,
                              const struct grant *grant, bool spilled)
{
    CUresult result;

    managed_begin_placing();
    result = REAL(cuMemAllocManaged)(ret_made, bytes, flags);
    if (result == CUDA_SUCCESS &&
        (!managed_keep_on_host(*ret_made, bytes, grant->device) ||
         !managed_remember(*ret_made, grant, spilled ? grant->units : 0, spilled))) {
        UNDO(cuMemFree_v2, *ret_made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    managed_end_placing();
    return result;
}

void managed_say_kept(const struct vgpu_device *device, uint64_t bytes)
{
    vgpu_say(VGPU_WORD_MANAGED,
             "%s: %llu MiB of managed memory exceed the limit and live on the host", device->uuid,
             (unsigned long long)(bytes >> 20));
}

static CUresult make_on_host(CUdeviceptr *ptr, size_t bytes, unsigned int flags,
                             const struct grant *grant)
{
    CUdeviceptr made = 0;
    CUresult result = place_on_host(&made, bytes, flags, grant, false);

    if (result != CUDA_SUCCESS)
        return result;
    if (!stays(made, grant))
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed_say_kept(grant->device, bytes);
    *ptr = made;
    return CUDA_SUCCESS;
}

/* What the driver would say of the context comes first. */
static CUresult refuse(void)
{
    size_t free_bytes, total;
    CUresult result = REAL(cuMemGetInfo_v2)(&free_bytes, &total);

    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

PUBLIC CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
    enum vgpu_mode mode = vgpu_mode();
    struct grant grant = {.units = ledger_units(bytes)};
    int policy = atomic_load(&vgpu.managed);
    CUresult result;

    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mode != VGPU_ON || !ptr || !bytes)
        return REAL(cuMemAllocManaged)(ptr, bytes, flags);
    *ptr = 0; /* as a real driver leaves it */
    result = grant_find_place(&grant);
    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return REAL(cuMemAllocManaged)(ptr, bytes, flags);
    if (!grant.device->granted)
        return refuse();
    if (policy == LIMITS_MANAGED_FREE)
        return REAL(cuMemAllocManaged)(ptr, bytes, flags);
    if (policy == LIMITS_MANAGED_FULL ? grant_take(&grant) : grant_try(&grant))
        return make_charged(ptr, bytes, flags, &grant);
    return policy == LIMITS_MANAGED_FULL ? refuse() : make_on_host(ptr, bytes, flags, &grant);
}

bool managed_begin_context_end(unsigned context, struct allocations_bag *ret_bag)
{
    const bool held = atomic_load(&any);

    if (held)
        managed_begin_placing();
    allocations_take_context(ALLOCATION_MANAGED, context, ret_bag);
    return held;
}

void managed_count_spilled(int64_t units)
{
    if (units)
        atomic_fetch_add(&vgpu.region.ext->slots[vgpu.region.slot].spilled,
                         (uint64_t)(units * LEDGER_UNIT));
}

int managed_host_node(const struct vgpu_device *device)
{
    int node;

    if (REAL(cuDeviceGetAttribute)(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device->handle) !=
        CUDA_SUCCESS)
        return 0;
    return MAX(node, 0); /* -1: there are no nodes */
}

void managed_say_spilled(const struct vgpu_device *device, uint64_t bytes)
{
    vgpu_say(VGPU_WORD_SPILL,
             "%s: %llu MiB exceed the oversubscribed card and live on the host, which is slower",
             device->uuid, (unsigned long long)(bytes >> 20));
}

bool managed_spill(CUdeviceptr *ptr, size_t bytes, const struct grant *grant)
{
    CUdeviceptr made = 0;
    bool is_there;

    if (place_on_host(&made, bytes, CU_MEM_ATTACH_GLOBAL, grant, true) != CUDA_SUCCESS) {
        grant_cancel(grant);
        return false;
    }
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    managed_count_spilled((int64_t)grant->units);
    is_there = stays(made, grant);
    grant_end(grant);
    if (!is_there)
        return false;
    managed_say_spilled(grant->device, bytes);
    *ptr = made;
    return true;
}

bool managed_begin_free(CUdeviceptr ptr, struct allocation *entry)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed))
        return false;
    managed_begin_placing();
    if (allocations_take(ALLOCATION_MANAGED, ptr, entry))
        return true;
    managed_end_placing();
    return false;
}

void managed_end_free(CUdeviceptr ptr, const struct allocation *entry, bool freed)
{
    if (!freed)
        (void)allocations_add(ALLOCATION_MANAGED, ptr, entry);
    managed_end_placing();
    if (freed)
        managed_give_back(entry);
}
