/* SPDX-License-Identifier: Apache-2.0 */

/* Streams, and waiting for them. */

#include "base/util.h"
#include "simdriver/green.h"
#include "simdriver/guest.h"

static int8_t priorities[SIM_STREAMS]; /* of those with a handle; under the machine's lock */

uint32_t guest_stream_new(uint32_t context, unsigned flags, int priority)
{
    uint32_t *spare = &guest.spare_streams[context], i;

    if (!*spare) {
        if (!guest_charge_own_locked(context, (uint64_t)guest_state()->header.driver.stream_bytes))
            return 0;
        *spare = 1;
    }
    i = sim_stream_new(guest_state(), context, flags);
    *spare -= i != 0;
    priorities[i] =
        (int8_t)MIN(MAX(priority, (int)GUEST_PRIORITY_GREATEST), (int)GUEST_PRIORITY_LEAST);
    return i;
}

PUBLIC CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    uint32_t context, i;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!stream || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;

    (void)sim_lock(guest.sim);
    i = guest_stream_new(context, flags, priority);
    if (i) {
        green_note_stream(i);
        *stream = guest_stream_handle(i);
    }
    sim_unlock(guest.sim);
    return i ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, GUEST_PRIORITY_LEAST);
}

PUBLIC CUresult cuStreamDestroy_v2(CUstream stream)
{
    uint32_t i;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;

    (void)sim_lock(guest.sim);
    r = guest_find_stream(stream, false, 0, &i);
    if (r == CUDA_SUCCESS || r == CUDA_ERROR_STREAM_DETACHED) {
        r = CUDA_SUCCESS;
        sim_advance(guest_state(), guest_context(guest_state()->streams[i].context)->device,
                    sim_now(guest_state()));
        guest_drop_capture(i);
        guest.spare_streams[guest_state()->streams[i].context]++;
        sim_stream_free(guest_state(), i);
    }
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

/* The legacy stream is done when the blocking streams are. */
static bool is_done(uint32_t stream)
{
    const struct sim_state *s = guest_state();
    const struct sim_context *c = &s->contexts[s->streams[stream].context];
    bool done = !sim_stream_pending(&s->streams[stream]);

    if (stream != c->legacy)
        return done;
    for (uint32_t i = c->streams; i; i = s->streams[i].sibling)
        done = done && (s->streams[i].flags || !sim_stream_pending(&s->streams[i]));
    return done;
}

/* For what asks or waits whether the stream is done. */
static CUresult enter_wait(CUstream stream, bool per_thread, uint32_t *ret_stream)
{
    CUresult r = guest_check_safe();

    if (r == CUDA_SUCCESS)
        r = guest_enter_stream(stream, per_thread, ret_stream);
    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_wait(*ret_stream);
    if (r != CUDA_SUCCESS)
        sim_unlock(guest.sim);
    return r;
}

static CUresult query(CUstream stream, bool per_thread)
{
    uint32_t i;
    CUresult r = enter_wait(stream, per_thread, &i);

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_done(i))
        r = CUDA_ERROR_NOT_READY;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamQuery(CUstream stream)
{
    return query(stream, false);
}

PUBLIC CUresult cuStreamQuery_ptsz(CUstream stream)
{
    return query(stream, true);
}

static CUresult synchronize(CUstream stream, bool per_thread)
{
    const struct sim_stream *st;
    uint32_t i;
    CUresult r = enter_wait(stream, per_thread, &i);

    if (r != CUDA_SUCCESS)
        return r;
    st = &guest_state()->streams[i];
    if (i == guest_context(st->context)->legacy)
        sim_join_legacy(guest_state(), i);
    r = guest_wait(i, st->tail, st->enqueued_ns);
    guest_pools_waited();
    return r;
}

PUBLIC CUresult cuStreamSynchronize(CUstream stream)
{
    return synchronize(stream, false);
}

PUBLIC CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return synchronize(stream, true);
}

/* The latest of the estimates for what was enqueued up to that order; 0 when all that is done. */
static int64_t estimate_context(uint32_t context, uint64_t order)
{
    struct sim_state *s = guest_state();
    int64_t latest_ns = 0;

    for (uint32_t i = s->contexts[context].streams; i; i = s->streams[i].sibling) {
        const struct sim_stream *st = &s->streams[i];

        if (!sim_stream_pending(st) || sim_stream_head(s, i)->order > order)
            continue;
        latest_ns = MAX(latest_ns, sim_estimate(s, i, st->tail, st->enqueued_ns));
    }
    return latest_ns;
}

