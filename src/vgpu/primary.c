/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/primary.h"

#include <string.h>

#include "base/lock.h"
#include "vgpu/compute.h"
#include "vgpu/context_table.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* How often the driver counts each primary context as retained, as far as we have seen: what was
 * retained before a reset stays owed. */
static unsigned retained[REGION_DEVICES];

void primary_after_fork(void)
{
    memset(retained, 0, sizeof(retained));
    (void)pthread_mutex_init(&lock, NULL);
}

void primary_hold(void)
{
    lock_mutex(&lock);
}

void primary_let_go(void)
{
    unlock_mutex(&lock);
}

bool primary_is_active(CUdevice device)
{
    unsigned int flags;
    int active = 0;

    return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

CUcontext primary_handle(const struct vgpu_device *device)
{
    struct real_relaxed relaxed;
    CUcontext primary = NULL;

    if (!primary_is_active(device->handle))
        return NULL;
    relaxed = real_relax();
    if (REAL(cuDevicePrimaryCtxRetain)(&primary, device->handle) == CUDA_SUCCESS)
        (void)REAL(cuDevicePrimaryCtxRelease_v2)(device->handle);
    real_end_relaxed(&relaxed);
    return primary;
}

void primary_meet_unseen(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        struct vgpu_device *device = &vgpu.devices[i];
        struct context known;
        CUcontext handle;

        if (atomic_load(&device->contexts) || !primary_is_active(device->handle))
            continue;
        primary_hold();
        handle = primary_handle(device);
        if (handle && !contexts_find(handle, &known))
            (void)contexts_adopt(handle, device, true);
        primary_let_go();
    }
}

static unsigned device_number(const struct vgpu_device *device)
{
    return (unsigned)(device - vgpu.devices);
}

static CUresult retain_active(struct vgpu_device *device, CUcontext *context)
{
    struct context known = {0};
    CUcontext handle;
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(&handle, device->handle);

    if (result != CUDA_SUCCESS)
        return result;
    if (!contexts_find(handle, &known)) {
        (void)contexts_adopt(handle, device, true);
        (void)contexts_find(handle, &known);
    }
    if (known.refused) {
        UNDO(cuDevicePrimaryCtxRelease_v2, device->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    retained[device_number(device)]++;
    *context = handle;
    return result;
}

static CUresult retain_first(struct vgpu_device *device, CUcontext *context)
{
    struct context made = {.device = device, .primary = true};
    enum overhead_outcome outcome;
    struct overhead overhead;
    CUresult result;

    if (contexts_are_full() || !overhead_begin(&overhead, device, OVERHEAD_CONTEXT, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuDevicePrimaryCtxRetain)(&made.handle, device->handle);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &made.units);
    if (outcome == OVERHEAD_NOTHING)
        return result;
    if (outcome == OVERHEAD_CHARGED && contexts_add(&made)) {
        retained[device_number(device)]++;
        *context = made.handle;
        return result;
    }
    UNDO(cuDevicePrimaryCtxRelease_v2, device->handle);
    /* Who retained one that was reset still counts as its user. */
    if (primary_is_active(device->handle))
        UNDO(cuDevicePrimaryCtxReset_v2, device->handle);
    overhead_undone(&overhead, made.units);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice handle)
{
    struct vgpu_device *device;
    CUresult result = contexts_may_create(handle, &device);
    CUcontext made = NULL;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuDevicePrimaryCtxRetain)(context, handle);

    primary_hold();
    result = primary_is_active(handle) ? retain_active(device, &made) : retain_first(device, &made);
    primary_let_go();
    if (result == CUDA_SUCCESS)
        *context = made;
    return result;
}

static CUcontext primary_of(const struct vgpu_device *device)
{
    CUcontext handle = NULL;

    lock_mutex(&contexts.lock);
    for (unsigned i = 1; i <= contexts.last && !handle; i++) {
        if (contexts.rows[i].primary && contexts.rows[i].device == device)
            handle = contexts.rows[i].handle;
    }
    unlock_mutex(&contexts.lock);
    return handle;
}

/* What ends a primary context, perhaps. */
enum primary_end {
    PRIMARY_RELEASE, /* one of those who retained it */
    PRIMARY_RESET,   /* it ends, however often it is retained */
};

/* Whether our call took the primary context along, which we may not even have known. */
static void end_of_primary(const struct vgpu_device *device, enum primary_end how,
                           struct context_ending *ending, CUresult result)
{
    unsigned *count = &retained[device_number(device)];
    bool gone = result == CUDA_SUCCESS && !primary_is_active(device->handle);

    if (result == CUDA_SUCCESS && how == PRIMARY_RELEASE && *count)
        --*count;
    if (ending->row)
        compute_ended(ending->context.handle, gone);
    if (gone && !ending->row)
        context_begin_end(primary_of(device), ending);
    context_finish_end(ending, gone);
}

/* Before such a call: what may end is taken out. */
static void before_end(const struct vgpu_device *device, enum primary_end how,
                       struct context_ending *ret_ending)
{
    CUcontext handle = primary_of(device);

    *ret_ending = (struct context_ending){0};
    if (!handle || (how == PRIMARY_RELEASE && retained[device_number(device)] > 1))
        return;
    compute_ending(handle);
    context_begin_end(handle, ret_ending);
}

typedef CUresult (*primary_fn)(CUdevice device);

static CUresult end_primary(CUdevice handle, primary_fn end, enum primary_end how)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    struct context_ending ending;
    CUresult result;

    if (!device)
        return end(handle);

    primary_hold();
    before_end(device, how, &ending);
    result = end(handle);
    end_of_primary(device, how, &ending, result);
    primary_let_go();
    return result;
}

PUBLIC CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease), PRIMARY_RELEASE);
}

PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease_v2), PRIMARY_RELEASE);
}

PUBLIC CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset), PRIMARY_RESET);
}

PUBLIC CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset_v2), PRIMARY_RESET);
}

CUresult primary_end_green(CUgreenCtx green, const struct vgpu_device *device)
{
    struct context_ending ending;
    CUresult result;

    primary_hold();
    before_end(device, PRIMARY_RELEASE, &ending);
    result = REAL(cuGreenCtxDestroy)(green);
    end_of_primary(device, PRIMARY_RELEASE, &ending, result);
    primary_let_go();
    return result;
}

CUresult primary_detach(CUcontext context, const struct vgpu_device *device)
{
    struct context_ending ending;
    CUresult result;

    primary_hold();
    before_end(device, PRIMARY_RELEASE, &ending);
    result = REAL(cuCtxDetach)(context);
    end_of_primary(device, PRIMARY_RELEASE, &ending, result);
    primary_let_go();
    return result;
}

void primary_add_users(const struct vgpu_device *device, int more)
{
    retained[device_number(device)] += (unsigned)more;
}
