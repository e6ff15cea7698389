/* SPDX-License-Identifier: Apache-2.0 */

/* Of the model: streams, whose ops are enqueued, started, done, and taken away. */

#include "simdriver/model.h"

#include "base/util.h"
#include "simdriver/model_parts.h"

static struct sim_op *op_at(struct sim_state *s, uint32_t stream, uint64_t seq)
{
    return &s->rings[stream][seq % SIM_RING];
}

/* A context's list of streams whose heads can run. */

static void ready_add(struct sim_state *s, uint32_t stream)
{
    struct sim_stream *st = &s->streams[stream];
    struct sim_context *c = &s->contexts[st->context];

    st->state = SIM_STREAM_READY;
    st->next = 0;
    st->prev = c->ready_last;
    if (c->ready_last)
        s->streams[c->ready_last].next = stream;
    else
        c->ready_first = stream;
    c->ready_last = stream;
    sim_context_queue(s, st->context);
}

static void ready_remove(struct sim_state *s, uint32_t stream)
{
    struct sim_stream *st = &s->streams[stream];
    struct sim_context *c = &s->contexts[st->context];

    if (st->prev)
        s->streams[st->prev].next = st->next;
    else
        c->ready_first = st->next;
    if (st->next)
        s->streams[st->next].prev = st->prev;
    else
        c->ready_last = st->prev;
    if (!c->ready_first)
        sim_context_unqueue(s, st->context);
}

static void start_kernel(struct sim_state *s, uint32_t stream, const struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    struct sim_context *c = &s->contexts[st->context];

    c->weight += op->weight;
    if (st->started == st->head + 1)
        return;
    st->finish = c->clock;
    if (!s->processes[c->owner - 1].faulted)
        st->finish += op->work_ns * SIM_WORK_SCALE;
    __atomic_store_n(&st->started, st->head + 1, __ATOMIC_RELEASE);
}

static void settle(struct sim_state *s, uint32_t stream)
{
    struct sim_stream *st = &s->streams[stream];
    const struct sim_op *op = sim_stream_head(s, stream);

    if (st->state != SIM_STREAM_IDLE)
        return;
    if (!sim_stream_pending(st)) {
        if (st->dying)
            sim_stream_free(s, stream);
        return;
    }
    if (sim_op_is_late(s, stream, st->head)) {
        st->state = SIM_STREAM_LATE;
        return;
    }
    if (sim_stream_is_behind(s, stream)) {
        sim_stream_hold(s, stream);
        return;
    }
    if (op->kind == SIM_OP_WAIT && !sim_wait_is_over(s, op)) {
        sim_stream_block(s, stream, op);
        return;
    }
    if (op->kind == SIM_OP_WAIT_VALUE && !sim_value_is_there(s, op)) {
        sim_value_watch(s, stream, op);
        return;
    }
    ready_add(s, stream);
    if (op->kind == SIM_OP_KERNEL)
        start_kernel(s, stream, op);
}

/* After an op of the stream started, was done or went: those behind it. */
static void move_queue(struct sim_state *s, uint32_t stream)
{
    const struct sim_context *c = &s->contexts[s->streams[stream].context];

    while (c->held) {
        uint32_t front = sim_queue_front(s, stream);

        if (!front || s->streams[front].state != SIM_STREAM_QUEUED)
            return;
        sim_stream_unhold(s, front);
        settle(s, front);
    }
}

void sim_stream_settle(struct sim_state *s, uint32_t stream)
{
    settle(s, stream);
    move_queue(s, stream);
}

/* Doing ops */

/* Counts in sim_state.crossed: devices must go in step while there is one. */
static uint32_t crossing_of(const struct sim_op *op)
{
    if (op->kind == SIM_OP_KERNEL)
        return op->gen == SIM_ROLE_WAITS;
    if (op->kind == SIM_OP_WAIT_VALUE)
        return 1;
    return op->kind == SIM_OP_WAIT ? op->weight : 0;
}

static void stamp_event(struct sim_state *s, const struct sim_op *op, int64_t now_ns)
{
    struct sim_event *event = &s->events[op->target];
    int64_t resolution_ns = s->header.driver.event_resolution_ns;

    /* Recorded again, or made anew, since: this record is nobody's any more. */
    if (event->owner && event->stamp == op->order)
        event->time_ns = MAX(now_ns / resolution_ns * resolution_ns, 1);
}

