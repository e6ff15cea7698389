/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What may hold memory that is made apart from its addresses beside our handles and mappings.
 *
 * What was given out as a file descriptor may be held by others after our last reference has gone.
 * It is hidden memory then, charged until the last descriptor is closed (given.h), NVML says that
 * it went, too, and those that may have it were charged for it (region/orphans.h). What was got as
 * one takes no new memory, and is charged to whoever made it; when that one has gone and NVML
 * counts it for us, it is hidden memory of ours. It is not given out once more: its maker sees its
 * own descriptors alone, and NVML counts for nobody what another one keeps.
 *
 * A descriptor carries the pid of who made it, as that of its owner, which the kernel keeps with
 * the open file and translates for whoever asks. Nothing else reads it.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/lock.h"
#include "vgpu/compute.h"
#include "vgpu/given.h"
#include "vgpu/real.h"
#include "vgpu/virtual_rows.h"

enum {
    SHAREABLE_MOST = 64, /* bytes of a handle, of whichever type */
};

static _Atomic uint64_t imports; /* of what others made, by whichever way it came */

/* Devices on which there ever was one, a bit for each place in vgpu.devices; and imports under way,
 * of which nobody knows that yet. */
static _Atomic uint32_t imported_on, importing;

#define ALL_DEVICES UINT32_MAX

void virtual_share_after_fork(void)
{
    atomic_store(&imports, 0);
    atomic_store(&imported_on, 0);
    atomic_store(&importing, 0);
}

bool virtual_has_imports_on(const struct vgpu_device *device)
{
    const uint32_t bit = UINT32_C(1) << (device - vgpu.devices);

    return virtual_has_imports() && (atomic_load(&importing) || (atomic_load(&imported_on) & bit));
}

bool virtual_has_imports(void)
{
    return atomic_load(&imports) > 0;
}

/* The container's other processes look at it. */
static void count_imports(int64_t more)
{
    atomic_fetch_add(&imports, (uint64_t)more);
    atomic_fetch_add(&vgpu.region.ext->slots[vgpu.region.slot].imports, (uint64_t)more);
}

void virtual_count_imports(int64_t more)
{
    if (!more)
        return;
    if (more > 0)
        atomic_store(&imported_on, ALL_DEVICES);
    count_imports(more);
}

void virtual_begin_import(void)
{
    atomic_fetch_add(&importing, 1);
    count_imports(1);
}

void virtual_end_import(const struct vgpu_device *device, bool made)
{
    if (!made)
        count_imports(-1);
    else
        atomic_fetch_or(&imported_on,
                        device ? UINT32_C(1) << (device - vgpu.devices) : ALL_DEVICES);
    atomic_fetch_sub(&importing, 1);
}

const struct vgpu_device *virtual_device_at(CUdeviceptr ptr)
{
    int ordinal;

    if (REAL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr) !=
        CUDA_SUCCESS)
        return NULL;
    return vgpu_device(ordinal);
}

/* NULL: of no device, or of nobody knows which. */
static const struct vgpu_device *device_of(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;

    if (REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) != CUDA_SUCCESS ||
        prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return NULL;
    return vgpu_device(prop.location.id);
}

/* Giving out */

static pid_t own_pid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

void virtual_mark_descriptor(int fd)
{
    (void)fcntl(fd, F_SETOWN, own_pid());
}

/* With the lock held. False: as given_watch(). */
static bool watch_descriptor(int fd, struct reference_row *row)
{
    if (!row->given)
        row->given = given_new();
    return given_watch(fd, row->given, row->device);
}

/* With the lock held: others may have it from now on. */
static void share(struct reference_row *row)
{
    if (!row || row->shared)
        return;
    row->shared = true;
    vgpu_lend(&vgpu.devices[row->device], (int64_t)virtual_lent(row));
}

