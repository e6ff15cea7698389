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

#include <string.h>
#include <sys/mman.h>

#include "base/glibc.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/grant.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

/* How many there are, or were: while there is none nobody looks for one. */
static _Atomic bool any;

/*
 * Held alone over making and freeing, and by others from looking up where memory may be to the
 * driver's answer: another thread may know an address before it is given out, and what is there
 * may be other memory after it was freed.
 */
static pthread_rwlock_t placing = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

#define VARIABLES_FIRST 64

/*
 * Variables of modules and libraries in managed memory. The driver has a name for each and tells
 * nobody which there are: one is known from when it is asked for by its name, as the CUDA runtime
 * does for each of a program's.
 */
struct variable {
    const void *owner; /* the module, the library; NULL: nobody's any more */
    CUdeviceptr ptr;
    size_t bytes;
    unsigned context;        /* with which it goes, if not with its owner */
    struct allocation entry; /* while its owner is being unloaded */
};

/* Under the lock over making and freeing. */
static struct {
    struct variable *list;
    size_t count, room;
} variables;

void managed_after_fork(void)
{
    placing = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    atomic_store(&any, false);
    variables.count = 0;
}

static void give_back(const struct allocation *entry)
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
static bool remember(CUdeviceptr ptr, const struct grant *grant, uint64_t units, bool spilled)
{
    struct allocation entry = {
        .units = units,
        .shared = spilled,
        .device = (unsigned)(grant->device - vgpu.devices),
        .context = grant->context,
    };
    struct allocation gone;

    if (allocations_take(ALLOCATION_MANAGED, ptr, &gone))
        give_back(&gone);
    if (!atomic_load_explicit(&any, memory_order_relaxed))
        atomic_store(&any, true);
    return grant->context != CONTEXTS_MAX && allocations_add(ALLOCATION_MANAGED, ptr, &entry);
}

static void begin_placing(void)
{
    lock_write(&placing);
}

static void end_placing(void)
{
    unlock_rwlock(&placing);
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
    begin_placing();
}

void managed_end_placing(void)
{
    end_placing();
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
    begin_placing();
    is_there = allocations_take(ALLOCATION_MANAGED, ptr, &entry);
    if (is_there)
        (void)REAL(cuMemFree_v2)(ptr);
    end_placing();
    if (is_there)
        give_back(&entry);
    return false;
}

