/* SPDX-License-Identifier: Apache-2.0 */

/* Of the model: hardware queues, which hold streams' heads back. */

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