/* With the lock held: they may not after all. */
static void share_no_more(struct reference_row *row)
{
    if (!row || !row->shared)
        return;
    vgpu_lend(&vgpu.devices[row->device], -(int64_t)virtual_lent(row));
    row->shared = false;
}

/* Whether no descriptor is made of what came as one. */
static bool refuses_import(const struct reference_row *row, const char *name)
{
    return row && row->imported &&
           vgpu_refuses(VGPU_WORD_UNACCOUNTED, name,
                        "nobody could tell when memory that was imported has gone");
}

/* With the lock held. What is given out of memory that nobody was given yet is closed again, and so
 * is what can't be watched for lack of descriptors: a driver that lacks them answers the same. */
static CUresult export_fd(int *ret_fd, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type, unsigned long long flags)
{
    AUTOCLOSE int fd = -1;
    CUresult result = REAL(cuMemExportToShareableHandle)(&fd, handle, type, flags);
    struct reference_row *row;

    if (result != CUDA_SUCCESS)
        return result;
    row = references_find(&virtual_rows.made, handle);
    if (!row && virtual_refuses_unknown("cuMemExportToShareableHandle"))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (refuses_import(row, "cuMemExportToShareableHandle"))
        return CUDA_ERROR_NOT_SUPPORTED;
    virtual_mark_descriptor(fd);
    if (row && !watch_descriptor(fd, row))
        return CUDA_ERROR_OPERATING_SYSTEM;
    *ret_fd = take_fd(&fd);
    return CUDA_SUCCESS;
}

/* What a handle of a type takes. 0: no driver gives out such a one. */
static size_t shareable_bytes(CUmemAllocationHandleType type)
{
    switch (type) {
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        return sizeof(int);
    case CU_MEM_HANDLE_TYPE_WIN32:
    case CU_MEM_HANDLE_TYPE_WIN32_KMT:
        return sizeof(void *);
    case CU_MEM_HANDLE_TYPE_FABRIC:
        return SHAREABLE_MOST;
    default:
        return 0;
    }
}

