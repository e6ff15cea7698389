/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Making streams. Each takes device memory (557 KiB on an H100, driver 580), of which the driver
 * tells nobody, and which its context keeps for later ones when a stream ends. Of few that is found
 * as any hidden memory, a tenth of a second later; each sixteenth on a device, and each one near
 * its limit, is measured as what code takes is, and undone beyond the limit. Which of them have an
 * ended one's memory nobody tells, so those that end don't count: that costs who makes and ends
 * streams all the time a sixteenth of a question to NVML for each.
 */

#include "region/ledger.h"
#include "vgpu/code.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"

enum {
    MANY_STREAMS = 16,
    NEAR_UNITS = (16 << 20) / LEDGER_UNIT, /* more than so many take */
};

static _Atomic unsigned unmeasured[REGION_DEVICES]; /* streams, since the last that was */

struct making {
    struct vgpu_device *device; /* NULL: nothing to account */
    bool measured;
    struct overhead overhead;
};

static _Atomic unsigned *unmeasured_on(const struct vgpu_device *device)
{
    return &unmeasured[device - vgpu.devices];
}

static bool is_near(const struct vgpu_device *device)
{
    return ledger_total(vgpu.region.ext, device->index) + NEAR_UNITS >
           atomic_load(&device->limit_units);
}

/* False: more is charged than the limit. */
static bool begin_making(struct making *making, struct vgpu_device *device)
{
    making->device = device;
    making->measured = false;
    if (!device)
        return true;
    if (hidden_is_full(device)) {
        vgpu_count_refusal(device, REGION_REFUSAL_CODE);
        return false;
    }
    making->measured =
        atomic_fetch_add(unmeasured_on(device), 1) + 1 >= MANY_STREAMS || is_near(device);
    return !making->measured || overhead_begin(&making->overhead, device, OVERHEAD_CODE, 0);
}

/* What was measured goes with the context, though no stream may: by a handle that is none. */
static void remember(const struct vgpu_device *device, uint64_t units, unsigned context)
{
    static _Atomic uintptr_t measured;

    if (units)
        code_remember((void *)(2 * ++measured + 1), device, units, context);
}

/* What exceeds the limit the context keeps: it stays charged, and until there is room no more are
 * made. */
static CUresult end_measured(struct making *making, CUstream made, CUresult result,
                             unsigned context)
{
    uint64_t units;

    switch (overhead_end(&making->overhead, result == CUDA_SUCCESS, &units)) {
    case OVERHEAD_REFUSED:
        (void)REAL(cuStreamDestroy_v2)(made);
        overhead_undone(&making->overhead, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    case OVERHEAD_CHARGED:
        atomic_store(unmeasured_on(making->device), 0);
        remember(making->device, units, context);
        return result;
    default:
        return result;
    }
}

/* One of the driver's functions. */
struct wanted {
    enum real_index by;
    CUgreenCtx green;
    unsigned flags;
    int priority;
};

static CUresult ask_driver(const struct wanted *wanted, CUstream *stream)
{
    if (wanted->by == REAL_cuStreamCreate)
        return REAL(cuStreamCreate)(stream, wanted->flags);
    if (wanted->by == REAL_cuStreamCreateWithPriority)
        return REAL(cuStreamCreateWithPriority)(stream, wanted->flags, wanted->priority);
    return REAL(cuGreenCtxStreamCreate)(stream, wanted->green, wanted->flags, wanted->priority);
}

/* The caller's is written when all is well. */
static CUresult make(CUstream *stream, struct vgpu_device *device, const struct wanted *wanted)
{
    CUstream made = NULL;
    struct making making;
    CUresult result;

    if (!begin_making(&making, device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = ask_driver(wanted, stream ? &made : NULL);
    if (making.measured)
        result = end_measured(&making, made, result, wanted->green ? 0 : context_current());
    else if (device)
        hidden_look_soon();
    if (result == CUDA_SUCCESS)
        *stream = made;
    return result;
}

static CUresult make_in_current(CUstream *stream, const struct wanted *wanted)
{
    struct vgpu_device *device;
    CUresult result = vgpu_find_granted(&device);

    return result == CUDA_SUCCESS ? make(stream, device, wanted) : result;
}

PUBLIC CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return make_in_current(stream, &(struct wanted){REAL_cuStreamCreate, NULL, flags, 0});
}

PUBLIC CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return make_in_current(
        stream, &(struct wanted){REAL_cuStreamCreateWithPriority, NULL, flags, priority});
}

/* On the green context's device, whatever is current. */
PUBLIC CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                       int priority)
{
    struct vgpu_device *device;
    struct allocation entry;

    if (allocations_look(ALLOCATION_MODULE, (uint64_t)(uintptr_t)green, &entry))
        device = &vgpu.devices[entry.device];
    else if (vgpu_find_granted(&device) == CUDA_ERROR_OUT_OF_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return make(stream, device,
                &(struct wanted){REAL_cuGreenCtxStreamCreate, green, flags, priority});
}
