/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/model.h"

#include "base/util.h"

static struct sim_op *op_at(struct sim_state *s, uint32_t stream, uint64_t seq)
{
    return &s->rings[stream][seq % SIM_RING];
}

static unsigned device_of(const struct sim_state *s, uint32_t stream)
{
    return s->contexts[s->streams[stream].context].device;
}

/* The device's queue */

static void queue_add(struct sim_state *s, uint32_t context)
{
    struct sim_context *c = &s->contexts[context];
    struct sim_device *d = &s->devices[c->device];

    if (c->queued || d->current == context)
        return;

    c->queued = true;
    c->next = 0;
    if (d->end)
        s->contexts[d->end].next = context;
    else
        d->first = context;
    d->end = context;
}

static void queue_remove(struct sim_state *s, uint32_t context)
{
    struct sim_context *c = &s->contexts[context];
    struct sim_device *d = &s->devices[c->device];
    uint32_t before = 0, i = d->first;

    if (!c->queued)
        return;

    for (; i != context; i = s->contexts[i].next)
        before = i;
    if (before)
        s->contexts[before].next = c->next;
    else
        d->first = c->next;
    if (d->end == context)
        d->end = before;
    c->queued = false;
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
    queue_add(s, st->context);
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
    if (!c->ready_first && !c->late)
        queue_remove(s, st->context);
}

/* Waiting for other streams */

static bool wait_is_over(const struct sim_state *s, const struct sim_op *op)
{
    const struct sim_stream *target = &s->streams[op->target];

    return target->gen != op->gen || !target->owner || target->head >= op->seq;
}

static void block(struct sim_state *s, uint32_t stream, const struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    struct sim_stream *target = &s->streams[op->target];

    st->state = SIM_STREAM_BLOCKED;
    st->next_waiter = target->waiters;
    target->waiters = stream;
}

static void unblock(struct sim_state *s, uint32_t stream, uint32_t target)
{
    struct sim_stream *st = &s->streams[stream];
    uint32_t *at = &s->streams[target].waiters;

    while (*at != stream)
        at = &s->streams[*at].next_waiter;
    *at = st->next_waiter;
    st->state = SIM_STREAM_IDLE;
}

/* After the target did an op: those whose wait is over can run. */
static void wake_waiters(struct sim_state *s, uint32_t target)
{
    uint32_t next;

    for (uint32_t i = s->streams[target].waiters; i; i = next) {
        next = s->streams[i].next_waiter;
        if (!wait_is_over(s, sim_stream_head(s, i)))
            continue;
        unblock(s, i, target);
        sim_stream_settle(s, i);
    }
}

/* Waiting for values */

int sim_value_at(struct sim_state *s, uint64_t program, uint64_t address)
{
    int found = -1;

    for (int i = 0; i < SIM_VALUES; i++) {
        if (s->values[i].program == program && s->values[i].address == address)
            return i;
        if (found < 0 && !s->values[i].program)
            found = i;
    }
    if (found < 0)
        return -1;
    s->values[found].value = 0;
    s->values[found].address = address;
    __atomic_store_n(&s->values[found].program, program, __ATOMIC_RELEASE);
    return found;
}

static unsigned shift_of(const struct sim_op *op)
{
    return op->gen & SIM_VALUE_UPPER ? 32 : 0;
}

/* Differences are cyclic. */
static bool value_is_there(const struct sim_state *s, const struct sim_op *op)
{
    const bool wide = op->gen & SIM_VALUE_WIDE;
    uint64_t value = s->values[op->target].value >> shift_of(op);

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

static void write_value(struct sim_state *s, const struct sim_op *op)
{
    const unsigned shift = shift_of(op);
    const uint64_t bits = op->gen & SIM_VALUE_WIDE ? UINT64_MAX : (uint64_t)UINT32_MAX << shift;
    uint64_t *value = &s->values[op->target].value;

    *value = (*value & ~bits) | (op->seq << shift & bits);
}

static void watch(struct sim_state *s, uint32_t stream, const struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];

    st->state = SIM_STREAM_WATCHING;
    st->next_waiter = s->values[op->target].watchers;
    s->values[op->target].watchers = stream;
}

static void unwatch(struct sim_state *s, uint32_t stream)
{
    uint32_t *at = &s->values[sim_stream_head(s, stream)->target].watchers;

    while (*at != stream)
        at = &s->streams[*at].next_waiter;
    *at = s->streams[stream].next_waiter;
    s->streams[stream].state = SIM_STREAM_IDLE;
}

