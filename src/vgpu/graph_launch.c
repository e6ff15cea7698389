/* SPDX-License-Identifier: Apache-2.0 */

/* Launching graphs that allocate: what they take is charged before. */

#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/compute.h"
#include "vgpu/grant.h"
#include "vgpu/graph_demand.h"
#include "vgpu/graph_homes.h"
#include "vgpu/graphs.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

enum {
    FLOWN_MOST = 64, /* more at once are launched with the lock */
};

/* What is launched without the lock: where the driver tells that it is there. */
static CUgraphExec _Atomic flown[FLOWN_MOST];

/*
 * Held by launches, from looking up what the graph takes to the driver's answer: a handle may be
 * another graph's after its own has ended. Given up before the driver's call where it takes
 * nothing. Held alone by who makes, changes or ends what may be launched; by who trims; and by a
 * launch that was found to need no more than there is: nobody else's trim gives that back before it
 * is launched. Many that launch don't keep those from it.
 */
static pthread_rwlock_t launching = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

void graphs_after_fork(void)
{
    launching = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    graph_demand_after_fork();
    atomic_store(&graphs_any, false);
    for (unsigned i = 0; i < FLOWN_MOST; i++)
        atomic_store(&flown[i], NULL);
}

bool graphs_begin_change(void)
{
    const bool held = vgpu_mode() == VGPU_ON &&
                      (graphs_allocate() || graph_homes_matter() || HAS(cuGraphExecGetFlags));

    if (held)
        lock_write(&launching);
    return held;
}

bool graphs_begin_end(CUgraphExec exec)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS / 10};
    bool held = graphs_begin_change();

    while (held && graphs_is_flown(exec)) {
        unlock_rwlock(&launching);
        (void)nanosleep(&pause, NULL);
        lock_write(&launching);
    }
    return held;
}

void graphs_end_change(bool held)
{
    if (held)
        unlock_rwlock(&launching);
}

/* Charging */

static bool charge(struct graphs_launch *launch, unsigned i, uint64_t bytes)
{
    struct pool *pool = pool_of_graphs(&vgpu.devices[i]);
    struct grant grant = {.device = &vgpu.devices[i], .units = ledger_units(bytes)};

    if (!pool || !grant_try(&grant))
        return false;
    pools_lock();
    pool->advance += grant.units;
    pools_unlock();
    launch->advances[i] = grant.units;
    launch->charged[i] = true;
    return true;
}

/* What graphs of the device have taken is charged to the advance, or as it is. */
static void end_device(struct graphs_launch *launch, unsigned i)
{
    struct pool *pool = pool_of_graphs(&vgpu.devices[i]);

    if (!pool)
        return;
    pools_lock();
    (void)pool_give_back(pool);
    if (!pool_take_in(pool, &launch->advances[i]))
        pool_charge_anyway(pool);
    pool->advance -= launch->advances[i];
    pools_unlock();
    if (launch->advances[i])
        vgpu_discharge(&vgpu.devices[i], VGPU_DATA, launch->advances[i]);
    if (launch->charged[i])
        grant_end_moving(&vgpu.devices[i]);
    launch->advances[i] = 0;
    launch->charged[i] = false;
}

static void end_all(struct graphs_launch *launch)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (launch->takes[i])
            end_device(launch, i);
    }
}

static bool charge_all(struct graphs_launch *launch, const struct graph_demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (!demand->bytes[i] || charge(launch, i, demand->bytes[i]))
            continue;
        end_all(launch);
        return false;
    }
    return true;
}

/* Near the limit */

/* What the device's graphs have beyond what is charged is charged: false when there is no room. */
static bool take_in(struct vgpu_device *device)
{
    struct pool *pool = pool_of_graphs(device);
    uint64_t none = 0;
    bool fits;

    if (!pool)
        return false;
    pools_lock();
    (void)pool_give_back(pool);
    fits = pool_take_in(pool, &none);
    pools_unlock();
    return fits;
}

static void trim(struct vgpu_device *device)
{
    struct pool *pool = pool_of_graphs(device);
    struct real_relaxed relaxed = real_relax();

    (void)REAL(cuDeviceGraphMemTrim)(device->handle);
    real_end_relaxed(&relaxed);
    if (!pool)
        return;
    pools_lock();
    (void)pool_give_back(pool);
    pool_charge_anyway(pool);
    pools_unlock();
}

/* The largest piece alone must fit, in what graphs have and what is free. */
static bool may_fit(const struct vgpu_device *device, uint64_t largest)
{
    uint64_t limit = atomic_load(&device->limit_units);
    struct pool *pool = pool_of_graphs((struct vgpu_device *)(uintptr_t)device);
    uint64_t others = ledger_total(vgpu.region.ext, device->index);

    if (!pool)
        return false;
    others -= MIN(others, atomic_load(&pool->charged));
    return ledger_units(largest) <= limit - MIN(limit, others);
}

/* No capture minds. */
static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct real_relaxed relaxed = real_relax();
    CUresult result =
        per_thread ? REAL(cuGraphUpload_ptsz)(exec, stream) : REAL(cuGraphUpload)(exec, stream);

    real_end_relaxed(&relaxed);
    return result;
}

