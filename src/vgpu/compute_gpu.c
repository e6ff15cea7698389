/* SPDX-License-Identifier: Apache-2.0 */

/* The driver, as the limiter sees it, and how we look into contexts of others. */

#include "base/clock.h"
#include "base/glibc.h"
#include "vgpu/compute_row.h"
#include "vgpu/real.h"

#define WAIT_TRIES 4
#define WAIT_LONGEST_NS INT64_C(100000)

struct inside compute_enter(CUcontext context)
{
    struct inside inside = {.relaxed = real_relax()};
    CUcontext current = NULL;

    (void)REAL(cuCtxGetCurrent)(&current);
    inside.pushed = current != context && REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
    return inside;
}

void compute_leave(struct inside *inside)
{
    CUcontext popped;

    if (inside->pushed)
        (void)REAL(cuCtxPopCurrent_v2)(&popped);
    real_end_relaxed(&inside->relaxed);
}

CUcontext compute_looked_in(CUstream stream, CUcontext context)
{
    CUcontext primary = NULL;
    CUgreenCtx green = NULL;

    if (!HAS(cuStreamGetCtx_v2) ||
        REAL(cuStreamGetCtx_v2)(stream, &primary, &green) != CUDA_SUCCESS || !green || !primary)
        return context;
    return primary;
}

static bool is_out_of_sight(const struct compute_row *row, const struct launch *where)
{
    CUcontext current = NULL;

    return row->looked_in != row->context && !row->elsewhere && !compute_has_name(where->stream) &&
           (REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current != row->context);
}

bool compute_is_capturing(const struct launch *launch)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_SUCCESS;

    if (launch->per_thread && HAS(cuStreamIsCapturing_ptsz))
        result = REAL(cuStreamIsCapturing_ptsz)(launch->stream, &status);
    else if (HAS(cuStreamIsCapturing))
        result = REAL(cuStreamIsCapturing)(launch->stream, &status);
    /* The legacy stream while a blocking one is captured: nothing may be done in it. */
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static int64_t gpu_now(void *gpu)
{
    (void)gpu;
    return clock_now_ns();
}

static void *gpu_event(void *gpu)
{
    CUevent event;

    if (REAL(cuEventCreate)(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    compute_note_event(gpu, event);
    return event;
}

/*
 * A stream of our own in which nothing is, or NULL. A program that guesses its handle could put a
 * wait there: what is recorded behind that tells nothing of when the device was ours.
 */
static CUstream idle_stream(const struct compute_row *row)
{
    for (unsigned i = 0; i < row->idle_count; i++) {
        CUstream stream = row->idle_streams[(row->idle_at + i) % row->idle_count];

        if (REAL(cuStreamQuery)(stream) == CUDA_SUCCESS)
            return stream;
    }
    return NULL;
}

static bool gpu_record(void *gpu, void *event, const struct launch *where)
{
    const struct compute_row *row = gpu;

    if (!where) {
        CUstream stream = idle_stream(row);

        return stream && REAL(cuEventRecord)(event, stream) == CUDA_SUCCESS;
    }
    if (is_out_of_sight(row, where) || compute_is_capturing(where))
        return false;
    return (where->per_thread && REAL(cuEventRecord_ptsz)
                ? REAL(cuEventRecord_ptsz)(event, where->stream)
                : REAL(cuEventRecord)(event, where->stream)) == CUDA_SUCCESS;
}

static enum event_state gpu_query(void *gpu, void *event)
{
    CUresult result = REAL(cuEventQuery)(event);

    (void)gpu;
    if (result == CUDA_SUCCESS)
        return EVENT_DONE;
    return result == CUDA_ERROR_NOT_READY ? EVENT_NOT_YET : EVENT_BROKEN;
}

static bool gpu_elapsed(void *gpu, void *from, void *to, double *ret_ms)
{
    float ms;

    (void)gpu;
    if (REAL(cuEventElapsedTime)(&ms, from, to) != CUDA_SUCCESS)
        return false;
    *ret_ms = (double)ms;
    return true;
}

static bool gpu_is_idle(void *gpu, const struct launch *where)
{
    if (is_out_of_sight(gpu, where) || compute_is_capturing(where))
        return true;
    if (where->per_thread && HAS(cuStreamQuery_ptsz))
        return REAL(cuStreamQuery_ptsz)(where->stream) == CUDA_SUCCESS;
    return REAL(cuStreamQuery) && REAL(cuStreamQuery)(where->stream) == CUDA_SUCCESS;
}

bool compute_stream_is_sound(const struct launch *where)
{
    CUresult result = where->per_thread && HAS(cuStreamQuery_ptsz)
                          ? REAL(cuStreamQuery_ptsz)(where->stream)
                          : REAL(cuStreamQuery)(where->stream);

    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
}

static bool gpu_asks_others(void *gpu)
{
    (void)gpu;
    return atomic_load(&compute_joins) == 0;
}

static bool gpu_is_captured(void *gpu, const struct launch *where)
{
    (void)gpu;
    return compute_is_capturing(where);
}

static bool is_done_by(void *gpu, void *event, int64_t until_ns)
{
    enum event_state state;

    do
        state = gpu_query(gpu, event);
    while (state == EVENT_NOT_YET && clock_now_ns() < until_ns);
    return state == EVENT_DONE;
}

/* Our stream is idle, but may stand in a queue of the device behind a stream that waits, perhaps
 * for the caller. */
static int64_t gpu_wait(void *gpu, void *event)
{
    int64_t least_ns = INT64_MAX;

    for (unsigned i = 0; i < WAIT_TRIES; i++) {
        int64_t began_ns = clock_now_ns();

        if (!gpu_record(gpu, event, NULL) || !is_done_by(gpu, event, began_ns + WAIT_LONGEST_NS))
            return 0;
        least_ns = MIN(least_ns, clock_now_ns() - began_ns);
    }
    return least_ns;
}

const struct limiter_gpu compute_gpu = {
    .now_ns = gpu_now,
    .make_event = gpu_event,
    .record = gpu_record,
    .query = gpu_query,
    .elapsed_ms = gpu_elapsed,
    .is_idle = gpu_is_idle,
    .asks_others = gpu_asks_others,
    .is_captured = gpu_is_captured,
    .wait_ns = gpu_wait,
};
