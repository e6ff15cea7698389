/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory that is made apart from its addresses (cuMemCreate). It lives while a handle of it, which
 * may be given out several times, or a mapping is there, whichever goes last: so that is counted.
 * It is of no context, and charged to the device that it is made on, whatever device is current;
 * the host's is free.
 *
 * What was given out as a file descriptor may be held by others after our last reference has gone.
 * It is hidden memory then, charged until the last descriptor is closed (given.h), NVML says that
 * it went, too, and no other process of the container holds what another one made. What was got as
 * one takes no new memory, and is charged to whoever made it; when that one has gone and NVML
 * counts it for us, it is hidden memory of ours. It is not given out once more: its maker sees its
 * own descriptors alone, and NVML counts for nobody what another one keeps.
 *
 * Where the card is oversubscribed (CUDA_OVERSUBSCRIBE) and has no room, memory is made on the
 * host, charged as ever, unless it asks for properties that the host's has not. NVML counts it for
 * nobody (vgpu_device.managed_units): it is charged until our last reference has gone, whoever else
 * holds it then, since it is no device's.
 *
 * The lock is held over the driver's calls: what they end must be out of the tables before anybody
 * is given the same handle or address, and no reference may come while the last one goes. Making
 * memory, which may take its time, is outside of it.
 */

#include "vgpu/virtual.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/compute.h"
#include "vgpu/given.h"
#include "vgpu/grant.h"
#include "vgpu/hidden.h"
#include "vgpu/managed.h"
#include "vgpu/real.h"
#include "vgpu/references.h"
#include "vgpu/vgpu.h"

static struct {
    pthread_mutex_t lock;
    struct references made;   /* by handle */
    struct references mapped; /* by address */
    _Atomic uint64_t imports; /* of what others made, by whichever way it came */
} virtual = {.lock = PTHREAD_MUTEX_INITIALIZER};

void virtual_after_fork(void)
{
    (void)pthread_mutex_init(&virtual.lock, NULL);
    virtual.made = virtual.mapped = (struct references){0};
    atomic_store(&virtual.imports, 0);
}

bool virtual_has_imports(void)
{
    return atomic_load(&virtual.imports) > 0;
}

/* The container's other processes look at it. */
void virtual_count_imports(int64_t more)
{
    if (!more)
        return;
    atomic_fetch_add(&virtual.imports, (uint64_t)more);
    atomic_fetch_add(&vgpu.region.ext->slots[vgpu.region.slot].imports, (uint64_t)more);
}

bool virtual_others_import(void)
{
    const struct region_ext *ext = vgpu.region.ext;

    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        if ((int)i != vgpu.region.slot && atomic_load(&ext->slots[i].pid) &&
            atomic_load(&ext->slots[i].imports))
            return true;
    }
    return false;
}

/* What becomes of memory whose last reference has gone. */
struct virtual_end {
    struct vgpu_device *device; /* NULL: nothing is charged */
    uint64_t units;
    uint32_t given;
    bool shared, held, spilled;
};

/* With the lock held: after one reference less. */
static struct virtual_end end_if_last(struct reference_row *row)
{
    struct virtual_end end = {0};

    if (row->handles || row->maps)
        return end;
    if (row->units)
        end = (struct virtual_end){
            .device = &vgpu.devices[row->device],
            .units = row->units,
            .given = row->given,
            .shared = row->shared,
            .held = row->held,
        };
    if (row->spilled) { /* whoever else holds it, that is no device's */
        end.given = 0;
        end.shared = end.held = false;
        end.spilled = true;
    }
    if (row->imported) {
        virtual_count_imports(-1);
        hidden_make_due();
    }
    references_remove(&virtual.made, row);
    return end;
}

static void forget_spilled(const struct virtual_end *end)
{
    if (!end->spilled)
        return;
    atomic_fetch_sub(&end->device->managed_units, end->units);
    managed_count_spilled(-(int64_t)end->units);
}