/* After it was written. */
static void wake_watchers(struct sim_state *s, uint32_t value)
{
    uint32_t next;

    for (uint32_t i = s->values[value].watchers; i; i = next) {
        next = s->streams[i].next_waiter;
        if (!value_is_there(s, sim_stream_head(s, i)))
            continue;
        unwatch(s, i);
        sim_stream_settle(s, i);
    }
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

/* Hardware queues */

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

/* Whether the head, which has not started, must let another stream's op go first. */
static bool is_behind(const struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_context *c = &s->contexts[st->context];

    if (c->dealt <= c->queues || st->started == st->head + 1)
        return false;
    return sim_queue_front(s, stream) != stream;
}

static void hold(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_QUEUED;
    s->contexts[s->streams[stream].context].held++;
}

static void unhold(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_IDLE;
    s->contexts[s->streams[stream].context].held--;
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
    if (is_behind(s, stream)) {
        hold(s, stream);
        return;
    }
    if (op->kind == SIM_OP_WAIT && !wait_is_over(s, op)) {
        block(s, stream, op);
        return;
    }
    if (op->kind == SIM_OP_WAIT_VALUE && !value_is_there(s, op)) {
        watch(s, stream, op);
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
        unhold(s, front);
        settle(s, front);
    }
}

void sim_stream_settle(struct sim_state *s, uint32_t stream)
{
    settle(s, stream);
    move_queue(s, stream);
}

/* Idle streams */

/*
 * How often work that comes to an idle stream of the context on the device is seen at the
 * context's next slice only, in hundredths, by how many others wait (H100, driver 580: one, two,
 * three). It is by chance, but the same for the same op.
 */
static bool is_late(const struct sim_state *s, uint32_t stream, uint64_t order)
{
    static const unsigned chances[] = {0, 20, 90, 46};
    const struct sim_device *d = &s->devices[device_of(s, stream)];
    const struct sim_stream *st = &s->streams[stream];
    unsigned others = 0;

    if (s->header.driver.idle_streams == SIM_IDLE_STREAMS_PROMPT || d->current != st->context ||
        sim_stream_pending(st))
        return false;
    for (uint32_t i = d->first; i && others + 1 < ARRAY_SIZE(chances); i = s->contexts[i].next)
        others++;
    return (order * UINT64_C(0x9e3779b97f4a7c15) >> 32) % 100 < chances[others];
}

static void delay(struct sim_state *s, uint32_t stream)
{
    s->streams[stream].state = SIM_STREAM_LATE;
    s->contexts[s->streams[stream].context].late++;
}

static void undelay(struct sim_state *s, uint32_t stream)
{
    struct sim_context *c = &s->contexts[s->streams[stream].context];

    s->streams[stream].state = SIM_STREAM_IDLE;
    c->late--;
    if (!c->ready_first && !c->late)
        queue_remove(s, s->streams[stream].context);
}

static void see_late_ones(struct sim_state *s, uint32_t context)
{
    const struct sim_context *c = &s->contexts[context];

    for (uint32_t i = c->streams; i && c->late; i = s->streams[i].sibling) {
        if (s->streams[i].state != SIM_STREAM_LATE)
            continue;
        undelay(s, i);
        sim_stream_settle(s, i);
    }
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
        write_value(s, op);
    s->crossed -= crossing_of(op);
    if (op->kind == SIM_OP_KERNEL)
        finish_kernel(s, st, op);
    __atomic_store_n(&st->head, st->head + 1, __ATOMIC_RELEASE);
}

static bool head_is_done(const struct sim_state *s, uint32_t stream)
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
           st->finish <= s->contexts[st->context].clock && !head_is_done(s, stream);
}

/* After its head was done a stream that is ready goes on without leaving the list, if it can. */
static bool start_next(struct sim_state *s, uint32_t stream)
{
    const struct sim_stream *st = &s->streams[stream];
    const struct sim_op *op = sim_stream_head(s, stream);

    if (!sim_stream_pending(st) || is_behind(s, stream))
        return false;
    if (op->kind == SIM_OP_WAIT)
        return wait_is_over(s, op);
    if (op->kind == SIM_OP_WAIT_VALUE)
        return value_is_there(s, op);
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

    while (st->state == SIM_STREAM_READY && head_is_done(s, stream)) {
        const struct sim_op *op = sim_stream_head(s, stream);

        did = true;
        finish_head(s, stream, now_ns);
        wake_waiters(s, stream);
        if (op->kind == SIM_OP_WRITE_VALUE)
            wake_watchers(s, op->target);
        if (!start_next(s, stream)) {
            ready_remove(s, stream);
            st->state = SIM_STREAM_IDLE;
            settle(s, stream);
        }
        move_queue(s, stream);
    }
    return did;
}