/*
 * Whoever does this may die half-way, and the next one does it again: then there is a post too
 * many, but none that was taken by nobody.
 */
static void take_post(struct sim_state *s, struct sim_stream *st, const struct sim_op *op)
{
    if (st->took == st->head + 1 || !s->flags[op->target])
        return; /* without one it ends where its process is at fault */
    __atomic_store_n(&st->took, st->head + 1, __ATOMIC_RELEASE);
    s->flags[op->target]--;
}

/* What else of the context runs ends with it. */
static void fault(struct sim_state *s, struct sim_context *c)
{
    __atomic_store_n(&s->processes[c->owner - 1].faulted, 1, __ATOMIC_RELEASE);
    for (uint32_t i = c->streams; i; i = s->streams[i].sibling)
        s->streams[i].finish = MIN(s->streams[i].finish, c->clock);
}

static void finish_kernel(struct sim_state *s, struct sim_stream *st, const struct sim_op *op)
{
    s->contexts[st->context].weight -= op->weight;
    st->done_ns += op->work_ns;
    if (op->gen == SIM_ROLE_WAITS)
        take_post(s, st, op);
    if (op->gen == SIM_ROLE_POSTS)
        s->flags[op->target]++;
    if (op->gen == SIM_ROLE_FAULTS)
        fault(s, &s->contexts[st->context]);
}

/* The head is done: what it is for happens before the one store that takes it off. */
static void finish_head(struct sim_state *s, uint32_t stream, int64_t now_ns)
{
    struct sim_stream *st = &s->streams[stream];
    const struct sim_op *op = sim_stream_head(s, stream);

    if (op->kind == SIM_OP_RECORD)
        stamp_event(s, op, now_ns);
    if (op->kind == SIM_OP_WRITE_VALUE)
        sim_value_write(s, op);
    s->crossed -= crossing_of(op);
    if (op->kind == SIM_OP_KERNEL)
        finish_kernel(s, st, op);
    __atomic_store_n(&st->head, st->head + 1, __ATOMIC_RELEASE);
    /* Who dies in between leaves a signal too many. */
    if (op->kind == SIM_OP_WAIT_VALUE)
        sim_semaphore_take(s, op);
}

bool sim_stream_head_is_done(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_op *op = sim_stream_head(s, stream);

    if (op->kind != SIM_OP_KERNEL)
        return true;
    return st->finish <= s->contexts[st->context].clock &&
           (op->gen != SIM_ROLE_WAITS || s->flags[op->target] || st->took == st->head + 1 ||
            s->processes[s->contexts[st->context].owner - 1].faulted);
}

bool sim_stream_spins(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];

    return st->state == SIM_STREAM_READY && sim_stream_head(s, stream)->kind == SIM_OP_KERNEL &&
           st->finish <= s->contexts[st->context].clock && !sim_stream_head_is_done(s, stream);
}

/* After its head was done a stream that is ready goes on without leaving the list, if it can. */
static bool start_next(struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_op *op = sim_stream_head(s, stream);

    if (!sim_stream_pending(st) || sim_op_is_late(s, stream, st->head) ||
        sim_stream_is_behind(s, stream))
        return false;
    if (op->kind == SIM_OP_WAIT)
        return sim_wait_is_over(s, op);
    if (op->kind == SIM_OP_WAIT_VALUE)
        return sim_value_is_there(s, op);
    if (op->kind == SIM_OP_KERNEL)
        start_kernel(s, stream, op);
    return true;
}

/*
 * Does what is done by now, and says whether that was anything. A stream that it sets free comes to
 * the end of the list, and so does this one when it left the list and came back.
 */
static bool run_stream(struct sim_state *s, uint32_t stream, int64_t now_ns)
{
    struct sim_stream *st = &s->streams[stream];
    bool did = false;

    while (st->state == SIM_STREAM_READY && sim_stream_head_is_done(s, stream)) {
        const struct sim_op *op = sim_stream_head(s, stream);

        did = true;
        finish_head(s, stream, now_ns);
        sim_wake_waiters(s, stream);
        if (op->kind == SIM_OP_WRITE_VALUE)
            sim_wake_watchers(s, op->target);
        if (!start_next(s, stream)) {
            ready_remove(s, stream);
            st->state = SIM_STREAM_IDLE;
            settle(s, stream);
        }
        move_queue(s, stream);
    }
    return did;
}

