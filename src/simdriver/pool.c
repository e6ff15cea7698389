/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The pools of contexts, streams and events, and deriving everything derived anew. An object is
 * there from the store of its owner on, which comes last, and gone with it.
 */

#include "simdriver/pool.h"

#include "base/util.h"
#include "simdriver/model.h"
#include "simdriver/physical.h"

/* All objects of pools begin alike. */
struct object {
    uint32_t owner;
    uint32_t gen;
    uint32_t next_free;
};

_Static_assert(offsetof(struct sim_context, next_free) == offsetof(struct object, next_free), "");
_Static_assert(offsetof(struct sim_stream, next_free) == offsetof(struct object, next_free), "");
_Static_assert(offsetof(struct sim_event, next_free) == offsetof(struct object, next_free), "");

static struct object *object_at(void *objects, size_t size, uint32_t i)
{
    return (struct object *)((char *)objects + size * i);
}

uint32_t sim_pool_take(struct sim_pool *pool, void *objects, size_t size, uint32_t count)
{
    struct object *object;
    uint32_t i = pool->free, gen;

    if (!i &&
        (pool->high + 1 >= count || !sim_reserve(object_at(objects, size, pool->high + 1), size)))
        return 0;
    if (!i)
        i = ++pool->high;
    object = object_at(objects, size, i);
    if (i == pool->free)
        pool->free = object->next_free;

    gen = object->gen;
    memset(object, 0, size);
    object->gen = gen;
    return i;
}

void sim_pool_give_back(struct sim_pool *pool, void *objects, size_t size, uint32_t i)
{
    struct object *object = object_at(objects, size, i);

    object->gen++;
    object->next_free = pool->free;
    __atomic_store_n(&object->owner, 0, __ATOMIC_RELEASE);
    pool->free = i;
}

void sim_pool_rebuild(struct sim_pool *pool, void *objects, size_t size)
{
    pool->free = 0;
    for (uint32_t i = pool->high; i > 0; i--) {
        struct object *object = object_at(objects, size, i);

        if (object->owner)
            continue;
        object->next_free = pool->free;
        pool->free = i;
    }
}

uint32_t sim_context_new(struct sim_state *s, unsigned slot, unsigned device, uint32_t queues)
{
    uint32_t i = sim_pool_take(&s->context_pool, s->contexts, sizeof(s->contexts[0]), SIM_CONTEXTS);

    if (!i)
        return 0;
    s->contexts[i].device = device;
    s->contexts[i].queues = queues;
    __atomic_store_n(&s->contexts[i].owner, slot + 1, __ATOMIC_RELEASE);
    return i;
}

uint32_t sim_stream_new(struct sim_state *s, uint32_t context, unsigned flags)
{
    uint32_t i = sim_pool_take(&s->stream_pool, s->streams, sizeof(s->streams[0]), SIM_STREAMS);
    struct sim_context *c = &s->contexts[context];

    if (!i)
        return 0;
    if (!sim_reserve(s->rings[i], sizeof(s->rings[i]))) {
        sim_pool_give_back(&s->stream_pool, s->streams, sizeof(s->streams[0]), i);
        return 0;
    }
    s->streams[i].context = context;
    s->streams[i].flags = flags;
    s->streams[i].queue = c->dealt++ % c->queues;
    s->streams[i].sibling = c->streams;
    c->streams = i;
    __atomic_store_n(&s->streams[i].owner, c->owner, __ATOMIC_RELEASE);
    return i;
}

uint32_t sim_event_new(struct sim_state *s, uint32_t context, unsigned flags)
{
    uint32_t i = sim_pool_take(&s->event_pool, s->events, sizeof(s->events[0]), SIM_EVENTS);

    if (!i)
        return 0;
    s->events[i].context = context;
    s->events[i].flags = flags;
    __atomic_store_n(&s->events[i].owner, s->contexts[context].owner, __ATOMIC_RELEASE);
    return i;
}

void sim_event_free(struct sim_state *s, uint32_t event)
{
    sim_pool_give_back(&s->event_pool, s->events, sizeof(s->events[0]), event);
}

