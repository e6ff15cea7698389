/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/trace_device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define FOREVER 1e30

void trace_init(struct trace_device *device, double drift)
{
    memset(device, 0, sizeof(*device));
    device->drift = drift;
    device->active = -1;
}

void trace_end(struct trace_device *device)
{
    for (int i = 0; i < TRACE_CONTEXTS; i++) {
        for (int j = 0; j < TRACE_STREAMS; j++)
            free(device->contexts[i].streams[j].items);
    }
}

int trace_open(struct trace_device *device)
{
    int i = 0;

    while (i < TRACE_CONTEXTS && (device->contexts[i].alive || device->contexts[i].busy_ns > 0))
        i++;
    assert(i < TRACE_CONTEXTS);
    device->contexts[i].alive = true;
    return i;
}

void trace_kill(struct trace_device *device, int context)
{
    struct trace_context *gone = &device->contexts[context];

    for (int i = 0; i < TRACE_STREAMS; i++) {
        gone->streams[i].count = 0;
        gone->streams[i].finished = gone->streams[i].launched;
    }
    gone->alive = false;
    gone->in_use = 0;
}

static struct trace_item *head_of(struct trace_stream *stream)
{
    return &stream->items[stream->head & (stream->room - 1)];
}

static void push(struct trace_device *device, int context, int number, struct trace_item item)
{
    struct trace_context *into = &device->contexts[context];
    struct trace_stream *stream = &into->streams[number];

    assert(into->alive);
    if (stream->count == stream->room) {
        unsigned room = stream->room ? 2 * stream->room : 16;
        struct trace_item *items = malloc(room * sizeof(*items));

        assert(items);
        for (unsigned i = 0; i < stream->count; i++)
            items[i] = stream->items[(stream->head + i) & (stream->room - 1)];
        free(stream->items);
        stream->items = items;
        stream->room = room;
        stream->head = 0;
    }
    stream->items[(stream->head + stream->count++) & (stream->room - 1)] = item;
    into->in_use |= 1u << number;
}

static double work_at(struct trace_device *device, int number);

static double draw(struct trace_device *device)
{
    device->lot = device->lot * 6364136223846793005u + 1442695040888963407u;
    return (double)(device->lot >> 11) / 9007199254740992.0;
}

/* What comes to an idle stream of the context that is on the device is seen at its next slice. */
static uint64_t slice_of(struct trace_device *device, int context, int number)
{
    struct trace_context *into = &device->contexts[context];
    int others = 0;

    if (context != device->active || into->streams[number].count)
        return 0;
    for (int i = 0; i < TRACE_CONTEXTS; i++)
        others += i != context && work_at(device, i) <= device->now_ns;
    if (!others || draw(device) >= (others == 1 ? 0.2 : others == 2 ? 0.9 : 0.46))
        return 0;
    return into->slices + 1;
}

static void pop(struct trace_context *context, int number)
{
    struct trace_stream *stream = &context->streams[number];

    stream->head++;
    if (--stream->count == 0)
        context->in_use &= ~(1u << number);
}

void trace_launch(struct trace_device *device, int context, int stream, double length_ns,
                  int waits_for, int64_t now_ns)
{
    push(device, context, stream,
         (struct trace_item){.left_ns = length_ns,
                             .order = ++device->launched,
                             .slice = slice_of(device, context, stream),
                             .available_ns = now_ns + TRACE_LATENCY_NS,
                             .waits_for = waits_for});
    device->contexts[context].streams[stream].launched++;
}

void trace_wait(struct trace_device *device, int context, int stream, int64_t until_ns)
{
    push(device, context, stream,
         (struct trace_item){.order = ++device->launched, .available_ns = until_ns});
    device->contexts[context].streams[stream].launched++;
}

void trace_record(struct trace_device *device, int context, int stream, struct trace_event *event,
                  int64_t now_ns)
{
    event->records++;
    event->done = false;
    push(device, context, stream,
         (struct trace_item){.slice = slice_of(device, context, stream),
                             .event = event,
                             .record = event->records,
                             .available_ns = now_ns + TRACE_LATENCY_NS});
}

/* When the context has something at the head of a stream: now, later, or never. */
static double work_at(struct trace_device *device, int number)
{
    struct trace_context *context = &device->contexts[number];
    double at = FOREVER;

    for (uint32_t left = context->in_use; left; left &= left - 1) {
        double available = (double)head_of(&context->streams[__builtin_ctz(left)])->available_ns;

        if (available <= device->now_ns)
            return device->now_ns;
        if (available < at)
            at = available;
    }
    return at;
}

/* The next context with work after the active one, itself last; the time of the next work if none.
 */
static int choose(struct trace_device *device, double *ret_next_ns)
{
    int from = device->active < 0 ? 0 : device->active;

    *ret_next_ns = FOREVER;
    for (int i = 1; i <= TRACE_CONTEXTS; i++) {
        int number = (from + i) % TRACE_CONTEXTS;
        double at = work_at(device, number);

        if (at <= device->now_ns)
            return number;
        if (at < *ret_next_ns)
            *ret_next_ns = at;
    }
    return -1;
}

static void stamp(struct trace_device *device, struct trace_event *event, unsigned record)
{
    double ns = device->now_ns * (1 + device->drift);

    if (record != event->records)
        return;
    event->stamp_ns = (double)(int64_t)(ns / TRACE_RESOLUTION_NS) * TRACE_RESOLUTION_NS;
    event->done = true;
}