static CUresult try_upload(const struct graph_demand *demand, CUgraphExec exec, CUstream stream,
                           bool per_thread)
{
    CUresult result = upload(exec, stream, per_thread);
    bool fits = true;

    lock_hold_faults();
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !take_in(&vgpu.devices[i]))
            fits = false;
    }
    if (result == CUDA_SUCCESS && fits)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i])
            trim(&vgpu.devices[i]);
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* With memory that other graphs left, then without. */
static CUresult upload_within_limit(const struct graph_demand *demand, CUgraphExec exec,
                                    CUstream stream, bool per_thread)
{
    CUresult result;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !may_fit(&vgpu.devices[i], demand->largest[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!lock_hold_signals())
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    if (region_try(&vgpu.region) == 0) {
        result = try_upload(demand, exec, stream, per_thread);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            result = try_upload(demand, exec, stream, per_thread);
        region_tried(&vgpu.region);
    }
    lock_release_signals();
    return result;
}

/* Launches and uploads */

static bool is_granted(const struct graph_demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !vgpu.devices[i].granted)
            return false;
    }
    return true;
}

/* Also of a capture that is invalid: an upload would be one error more. A graph that allocates
 * can't be captured; until the driver says so, the capture could end with its thread. */
static bool is_captured(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status)
                                 : REAL(cuStreamIsCapturing)(stream, &status);

    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void note_takes(struct graphs_launch *launch, const struct graph_demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        launch->takes[i] = demand->bytes[i] > 0;
}

static void count_refusals(const struct graphs_launch *launch)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (launch->takes[i])
            vgpu_count_refusal(&vgpu.devices[i], REGION_REFUSAL_DATA);
    }
}

/* With the lock held alone, for which it was let go of: the graph may be another one since. */
static CUresult begin_alone(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                            bool per_thread)
{
    struct graph_demand demand;
    CUresult result;

    if (!graph_demand_look(exec, &demand))
        return CUDA_SUCCESS;
    note_takes(launch, &demand);
    if (!is_granted(&demand))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = upload_within_limit(&demand, exec, stream, per_thread);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        count_refusals(launch);
    return result;
}

static CUresult begin_locked(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                             bool per_thread)
{
    struct graph_demand demand;

    if (!graph_demand_look(exec, &demand))
        return CUDA_SUCCESS;
    if (is_captured(stream, per_thread))
        return CUDA_ERROR_NOT_SUPPORTED;
    note_takes(launch, &demand);
    if (!is_granted(&demand))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (charge_all(launch, &demand))
        return CUDA_SUCCESS;
    unlock_rwlock(&launching);
    lock_write(&launching);
    return begin_alone(launch, exec, stream, per_thread);
}

CUresult graphs_begin_launch(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                             bool per_thread)
{
    CUresult result;

    *launch = (struct graphs_launch){0};
    if (vgpu_gives_nothing())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON)
        return CUDA_SUCCESS;
    lock_read(&launching);
    result = begin_locked(launch, exec, stream, per_thread);
    launch->held = result == CUDA_SUCCESS;
    if (!launch->held)
        unlock_rwlock(&launching);
    return result;
}

static bool takes_any(const struct graphs_launch *launch)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (launch->takes[i])
            return true;
    }
    return false;
}

void graphs_let_go(struct graphs_launch *launch, CUgraphExec exec)
{
    cuuint64_t flags;

    if (!launch->held || !HAS(cuGraphExecGetFlags) || takes_any(launch) ||
        REAL(cuGraphExecGetFlags)(exec, &flags) != CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < FLOWN_MOST && !launch->flown; i++) {
        CUgraphExec none = NULL;

        if (atomic_compare_exchange_strong(&flown[i], &none, exec))
            launch->flown = &flown[i];
    }
    if (!launch->flown)
        return;
    lock_hold_cancel();
    unlock_rwlock(&launching);
}

bool graphs_is_flown(CUgraphExec exec)
{
    bool any = false;

    for (unsigned i = 0; i < FLOWN_MOST; i++)
        any |= exec && atomic_load(&flown[i]) == exec;
    return any;
}

void graphs_end_launch(struct graphs_launch *launch)
{
    if (!launch->held)
        return;
    if (launch->flown) {
        atomic_store(launch->flown, NULL);
        lock_release_cancel();
        return;
    }
    end_all(launch);
    unlock_rwlock(&launching);
}

/* What the driver says of calls that a captured stream forbids, and its capture is invalid from
 * then on: by one that takes nothing, should the capture have ended meanwhile. That one would be
 * refused for others' captures, too. */
static CUresult forbid_in_capture(CUstream stream, bool per_thread)
{
    struct real_relaxed relaxed = real_relax();
    CUresult result = per_thread ? REAL(cuStreamQuery_ptsz)(stream) : REAL(cuStreamQuery)(stream);

    real_end_relaxed(&relaxed);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_NOT_SUPPORTED
                                                                    : result;
}

CUresult graphs_upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct graphs_launch launch;
    CUresult result = graphs_begin_launch(&launch, exec, stream, per_thread);

    if (result == CUDA_ERROR_NOT_SUPPORTED)
        return forbid_in_capture(stream, per_thread);
    if (result != CUDA_SUCCESS)
        return result;
    graphs_let_go(&launch, exec);
    result =
        per_thread ? REAL(cuGraphUpload_ptsz)(exec, stream) : REAL(cuGraphUpload)(exec, stream);
    graphs_end_launch(&launch);
    return result;
}

PUBLIC CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)real_driver();
    return graphs_upload(exec, stream, false);
}

PUBLIC CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    (void)real_driver();
    return graphs_upload(exec, stream, true);
}

PUBLIC CUresult cuDeviceGraphMemTrim(CUdevice handle)
{
    struct vgpu_device *device;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !graphs_allocate())
        return REAL(cuDeviceGraphMemTrim)(handle);
    lock_write(&launching);
    result = REAL(cuDeviceGraphMemTrim)(handle);
    device = vgpu_device(handle);
    if (device)
        (void)pools_settle(device);
    unlock_rwlock(&launching);
    return result;
}
