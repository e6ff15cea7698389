/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/contexts.h"

#include <string.h>

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"

/* A row's number is the context's; 0 is none. */
struct context {
    CUcontext handle; /* NULL: free */
    struct vgpu_device *device;
    uint64_t units; /* charged for the context itself */
};

static struct {
    pthread_mutex_t lock;
    struct context rows[CONTEXTS_MAX];
    unsigned end; /* rows in use lie below */
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = 1};

_Atomic unsigned contexts_live;

/* Held over retaining and releasing a primary context, so that its coming and going are seen in
 * order. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

/* The primary contexts, which the driver counts: made by the first to retain one, gone with the
 * last. */
static struct {
    CUcontext handle;
    unsigned retained;
} primaries[REGION_DEVICES];

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
    memset(primaries, 0, sizeof(primaries));
    (void)pthread_mutex_init(&contexts.lock, NULL);
    (void)pthread_mutex_init(&primary_lock, NULL);
    overhead_after_fork();
    contexts.end = 1;
    atomic_store(&contexts_live, 0);
    atomic_fetch_add(&contexts_epoch_now, 1);
}

static unsigned find_row(CUcontext handle)
{
    for (unsigned i = 1; i < contexts.end; i++) {
        if (contexts.rows[i].handle == handle)
            return i;
    }
    return 0;
}

/* With the lock held. 0 when the table is full. */
static unsigned enter(CUcontext handle, struct vgpu_device *device, uint64_t units)
{
    unsigned row = find_row(handle);

    if (!row)
        row = find_row(NULL);
    if (!row && contexts.end < CONTEXTS_MAX)
        row = contexts.end++;
    if (!row)
        return 0;

    if (!contexts.rows[row].handle)
        atomic_fetch_add(&contexts_live, 1);
    contexts.rows[row] = (struct context){.handle = handle, .device = device, .units = units};
    atomic_fetch_add(&contexts_epoch_now, 1);
    return row;
}

static unsigned add_context(CUcontext handle, struct vgpu_device *device, uint64_t units)
{
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = enter(handle, device, units);
    (void)pthread_mutex_unlock(&contexts.lock);
    return row;
}

static unsigned known_or_new(CUcontext handle)
{
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = find_row(handle);
    if (!row)
        row = enter(handle, vgpu_current_device(), 0);
    (void)pthread_mutex_unlock(&contexts.lock);
    return row;
}

unsigned context_current(void)
{
    unsigned now = contexts_epoch();
    CUcontext handle;

    if (REAL(cuCtxGetCurrent)(&handle) != CUDA_SUCCESS || !handle)
        return 0;
    if (last.handle == handle && last.epoch == now)
        return last.number;

    last.number = known_or_new(handle);
    last.handle = handle;
    last.epoch = now;
    return last.number;
}

/* What is gone with a context: itself, its code, and every allocation made in it. */
static void forget(CUcontext handle)
{
    struct context gone = {0};
    uint64_t data, code;
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = find_row(handle);
    if (row) {
        gone = contexts.rows[row];
        contexts.rows[row].handle = NULL;
        atomic_fetch_sub(&contexts_live, 1);
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    (void)pthread_mutex_unlock(&contexts.lock);
    if (!row || !gone.device)
        return;

    allocations_take_context(ALLOCATION_ADDRESS, row, &data);
    allocations_take_context(ALLOCATION_MODULE, row, &code);
    vgpu_discharge(gone.device, VGPU_DATA, data);
    vgpu_discharge(gone.device, VGPU_MODULE, code);
    vgpu_discharge(gone.device, VGPU_CONTEXT, gone.units);
}

/* What to answer instead of making a context here; CUDA_SUCCESS to go on. No device: nothing to
 * account. */
static CUresult may_create(CUdevice handle, struct vgpu_device **ret_device)
{
    enum vgpu_mode mode = vgpu_mode();

    *ret_device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (mode != VGPU_ON)
        return CUDA_SUCCESS;

    *ret_device = vgpu_device(handle);
    return *ret_device && !(*ret_device)->granted ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* The five functions that make a context differ in their arguments only. */
struct making {
    CUcontext *context;
    CUcontext made;
    struct vgpu_device *device;
    struct overhead overhead;
};

static CUresult begin_context(struct making *making, CUcontext *context, CUdevice handle)
{
    CUresult result;

    *making = (struct making){.context = context};
    result = may_create(handle, &making->device);
    if (result != CUDA_SUCCESS)
        return result;

    if (!context)
        making->device = NULL;
    if (making->device && !overhead_begin(&making->overhead, making->device, VGPU_CONTEXT))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Where the driver shall put the context: not before it is granted into the caller's variable. */
static CUcontext *context_target(struct making *making)
{
    return making->device ? &making->made : making->context;
}

static CUresult end_context(struct making *making, CUresult result)
{
    enum overhead_outcome outcome;
    uint64_t units;

    if (!making->device)
        return result;

    outcome = overhead_end(&making->overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        (void)REAL(cuCtxDestroy_v2)(making->made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (outcome == OVERHEAD_CHARGED) {
        (void)add_context(making->made, making->device, units);
        *making->context = making->made;
    }
    return result;
}

PUBLIC CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v2)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinities,
                               unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v3)(context_target(&making), affinity, affinities,
                                                     flags, device));
}

PUBLIC CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making,
                       REAL(cuCtxCreate_v4)(context_target(&making), params, flags, device));
}

