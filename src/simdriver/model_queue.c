/* SPDX-License-Identifier: Apache-2.0 */

/* Of the model: what holds a stream's head back, which is its hardware queue or, of an idle stream,
 * the context's slice. */

#include "base/util.h"
#include "simdriver/model_parts.h"

/* The order of the stream's first op that has not started. */
static uint64_t next_order(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    uint64_t next = st->head;

    if (next < st->tail && s->rings[stream][next % SIM_RING].kind == SIM_OP_KERNEL &&
        st->started == next + 1)
        next++;
    return next < st->tail ? s->rings[stream][next % SIM_RING].order : UINT64_MAX;
}

uint32_t sim_queue_front(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    uint64_t first = UINT64_MAX;
    uint32_t front = 0;

    for (uint32_t i = s->contexts[st->context].streams; i; i = s->streams[i].sibling) {
        if (s->streams[i].queue != st->queue || next_order(s, i) >= first)
            continue;
        first = next_order(s, i);
        front = i;
    }
    return front;
}

bool sim_stream_is_behind(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_context *c = &s->contexts[st->context];

    if (c->dealt <= c->queues || st->started == st->head + 1)
        return false;
    return sim_queue_front(s, stream) != stream;
}

void sim_stream_hold(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_QUEUED;
    s->contexts[s->streams[stream].context].held++;
}

void sim_stream_unhold(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_IDLE;
    s->contexts[s->streams[stream].context].held--;
}

/* Idle streams */

/*
 * How often work that comes to an idle stream of the context on the device is seen at the
 * context's next slice only, in hundredths, by how many others wait (H100, driver 580: one, two,
 * three). It is by chance, but the same for the same op.
 */
bool sim_stream_is_late(const struct sim_state *s, uint32_t stream, uint64_t order)
{
    static const unsigned chances[] = {0, 20, 90, 46};
    const struct sim_device *d = &s->devices[sim_stream_device(s, stream)];
    const struct sim_stream *st = &s->streams[stream];
    unsigned others = 0;

    if (s->header.driver.idle_streams == SIM_IDLE_STREAMS_PROMPT || d->current != st->context ||
        sim_stream_pending(st))
        return false;
    for (uint32_t i = d->first; i && others + 1 < ARRAY_SIZE(chances); i = s->contexts[i].next)
        others++;
    return (order * UINT64_C(0x9e3779b97f4a7c15) >> 32) % 100 < chances[others];
}

void sim_stream_delay(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_LATE;
    s->contexts[s->streams[stream].context].late++;
}

void sim_stream_undelay(struct sim_state *s, uint32_t stream)
{
    struct sim_context *c = &s->contexts[s->streams[stream].context];

    s->streams[stream].state = SIM_STREAM_IDLE;
    c->late--;
    if (!c->ready_first && !c->late)
        sim_context_unqueue(s, s->streams[stream].context);
}

void sim_context_see_late(struct sim_state *s, uint32_t context)
{
    const struct sim_context *c = &s->contexts[context];

    for (uint32_t i = c->streams; i && c->late; i = s->streams[i].sibling) {
        if (s->streams[i].state != SIM_STREAM_LATE)
            continue;
        sim_stream_undelay(s, i);
        sim_stream_settle(s, i);
    }
}