/* Descriptors keep it. */
static bool is_kept(const struct virtual_end *end)
{
    return end->given && given_keep(end->given, (unsigned)(end->device - vgpu.devices), end->units);
}

static void discharge(const struct virtual_end *end)
{
    if (!end->device)
        return;
    forget_spilled(end);
    if (is_kept(end))
        hidden_kept(end->device, end->units);
    else if (end->shared)
        hidden_left(end->device, end->units);
    else if (end->held)
        hidden_held(end->device, end->units);
    else
        vgpu_discharge(end->device, VGPU_DATA, end->units);
}

/* Making */

/* Where the memory will be. False: in a kind of place that nobody knew of. */
static bool find_place(const CUmemAllocationProp *prop, struct vgpu_device **ret_device)
{
    *ret_device = NULL;
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ret_device = vgpu_device(prop->location.id);
        return true;
    case 0: /* none: the driver says that it makes no sense */
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    default:
        return false;
    }
}

/* There is no room. What makes no sense the driver refuses itself, in its own words; should it ever
 * make such memory, that is undone. */
static CUresult refuse_create(size_t bytes, const CUmemAllocationProp *prop,
                              unsigned long long flags)
{
    CUmemGenericAllocationHandle made;
    size_t granule = 0;
    CUresult result =
        REAL(cuMemGetAllocationGranularity)(&granule, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

    if (result == CUDA_SUCCESS && !flags && granule && bytes % granule == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuMemCreate)(&made, bytes, prop, flags);
    if (result == CUDA_SUCCESS) {
        (void)REAL(cuMemRelease)(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* Whether it would do as well on the host, but for its speed. */
static bool may_live_on_host(const CUmemAllocationProp *prop)
{
    const int by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

    return prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           !(prop->requestedHandleTypes & ~by_descriptor) && !prop->allocFlags.compressionType &&
           !prop->allocFlags.gpuDirectRDMACapable && !prop->allocFlags.usage;
}

/* What the card has no room for, though the limit has. A descriptor is given of memory on a node
 * alone, and older drivers make no other. */
static bool create_on_host(CUmemGenericAllocationHandle *ret_made, size_t bytes,
                           CUmemAllocationProp prop, const struct vgpu_device *device)
{
    prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    if (!prop.requestedHandleTypes && REAL(cuMemCreate)(ret_made, bytes, &prop, 0) == CUDA_SUCCESS)
        return true;
    prop.location = (CUmemLocation){
        .type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
        .id = managed_host_node(device),
    };
    return REAL(cuMemCreate)(ret_made, bytes, &prop, 0) == CUDA_SUCCESS;
}

static CUresult make(CUmemGenericAllocationHandle *ret_made, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags,
                     const struct grant *grant, bool *ret_spilled)
{
    CUresult result = REAL(cuMemCreate)(ret_made, bytes, prop, flags);

    *ret_spilled = result == CUDA_ERROR_OUT_OF_MEMORY && grant->device &&
                   atomic_load(&vgpu.oversubscribed) && may_live_on_host(prop) &&
                   create_on_host(ret_made, bytes, *prop, grant->device);
    return *ret_spilled ? CUDA_SUCCESS : result;
}

static void count_spilled(const struct grant *grant, size_t bytes)
{
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    managed_count_spilled((int64_t)grant->units);
    managed_say_spilled(grant->device, bytes);
}

/* False when there is no memory to remember it. */
static bool remember(CUmemGenericAllocationHandle handle, const struct grant *grant, bool spilled)
{
    struct reference_row *row;
    bool room;

    lock_mutex(&virtual.lock);
    room = references_reserve(&virtual.made);
    if (room) {
        row = references_add(&virtual.made, handle);
        row->handles = 1;
        row->units = grant->device ? grant->units : 0;
        row->device = grant->device ? (uint32_t)(grant->device - vgpu.devices) : 0;
        row->spilled = spilled;
    }
    unlock_mutex(&virtual.lock);
    return room;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *prop, unsigned long long flags,
                       struct grant *grant)
{
    CUmemGenericAllocationHandle made = 0;
    CUresult result;
    bool spilled;

    if (grant->device && (!grant->device->granted || !grant_take(grant)))
        return refuse_create(bytes, prop, flags);
    result = make(&made, bytes, prop, flags, grant, &spilled);
    if (result == CUDA_SUCCESS && !remember(made, grant, spilled)) {
        (void)REAL(cuMemRelease)(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        grant_cancel(grant);
        return result;
    }
    if (spilled)
        count_spilled(grant, bytes);
    if (grant->device)
        grant_end(grant);
    *handle = made;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    enum vgpu_mode mode = vgpu_mode();
    struct grant grant = {.units = ledger_units(bytes)};
    CUmemAllocationProp own;

    if (!handle || !prop || !bytes || (mode != VGPU_ON && mode != VGPU_DENIED))
        return REAL(cuMemCreate)(handle, bytes, prop, flags);
    own = *prop; /* which another thread could change after it was looked at */
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!find_place(&own, &grant.device) &&
        vgpu_refuses(VGPU_WORD_UNACCOUNTED, "cuMemCreate", "nobody knows such a place for memory"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(handle, bytes, &own, flags, &grant);
}

PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct virtual_end end = {0};
    struct vgpu_device *device;
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemRelease)(handle);
    lock_mutex(&virtual.lock);
    row = references_find(&virtual.made, handle);
    device = row && row->units ? &vgpu.devices[row->device] : NULL;
    if (device)
        grant_begin_moving(device);
    result = REAL(cuMemRelease)(handle);
    /* A handle that only mappings hold is none to release: what the driver makes of it is open. */
    if (result == CUDA_SUCCESS && row && row->handles) {
        row->handles--;
        end = end_if_last(row);
    }
    unlock_mutex(&virtual.lock);
    if (!end.shared && !end.held)
        discharge(&end);
    if (device)
        grant_end_moving(device);
    if (end.shared || end.held)
        discharge(&end);
    return result;
}

/* Mapping */

/* A handle that the driver knows and nobody was given yet: its memory is about to be charged, and
 * what it would be held by is not in its count. */
static bool refuses_unknown(const char *name)
{
    return vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "nobody knows where the memory is");
}

/* With the lock held; there is room. */
static void remember_mapping(CUdeviceptr ptr, size_t bytes, CUmemGenericAllocationHandle handle)
{
    struct reference_row *mapping = references_find(&virtual.mapped, ptr);

    /* An address of what was unmapped unseen may be there still. */
    if (!mapping)
        mapping = references_add(&virtual.mapped, ptr);
    mapping->handle = handle;
    mapping->bytes = bytes;
}

/*
 * With the lock held, which it gives up over the driver's call: to map a multicast object is to
 * wait until all its devices have joined, which other threads may have to see to. It takes no
 * memory that is charged, as other processes' and the host's.
 */
static CUresult map_uncharged(CUdeviceptr ptr, size_t bytes, size_t offset,
                              struct reference_row *row, unsigned long long flags)
{
    CUmemGenericAllocationHandle handle = row->key;
    CUresult result;

    row->maps++; /* so that it stays in the table */
    unlock_mutex(&virtual.lock);
    result = REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    lock_mutex(&virtual.lock);
    row = references_find(&virtual.made, handle);
    if (result == CUDA_SUCCESS && !references_reserve(&virtual.mapped)) {
        (void)REAL(cuMemUnmap)(ptr, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        remember_mapping(ptr, bytes, handle);
    } else if (row) {
        row->maps--;
        (void)end_if_last(row);
    }
    return result;
}

PUBLIC CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    lock_mutex(&virtual.lock);
    row = references_find(&virtual.made, handle);
    if (row && !row->units) {
        result = map_uncharged(ptr, bytes, offset, row, flags);
        unlock_mutex(&virtual.lock);
        return result;
    }
    if (row && !references_reserve(&virtual.mapped))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && !row && refuses_unknown("cuMemMap")) {
        (void)REAL(cuMemUnmap)(ptr, bytes);
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS && row) {
        remember_mapping(ptr, bytes, handle);
        row->maps++;
    }
    unlock_mutex(&virtual.lock);
    return result;
}

/* What ends on one device as mappings go. */
struct virtual_ends {
    uint64_t units, shared_units, kept_units, held_units;
};

static void forget_mapping(struct reference_row *mapping, struct virtual_ends *ends)
{
    struct reference_row *row = references_find(&virtual.made, mapping->handle);
    struct virtual_end end = {0};

    references_remove(&virtual.mapped, mapping);
    if (row && row->maps) {
        row->maps--;
        end = end_if_last(row);
    }
    forget_spilled(&end);
    if (end.device && is_kept(&end))
        ends[end.device - vgpu.devices].kept_units += end.units;
    else if (end.device && end.shared)
        ends[end.device - vgpu.devices].shared_units += end.units;
    else if (end.device && end.held)
        ends[end.device - vgpu.devices].held_units += end.units;
    else if (end.device)
        ends[end.device - vgpu.devices].units += end.units;
}

/* One range may be made of many mappings. */
static void forget_mappings(CUdeviceptr ptr, size_t bytes, struct virtual_ends *ends)
{
    while (bytes) {
        struct reference_row *mapping = references_find(&virtual.mapped, ptr);
        uint64_t gone = mapping ? mapping->bytes : 0;

        if (!mapping || gone > bytes)
            return;
        forget_mapping(mapping, ends);
        ptr += gone;
        bytes -= gone;
    }
}

static void discharge_all(const struct virtual_ends *ends)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (ends[i].units)
            vgpu_discharge(&vgpu.devices[i], VGPU_DATA, ends[i].units);
        grant_end_moving(&vgpu.devices[i]);
        if (ends[i].shared_units)
            hidden_left(&vgpu.devices[i], ends[i].shared_units);
        if (ends[i].kept_units)
            hidden_kept(&vgpu.devices[i], ends[i].kept_units);
        if (ends[i].held_units)
            hidden_held(&vgpu.devices[i], ends[i].held_units);
    }
}