/* There was room, and it is charged. */
static CUresult make_charged(CUdeviceptr *ptr, size_t bytes, unsigned int flags,
                             const struct grant *grant)
{
    CUdeviceptr made = 0;
    CUresult result;

    begin_placing();
    result = REAL(cuMemAllocManaged)(&made, bytes, flags);
    if (result == CUDA_SUCCESS && !remember(made, grant, grant->units, false)) {
        (void)REAL(cuMemFree_v2)(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    end_placing();
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

static bool keep_on_host(CUdeviceptr ptr, size_t bytes, const struct vgpu_device *device)
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

    begin_placing();
    result = REAL(cuMemAllocManaged)(ret_made, bytes, flags);
    if (result == CUDA_SUCCESS &&
        (!keep_on_host(*ret_made, bytes, grant->device) ||
         !remember(*ret_made, grant, spilled ? grant->units : 0, spilled))) {
        (void)REAL(cuMemFree_v2)(*ret_made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    end_placing();
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

static struct variable *new_variable(void)
{
    size_t room = variables.room ? 2 * variables.room : VARIABLES_FIRST;
    void *list;

    for (size_t i = 0; i < variables.count; i++) {
        if (!variables.list[i].owner)
            return &variables.list[i];
    }
    if (variables.count == variables.room) {
        list = mmap(NULL, room * sizeof(*variables.list), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (list == MAP_FAILED)
            return NULL;
        if (variables.list) {
            memcpy(list, variables.list, variables.count * sizeof(*variables.list));
            (void)munmap(variables.list, variables.room * sizeof(*variables.list));
        }
        variables.list = list;
        variables.room = room;
    }
    return &variables.list[variables.count++];
}

/* With the lock. Charged, or kept on the host; false: neither may be. */
static bool place_variable(CUdeviceptr ptr, size_t bytes, const void *owner, struct grant *grant)
{
    const bool full = atomic_load(&vgpu.managed) == LIMITS_MANAGED_FULL;
    struct variable *variable = new_variable();
    bool charged;

    if (!variable)
        return false;
    *variable = (struct variable){.ptr = ptr, .bytes = bytes, .context = grant->context};
    charged = full ? grant_take(grant) : grant_try(grant);
    if (charged && !remember(ptr, grant, grant->units, false)) {
        grant_cancel(grant);
        return false;
    }
    if (!charged &&
        (full || !keep_on_host(ptr, bytes, grant->device) || !remember(ptr, grant, 0, false)))
        return false;
    variable->owner = owner;
    if (!charged)
        return true;
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    grant_end(grant);
    return true;
}

bool managed_met(CUdeviceptr ptr, size_t bytes, const void *owner)
{
    struct grant grant = {.units = ledger_units(bytes)};
    struct allocation entry;
    bool placed;

    if (atomic_load(&vgpu.managed) == LIMITS_MANAGED_FREE)
        return true;
    if (!grant_place(&grant))
        return true;
    if (!grant.device->granted)
        return false;
    begin_placing();
    placed = allocations_look(ALLOCATION_MANAGED, ptr, &entry) ||
             place_variable(ptr, bytes, owner, &grant);
    end_placing();
    return placed;
}

bool managed_begin_unload(const void *owner)
{
    bool any_there = false;

    if (!atomic_load_explicit(&any, memory_order_relaxed))
        return false;
    begin_placing();
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        any_there |= variable->owner != NULL;
        if (variable->owner == owner &&
            !allocations_take(ALLOCATION_MANAGED, variable->ptr, &variable->entry))
            variable->owner = NULL;
    }
    if (!any_there)
        end_placing();
    return any_there;
}

/* By the driver's word; not where it can't be asked, as without a context. */
static bool is_gone(CUdeviceptr ptr)
{
    unsigned int managed = 0;
    CUresult result = REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr);

    return result == CUDA_SUCCESS ? !managed : result == CUDA_ERROR_INVALID_VALUE;
}

/* A library's variable may have been asked for in a module that stands for the library in a
 * context, and goes with it. */
static void forget_gone(struct variable *variable)
{
    if (!is_gone(variable->ptr))
        return;
    if (allocations_take(ALLOCATION_MANAGED, variable->ptr, &variable->entry))
        give_back(&variable->entry);
    variable->owner = NULL;
}

void managed_end_unload(const void *owner, bool gone)
{
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        if (!variable->owner)
            continue;
        if (variable->owner != owner) {
            forget_gone(variable);
        } else if (gone) {
            give_back(&variable->entry);
            variable->owner = NULL;
        } else {
            (void)allocations_add(ALLOCATION_MANAGED, variable->ptr, &variable->entry);
        }
    }
    end_placing();
}

bool managed_begin_context_end(unsigned context, struct allocations_bag *ret_bag)
{
    const bool held = atomic_load(&any);

    if (held)
        begin_placing();
    allocations_take_context(ALLOCATION_MANAGED, context, ret_bag);
    return held;
}

/* Other memory may soon be where a variable was: it is not to be taken for that. */
void managed_end_context_end(bool held, unsigned context, unsigned now)
{
    if (!held)
        return;
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        if (!variable->owner || variable->context != context)
            continue;
        variable->context = now;
        if (!now)
            variable->owner = NULL;
    }
    end_placing();
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
    begin_placing();
    if (allocations_take(ALLOCATION_MANAGED, ptr, entry))
        return true;
    end_placing();
    return false;
}

void managed_end_free(CUdeviceptr ptr, const struct allocation *entry, bool freed)
{
    if (!freed)
        (void)allocations_add(ALLOCATION_MANAGED, ptr, entry);
    end_placing();
    if (freed)
        give_back(entry);
}

/* A variable that a range touches. It need not begin where the driver says that the memory does. */
static const struct variable *touched(CUdeviceptr ptr, size_t bytes)
{
    for (size_t i = 0; i < variables.count; i++) {
        const struct variable *variable = &variables.list[i];

        if (variable->owner && (ptr >= variable->ptr ? ptr - variable->ptr < variable->bytes
                                                     : variable->ptr - ptr < bytes))
            return variable;
    }
    return NULL;
}

/* What an address lies in. False: it is nothing that the driver knows. */
static bool find_range(CUdeviceptr ptr, size_t bytes, CUdeviceptr *ret_base, size_t *ret_size)
{
    const struct variable *variable = touched(ptr, bytes);

    if (!variable)
        return REAL(cuMemGetAddressRange_v2)(ret_base, ret_size, ptr) == CUDA_SUCCESS;
    *ret_base = variable->ptr;
    *ret_size = variable->bytes;
    return true;
}

CUdevice managed_home(CUdeviceptr ptr, size_t bytes)
{
    struct allocation entry;
    CUdevice home = CU_DEVICE_CPU;
    CUdeviceptr base;
    size_t size;

    if (!atomic_load_explicit(&any, memory_order_relaxed) || vgpu_mode() != VGPU_ON ||
        !find_range(ptr, bytes, &base, &size))
        return CU_DEVICE_INVALID;
    if (!allocations_look(ALLOCATION_MANAGED, base, &entry)) {
        if (!pools_home(ptr, &home))
            return CU_DEVICE_INVALID;
    } else if (entry.units && !entry.shared) {
        home = vgpu.devices[entry.device].handle;
    }
    return ptr < base || bytes > size - (ptr - base) ? CU_DEVICE_CPU : home;
}
