/* SPDX-License-Identifier: Apache-2.0 */

/* Of the model: a device's slices, the contexts that wait for theirs, and its time. */

#include "base/util.h"
#include "simdriver/model_parts.h"

/* The device's queue */

void sim_context_queue(struct sim_state *s, uint32_t context)
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

void sim_context_unqueue(struct sim_state *s, uint32_t context)
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

    sim_context_unqueue(s, context);
    d->current = context;
    d->switched_ns = d->now_ns;
    if (d->last && d->last != context)
        d->switched_ns += spec->switch_ns;
    d->slice_end_ns = d->switched_ns + spec->slice_ns;
    d->last = context;
}

/* Whether a kernel waits behind one that runs. */
static bool has_more(const struct sim_state *s, const struct sim_context *c)
{
    for (uint32_t i = c->ready_first; i; i = s->streams[i].next) {
        if (s->streams[i].last_kernel > s->streams[i].head + 1)
            return true;
    }
    return false;
}

/* After what was to be done by now: whether the device turns from the context that is on it. */
static void look_after(struct sim_state *s, const struct sim_device *d)
{
    struct sim_context *c = &s->contexts[d->current];

    if (s->header.driver.idle_streams == SIM_IDLE_STREAMS_LATE && d->first && !c->seen &&
        !has_more(s, c))
        c->seen = s->orders;
}

static void see_all(struct sim_state *s, uint32_t context)
{
    struct sim_context *c = &s->contexts[context];

    if (!c->seen)
        return;
    c->seen = 0;
    for (uint32_t i = c->streams; i; i = s->streams[i].sibling) {
        if (s->streams[i].state != SIM_STREAM_LATE)
            continue;
        s->streams[i].state = SIM_STREAM_IDLE;
        sim_stream_settle(s, i);
    }
}

static void end_turn(struct sim_state *s, unsigned device)
{
    struct sim_device *d = &s->devices[device];
    uint32_t context = d->current;

    /* First: what is late is so of the context on the device alone. */
    see_all(s, context);
    d->current = 0;
    if (s->contexts[context].ready_first)
        sim_context_queue(s, context);
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
    if (!sim_context_run(s, d->current, d->now_ns, &earliest)) {
        end_turn(s, device);
        return true;
    }

    look_after(s, d);
    until = to_ns;
    if (earliest != INT64_MAX)
        until = d->now_ns + time_for(s, c, earliest - c->clock);
    if (d->first || c->seen) {
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
    if ((d->first || c->seen) && d->slice_end_ns > d->now_ns)
        moment = MIN(moment, d->slice_end_ns);
    for (uint32_t i = c->ready_first; i; i = s->streams[i].next) {
        if (sim_stream_spins(s, i))
            continue;
        if (sim_stream_head_is_done(s, i))
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

void sim_context_detach(struct sim_state *s, uint32_t context)
{
    struct sim_device *d = &s->devices[s->contexts[context].device];

    sim_context_unqueue(s, context);
    if (d->current == context)
        d->current = 0;
    if (d->last == context)
        d->last = 0;
}