PUBLIC CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    struct virtual_ends ends[REGION_DEVICES] = {0};
    CUresult result;

    if (vgpu_mode() != VGPU_ON)
        return REAL(cuMemUnmap)(ptr, bytes);
    for (unsigned i = 0; i < vgpu.device_count; i++)
        grant_begin_moving(&vgpu.devices[i]);
    lock_mutex(&virtual.lock);
    result = REAL(cuMemUnmap)(ptr, bytes);
    if (result == CUDA_SUCCESS)
        forget_mappings(ptr, bytes, ends);
    unlock_mutex(&virtual.lock);
    discharge_all(ends);
    return result;
}

PUBLIC CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUmemGenericAllocationHandle got = 0; /* which another thread could change where it goes */
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !handle)
        return REAL(cuMemRetainAllocationHandle)(handle, address);
    lock_mutex(&virtual.lock);
    result = REAL(cuMemRetainAllocationHandle)(&got, address);
    row = result == CUDA_SUCCESS ? references_find(&virtual.made, got) : NULL;
    if (row)
        row->handles++;
    unlock_mutex(&virtual.lock);
    if (result == CUDA_SUCCESS)
        *handle = got;
    return result;
}

/* A program that made memory on its card hears that it is there, for the access that it will set.
 */
PUBLIC CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp own;
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !prop)
        return REAL(cuMemGetAllocationPropertiesFromHandle)(prop, handle);
    lock_mutex(&virtual.lock);
    result = REAL(cuMemGetAllocationPropertiesFromHandle)(&own, handle);
    row = references_find(&virtual.made, handle);
    if (result == CUDA_SUCCESS && row && row->spilled)
        own.location = (CUmemLocation){
            .type = CU_MEM_LOCATION_TYPE_DEVICE,
            .id = vgpu.devices[row->device].handle,
        };
    unlock_mutex(&virtual.lock);
    if (result == CUDA_SUCCESS)
        *prop = own;
    return result;
}