static unsigned device_number(const struct vgpu_device *device)
{
    return (unsigned)(device - vgpu.devices);
}

static bool primary_is_active(CUdevice device)
{
    unsigned int flags;
    int active = 0;

    return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult retain_active(const struct vgpu_device *device, CUcontext *context)
{
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device->handle);

    if (result == CUDA_SUCCESS)
        primaries[device_number(device)].retained++;
    return result;
}

static CUresult retain_first(struct vgpu_device *device, CUcontext *context)
{
    enum overhead_outcome outcome;
    struct overhead overhead;
    CUcontext made;
    CUresult result;
    uint64_t units;

    if (!overhead_begin(&overhead, device, VGPU_CONTEXT))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuDevicePrimaryCtxRetain)(&made, device->handle);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        (void)REAL(cuDevicePrimaryCtxRelease_v2)(device->handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (outcome == OVERHEAD_CHARGED) {
        primaries[device_number(device)].handle = made;
        primaries[device_number(device)].retained = 1;
        (void)add_context(made, device, units);
        *context = made;
    }
    return result;
}

PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice handle)
{
    struct vgpu_device *device;
    CUresult result = may_create(handle, &device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuDevicePrimaryCtxRetain)(context, handle);

    (void)pthread_mutex_lock(&primary_lock);
    result =
        primary_is_active(handle) ? retain_active(device, context) : retain_first(device, context);
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

typedef CUresult (*primary_fn)(CUdevice device);

/* A release, or a reset, which ends the context however often it is retained. */
static CUresult end_primary(CUdevice handle, primary_fn end, bool reset)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    unsigned number;
    CUresult result;

    if (!device)
        return end(handle);

    number = device_number(device);
    (void)pthread_mutex_lock(&primary_lock);
    if (primaries[number].handle && (reset || primaries[number].retained <= 1))
        compute_forget(primaries[number].handle);
    result = end(handle);
    if (result == CUDA_SUCCESS && !reset && primaries[number].retained)
        primaries[number].retained--;
    if (result == CUDA_SUCCESS && primaries[number].handle && !primary_is_active(handle)) {
        forget(primaries[number].handle);
        primaries[number].handle = NULL;
        primaries[number].retained = 0;
    }
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

PUBLIC CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease), false);
}

PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease_v2), false);
}

PUBLIC CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset), true);
}

PUBLIC CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset_v2), true);
}

typedef CUresult (*destroy_fn)(CUcontext context);

static CUresult end_context_of(CUcontext context, destroy_fn destroy)
{
    bool ours = vgpu_mode() == VGPU_ON && context;
    CUresult result;

    if (ours)
        compute_forget(context);
    result = destroy(context);
    if (ours && result == CUDA_SUCCESS)
        forget(context);
    return result;
}

PUBLIC CUresult cuCtxDestroy(CUcontext context)
{
    (void)real_driver();
    return end_context_of(context, REAL(cuCtxDestroy));
}

PUBLIC CUresult cuCtxDestroy_v2(CUcontext context)
{
    (void)real_driver();
    return end_context_of(context, REAL(cuCtxDestroy_v2));
}

PUBLIC CUresult cuCtxDetach(CUcontext context)
{
    (void)real_driver();
    return end_context_of(context, REAL(cuCtxDetach));
}

/* A green context is a part of the device's primary one; what it takes is charged as code is. */
PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice handle,
                                 unsigned int flags)
{
    struct vgpu_device *device;
    CUresult result = may_create(handle, &device);
    enum overhead_outcome outcome;
    struct overhead overhead;
    uint64_t units;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    if (!overhead_begin(&overhead, device, VGPU_MODULE))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        (void)REAL(cuGreenCtxDestroy)(*context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (outcome == OVERHEAD_CHARGED)
        overhead_remember(*context, device, units);
    return result;
}

PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    CUresult result;

    (void)real_driver();
    result = REAL(cuGreenCtxDestroy)(context);
    if (result == CUDA_SUCCESS)
        overhead_forget(context);
    return result;
}
