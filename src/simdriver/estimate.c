/* SPDX-License-Identifier: Apache-2.0 */

/* When a stream will have done its work, as it seems now: how long a waiting call sleeps. */

#include "base/util.h"
#include "simdriver/model.h"

/* Bound of the chain of streams that wait for one another. */
#define CHAIN_MAX 8

/* A flag may be posted, and a value written, at any time. */
#define SPIN_LOOK_NS (200 * NS_PER_US)

/* What a stream has still to do, at full speed; up to work_ns of all that was enqueued. */
static int64_t stream_left(const struct sim_state *s, uint32_t stream, int64_t work_ns)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_op *head = sim_stream_head(s, stream);
    int64_t left_ns = work_ns - st->done_ns;
    int64_t rest;

    if (st->state != SIM_STREAM_READY || head->kind != SIM_OP_KERNEL)
        return left_ns;
    rest = MAX(st->finish - s->contexts[st->context].clock, 0);
    return left_ns - head->work_ns + (rest + SIM_WORK_SCALE - 1) / SIM_WORK_SCALE;
}

/* Of all that was enqueued, the work up to and with the stream's head. */
static int64_t work_with_head(const struct sim_state *s, uint32_t stream)
{
    const struct sim_op *head = sim_stream_head(s, stream);

    return s->streams[stream].done_ns + (head->kind == SIM_OP_KERNEL ? head->work_ns : 0);
}

/* How long a context will keep the GPU at least, if nobody takes it away. Once the device has
 * turned from it that is for what runs. */
static int64_t context_left(const struct sim_state *s, uint32_t context)
{
    const struct sim_context *c = &s->contexts[context];
    int64_t left_ns = 0;

    for (uint32_t i = c->ready_first; i; i = s->streams[i].next)
        left_ns = MAX(
            left_ns, stream_left(s, i, c->seen ? work_with_head(s, i) : s->streams[i].enqueued_ns));
    return left_ns;
}

/* The turns of those who wait before the context; of all, when it does not wait. */
static int64_t turns_before(const struct sim_state *s, uint32_t context)
{
    const struct sim_gpu_spec *spec = sim_spec_of(s, s->contexts[context].device);
    int64_t sum_ns = spec->switch_ns;

    for (uint32_t i = s->devices[s->contexts[context].device].first; i && i != context;
         i = s->contexts[i].next)
        sum_ns += spec->switch_ns + MIN(spec->slice_ns, context_left(s, i));
    return sum_ns;
}

/* When the context will have done so much of one stream, as it seems; in this slice or, what is
 * late, in its next. */
static int64_t estimate_turns(const struct sim_state *s, uint32_t context, int64_t left_ns,
                              bool late)
{
    const struct sim_device *d = &s->devices[s->contexts[context].device];
    int64_t at_ns = MAX(d->now_ns, d->switched_ns);

    if (d->current == context && !late) {
        if (d->first && d->slice_end_ns > at_ns && at_ns + left_ns > d->slice_end_ns)
            at_ns += turns_before(s, context);
        return at_ns + left_ns;
    }
    if (d->current) {
        at_ns += context_left(s, d->current);
        if (d->slice_end_ns > d->now_ns)
            at_ns = MIN(at_ns, d->slice_end_ns);
    }
    if (d->current || d->first != context)
        at_ns += turns_before(s, context);
    return at_ns + left_ns;
}

static int64_t estimate(const struct sim_state *s, uint32_t stream, uint64_t seq, int64_t work_ns,
                        unsigned chain);

/* When the op at the front of a queue can start: when the one before it in its stream is done. */
static int64_t estimate_behind(const struct sim_state *s, uint32_t front, unsigned chain)
{
    const struct sim_stream *st = &s->streams[front];

    return estimate(s, front, st->head + 1, work_with_head(s, front), chain);
}

static int64_t estimate(const struct sim_state *s, uint32_t stream, uint64_t seq, int64_t work_ns,
                        unsigned chain)
{
    const struct sim_stream *st = &s->streams[stream];
    int64_t left_ns = stream_left(s, stream, work_ns);
    const struct sim_op *head = sim_stream_head(s, stream);

    if (st->head >= seq || chain == 0)
        return s->devices[s->contexts[st->context].device].now_ns;
    if (sim_stream_spins(s, stream) || st->state == SIM_STREAM_WATCHING)
        return s->devices[s->contexts[st->context].device].now_ns + SPIN_LOOK_NS;
    if (st->state == SIM_STREAM_QUEUED)
        return estimate_behind(s, sim_queue_front(s, stream), chain - 1) + left_ns;
    if (st->state == SIM_STREAM_BLOCKED)
        return estimate(s, head->target, head->seq, s->streams[head->target].done_ns, chain - 1) +
               left_ns;
    if (!sim_op_is_late(s, stream, seq - 1))
        return estimate_turns(s, st->context, left_ns, false);
    /* What runs now may be done before. */
    if (st->state == SIM_STREAM_READY)
        left_ns = work_ns - work_with_head(s, stream);
    return estimate_turns(s, st->context, left_ns, true);
}

int64_t sim_estimate(const struct sim_state *s, uint32_t stream, uint64_t seq, int64_t work_ns)
{
    return estimate(s, stream, seq, work_ns, CHAIN_MAX);
}
