/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where memory that is made apart from its addresses is mapped to: each mapping holds it, as a
 * handle does. One unmapping may end many, of memory of several devices.
 */

#include "base/lock.h"
#include "vgpu/grant.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"
#include "vgpu/virtual_rows.h"

/* With the lock held; there is room. */
static void remember_mapping(CUdeviceptr ptr, size_t bytes, CUmemGenericAllocationHandle handle)
{
    struct reference_row *mapping = references_find(&virtual_rows.mapped, ptr);

    /* An address of what was unmapped unseen may be there still. */
    if (!mapping)
        mapping = references_add(&virtual_rows.mapped, ptr);
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
    unlock_mutex(&virtual_rows.lock);
    result = REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    lock_mutex(&virtual_rows.lock);
    row = references_find(&virtual_rows.made, handle);
    if (result == CUDA_SUCCESS && !references_reserve(&virtual_rows.mapped)) {
        UNDO(cuMemUnmap, ptr, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        remember_mapping(ptr, bytes, handle);
    } else if (row) {
        row->maps--;
        (void)virtual_end_if_last(row);
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
    lock_mutex(&virtual_rows.lock);
    row = references_find(&virtual_rows.made, handle);
    if (row && !row->units) {
        result = map_uncharged(ptr, bytes, offset, row, flags);
        unlock_mutex(&virtual_rows.lock);
        return result;
    }
    if (row && !references_reserve(&virtual_rows.mapped))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = REAL(cuMemMap)(ptr, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && !row && virtual_refuses_unknown("cuMemMap")) {
        UNDO(cuMemUnmap, ptr, bytes);
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS && row) {
        remember_mapping(ptr, bytes, handle);
        row->maps++;
    }
    unlock_mutex(&virtual_rows.lock);
    return result;
}

/* What ends on one device as mappings go. */
struct virtual_ends {
    uint64_t units, shared_units, kept_units, held_units;
    uint64_t lent;
};

static void forget_mapping(struct reference_row *mapping, struct virtual_ends *ends)
{
    struct reference_row *row = references_find(&virtual_rows.made, mapping->handle);
    struct virtual_end end = {0};

    references_remove(&virtual_rows.mapped, mapping);
    if (row && row->maps) {
        row->maps--;
        end = virtual_end_if_last(row);
    }
    virtual_forget_spilled(&end);
    if (end.device)
        ends[end.device - vgpu.devices].lent += end.lent;
    if (end.device && virtual_is_kept(&end))
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
        struct reference_row *mapping = references_find(&virtual_rows.mapped, ptr);
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
        vgpu_lend(&vgpu.devices[i], -(int64_t)ends[i].lent);
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
    lock_mutex(&virtual_rows.lock);
    result = REAL(cuMemUnmap)(ptr, bytes);
    if (result == CUDA_SUCCESS)
        forget_mappings(ptr, bytes, ends);
    unlock_mutex(&virtual_rows.lock);
    discharge_all(ends);
    return result;
}

const struct reference_row *virtual_next_mapping(CUdeviceptr ptr, size_t bytes, size_t *at)
{
    while (*at < virtual_rows.mapped.size) {
        const struct reference_row *row = &virtual_rows.mapped.rows[(*at)++];

        if (row->key && (ptr >= row->key ? ptr - row->key < row->bytes : row->key - ptr < bytes))
            return row;
    }
    return NULL;
}
