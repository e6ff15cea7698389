/* SPDX-License-Identifier: Apache-2.0 */

/* Ending contexts, and who uses them. */

#include <time.h>

#include "base/lock.h"
#include "vgpu/code.h"
#include "vgpu/compute.h"
#include "vgpu/context_table.h"
#include "vgpu/host.h"
#include "vgpu/ipc.h"
#include "vgpu/managed.h"
#include "vgpu/overhead.h"
#include "vgpu/pages.h"
#include "vgpu/primary.h"
#include "vgpu/real.h"

/* A refusal comes at once; a real end may wait for whatever runs. */
#define ENDING_PAUSE_NS 50000
#define ENDING_TRIES 200

static _Atomic unsigned endings;

bool context_take(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry)
{
    const struct timespec moment = {.tv_nsec = ENDING_PAUSE_NS};

    for (unsigned i = 0; i < ENDING_TRIES; i++) {
        const bool ending = atomic_load(&endings) > 0;

        if (allocations_take(kind, handle, ret_entry))
            return true;
        if (!ending)
            return false;
        (void)nanosleep(&moment, NULL);
    }
    return false;
}

void context_ends_after_fork(void)
{
    atomic_store(&endings, 0);
}

struct context_ending context_begin_end(CUcontext handle)
{
    struct context_ending ending = {0};

    lock_mutex(&contexts.lock);
    ending.row = contexts_find_row(handle);
    if (ending.row) {
        ending.context = contexts.rows[ending.row];
        contexts.rows[ending.row].handle = NULL;
        contexts.rows[ending.row].ending = true;
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    unlock_mutex(&contexts.lock);
    if (!ending.row)
        return ending;

    atomic_fetch_add(&endings, 1);
    allocations_take_context(ALLOCATION_ADDRESS, ending.row, &ending.data);
    ending.holds_managed = managed_begin_context_end(ending.row, &ending.managed);
    allocations_take_context(ALLOCATION_HOST, ending.row, &ending.host);
    allocations_take_context(ALLOCATION_MODULE, ending.row, &ending.code);
    allocations_take_context(ALLOCATION_IMPORT, ending.row, &ending.imports);
    allocations_take_context(ALLOCATION_GRAPHICS, ending.row, &ending.graphics);
    allocations_take_context(ALLOCATION_HOME, ending.row, &ending.homes);
    return ending;
}

void context_give_back_data(struct context_ending *ending, unsigned row)
{
    struct vgpu_device *device = ending->context.device;
    const uint64_t small = ending->data.small_units;

    allocations_give_back(ALLOCATION_ADDRESS, row, &ending->data);
    if (row == ending->row || !device)
        return;
    vgpu_charge_anyway(device, VGPU_DATA, page_take_small(row, small));
    vgpu_discharge(device, VGPU_DATA, page_give_small(ending->row, small));
}

/* It did not end. Should it have been met again meanwhile, as one unseen, that row is its row.
 * Returns its row. */
static unsigned take_back(struct context_ending *ending)
{
    unsigned row;

    lock_mutex(&contexts.lock);
    row = contexts_find_row(ending->context.handle);
    if (row) {
        contexts.rows[row].units += ending->context.units;
        contexts.rows[ending->row].ending = false;
        (void)contexts_count(ending->context.device, -1);
    } else {
        row = ending->row;
        contexts.rows[row] = ending->context;
    }
    atomic_fetch_add(&contexts_epoch_now, 1);
    unlock_mutex(&contexts.lock);
    context_give_back_data(ending, row);
    allocations_give_back(ALLOCATION_MANAGED, row, &ending->managed);
    allocations_give_back(ALLOCATION_HOST, row, &ending->host);
    allocations_give_back(ALLOCATION_MODULE, row, &ending->code);
    allocations_give_back(ALLOCATION_IMPORT, row, &ending->imports);
    allocations_give_back(ALLOCATION_GRAPHICS, row, &ending->graphics);
    allocations_give_back(ALLOCATION_HOME, row, &ending->homes);
    return row;
}

static void finish_gone(struct context_ending *ending)
{
    struct vgpu_device *device = ending->context.device;

    managed_end_context_end(ending->holds_managed, ending->row, 0);

    lock_mutex(&contexts.lock);
    contexts.rows[ending->row].ending = false;
    (void)contexts_count(device, -1);
    atomic_fetch_add(&contexts_epoch_now, 1);
    unlock_mutex(&contexts.lock);
    code_forget_functions();
    if (device) {
        const uint64_t managed = ending->managed.units + ending->managed.shared_units;

        atomic_fetch_sub(&device->managed_units, managed);
        managed_count_spilled(-(int64_t)ending->managed.shared_units);
        vgpu_discharge(device, VGPU_DATA,
                       ending->data.units + managed +
                           page_give_small(ending->row, ending->data.small_units));
        host_count(-(int64_t)ending->host.units);
        virtual_count_imports(-(int64_t)(ending->imports.units + ending->graphics.units));
        if (ending->data.shared_units || ending->data.kept_units)
            ipc_context_ended(device, &ending->data);
        overhead_gone(device, ending->context.units, ending->code.units);
    }
    allocations_drop(&ending->data);
    allocations_drop(&ending->managed);
    allocations_drop(&ending->host);
    allocations_drop(&ending->code);
    allocations_drop(&ending->imports);
    allocations_drop(&ending->graphics);
    allocations_drop(&ending->homes);
}

void context_finish_end(struct context_ending *ending, bool gone)
{
    if (!ending->row)
        return;
    if (gone)
        finish_gone(ending);
    else
        managed_end_context_end(ending->holds_managed, ending->row, take_back(ending));
    atomic_fetch_sub(&endings, 1);
}

typedef CUresult (*destroy_fn)(CUcontext context);

static CUresult end_context(CUcontext context, destroy_fn destroy)
{
    struct context_ending ending;
    struct context known;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !context)
        return destroy(context);
    /* The driver refuses to destroy a primary one. */
    if (contexts_find(context, &known) && known.primary)
        return destroy(context);

    compute_ending(context);
    ending = context_begin_end(context);
    result = destroy(context);
    compute_ended(context, result == CUDA_SUCCESS);
    context_finish_end(&ending, result == CUDA_SUCCESS);
    return result;
}

PUBLIC CUresult cuCtxDestroy(CUcontext context)
{
    (void)real_driver();
    return end_context(context, REAL(cuCtxDestroy));
}

PUBLIC CUresult cuCtxDestroy_v2(CUcontext context)
{
    (void)real_driver();
    return end_context(context, REAL(cuCtxDestroy_v2));
}

PUBLIC CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    bool ours = vgpu_mode() == VGPU_ON;
    CUresult result;

    if (ours)
        (void)context_current();
    primary_hold();
    result = REAL(cuCtxAttach)(context, flags);
    if (ours && result == CUDA_SUCCESS)
        contexts_add_users(*context, 1);
    primary_let_go();
    return result;
}

PUBLIC CUresult cuCtxDetach(CUcontext context)
{
    struct context known;
    CUresult result;

    (void)real_driver();
    if (vgpu_mode() != VGPU_ON || !context || !contexts_find(context, &known))
        return REAL(cuCtxDetach)(context);
    if (known.primary && known.device)
        return primary_detach(context, known.device);
    if (known.users <= 1)
        return end_context(context, REAL(cuCtxDetach));
    result = REAL(cuCtxDetach)(context);
    if (result == CUDA_SUCCESS)
        contexts_add_users(context, -1);
    return result;
}