/*
 * Whether any stream of the context runs, and the earliest end of a kernel, in the context's time:
 * INT64_MAX when they all wait for flags. Done when nobody gets on any more.
 */
static bool run_context(struct sim_state *s, uint32_t context, int64_t now_ns,
                        int64_t *ret_earliest)
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

/* Between a context's own time and the machine's */

static bool is_slowed(const struct sim_state *s, const struct sim_context *c)
{
    return c->weight > sim_spec_of(s, c->device)->multiprocessors;
}

static int64_t time_for(const struct sim_state *s, const struct sim_context *c, int64_t work)
{
    int64_t unit = SIM_WORK_SCALE;

    if (!is_slowed(s, c))
        return (work + unit - 1) / unit;
    unit *= sim_spec_of(s, c->device)->multiprocessors;
    return (int64_t)(((__int128)work * (__int128)c->weight + unit - 1) / unit);
}

static int64_t work_in(const struct sim_state *s, const struct sim_context *c, int64_t time_ns)
{
    int64_t work = time_ns * SIM_WORK_SCALE;

    if (!is_slowed(s, c))
        return work;
    return (int64_t)((__int128)work * sim_spec_of(s, c->device)->multiprocessors /
                     (__int128)c->weight);
}

/* The device */

static void account(struct sim_state *s, struct sim_device *d, struct sim_context *c, int64_t to_ns)
{
    struct sim_usage *usage = &s->processes[c->owner - 1].usage[c->device];
    int64_t spent = to_ns - d->now_ns;

    c->clock += work_in(s, c, spent);
    usage->busy_ns += spent;
    d->busy_ns += spent;
    sim_history_add(&usage->history, d->now_ns, to_ns);
    sim_history_add(&d->history, d->now_ns, to_ns);
}

static void next_context(struct sim_state *s, unsigned device)
{
    const struct sim_gpu_spec *spec = sim_spec_of(s, device);
    struct sim_device *d = &s->devices[device];
    uint32_t context = d->first;

    queue_remove(s, context);
    d->current = context;
    d->switched_ns = d->now_ns;
    if (d->last && d->last != context)
        d->switched_ns += spec->switch_ns;
    d->slice_end_ns = d->switched_ns + spec->slice_ns;
    d->last = context;
    see_late_ones(s, context);
}

static void end_turn(struct sim_state *s, unsigned device)
{
    struct sim_device *d = &s->devices[device];
    uint32_t context = d->current;

    d->current = 0;
    if (s->contexts[context].ready_first || s->contexts[context].late)
        queue_add(s, context);
}

/* While a context was alone its slices followed one another unseen. */
static void renew_slice(struct sim_device *d, int64_t slice_ns)
{
    if (d->slice_end_ns < d->now_ns)
        d->slice_end_ns += (d->now_ns - d->slice_end_ns + slice_ns - 1) / slice_ns * slice_ns;
}

/*
 * From the device's moment to the next at which something changes, no further than to_ns. False
 * when nothing more happens up to then.
 */
static bool step(struct sim_state *s, unsigned device, int64_t to_ns)
{
    struct sim_device *d = &s->devices[device];
    struct sim_context *c;
    int64_t earliest, until;

    if (!d->current) {
        if (!d->first)
            return false;
        next_context(s, device);
    }
    if (d->now_ns < d->switched_ns) {
        d->now_ns = MIN(to_ns, d->switched_ns);
        return d->now_ns == d->switched_ns;
    }

    c = &s->contexts[d->current];
    if (!run_context(s, d->current, d->now_ns, &earliest)) {
        end_turn(s, device);
        return true;
    }

    until = to_ns;
    if (earliest != INT64_MAX)
        until = d->now_ns + time_for(s, c, earliest - c->clock);
    if (d->first || c->late) {
        renew_slice(d, sim_spec_of(s, device)->slice_ns);
        if (d->slice_end_ns == d->now_ns) {
            end_turn(s, device);
            return true;
        }
        until = MIN(until, d->slice_end_ns);
    }
    if (d->now_ns >= to_ns)
        return false;
    until = MIN(until, to_ns);
    account(s, d, c, until);
    d->now_ns = until;
    return true;
}

static void run_device(struct sim_state *s, unsigned device, int64_t to_ns)
{
    struct sim_device *d = &s->devices[device];

    if (d->now_ns > to_ns)
        return;
    while (step(s, device, to_ns))
        ;
    d->now_ns = to_ns;
}