void sim_stream_free(struct sim_state *s, uint32_t stream)
{
    struct sim_stream *st = &s->streams[stream];
    uint32_t *at = &s->contexts[st->context].streams;

    if (sim_stream_pending(st)) {
        st->dying = true;
        return;
    }
    while (*at && *at != stream)
        at = &s->streams[*at].sibling;
    if (*at)
        *at = st->sibling;
    sim_pool_give_back(&s->stream_pool, s->streams, sizeof(s->streams[0]), stream);
}

void sim_context_free(struct sim_state *s, uint32_t context)
{
    struct sim_context *c = &s->contexts[context];

    while (c->streams) {
        uint32_t stream = c->streams;

        sim_stream_detach(s, stream);
        sim_stream_free(s, stream);
    }
    for (uint32_t i = 1; i <= s->event_pool.high; i++) {
        if (s->events[i].owner && s->events[i].context == context)
            sim_event_free(s, i);
    }
    sim_context_detach(s, context);
    sim_pool_give_back(&s->context_pool, s->contexts, sizeof(s->contexts[0]), context);
}

/* Repair */

static void repair_devices(struct sim_state *s)
{
    for (unsigned i = 0; i < sim_device_end(s); i++) {
        struct sim_device *d = &s->devices[i];

        d->first = d->end = 0;
        if (d->current && !s->contexts[d->current].owner)
            d->current = 0;
        d->used_bytes = 0;
        for (unsigned k = 0; k < s->slots; k++) {
            if (s->processes[k].in_use)
                d->used_bytes +=
                    s->processes[k].usage[i].used_bytes + s->processes[k].usage[i].managed_bytes;
            s->processes[k].usage[i].physical_bytes = 0;
        }
    }
}

static void repair_contexts(struct sim_state *s)
{
    for (uint32_t i = 1; i <= s->context_pool.high; i++) {
        struct sim_context *c = &s->contexts[i];

        c->queued = c->next = c->ready_first = c->ready_last = c->streams = c->held = 0;
        c->weight = 0;
        if (c->legacy && s->streams[c->legacy].context != i)
            c->legacy = 0;
    }
}

static bool is_alive(const struct sim_state *s, uint64_t program)
{
    for (unsigned i = 0; i < s->slots; i++) {
        if (s->processes[i].in_use && s->processes[i].program == program)
            return true;
    }
    return false;
}

static void repair_values(struct sim_state *s)
{
    for (unsigned i = 0; i < SIM_VALUES; i++) {
        s->values[i].watchers = 0;
        if (s->values[i].program && !is_alive(s, s->values[i].program))
            s->values[i].program = 0;
    }
}

/* One that the dead were about to end ends now. */
static void repair_streams(struct sim_state *s)
{
    for (uint32_t i = 1; i <= s->stream_pool.high; i++) {
        struct sim_stream *st = &s->streams[i];
        struct sim_context *c = &s->contexts[st->context];

        st->state = SIM_STREAM_IDLE;
        st->prev = st->next = st->waiters = st->next_waiter = 0;
        if (st->owner && (st->owner != c->owner || (st->dying && !sim_stream_pending(st)))) {
            st->gen++;
            st->owner = 0;
        }
        if (!st->owner)
            continue;
        st->sibling = c->streams;
        c->streams = i;
    }
}

static void repair_events(struct sim_state *s)
{
    for (uint32_t i = 1; i <= s->event_pool.high; i++) {
        struct sim_event *event = &s->events[i];

        if (event->owner && event->owner != s->contexts[event->context].owner) {
            event->gen++;
            event->owner = 0;
        }
    }
}

void sim_repair(struct sim_state *s)
{
    repair_devices(s);
    sim_physical_repair(s);
    repair_contexts(s);
    repair_values(s);
    repair_streams(s);
    repair_events(s);
    sim_pool_rebuild(&s->context_pool, s->contexts, sizeof(s->contexts[0]));
    sim_pool_rebuild(&s->stream_pool, s->streams, sizeof(s->streams[0]));
    sim_pool_rebuild(&s->event_pool, s->events, sizeof(s->events[0]));

    s->crossed = 0;
    for (uint32_t i = 1; i <= s->stream_pool.high; i++) {
        if (!s->streams[i].owner)
            continue;
        s->crossed += sim_stream_crossing(s, i);
        sim_stream_settle(s, i);
    }
}