/* Sharing: a descriptor carries the pid of who made it, as that of its owner, which the kernel
 * keeps with the open file and translates for whoever asks. Nothing else reads it. */

static pid_t own_pid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

void virtual_mark_descriptor(int fd)
{
    (void)fcntl(fd, F_SETOWN, own_pid());
}

/* With the lock held. */
static void watch_descriptor(int fd, struct reference_row *row)
{
    if (!row->given)
        row->given = given_new();
    given_watch(fd, row->given, row->device);
}

/* Whether no descriptor is made of what came as one. */
static bool refuses_import(const struct reference_row *row, const char *name)
{
    return row && row->imported &&
           vgpu_refuses(VGPU_WORD_UNACCOUNTED, name,
                        "nobody could tell when memory that was imported has gone");
}

/* With the lock held. What is given out of memory that nobody was given yet is closed again. */
static CUresult export_fd(int *ret_fd, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type, unsigned long long flags)
{
    AUTOCLOSE int fd = -1;
    CUresult result = REAL(cuMemExportToShareableHandle)(&fd, handle, type, flags);
    struct reference_row *row;

    if (result != CUDA_SUCCESS)
        return result;
    row = references_find(&virtual.made, handle);
    if (!row && refuses_unknown("cuMemExportToShareableHandle"))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (refuses_import(row, "cuMemExportToShareableHandle"))
        return CUDA_ERROR_NOT_SUPPORTED;
    virtual_mark_descriptor(fd);
    if (row)
        watch_descriptor(fd, row);
    *ret_fd = take_fd(&fd);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
    struct reference_row *row;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !shareable)
        return REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    lock_mutex(&virtual.lock);
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        result = export_fd(shareable, handle, type, flags);
    else if (refuses_import(references_find(&virtual.made, handle), "cuMemExportToShareableHandle"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        result = REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    row = result == CUDA_SUCCESS ? references_find(&virtual.made, handle) : NULL;
    if (row)
        row->shared = true;
    unlock_mutex(&virtual.lock);
    return result;
}

bool virtual_is_of_container(int fd)
{
    const struct region_ext *ext = vgpu.region.ext;
    int owner = fcntl(fd, F_GETOWN);

    for (unsigned i = 0; owner > 0 && i < REGION_SLOTS; i++) {
        if (atomic_load(&ext->slots[i].pid) == owner &&
            atomic_load(&ext->slots[i].pid_namespace) == vgpu.region.self.pid_namespace)
            return true;
    }
    return false;
}

/* With the lock held. The same handle may have been given out before. */
static bool remember_import(CUmemGenericAllocationHandle handle)
{
    struct reference_row *row = references_find(&virtual.made, handle);

    if (!row) {
        if (!references_reserve(&virtual.made))
            return false;
        row = references_add(&virtual.made, handle);
        row->shared = row->imported = true;
        virtual_count_imports(1);
    }
    row->handles++;
    return true;
}

/* The driver is asked first, since it is its affair to say what is no import at all. */
PUBLIC CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                               void *shareable, CUmemAllocationHandleType type)
{
    CUmemGenericAllocationHandle made = 0;
    CUresult result;

    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON || !handle)
        return REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    lock_mutex(&virtual.lock);
    result = REAL(cuMemImportFromShareableHandle)(&made, shareable, type);
    if (result == CUDA_SUCCESS &&
        (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
         !virtual_is_of_container((int)(intptr_t)shareable)) &&
        vgpu_refuses(VGPU_WORD_IMPORT, "cuMemImportFromShareableHandle",
                     "no living process of this container made that memory")) {
        (void)REAL(cuMemRelease)(made);
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS && !remember_import(made)) {
        (void)REAL(cuMemRelease)(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    unlock_mutex(&virtual.lock);
    if (result == CUDA_SUCCESS) {
        *handle = made;
        (void)watch_start();
    }
    return result;
}

/* What holds memory unseen (bound.c) */

/* With the lock held: the driver knows it, and nobody was given it. */
static bool is_stranger(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;

    return !references_find(&virtual.made, handle) &&
           REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) == CUDA_SUCCESS;
}

