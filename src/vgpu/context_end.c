/* SPDX-License-Identifier: Apache-2.0 */

/* Ending contexts, and who uses them. */

#include "base/lock.h"
#include "base/util.h"
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

static _Atomic unsigned endings;

/* The ends that are under way. What a bag has comes to the table and goes from it with the lock, so
 * that it is always in one of them. */
static struct {
    pthread_mutex_t lock;
    struct context_ending *first;
} under_way = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool context_take(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry)
{
    const unsigned epoch = contexts_epoch();
    const bool ending = atomic_load(&endings) > 0;
    bool found = allocations_take(kind, handle, ret_entry);

    if (found || (!ending && contexts_epoch() == epoch))
        return found;
    lock_mutex(&under_way.lock);
    for (struct context_ending *i = under_way.first; i && !found; i = i->next)
        found = allocations_take_bagged(&i->bags[kind], handle, ret_entry);
    found = found || allocations_take(kind, handle, ret_entry);
    unlock_mutex(&under_way.lock);
    return found;
}

/* With the lock over the ends: the number that a context has now, 0 once it has ended. */
static unsigned number_now(unsigned number)
{
    struct context context;

    lock_mutex(&contexts.lock);
    do {
        context = contexts.rows[number];
    } while (!context.handle && !context.ending && (number = context.now));
    unlock_mutex(&contexts.lock);
    return number;
}

bool context_put_back(enum allocation_kind kind, uint64_t handle, const struct allocation *entry)
{
    struct allocation again = *entry;
    struct context_ending *ending;

    lock_mutex(&under_way.lock);
    for (ending = under_way.first; ending && ending->row != entry->context;)
        ending = ending->next;
    if (ending)
        allocations_put_bagged(&ending->bags[kind], handle, entry);
    else if (entry->context && entry->context < CONTEXTS_MAX)
        again.context = number_now(entry->context);
    if (!ending && (again.context || !entry->context))
        (void)allocations_add(kind, handle, &again);
    unlock_mutex(&under_way.lock);
    return again.context || !entry->context;
}

void context_ends_after_fork(void)
{
    atomic_store(&endings, 0);
    (void)pthread_mutex_init(&under_way.lock, NULL);
    under_way.first = NULL;
}

/* What goes with a context but for managed memory, which has a lock of its own. */
static const enum allocation_kind kinds[] = {
    ALLOCATION_ADDRESS, ALLOCATION_HOST,     ALLOCATION_MODULE,
    ALLOCATION_IMPORT,  ALLOCATION_GRAPHICS, ALLOCATION_HOME,
};

void context_begin_end(CUcontext handle, struct context_ending *ret_ending)
{
    struct context_ending *ending = ret_ending;

    *ending = (struct context_ending){0};
    lock_mutex(&contexts.lock);
    ending->row = contexts_find_row(handle);
    if (ending->row) {
        ending->context = contexts.rows[ending->row];
        contexts.rows[ending->row].handle = NULL;
        contexts.rows[ending->row].ending = true;
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    unlock_mutex(&contexts.lock);
    if (!ending->row)
        return;

    ending->holds_managed =
        managed_begin_context_end(ending->row, &ending->bags[ALLOCATION_MANAGED]);
    atomic_fetch_add(&endings, 1);
    lock_mutex(&under_way.lock);
    ending->next = under_way.first;
    under_way.first = ending;
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
        allocations_take_context(kinds[i], ending->row, &ending->bags[kinds[i]]);
    unlock_mutex(&under_way.lock);
}

/* With the lock over the ends. */
static void unlink_end(const struct context_ending *ending)
{
    struct context_ending **at = &under_way.first;

    while (*at != ending)
        at = &(*at)->next;
    *at = ending->next;
    atomic_fetch_sub(&endings, 1);
}

void context_give_back_data(struct context_ending *ending, unsigned row)
{
    struct vgpu_device *device = ending->context.device;
    struct allocations_bag *data = &ending->bags[ALLOCATION_ADDRESS];
    const uint64_t small = data->small_units;

    allocations_give_back(ALLOCATION_ADDRESS, row, data);
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

    lock_mutex(&under_way.lock);
    unlink_end(ending);
    lock_mutex(&contexts.lock);
    row = contexts_find_row(ending->context.handle);
    if (row) {
        contexts.rows[row].units += ending->context.units;
        contexts.rows[ending->row].ending = false;
        contexts.rows[ending->row].now = row;
        (void)contexts_count(ending->context.device, -1);
    } else {
        row = ending->row;
        contexts.rows[row] = ending->context;
    }
    atomic_fetch_add(&contexts_epoch_now, 1);
    unlock_mutex(&contexts.lock);
    context_give_back_data(ending, row);
    for (unsigned kind = 0; kind < ALLOCATION_KINDS; kind++)
        allocations_give_back(kind, row, &ending->bags[kind]);
    unlock_mutex(&under_way.lock);
    return row;
}

static void finish_gone(struct context_ending *ending)
{
    const struct allocations_bag *const bags = ending->bags;
    const struct allocations_bag *const data = &bags[ALLOCATION_ADDRESS];
    struct vgpu_device *device = ending->context.device;

    managed_end_context_end(ending->holds_managed, ending->row, 0);

    lock_mutex(&under_way.lock);
    unlink_end(ending);
    lock_mutex(&contexts.lock);
    contexts.rows[ending->row].ending = false;
    (void)contexts_count(device, -1);
    atomic_fetch_add(&contexts_epoch_now, 1);
    unlock_mutex(&contexts.lock);
    unlock_mutex(&under_way.lock);
    code_forget_functions();
    if (device) {
        const struct allocations_bag *spilled = &bags[ALLOCATION_MANAGED];
        const uint64_t managed = spilled->units + spilled->shared_units;

        atomic_fetch_sub(&device->managed_units, managed);
        managed_count_spilled(-(int64_t)spilled->shared_units);
        vgpu_discharge(device, VGPU_DATA,
                       data->units + managed + page_give_small(ending->row, data->small_units));
        host_count(-(int64_t)bags[ALLOCATION_HOST].units);
        virtual_count_imports(
            -(int64_t)(bags[ALLOCATION_IMPORT].units + bags[ALLOCATION_GRAPHICS].units));
        if (data->shared_units || data->kept_units)
            ipc_context_ended(device, data);
        overhead_gone(device, ending->context.units, bags[ALLOCATION_MODULE].units);
    }
    for (unsigned kind = 0; kind < ALLOCATION_KINDS; kind++)
        allocations_drop(&ending->bags[kind]);
}

void context_finish_end(struct context_ending *ending, bool gone)
{
    if (!ending->row)
        return;
    if (gone)
        finish_gone(ending);
    else
        managed_end_context_end(ending->holds_managed, ending->row, take_back(ending));
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
    context_begin_end(context, &ending);
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
    CUcontext attached = NULL;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !context)
        return REAL(cuCtxAttach)(context, flags);
    (void)context_current();
    primary_hold();
    result = REAL(cuCtxAttach)(&attached, flags);
    if (result == CUDA_SUCCESS)
        contexts_add_users(attached, 1);
    primary_let_go();
    if (result == CUDA_SUCCESS)
        *context = attached;
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