PUBLIC CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
    const size_t bytes = shareable_bytes(type);
    uint64_t made[SHAREABLE_MOST / sizeof(uint64_t)] = {0};
    struct reference_row *row;
    CUresult result;
    bool was_shared;

    if (vgpu_mode() != VGPU_ON || !shareable || !bytes)
        return REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    lock_mutex(&virtual_rows.lock);
    row = references_find(&virtual_rows.made, handle);
    was_shared = row && row->shared;
    share(row);
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        result = export_fd((int *)made, handle, type, flags);
    else if (refuses_import(references_find(&virtual_rows.made, handle),
                            "cuMemExportToShareableHandle"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        result = REAL(cuMemExportToShareableHandle)(made, handle, type, flags);
    if (result != CUDA_SUCCESS && !was_shared)
        share_no_more(row);
    unlock_mutex(&virtual_rows.lock);
    if (result == CUDA_SUCCESS)
        memcpy(shareable, made, bytes); /* here a page may fault */
    return result;
}

/* With the lock held: whether no descriptor is made of what is mapped there. */
static bool refuses_mapped(CUdeviceptr ptr, size_t bytes, const char *name)
{
    const struct reference_row *row;

    for (size_t at = 0; (row = virtual_next_mapping(ptr, bytes, &at));) {
        if (refuses_import(references_find(&virtual_rows.made, row->handle), name))
            return true;
    }
    return false;
}

/* With the lock held: the descriptor is of all that is mapped there. False: as given_watch(). */
static bool watch_mapped(CUdeviceptr ptr, size_t bytes, int fd)
{
    const struct reference_row *row;

    for (size_t at = 0; (row = virtual_next_mapping(ptr, bytes, &at));) {
        struct reference_row *made = references_find(&virtual_rows.made, row->handle);

        if (!made)
            continue;
        if (!watch_descriptor(fd, made))
            return false;
        share(made);
    }
    return true;
}

/* With the lock held. What is not CUDA_SUCCESS: the caller closes the descriptor. */
static CUresult share_mapped(CUdeviceptr ptr, size_t bytes, int fd)
{
    if (refuses_mapped(ptr, bytes, "cuMemGetHandleForAddressRange"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return watch_mapped(ptr, bytes, fd) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

bool virtual_give_dma_buf(CUdeviceptr ptr, size_t bytes, virtual_give_fn driver, int *ret_fd,
                          const void *data, CUresult *ret_result)
{
    size_t at = 0;
    bool mapped;

    lock_mutex(&virtual_rows.lock);
    mapped = virtual_next_mapping(ptr, bytes, &at) != NULL;
    if (mapped)
        *ret_result = driver(ret_fd, data);
    if (mapped && *ret_result == CUDA_SUCCESS)
        *ret_result = share_mapped(ptr, bytes, *ret_fd);
    unlock_mutex(&virtual_rows.lock);
    return mapped;
}

/* Importing */

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

/* With the lock held, and the import counted. The same handle may have been given out before: then
 * it counts once. */
static bool remember_import(CUmemGenericAllocationHandle handle)
{
    struct reference_row *row = references_find(&virtual_rows.made, handle);

    if (row) {
        virtual_count_imports(-1);
    } else {
        if (!references_reserve(&virtual_rows.made))
            return false;
        row = references_add(&virtual_rows.made, handle);
        row->shared = row->imported = true;
    }
    row->handles++;
    return true;
}

/* With the lock held. Another one's descriptor is watched as our own are: while any of it is open,
 * NVML counts what it stands for for nobody. */
static CUresult import_locked(CUmemGenericAllocationHandle made, void *shareable,
                              CUmemAllocationHandleType type)
{
    const int fd = (int)(intptr_t)shareable;
    const bool is_fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

    if ((!is_fd || !virtual_is_of_container(fd)) &&
        vgpu_refuses(VGPU_WORD_IMPORT, "cuMemImportFromShareableHandle",
                     "no living process of this container made that memory"))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (is_fd && !given_watch(fd, given_imported(), 0))
        return CUDA_ERROR_OPERATING_SYSTEM;
    return remember_import(made) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
    lock_mutex(&virtual_rows.lock);
    virtual_begin_import();
    result = REAL(cuMemImportFromShareableHandle)(&made, shareable, type);
    if (result == CUDA_SUCCESS) {
        result = import_locked(made, shareable, type);
        if (result != CUDA_SUCCESS)
            UNDO(cuMemRelease, made);
    }
    virtual_end_import(result == CUDA_SUCCESS ? device_of(made) : NULL, result == CUDA_SUCCESS);
    unlock_mutex(&virtual_rows.lock);
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

    return !references_find(&virtual_rows.made, handle) &&
           REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle) == CUDA_SUCCESS;
}

bool virtual_mark_held(CUmemGenericAllocationHandle handle, const char *name)
{
    struct reference_row *row;
    bool passes = true;

    lock_mutex(&virtual_rows.lock);
    row = references_find(&virtual_rows.made, handle);
    if (row)
        row->held = true;
    else if (is_stranger(handle))
        passes = !virtual_refuses_unknown(name);
    unlock_mutex(&virtual_rows.lock);
    return passes;
}

/* The memory that an address is mapped to, 0 for none. */
static CUmemGenericAllocationHandle mapped_at(CUdeviceptr ptr)
{
    const struct reference_row *row;
    CUmemGenericAllocationHandle handle;
    size_t at = 0;

    lock_mutex(&virtual_rows.lock);
    row = virtual_next_mapping(ptr, 1, &at);
    handle = row ? row->handle : 0;
    unlock_mutex(&virtual_rows.lock);
    return handle;
}

bool virtual_mark_held_at(CUdeviceptr ptr, const char *name)
{
    CUmemGenericAllocationHandle handle = mapped_at(ptr);

    return !handle || virtual_mark_held(handle, name);
}
