/* SPDX-License-Identifier: Apache-2.0 */

/* Launches that run on other devices than their stream's. */

#include "base/lock.h"
#include "vgpu/compute_row.h"
#include "vgpu/real.h"

/* A row's stream of ours is made with its lock held, while the context lives. */
static void make_stream(struct compute_row *row, CUcontext context)
{
    struct inside inside = compute_enter(context);

    lock_mutex(&row->lock);
    if (row->context == context && !row->aside)
        (void)REAL(cuStreamCreate)(&row->aside, CU_STREAM_NON_BLOCKING);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

/* The place on a device from which a launch there is measured. False: there is no room for one. */
static bool find_aside(struct compute_aside *aside, const struct vgpu_device *device,
                       const struct launch *launch)
{
    struct inside inside;

    *aside = (struct compute_aside){.context = contexts_on(device)};
    if (!aside->context)
        return true;
    inside = compute_enter(aside->context);
    aside->row = compute_row_of(aside->context, NULL);
    compute_leave(&inside);
    if (!aside->row)
        return false;
    make_stream(aside->row, aside->context);
    aside->launch = (struct launch){
        .function = launch->function, .stream = aside->row->aside, .kind = launch->kind};
    return aside->launch.stream != NULL;
}

/*
 * Our streams elsewhere go on when all that is in the launch's stream is done. Nothing is recorded
 * where a capture has begun meanwhile: then the launch is not made, or a part of that.
 */
static bool record(const struct compute_spread *spread, const struct launch *launch)
{
    struct inside inside = compute_enter(spread->context);
    struct compute_row *row = compute_find_row(compute_context_of(launch));
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

    if (row)
        lock_mutex(&row->lock);
    if (!compute_is_capturing(launch))
        result = launch->per_thread && HAS(cuEventRecord_ptsz)
                     ? REAL(cuEventRecord_ptsz)(spread->event, launch->stream)
                     : REAL(cuEventRecord)(spread->event, launch->stream);
    if (row)
        unlock_mutex(&row->lock);
    compute_leave(&inside);
    return result == CUDA_SUCCESS;
}

static void follow(const struct compute_spread *spread, const struct compute_aside *aside)
{
    struct compute_row *row = aside->row;
    struct inside inside = compute_enter(aside->context);

    lock_mutex(&row->lock);
    if (row->context == aside->context && row->aside)
        (void)REAL(cuStreamWaitEvent)(row->aside, spread->event, 0);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

static void follow_all(const struct compute_spread *spread, const struct launch *launch)
{
    if (!spread->count || !record(spread, launch))
        return;
    for (unsigned i = 0; i < spread->count; i++)
        follow(spread, &spread->asides[i]);
}

static CUresult make_event(struct compute_spread *spread)
{
    struct inside inside = compute_enter(spread->context);
    CUresult result = REAL(cuEventCreate)(&spread->event, CU_EVENT_DISABLE_TIMING);

    compute_leave(&inside);
    return result;
}

static CUresult find_asides(struct compute_spread *spread, const struct launch *launch,
                            unsigned devices)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (!(devices & 1u << i))
            continue;
        if (!find_aside(&spread->asides[spread->count], &vgpu.devices[i], launch))
            return CUDA_ERROR_OUT_OF_MEMORY;
        spread->count += spread->asides[spread->count].row != NULL;
    }
    return spread->count ? make_event(spread) : CUDA_SUCCESS;
}

/* Where the launch waits on one device, it is not measured on another yet. */
static void wait_for_all(const struct compute_spread *spread, const struct launch *launch,
                         CUcontext context, bool runs_here)
{
    if (runs_here)
        compute_wait_in(context, launch);
    for (unsigned i = 0; i < spread->count; i++)
        compute_wait_in(spread->asides[i].context, &spread->asides[i].launch);
}

static CUresult pay(struct compute_spread *spread, const struct launch *launch, CUcontext context,
                    bool runs_here)
{
    CUresult result = CUDA_SUCCESS;

    if (runs_here) {
        result = compute_admit_in(context, launch, &spread->own);
        spread->paid = result == CUDA_SUCCESS;
    }
    for (unsigned i = 0; i < spread->count && result == CUDA_SUCCESS; i++) {
        struct compute_aside *aside = &spread->asides[i];

        result = compute_admit_in(aside->context, &aside->launch, &aside->ticket);
        aside->paid = result == CUDA_SUCCESS;
    }
    return result;
}

CUresult compute_admit_spread(const struct launch *launch, unsigned devices,
                              struct compute_spread *spread)
{
    struct vgpu_device *device;
    CUcontext context;
    unsigned here;
    CUresult result;

    *spread = (struct compute_spread){
        .captured = compute_begin_captured(launch->stream, launch->per_thread),
    };
    context = compute_context_of(launch);
    if (spread->captured || !context ||
        compute_stream_device(launch->stream, launch->per_thread, &device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    vgpu_refresh();
    spread->context = compute_looked_in(launch->stream, context);
    here = 1u << (device - vgpu.devices);
    result = find_asides(spread, launch, devices & ~here);
    if (result != CUDA_SUCCESS)
        return result;
    wait_for_all(spread, launch, context, devices & here);
    follow_all(spread, launch);
    return pay(spread, launch, context, devices & here);
}

void compute_launched_spread(const struct launch *launch, struct compute_spread *spread,
                             CUresult result)
{
    struct inside inside;

    if (spread->captured)
        compute_end_captured();
    follow_all(spread, launch);
    if (spread->paid)
        compute_launched(launch, &spread->own, result);
    for (unsigned i = 0; i < spread->count; i++) {
        struct compute_aside *aside = &spread->asides[i];

        if (aside->paid)
            compute_launched(&aside->launch, &aside->ticket, result);
    }
    if (!spread->event)
        return;
    inside = compute_enter(spread->context);
    (void)REAL(cuEventDestroy_v2)(spread->event);
    compute_leave(&inside);
}
