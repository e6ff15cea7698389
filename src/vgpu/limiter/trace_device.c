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

    while (i < device->opened && (device->contexts[i].alive || device->contexts[i].busy_ns > 0))
        i++;
    assert(i < TRACE_CONTEXTS);
    device->contexts[i].alive = true;
    device->opened = MAX(device->opened, i + 1);
    return i;
}

void trace_kill(struct trace_device *device, int context)
{
    struct trace_context *gone = &device->contexts[context];

    for (int i = 0; i < TRACE_STREAMS; i++) {
        gone->streams[i].count = gone->streams[i].seen = gone->streams[i].kernels = 0;
        gone->streams[i].finished = gone->streams[i].launched;
    }
    gone->alive = false;
    gone->in_use = 0;
    device->quiet_until_ns = 0;
}

static struct trace_item *item_of(const struct trace_stream *stream, unsigned i)
{
    return &stream->items[(stream->head + i) & (stream->room - 1)];
}

static struct trace_item *head_of(const struct trace_stream *stream)
{
    return item_of(stream, 0);
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
            items[i] = *item_of(stream, i);
        free(stream->items);
        stream->items = items;
        stream->room = room;
        stream->head = 0;
    }
    *item_of(stream, stream->count++) = item;
    device->quiet_until_ns = MIN(device->quiet_until_ns, (double)item.available_ns);
    into->in_use |= 1u << number;
}

static void pop(struct trace_context *context, int number)
{
    struct trace_stream *stream = &context->streams[number];

    stream->kernels -= !head_of(stream)->event;
    stream->head++;
    stream->seen--;
    if (--stream->count == 0)
        context->in_use &= ~(1u << number);
}

void trace_launch(struct trace_device *device, int context, int stream, double length_ns,
                  int waits_for, int64_t now_ns)
{
    push(device, context, stream,
         (struct trace_item){.left_ns = length_ns,
                             .order = ++device->launched,
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
         (struct trace_item){
             .event = event, .record = event->records, .available_ns = now_ns + TRACE_LATENCY_NS});
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
    for (int i = 1; i <= device->opened; i++) {
        int number = (from + i) % device->opened;
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
    if (item->waits_for < 0)
        return context->gates < (uint64_t)-item->waits_for;
    return item->waits_for &&
           context->streams[TRACE_STREAMS - 1].finished < (uint64_t)item->waits_for;
}

/* What has come to a stream by now the device sees, unless it looks to another context. */
static void see(const struct trace_device *device, struct trace_context *context)
{
    for (uint32_t left = context->in_use; left; left &= left - 1) {
        struct trace_stream *stream = &context->streams[__builtin_ctz(left)];

        while (stream->seen < stream->count &&
               (double)item_of(stream, stream->seen)->available_ns <= device->now_ns)
            stream->kernels += !item_of(stream, stream->seen++)->event;
    }
}

/* Whether the device goes on looking after the context that is on it. */
static bool has_more(const struct trace_context *context)
{
    for (uint32_t left = context->in_use; left; left &= left - 1) {
        if (context->streams[__builtin_ctz(left)].kernels > 1)
            return true;
    }
    return false;
}

static bool others_wait(struct trace_device *device)
{
    for (int i = 0; i < device->opened; i++) {
        if (i != device->active && work_at(device, i) <= device->now_ns)
            return true;
    }
    return false;
}

static bool is_running(const struct trace_stream *stream)
{
    return stream->kernels && !head_of(stream)->event;
}

/* Where one fills the device those launched after it wait. */
static bool has_its_turn(const struct trace_device *device, const struct trace_context *context,
                         const struct trace_stream *stream)
{
    if (!is_running(stream))
        return false;
    for (uint32_t left = context->in_use; left && device->filled; left &= left - 1) {
        const struct trace_stream *other = &context->streams[__builtin_ctz(left)];

        if (is_running(other) && head_of(other)->order < head_of(stream)->order)
            return false;
    }
    return true;
}

/* Of each kernel that runs: together they are no slower than one after the other. */
static double speed(const struct trace_device *device, const struct trace_context *context)
{
    double running = 0;

    if (device->slowing <= 0)
        return 1;
    for (uint32_t left = context->in_use; left; left &= left - 1) {
        const struct trace_stream *stream = &context->streams[__builtin_ctz(left)];

        running += has_its_turn(device, context, stream) && head_of(stream)->left_ns > 0;
    }
    return running > 1 ? 1 / MIN(1 + device->slowing * (running - 1), running) : 1;
}

/* What settle() leaves. */
struct settled {
    double next_ns; /* when the next kernel ends or work arrives */
    bool is_running, is_deferred;
};

/* Of one stream: stamps events, ends kernels. */
static void settle_stream(struct trace_device *device, struct trace_context *context, int number,
                          bool *ret_changed)
{
    struct trace_stream *stream = &context->streams[number];

    while (stream->seen) {
        struct trace_item *item = head_of(stream);

        if (item->event) {
            stamp(device, item->event, item->record);
        } else if (item->left_ns <= 0 && !spins(context, item)) {
            stream->finished++;
            device->ended++;
        } else {
            return;
        }
        pop(context, number);
        *ret_changed = true;
    }
}

static struct settled settle(struct trace_device *device, struct trace_context *context)
{
    struct settled settled = {.next_ns = FOREVER};

    if (!context->is_left)
        see(device, context);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t left = context->in_use; left; left &= left - 1)
            settle_stream(device, context, __builtin_ctz(left), &changed);
    }
    context->is_left = context->is_left || (!has_more(context) && others_wait(device));
    for (uint32_t left = context->in_use; left; left &= left - 1) {
        const struct trace_stream *stream = &context->streams[__builtin_ctz(left)];
        double next_ns = FOREVER;

        if (stream->seen < stream->count)
            next_ns = (double)item_of(stream, stream->seen)->available_ns;
        if (next_ns <= device->now_ns) {
            settled.is_deferred = true;
            next_ns = FOREVER;
        }
        settled.next_ns = MIN(settled.next_ns, next_ns);
        if (!is_running(stream))
            continue;
        settled.is_running = true;
        if (has_its_turn(device, context, stream) &&
            (head_of(stream)->left_ns > 0 || !spins(context, head_of(stream))))
            settled.next_ns = MIN(settled.next_ns, device->now_ns + head_of(stream)->left_ns /
                                                                        speed(device, context));
    }
    return settled;
}