bool virtual_mark_held(CUmemGenericAllocationHandle handle, const char *name)
{
    struct reference_row *row;
    bool passes = true;

    lock_mutex(&virtual.lock);
    row = references_find(&virtual.made, handle);
    if (row)
        row->held = true;
    else if (is_stranger(handle))
        passes = !refuses_unknown(name);
    unlock_mutex(&virtual.lock);
    return passes;
}

/* The memory that an address is mapped to, 0 for none. */
static CUmemGenericAllocationHandle mapped_at(CUdeviceptr ptr)
{
    CUmemGenericAllocationHandle handle = 0;

    lock_mutex(&virtual.lock);
    for (size_t i = 0; i < virtual.mapped.size && !handle; i++) {
        const struct reference_row *row = &virtual.mapped.rows[i];

        if (row->key && ptr >= row->key && ptr - row->key < row->bytes)
            handle = row->handle;
    }
    unlock_mutex(&virtual.lock);
    return handle;
}

bool virtual_mark_held_at(CUdeviceptr ptr, const char *name)
{
    CUmemGenericAllocationHandle handle = mapped_at(ptr);

    return !handle || virtual_mark_held(handle, name);
}

/* With the lock held: the next mapping in the range, from a place on; NULL: there is none. */
static const struct reference_row *next_mapping(CUdeviceptr ptr, size_t bytes, size_t *at)
{
    while (*at < virtual.mapped.size) {
        const struct reference_row *row = &virtual.mapped.rows[(*at)++];

        if (row->key && (ptr >= row->key ? ptr - row->key < row->bytes : row->key - ptr < bytes))
            return row;
    }
    return NULL;
}