/* When the next thing on a device happens, or the end. */
static int64_t next_moment(const struct sim_state *s, unsigned device, int64_t end_ns)
{
    const struct sim_device *d = &s->devices[device];
    const struct sim_context *c = &s->contexts[d->current];
    int64_t moment = end_ns;

    if (!d->current)
        return d->first ? d->now_ns : end_ns;
    if (d->now_ns < d->switched_ns)
        return MIN(end_ns, d->switched_ns);
    if ((d->first || c->late) && d->slice_end_ns > d->now_ns)
        moment = MIN(moment, d->slice_end_ns);
    for (uint32_t i = c->ready_first; i; i = s->streams[i].next) {
        if (sim_stream_spins(s, i))
            continue;
        if (head_is_done(s, i))
            return d->now_ns;
        moment = MIN(moment, d->now_ns + time_for(s, c, s->streams[i].finish - c->clock));
    }
    return moment;
}

static void run_devices(struct sim_state *s, int64_t to_ns)
{
    for (unsigned i = 0; i < sim_device_end(s); i++)
        run_device(s, i, to_ns);
}

/* To a time before which nothing happens: what happens just then is not done yet. */
static void coast(struct sim_state *s, unsigned device, int64_t to_ns)
{
    struct sim_device *d = &s->devices[device];

    if (d->now_ns >= to_ns)
        return;
    if (d->current && d->now_ns >= d->switched_ns)
        account(s, d, &s->contexts[d->current], to_ns);
    d->now_ns = to_ns;
}

/* In step with one another, so that what one device sets free on another starts in time. */
static int64_t advance_crossed(struct sim_state *s, int64_t from_ns, int64_t now_ns)
{
    int64_t at_ns = now_ns;

    /* Twice: what the later ones set free on the earlier ones. */
    run_devices(s, from_ns);
    run_devices(s, from_ns);
    for (unsigned i = 0; i < sim_device_end(s); i++)
        at_ns = MIN(at_ns, next_moment(s, i, now_ns));
    at_ns = MAX(at_ns, from_ns + 1);
    for (unsigned i = 0; i < sim_device_end(s); i++)
        coast(s, i, at_ns);
    return at_ns;
}

void sim_advance_all(struct sim_state *s, int64_t now_ns)
{
    int64_t at_ns = 0;

    for (unsigned i = 0; i < sim_device_end(s); i++)
        at_ns = MAX(at_ns, s->devices[i].now_ns);
    while (s->crossed && at_ns < now_ns)
        at_ns = advance_crossed(s, at_ns, now_ns);
    run_devices(s, now_ns);
    run_devices(s, now_ns);
}

void sim_advance(struct sim_state *s, unsigned device, int64_t now_ns)
{
    if (s->crossed)
        sim_advance_all(s, now_ns);
    else
        run_device(s, device, now_ns);
}

/* Enqueueing */

static void append(struct sim_state *s, uint32_t stream, struct sim_op *op)
{
    struct sim_stream *st = &s->streams[stream];
    bool late;

    op->order = ++s->orders;
    if (op->kind == SIM_OP_WAIT)
        op->weight = device_of(s, stream) != device_of(s, op->target);
    s->crossed += crossing_of(op);
    *op_at(s, stream, st->tail) = *op;
    if (op->kind == SIM_OP_KERNEL)
        st->enqueued_ns += op->work_ns;
    late = is_late(s, stream, op->order);
    __atomic_store_n(&st->tail, st->tail + 1, __ATOMIC_RELEASE);
    if (late)
        delay(s, stream);
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
        unblock(s, stream, sim_stream_head(s, stream)->target);
    if (st->state == SIM_STREAM_WATCHING)
        unwatch(s, stream);
    if (st->state == SIM_STREAM_READY) {
        if (sim_stream_head(s, stream)->kind == SIM_OP_KERNEL)
            s->contexts[st->context].weight -= sim_stream_head(s, stream)->weight;
        ready_remove(s, stream);
    }
    if (st->state == SIM_STREAM_QUEUED)
        unhold(s, stream);
    if (st->state == SIM_STREAM_LATE)
        undelay(s, stream);
    st->state = SIM_STREAM_IDLE;
    if (s->crossed)
        s->crossed -= sim_stream_crossing(s, stream);
    st->head = st->tail;
    wake_waiters(s, stream);
    move_queue(s, stream);
}

void sim_context_detach(struct sim_state *s, uint32_t context)
{
    struct sim_device *d = &s->devices[s->contexts[context].device];

    queue_remove(s, context);
    if (d->current == context)
        d->current = 0;
    if (d->last == context)
        d->last = 0;
}