bool sim_context_run(struct sim_state *s, uint32_t context, int64_t now_ns, int64_t *ret_earliest)
{
    bool did, running;
    uint32_t next;

    do {
        did = running = false;
        *ret_earliest = INT64_MAX;
        for (uint32_t i = s->contexts[context].ready_first; i; i = next) {
            next = s->streams[i].next;
            did |= run_stream(s, i, now_ns);
            if (s->streams[i].state != SIM_STREAM_READY)
                continue;
            running = true;
            if (!sim_stream_spins(s, i))
                *ret_earliest = MIN(*ret_earliest, s->streams[i].finish);
        }
    } while (did);
    return running;
}

/* Enqueueing */

static void append(struct sim_state *s, uint32_t stream, struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    /* That takes no slice. */
    bool at_once = op->kind == SIM_OP_RECORD && op->weight && !sim_stream_pending(st);

    op->order = ++s->orders;
    if (op->kind == SIM_OP_WAIT)
        op->weight = sim_stream_device(s, stream) != sim_stream_device(s, op->target);
    s->crossed += crossing_of(op);
    *op_at(s, stream, st->tail) = *op;
    if (op->kind == SIM_OP_KERNEL) {
        st->enqueued_ns += op->work_ns;
        st->last_kernel = st->tail + 1;
    }
    __atomic_store_n(&st->tail, st->tail + 1, __ATOMIC_RELEASE);
    if (at_once)
        __atomic_store_n(&st->head, st->tail, __ATOMIC_RELEASE);
    else
        sim_stream_settle(s, stream);
}

static void append_wait(struct sim_state *s, uint32_t stream, uint32_t target)
{
    const struct sim_stream *to = &s->streams[target];
    struct sim_op op = {.kind = SIM_OP_WAIT, .target = target, .gen = to->gen, .seq = to->tail};

    append(s, stream, &op);
}

void sim_join_legacy(struct sim_state *s, uint32_t legacy)
{
    const struct sim_context *c = &s->contexts[s->streams[legacy].context];

    for (uint32_t i = c->streams; i; i = s->streams[i].sibling) {
        struct sim_stream *st = &s->streams[i];

        if (i == legacy || st->flags || !sim_stream_pending(st) || st->legacy_joined == st->tail)
            continue;
        if (sim_stream_pending(&s->streams[legacy]) + 1 >= SIM_RING)
            return;
        st->legacy_joined = st->tail;
        append_wait(s, legacy, i);
    }
}

void sim_enqueue(struct sim_state *s, uint32_t stream, struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    uint32_t legacy = s->contexts[st->context].legacy;
    const struct sim_stream *l = &s->streams[legacy];

    if (stream == legacy) {
        sim_join_legacy(s, legacy);
    } else if (legacy && !st->flags && sim_stream_pending(l) && st->joined != l->tail) {
        st->joined = l->tail;
        append_wait(s, stream, legacy);
    }
    append(s, stream, op);
}

/* Taking away */

uint32_t sim_stream_crossing(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    uint32_t count = 0;

    for (uint64_t seq = st->head; seq < st->tail; seq++)
        count += crossing_of(&s->rings[stream][seq % SIM_RING]);
    return count;
}

void sim_stream_detach(struct sim_state *s, uint32_t stream)
{
    struct sim_stream *st = &s->streams[stream];

    if (st->state == SIM_STREAM_BLOCKED)
        sim_stream_unblock(s, stream, sim_stream_head(s, stream)->target);
    if (st->state == SIM_STREAM_WATCHING)
        sim_value_unwatch(s, stream);
    if (st->state == SIM_STREAM_READY) {
        if (sim_stream_head(s, stream)->kind == SIM_OP_KERNEL)
            s->contexts[st->context].weight -= sim_stream_head(s, stream)->weight;
        ready_remove(s, stream);
    }
    if (st->state == SIM_STREAM_QUEUED)
        sim_stream_unhold(s, stream);
    st->state = SIM_STREAM_IDLE;
    if (s->crossed)
        s->crossed -= sim_stream_crossing(s, stream);
    st->head = st->tail;
    sim_wake_waiters(s, stream);
    move_queue(s, stream);
}
