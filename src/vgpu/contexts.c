/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/contexts.h"

#include <string.h>

#include "base/lock.h"
#include "vgpu/code.h"
#include "vgpu/context_table.h"
#include "vgpu/overhead.h"
#include "vgpu/primary.h"
#include "vgpu/real.h"

struct contexts contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Atomic unsigned contexts_live;

/* The thread's last context, valid while no context has come or gone. */
static __thread struct {
    CUcontext handle;
    unsigned number;
    unsigned epoch;
} last;
_Atomic unsigned contexts_epoch_now = 1;

void contexts_after_fork(void)
{
    memset(&contexts, 0, sizeof(contexts));
    (void)pthread_mutex_init(&contexts.lock, NULL);
    primary_after_fork();
    context_ends_after_fork();
    overhead_after_fork();
    atomic_store(&contexts_live, 0);
    for (unsigned i = 0; i < vgpu.device_count; i++)
        atomic_store(&vgpu.devices[i].contexts, 0);
    atomic_fetch_add(&contexts_epoch_now, 1);
}

unsigned contexts_count(struct vgpu_device *device, int more)
{
    if (device)
        atomic_fetch_add(&device->contexts, (unsigned)more);
    return atomic_fetch_add(&contexts_live, (unsigned)more);
}

unsigned contexts_find_row(CUcontext handle)
{
    for (unsigned i = 1; handle && i <= contexts.last; i++) {
        if (contexts.rows[i].handle == handle)
            return i;
    }
    return 0;
}

/* With the lock held; 0 when the table is full. */
static unsigned free_row(void)
{
    for (unsigned i = 1; i <= contexts.last; i++) {
        if (!contexts.rows[i].handle && !contexts.rows[i].ending)
            return i;
    }
    return contexts.last + 1 < CONTEXTS_MAX ? contexts.last + 1 : 0;
}

static void say_full(void)
{
    vgpu_say(VGPU_WORD_CONTEXTS,
             "%d contexts at once are more than can be accounted for: no more are made",
             CONTEXTS_MAX - 1);
}

bool contexts_are_full(void)
{
    bool full;

    lock_mutex(&contexts.lock);
    full = !free_row();
    unlock_mutex(&contexts.lock);
    if (full)
        say_full();
    return full;
}

/* With the lock held. The row that it has or gets; 0 when the table is full. */
static unsigned enter(const struct context *context)
{
    unsigned row = contexts_find_row(context->handle);

    if (row)
        return row;
    row = free_row();
    if (!row)
        return 0;
    contexts.last = MAX(contexts.last, row);
    contexts.rows[row] = *context;
    /* Functions were noted without a context as long as there was one only. */
    if (contexts_count(context->device, 1) == 1)
        code_forget_functions();
    atomic_fetch_add(&contexts_epoch_now, 1);
    return row;
}

unsigned contexts_add(const struct context *context)
{
    unsigned row;

    lock_mutex(&contexts.lock);
    row = enter(context);
    unlock_mutex(&contexts.lock);
    if (!row)
        say_full();
    return row;
}

unsigned contexts_find(CUcontext handle, struct context *ret_context)
{
    unsigned row;

    lock_mutex(&contexts.lock);
    row = contexts_find_row(handle);
    if (row)
        *ret_context = contexts.rows[row];
    unlock_mutex(&contexts.lock);
    return row;
}

unsigned contexts_adopt(CUcontext handle, struct vgpu_device *device, bool primary)
{
    struct context context = {.handle = handle, .device = device, .users = 1, .primary = primary};

    if (device)
        context.refused = !device->granted || !overhead_adopt(device, &context.units);
    return contexts_add(&context);
}

/* A green context is a part of the device's primary one: what is made in it is that one's. */
static bool is_green_current(void)
{
    CUgreenCtx green = NULL;

    return HAS(cuStreamGetGreenCtx) && REAL(cuStreamGetGreenCtx)(NULL, &green) == CUDA_SUCCESS &&
           green;
}

static unsigned adopt_current(CUcontext handle, struct context *ret_context)
{
    struct vgpu_device *device;
    CUcontext primary = NULL;
    unsigned row;

    primary_hold();
    /* Asked with the lock: another thread may just have ended it. */
    device = vgpu_current_device();
    if (device)
        primary = primary_handle(device);
    if (primary && is_green_current())
        handle = primary;
    row = contexts_find(handle, ret_context);
    /* One that has ended is on no device; a new one may have its handle. */
    if (!row && device) {
        row = contexts_adopt(handle, device, primary == handle);
        (void)contexts_find(handle, ret_context);
    }
    primary_let_go();
    return row;
}

static unsigned known_or_new(CUcontext handle)
{
    struct context context = {0};
    unsigned row = contexts_find(handle, &context);

    if (!row)
        row = adopt_current(handle, &context);
    return context.refused ? CONTEXTS_MAX : row;
}

unsigned context_current(void)
{
    unsigned now = contexts_epoch();
    CUcontext handle;
    unsigned number;

    if (REAL(cuCtxGetCurrent)(&handle) != CUDA_SUCCESS || !handle)
        return 0;
    if (last.handle == handle && last.epoch == now)
        return last.number;

    number = known_or_new(handle);
    if (!number)
        return CONTEXTS_MAX;
    last.number = number;
    last.handle = handle;
    last.epoch = now; /* what ended since is not to be taken for known */
    return number;
}

struct vgpu_device *contexts_device(CUcontext handle)
{
    struct context context;

    return contexts_find(handle, &context) ? context.device : NULL;
}

void context_heap_grew(unsigned number, CUlimit limit, size_t value, int64_t units)
{
    struct context *context;

    if (!number || number >= CONTEXTS_MAX)
        return;
    lock_mutex(&contexts.lock);
    context = &contexts.rows[number];
    context->units = (uint64_t)MAX((int64_t)context->units + units, INT64_C(0));
    if ((unsigned)limit < CONTEXT_HEAPS)
        context->heaps[limit] = MAX(context->heaps[limit], value);
    unlock_mutex(&contexts.lock);
}

size_t context_largest_heap(unsigned number, CUlimit limit)
{
    size_t value;

    if (!number || number >= CONTEXTS_MAX || (unsigned)limit >= CONTEXT_HEAPS)
        return 0;
    lock_mutex(&contexts.lock);
    value = contexts.rows[number].heaps[limit];
    unlock_mutex(&contexts.lock);
    return value;
}

void contexts_add_users(CUcontext handle, int more)
{
    struct context *context;
    unsigned row;

    lock_mutex(&contexts.lock);
    row = contexts_find_row(handle);
    context = &contexts.rows[row];
    if (row && context->primary && context->device)
        primary_add_users(context->device, more);
    else if (row)
        context->users += (unsigned)more;
    unlock_mutex(&contexts.lock);
}