/* With the lock held: whether no descriptor is made of what is mapped there. */
static bool refuses_mapped(CUdeviceptr ptr, size_t bytes, const char *name)
{
    const struct reference_row *row;

    for (size_t at = 0; (row = next_mapping(ptr, bytes, &at));) {
        if (refuses_import(references_find(&virtual.made, row->handle), name))
            return true;
    }
    return false;
}

/* With the lock held: the descriptor is of all that is mapped there. */
static void watch_mapped(CUdeviceptr ptr, size_t bytes, int fd)
{
    const struct reference_row *row;

    for (size_t at = 0; (row = next_mapping(ptr, bytes, &at));) {
        struct reference_row *made = references_find(&virtual.made, row->handle);

        if (!made)
            continue;
        made->shared = true;
        watch_descriptor(fd, made);
    }
}

bool virtual_give_dma_buf(CUdeviceptr ptr, size_t bytes, virtual_give_fn driver, int *ret_fd,
                          const void *data, CUresult *ret_result)
{
    size_t at = 0;
    bool mapped;

    lock_mutex(&virtual.lock);
    mapped = next_mapping(ptr, bytes, &at) != NULL;
    if (mapped)
        *ret_result = driver(ret_fd, data);
    if (mapped && *ret_result == CUDA_SUCCESS &&
        refuses_mapped(ptr, bytes, "cuMemGetHandleForAddressRange"))
        *ret_result = CUDA_ERROR_NOT_SUPPORTED; /* the caller closes it */
    else if (mapped && *ret_result == CUDA_SUCCESS)
        watch_mapped(ptr, bytes, *ret_fd);
    unlock_mutex(&virtual.lock);
    return mapped;
}

bool virtual_remember_free(CUmemGenericAllocationHandle handle)
{
    return remember(handle, &(struct grant){0}, false);
}