static bool spins(const struct trace_context *context, const struct trace_item *item)
{
    return item->waits_for &&
           context->streams[TRACE_STREAMS - 1].finished < (uint64_t)item->waits_for;
}

static bool is_on_device(const struct trace_device *device, const struct trace_context *context,
                         const struct trace_item *item)
{
    return !item->event && (double)item->available_ns <= device->now_ns &&
           item->slice <= context->slices;
}

/* Where one fills the device those launched after it wait. */
static bool has_its_turn(const struct trace_device *device, struct trace_context *context,
                         const struct trace_item *item)
{
    if (!is_on_device(device, context, item))
        return false;
    for (uint32_t left = context->in_use; left && device->filled; left &= left - 1) {
        struct trace_item *other = head_of(&context->streams[__builtin_ctz(left)]);

        if (is_on_device(device, context, other) && other->order < item->order)
            return false;
    }
    return true;
}

/* Of each kernel that runs: together they are no slower than one after the other. */
static double speed(const struct trace_device *device, struct trace_context *context)
{
    double running = 0;

    if (device->slowing <= 0)
        return 1;
    for (uint32_t left = context->in_use; left; left &= left - 1) {
        struct trace_item *item = head_of(&context->streams[__builtin_ctz(left)]);

        running += item->left_ns > 0 && has_its_turn(device, context, item);
    }
    return running > 1 ? 1 / MIN(1 + device->slowing * (running - 1), running) : 1;
}

/* Stamps events, ends kernels; returns when the next kernel ends or work arrives. */
static double settle(struct trace_device *device, struct trace_context *context, bool *ret_running)
{
    double next = FOREVER;
    bool again = true;

    while (again) {
        again = false;
        next = FOREVER;
        *ret_running = false;
        for (uint32_t left = context->in_use; left; left &= left - 1) {
            int number = __builtin_ctz(left);
            struct trace_item *item = head_of(&context->streams[number]);
            double end;

            if ((double)item->available_ns > device->now_ns) {
                next = next < (double)item->available_ns ? next : (double)item->available_ns;
                continue;
            }
            if (item->slice > context->slices) {
                device->deferred = true;
                continue;
            }
            if (item->event) {
                stamp(device, item->event, item->record);
                pop(context, number);
                again = true;
                continue;
            }
            if (item->left_ns <= 0 && !spins(context, item)) {
                context->streams[number].finished++;
                device->ended++;
                pop(context, number);
                again = true;
                continue;
            }
            *ret_running = true;
            if (!has_its_turn(device, context, item))
                continue;
            end = device->now_ns + item->left_ns / speed(device, context);
            if ((!spins(context, item) || item->left_ns > 0) && end < next)
                next = end;
        }
    }
    return next;
}

static void run(struct trace_device *device, struct trace_context *context, double until_ns,
                bool running)
{
    const double passed = until_ns - device->now_ns, done_ns = passed * speed(device, context);

    for (uint32_t left = context->in_use; left && running; left &= left - 1) {
        struct trace_item *item = head_of(&context->streams[__builtin_ctz(left)]);

        if (!has_its_turn(device, context, item))
            continue;
        item->left_ns -= done_ns;
        if (item->left_ns < 0.5)
            item->left_ns = 0;
    }
    if (running)
        context->busy_ns += passed;
    device->now_ns = until_ns;
}

static void advance(struct trace_device *device, double until_ns, bool to_an_end)
{
    uint64_t ended = device->ended;

    while (device->now_ns < until_ns && !(to_an_end && device->ended > ended)) {
        struct trace_context *context;
        double next, other;
        bool running;

        if (device->active < 0 || work_at(device, device->active) > device->now_ns ||
            (device->now_ns >= device->slice_end_ns && device->now_ns >= device->switch_end_ns)) {
            int chosen = choose(device, &next);

            if (chosen < 0) {
                device->now_ns = next < until_ns ? next : until_ns;
                continue;
            }
            if (chosen != device->active)
                device->switch_end_ns = device->now_ns + TRACE_SWITCH_NS;
            device->active = chosen;
            device->contexts[chosen].slices++;
            device->slice_end_ns = MAX(device->now_ns, device->switch_end_ns) + TRACE_SLICE_NS;
        }
        if (device->now_ns < device->switch_end_ns) {
            device->now_ns = device->switch_end_ns < until_ns ? device->switch_end_ns : until_ns;
            continue;
        }

        context = &device->contexts[device->active];
        device->deferred = false;
        next = settle(device, context, &running);
        if (!running && device->deferred) {
            device->slice_end_ns = device->switch_end_ns = device->now_ns;
            continue;
        }
        if (!running && !context->in_use)
            continue;
        if (next > device->slice_end_ns)
            next = device->slice_end_ns;
        /* Nothing of ours runs: others may. */
        if (!running) {
            (void)choose(device, &other);
            if (work_at(device, device->active) > device->now_ns && choose(device, &other) >= 0)
                continue;
            if (other < next)
                next = other;
        }
        if (next > until_ns)
            next = until_ns;
        run(device, context, next, running);
    }
}

void trace_advance(struct trace_device *device, double until_ns)
{
    advance(device, until_ns, false);
}

void trace_advance_to_an_end(struct trace_device *device, double until_ns)
{
    advance(device, until_ns, true);
}

uint64_t trace_unfinished(const struct trace_device *device, int context, int stream)
{
    const struct trace_stream *of = &device->contexts[context].streams[stream];

    return of->launched - of->finished;
}