/* Locked before, unlocked after. */
static void wait_context_locked(uint32_t context)
{
    const struct sim_context *c = guest_context(context);
    uint64_t order = guest_state()->orders;
    uint32_t gen = c->gen;

    while (c->gen == gen && !guest_is_faulted()) {
        int64_t until_ns = estimate_context(context, order);

        if (!until_ns)
            break;
        sim_unlock(guest.sim);
        guest_sleep(until_ns);
        sim_advance(guest_state(), c->device, sim_lock(guest.sim));
    }
    sim_unlock(guest.sim);
}

void guest_wait_context(uint32_t context)
{
    sim_advance(guest_state(), guest_context(context)->device, sim_lock(guest.sim));
    wait_context_locked(context);
}

static CUresult synchronize_context(uint32_t context)
{
    CUresult r;

    sim_advance(guest_state(), guest_context(context)->device, sim_lock(guest.sim));
    r = guest_check_context_wait(context);
    if (r != CUDA_SUCCESS) {
        sim_unlock(guest.sim);
        return r;
    }
    wait_context_locked(context);
    guest_pools_waited();
    return guest_check();
}

PUBLIC CUresult cuCtxSynchronize(void)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    return r == CUDA_SUCCESS ? synchronize_context(context) : r;
}

PUBLIC CUresult cuCtxSynchronize_v2(CUcontext handle)
{
    uint32_t context;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    return guest_find_context(handle, &context) ? synchronize_context(context)
                                                : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult guest_wait_event(uint32_t stream, uint32_t e)
{
    const struct sim_event *event = &guest_state()->events[e];
    struct sim_op op = {
        .kind = SIM_OP_WAIT, .target = event->stream, .gen = event->stream_gen, .seq = event->seq};

    return event->stamp ? guest_append(stream, &op) : CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent handle, unsigned flags, bool per_thread)
{
    bool captured = false;
    uint32_t i, e;
    CUresult r = guest_enter_stream(stream, per_thread, &i);

    if (r != CUDA_SUCCESS)
        return r;
    r = guest_find_event(handle, &e) ? guest_capture_wait(i, e, flags, &captured)
                                     : CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS && !captured)
        r = guest_wait_event(i, e);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    return wait_event(stream, event, flags, false);
}

PUBLIC CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    return wait_event(stream, event, flags, true);
}

static bool has_handle(CUstream stream)
{
    return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

/* A stream that has a handle needs no current context to be found. Locked when it was. */
static CUresult enter_any(CUstream handle, bool per_thread, uint32_t *ret_stream)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!has_handle(handle))
        return guest_enter_stream(handle, per_thread, ret_stream);
    (void)sim_lock(guest.sim);
    r = guest_find_stream(handle, per_thread, 0, ret_stream);
    if (r != CUDA_SUCCESS)
        sim_unlock(guest.sim);
    return r;
}

/*
 * The context in which a stream was made; of the streams without a handle, the current one. Of one
 * of a green context the older call gives the handle by which that is used as a context, the newer
 * one the primary context, and the green one beside it.
 */
static CUresult context_of(CUstream stream, bool per_thread, CUcontext *ret_context,
                           CUgreenCtx *ret_green)
{
    CUcontext used = NULL;
    CUgreenCtx green;
    uint32_t i, context;
    CUresult r;

    if (!ret_context)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = enter_any(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    context = guest_state()->streams[i].context;
    green = green_of_stream(i, &used);
    *ret_context = guest_context_handle(context);
    for (unsigned k = 0; k < guest.device_count; k++) {
        if (guest.primaries[k].context == context)
            *ret_context = guest_primary_handle((CUdevice)k);
    }
    if (ret_green)
        *ret_green = green;
    else if (green)
        *ret_context = used;
    sim_unlock(guest.sim);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return context_of(stream, false, context, NULL);
}

PUBLIC CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
    return context_of(stream, true, context, NULL);
}

PUBLIC CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    CUgreenCtx unwanted;

    return context_of(stream, false, context, green ? green : &unwanted);
}

PUBLIC CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    CUgreenCtx unwanted;

    return context_of(stream, true, context, green ? green : &unwanted);
}

static CUresult priority_of(CUstream stream, bool per_thread, int *ret_priority)
{
    uint32_t i;
    CUresult r;

    if (!ret_priority)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = enter_any(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    *ret_priority = has_handle(stream) ? priorities[i] : GUEST_PRIORITY_LEAST;
    sim_unlock(guest.sim);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    return priority_of(stream, false, priority);
}

PUBLIC CUresult cuStreamGetPriority_ptsz(CUstream stream, int *priority)
{
    return priority_of(stream, true, priority);
}
