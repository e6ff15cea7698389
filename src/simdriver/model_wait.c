/* SPDX-License-Identifier: Apache-2.0 */

/* Of the model: what a stream may wait for, which is another stream, a value in memory, or a
 * semaphore. */

#include "base/util.h"
#include "simdriver/model_parts.h"

/* Waiting for other streams */

bool sim_wait_is_over(const struct sim_state *s, const struct sim_op *op)
{
    const struct sim_stream *target = &s->streams[op->target];

    return target->gen != op->gen || !target->owner || target->head >= op->seq;
}

void sim_stream_block(struct sim_state *s, uint32_t stream, const struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    struct sim_stream *target = &s->streams[op->target];

    st->state = SIM_STREAM_BLOCKED;
    st->next_waiter = target->waiters;
    target->waiters = stream;
}

void sim_stream_unblock(struct sim_state *s, uint32_t stream, uint32_t target)
{
    struct sim_stream *st = &s->streams[stream];
    uint32_t *at = &s->streams[target].waiters;

    while (*at != stream)
        at = &s->streams[*at].next_waiter;
    *at = st->next_waiter;
    st->state = SIM_STREAM_IDLE;
}

void sim_wake_waiters(struct sim_state *s, uint32_t target)
{
    uint32_t next;

    for (uint32_t i = s->streams[target].waiters; i; i = next) {
        next = s->streams[i].next_waiter;
        if (!sim_wait_is_over(s, sim_stream_head(s, i)))
            continue;
        sim_stream_unblock(s, i, target);
        sim_stream_settle(s, i);
    }
}

/* Waiting for values */

int sim_value_at(struct sim_state *s, uint64_t program, uint64_t address)
{
    int found = -1;

    for (int i = 0; i < SIM_VALUES; i++) {
        if (s->values[i].program == program && s->values[i].address == address && !s->values[i].ino)
            return i;
        if (found < 0 && !s->values[i].program)
            found = i;
    }
    if (found < 0)
        return -1;
    s->values[found] = (struct sim_value){.address = address};
    __atomic_store_n(&s->values[found].program, program, __ATOMIC_RELEASE);
    return found;
}

static unsigned shift_of(const struct sim_op *op)
{
    return op->gen & SIM_VALUE_UPPER ? 32 : 0;
}

/* Differences are cyclic, but of semaphores. */
bool sim_value_is_there(const struct sim_state *s, const struct sim_op *op)
{
    const bool wide = op->gen & SIM_VALUE_WIDE;
    uint64_t value = s->values[op->target].value >> shift_of(op);

    if (op->gen & SIM_VALUE_TIMELINE)
        return value >= op->seq;
    if (op->gen & SIM_VALUE_BINARY)
        return value & 1;
    value = wide ? value : (uint32_t)value;
    switch (op->gen & SIM_VALUE_WAYS) {
    case SIM_VALUE_GEQ:
        return wide ? (int64_t)(value - op->seq) >= 0 : (int32_t)(value - op->seq) >= 0;
    case SIM_VALUE_EQ:
        return value == op->seq;
    case SIM_VALUE_AND:
        return value & op->seq;
    default:
        return wide ? ~(value | op->seq) : (uint32_t) ~(value | op->seq);
    }
}

/* Of one semaphore, or the same. */
static bool is_one(const struct sim_value *value, const struct sim_value *other)
{
    return value == other ||
           (value->ino && other->program && value->ino == other->ino && value->dev == other->dev);
}

void sim_semaphore_raise(struct sim_state *s, uint32_t value, uint64_t to)
{
    for (uint32_t i = 0; i < SIM_VALUES; i++) {
        if (is_one(&s->values[value], &s->values[i]))
            s->values[i].value = MAX(s->values[i].value, to);
    }
}

void sim_semaphore_take(struct sim_state *s, const struct sim_op *op)
{
    const uint64_t value = s->values[op->target].value;

    if ((op->gen & SIM_VALUE_BINARY) && (value & 1))
        sim_semaphore_raise(s, op->target, value + 1);
}

void sim_value_write(struct sim_state *s, const struct sim_op *op)
{
    const unsigned shift = shift_of(op);
    const uint64_t bits = op->gen & SIM_VALUE_WIDE ? UINT64_MAX : (uint64_t)UINT32_MAX << shift;
    uint64_t *value = &s->values[op->target].value;

    if (op->gen & (SIM_VALUE_TIMELINE | SIM_VALUE_BINARY)) {
        sim_semaphore_raise(s, op->target, op->gen & SIM_VALUE_BINARY ? *value | 1 : op->seq);
        return;
    }
    *value = (*value & ~bits) | (op->seq << shift & bits);
}

void sim_value_watch(struct sim_state *s, uint32_t stream, const struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];

    st->state = SIM_STREAM_WATCHING;
    st->next_waiter = s->values[op->target].watchers;
    s->values[op->target].watchers = stream;
}

void sim_value_unwatch(struct sim_state *s, uint32_t stream)
{
    uint32_t *at = &s->values[sim_stream_head(s, stream)->target].watchers;

    while (*at != stream)
        at = &s->streams[*at].next_waiter;
    *at = s->streams[stream].next_waiter;
    s->streams[stream].state = SIM_STREAM_IDLE;
}

static void wake_watchers_of(struct sim_state *s, uint32_t value)
{
    uint32_t next;

    for (uint32_t i = s->values[value].watchers; i; i = next) {
        next = s->streams[i].next_waiter;
        if (!sim_value_is_there(s, sim_stream_head(s, i)))
            continue;
        sim_value_unwatch(s, i);
        sim_stream_settle(s, i);
    }
}

void sim_wake_watchers(struct sim_state *s, uint32_t value)
{
    if (!s->values[value].ino) {
        wake_watchers_of(s, value);
        return;
    }
    for (uint32_t i = 0; i < SIM_VALUES; i++) {
        if (is_one(&s->values[value], &s->values[i]))
            wake_watchers_of(s, i);
    }
}
