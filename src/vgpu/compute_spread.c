/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches that run on other devices than their stream's. On each of these a limiter of its own
 * holds and measures them: it looks at the launch's stream, as that device's limiter does, and
 * charges the other one's share. Nothing of ours is put into a stream there: it would stand in a
 * queue with the program's, and hold up what comes behind it.
 */

#include "base/clock.h"
#include "vgpu/compute_row.h"
#include "vgpu/real.h"

enum {
    TRIES = 100, /* where contexts end meanwhile */
};

/* Where the launch waits on one device, it is not measured on another yet. */
static void wait_for_all(const struct compute_spread *spread, const struct launch *launch,
                         bool runs_here)
{
    struct compute_row *row = runs_here ? compute_row_of(spread->context, launch->stream) : NULL;

    if (row)
        compute_wait(row, spread->context, launch);
    for (unsigned i = 0; i < spread->count; i++) {
        row = compute_row_elsewhere(spread->looked_in, spread->asides[i].device);
        if (row)
            compute_wait(row, compute_name_elsewhere(row), launch);
    }
}

static CUresult pay_elsewhere(const struct compute_spread *spread, struct compute_aside *aside,
                              const struct launch *launch)
{
    for (unsigned i = 0; i < TRIES && !aside->paid; i++) {
        struct compute_row *row = compute_row_elsewhere(spread->looked_in, aside->device);

        if (!row)
            return CUDA_ERROR_OUT_OF_MEMORY;
        aside->ticket = (struct compute_ticket){.context = compute_name_elsewhere(row)};
        aside->paid = compute_admit_row(row, aside->ticket.context, launch, &aside->ticket);
    }
    if (!aside->paid)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return aside->ticket.refused;
}

static CUresult pay(struct compute_spread *spread, const struct launch *launch, bool runs_here)
{
    CUresult result = CUDA_SUCCESS;

    if (runs_here) {
        result = compute_admit_in(spread->context, launch, &spread->own);
        spread->paid = result == CUDA_SUCCESS;
    }
    for (unsigned i = 0; i < spread->count && result == CUDA_SUCCESS; i++)
        result = pay_elsewhere(spread, &spread->asides[i], launch);
    /* It may have waited for long, as in compute_admit_in(). */
    return result == CUDA_SUCCESS ? compute_begin_watch() : result;
}

static void note_call(struct compute_ticket *ticket)
{
    if (ticket->row)
        limiter_calls(&ticket->row->limiter, &ticket->ticket);
}

CUresult compute_admit_spread(const struct launch *launch, unsigned devices,
                              struct compute_spread *spread)
{
    struct vgpu_device *device;
    CUresult result;
    unsigned here;

    *spread = (struct compute_spread){0};
    if (vgpu_gives_nothing())
        return CUDA_ERROR_OUT_OF_MEMORY;
    spread->captured = compute_begin_captured(launch->stream, launch->per_thread);
    /* Where the capture is lost in the call, that is paid for on the stream's device. */
    if (spread->captured) {
        spread->own.captured = true;
        spread->own.passed_ns = clock_now_ns();
        return CUDA_SUCCESS;
    }
    spread->context = compute_context_of(launch);
    if (!spread->context)
        return compute_without_context(launch);
    result = compute_stream_device(launch->stream, launch->per_thread, &device);
    if (result != CUDA_SUCCESS)
        return atomic_load(&vgpu.limited_compute) ? result : CUDA_SUCCESS;
    (void)vgpu_refresh();
    result = compute_begin_watch();
    if (result != CUDA_SUCCESS)
        return result;
    spread->looked_in = compute_looked_in(launch->stream, spread->context);
    here = 1u << (device - vgpu.devices);
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (devices & ~here & 1u << i)
            spread->asides[spread->count++].device = &vgpu.devices[i];
    }
    wait_for_all(spread, launch, devices & here);
    result = pay(spread, launch, devices & here);
    note_call(&spread->own);
    for (unsigned i = 0; i < spread->count; i++)
        note_call(&spread->asides[i].ticket);
    return result;
}

void compute_launched_spread(const struct launch *launch, struct compute_spread *spread,
                             CUresult result)
{
    if (spread->captured || spread->paid)
        compute_launched(launch, &spread->own, result);
    for (unsigned i = 0; i < spread->count; i++) {
        spread->asides[i].ticket.is_list = spread->own.is_list;
        if (spread->asides[i].paid)
            compute_launched(launch, &spread->asides[i].ticket, result);
    }
}
