/* SPDX-License-Identifier: Apache-2.0 */

/* Events. */

#include "base/util.h"
#include "simdriver/guest.h"

PUBLIC CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    uint32_t context, i;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!event || (flags & SIM_EVENT_OPENED) ||
        ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;

    (void)sim_lock(guest.sim);
    i = sim_event_new(guest_state(), context, flags);
    if (i)
        *event = guest_event_handle(i, guest_state()->events[i].gen);
    sim_unlock(guest.sim);
    return i ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Locks the machine, moves the event's device on to now. On failure nothing is locked. */
static CUresult enter_event(CUevent handle, struct sim_event **ret_event)
{
    CUresult r = guest_check();
    int64_t now_ns;
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    now_ns = sim_lock(guest.sim);
    if (!guest_find_event(handle, &i)) {
        sim_unlock(guest.sim);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_event = &guest_state()->events[i];
    sim_advance(guest_state(), guest_context((*ret_event)->context)->device, now_ns);
    return CUDA_SUCCESS;
}

static uint32_t index_of(const struct sim_event *event)
{
    return (uint32_t)(event - guest_state()->events);
}

PUBLIC CUresult cuEventDestroy_v2(CUevent handle)
{
    CUresult r = guest_check();
    int64_t now_ns;
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    now_ns = sim_lock(guest.sim);
    if (guest_find_own_event(handle, &i)) {
        sim_advance(guest_state(), guest_context(guest_state()->events[i].context)->device, now_ns);
        guest_uncapture_event(i);
        sim_event_free(guest_state(), i);
    } else {
        r = CUDA_ERROR_INVALID_HANDLE;
    }
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEventDestroy(CUevent handle)
{
    return cuEventDestroy_v2(handle);
}

CUresult guest_record(uint32_t stream, uint32_t e)
{
    struct sim_event *event = &guest_state()->events[e];
    struct sim_op op = {
        .kind = SIM_OP_RECORD,
        .target = e,
        .weight = (event->flags & CU_EVENT_DISABLE_TIMING) != 0,
    };
    const struct sim_stream *st = &guest_state()->streams[stream];
    CUresult r = guest_append(stream, &op);

    if (r != CUDA_SUCCESS)
        return r;
    guest_uncapture_event(e);
    event->time_ns = sim_stream_pending(st) ? 0 : 1;
    event->stream = stream;
    event->stream_gen = st->gen;
    event->seq = st->tail;
    event->work_ns = st->enqueued_ns;
    event->stamp = op.order;
    return CUDA_SUCCESS;
}

static CUresult record_locked(uint32_t stream, CUevent handle, unsigned flags)
{
    const struct sim_state *s = guest_state();
    uint32_t own, event;
    bool captured;
    CUresult r;

    if (!guest_find_own_event(handle, &own) || !guest_find_event(handle, &event) ||
        s->events[own].context != s->streams[stream].context)
        return CUDA_ERROR_INVALID_HANDLE;
    r = guest_capture_record(stream, event, flags, &captured);
    return captured || r != CUDA_SUCCESS ? r : guest_record(stream, event);
}

static CUresult record(CUevent handle, CUstream stream, unsigned flags, bool per_thread)
{
    uint32_t i;
    CUresult r = guest_enter_stream(stream, per_thread, &i);

    if (r != CUDA_SUCCESS)
        return r;
    r = record_locked(i, handle, flags);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return record(event, stream, 0, false);
}

PUBLIC CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return record(event, stream, 0, true);
}

PUBLIC CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    return record(event, stream, flags, false);
}

PUBLIC CUresult cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
    return record(event, stream, flags, true);
}

/* All of the context's work so far, but what streams have that don't block. */
PUBLIC CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    CUresult r = guest_check();
    uint32_t context, legacy;

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_context(handle, &context))
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_advance(guest_state(), guest_context(context)->device, sim_lock(guest.sim));
    r = guest_check_context_wait(context);
    if (r == CUDA_SUCCESS)
        r = guest_find_stream(CU_STREAM_LEGACY, false, context, &legacy);
    if (r == CUDA_SUCCESS)
        r = record_locked(legacy, event, 0);
    sim_unlock(guest.sim);
    return r;
}

static bool is_pending(const struct sim_event *event)
{
    return event->stamp && !event->time_ns;
}

/* As enter_event(), for what asks or waits whether it is done. */
static CUresult enter_event_wait(CUevent handle, struct sim_event **ret_event)
{
    CUresult r = guest_check_safe();

    if (r == CUDA_SUCCESS)
        r = enter_event(handle, ret_event);
    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_event(index_of(*ret_event));
    if (r != CUDA_SUCCESS)
        sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEventQuery(CUevent handle)
{
    struct sim_event *event;
    CUresult r = enter_event_wait(handle, &event);

    if (r != CUDA_SUCCESS)
        return r;
    r = is_pending(event) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEventSynchronize(CUevent handle)
{
    struct sim_event *event;
    CUresult r = enter_event_wait(handle, &event);

    if (r != CUDA_SUCCESS)
        return r;
    if (is_pending(event) && guest_state()->streams[event->stream].gen == event->stream_gen)
        r = guest_wait(event->stream, event->seq, event->work_ns);
    else
        sim_unlock(guest.sim);
    guest_pools_waited();
    return r;
}

static CUresult elapsed(const struct sim_event *from, const struct sim_event *to, float *ret_ms)
{
    if (!from->stamp || !to->stamp || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (is_pending(from) || is_pending(to))
        return CUDA_ERROR_NOT_READY;
    *ret_ms = (float)((double)(to->time_ns - from->time_ns) / (double)NS_PER_MS);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    struct sim_event *to;
    CUresult r = guest_check();
    uint32_t from;

    if (r != CUDA_SUCCESS)
        return r;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    r = enter_event(end, &to);
    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_event(start, &from))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS)
        r = guest_check_event(from);
    if (r == CUDA_SUCCESS)
        r = guest_check_event(index_of(to));
    if (r == CUDA_SUCCESS)
        r = elapsed(&guest_state()->events[from], to, ms);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(ms, start, end);
}