/* Of the context on the device. */
static void run(struct trace_device *device, double until_ns)
{
    struct trace_context *context = &device->contexts[device->active];
    const double passed = until_ns - device->now_ns, done_ns = passed * speed(device, context);

    for (uint32_t left = context->in_use; left; left &= left - 1) {
        const struct trace_stream *stream = &context->streams[__builtin_ctz(left)];
        struct trace_item *item = head_of(stream);

        if (!has_its_turn(device, context, stream))
            continue;
        item->left_ns -= done_ns;
        if (item->left_ns < 0.5) {
            item->left_ns = 0;
            device->quiet_until_ns = 0;
        }
    }
    context->busy_ns += passed;
    device->now_ns = until_ns;
}

/* When somebody else has work who has none now. */
static double others_come_ns(struct trace_device *device)
{
    double next_ns = FOREVER;

    for (int i = 0; i < device->opened; i++) {
        double at_ns = i == device->active ? FOREVER : work_at(device, i);

        if (at_ns > device->now_ns)
            next_ns = MIN(next_ns, at_ns);
    }
    return next_ns;
}

static void advance(struct trace_device *device, double until_ns, bool to_an_end)
{
    uint64_t ended = device->ended;

    if (device->now_ns < until_ns && until_ns < device->quiet_until_ns) {
        run(device, until_ns);
        return;
    }
    device->quiet_until_ns = 0;
    while (device->now_ns < until_ns && !(to_an_end && device->ended > ended)) {
        struct trace_context *context;
        struct settled settled;
        double next, other;

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
            device->contexts[chosen].is_left = false;
            device->slice_end_ns = MAX(device->now_ns, device->switch_end_ns) + TRACE_SLICE_NS;
        }
        if (device->now_ns < device->switch_end_ns) {
            device->now_ns = device->switch_end_ns < until_ns ? device->switch_end_ns : until_ns;
            continue;
        }

        context = &device->contexts[device->active];
        settled = settle(device, context);
        if (!settled.is_running && settled.is_deferred) {
            device->slice_end_ns = device->switch_end_ns = device->now_ns;
            continue;
        }
        if (!settled.is_running && !context->in_use)
            continue;
        next = MIN(settled.next_ns, device->slice_end_ns);
        /* Nothing of ours runs: others may. */
        if (!settled.is_running) {
            (void)choose(device, &other);
            if (work_at(device, device->active) > device->now_ns && choose(device, &other) >= 0)
                continue;
            if (other < next)
                next = other;
        }
        if (settled.is_running) {
            device->quiet_until_ns = MIN(next, others_come_ns(device));
            run(device, MIN(next, until_ns));
        } else {
            device->now_ns = MIN(next, until_ns);
        }
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

double trace_left_ns(const struct trace_device *device, int context, int stream)
{
    const struct trace_stream *of = &device->contexts[context].streams[stream];
    double left_ns = 0;

    for (unsigned i = 0; i < of->count; i++)
        left_ns += item_of(of, i)->left_ns;
    return left_ns;
}
