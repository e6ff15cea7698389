/* SPDX-License-Identifier: Apache-2.0 */

/* A process' GPU as the limiter sees it, in stepped time. */

#include "vgpu/limiter/trace_state.h"

#define RECORD_NS 800
#define QUERY_NS 300

static int64_t gpu_now(void *gpu)
{
    return ((struct process *)gpu)->world->now_ns;
}

static void spend(struct process *process, int64_t ns)
{
    process->world->now_ns += ns;
}

static void *gpu_event(void *gpu)
{
    struct process *process = gpu;

    spend(process, RECORD_NS);
    return process->events_used < EVENTS ? &process->events[process->events_used++] : NULL;
}

/* A capture of one of the program's threads: nothing may be done in its stream. */
static bool is_captured(const struct process *process, const struct launch *where)
{
    unsigned stream = (unsigned)trace_stream_of(where);
    const struct thread *thread = &process->threads[stream / process->program.streams % THREADS];

    return where && stream % process->program.streams == 0 &&
           process->world->now_ns < thread->captures_until_ns;
}

/* What holds up our own stream. */
static int64_t hold_of(const struct world *world, const struct launch *where)
{
    const struct setup *setup = world->setup;

    if (where || !setup->hold_period_ns)
        return 0;
    return world->now_ns % setup->hold_period_ns * setup->hold_ns / setup->hold_period_ns;
}

static bool gpu_record(void *gpu, void *event, const struct launch *where)
{
    struct process *process = gpu;

    spend(process, RECORD_NS);
    if (is_captured(process, where))
        return false;
    trace_record(&process->world->device, process->context, trace_stream_of(where), event,
                 process->world->now_ns + hold_of(process->world, where));
    return true;
}

static enum event_state gpu_query(void *gpu, void *event)
{
    struct process *process = gpu;

    spend(process, QUERY_NS);
    trace_advance(&process->world->device, (double)process->world->now_ns);
    return ((struct trace_event *)event)->done ? EVENT_DONE : EVENT_NOT_YET;
}

static bool gpu_elapsed(void *gpu, void *from, void *to, double *ret_ms)
{
    const struct trace_event *a = from, *b = to;

    (void)gpu;
    if (!a->done || !b->done)
        return false;
    *ret_ms = (double)(float)((b->stamp_ns - a->stamp_ns) / 1e6);
    return true;
}

static bool gpu_is_idle(void *gpu, const struct launch *where)
{
    struct process *process = gpu;

    spend(process, QUERY_NS);
    trace_advance(&process->world->device, (double)process->world->now_ns);
    if (is_captured(process, where))
        return true;
    return trace_unfinished(&process->world->device, process->context, trace_stream_of(where)) == 0;
}

static bool gpu_asks_others(void *gpu)
{
    (void)gpu;
    return true;
}

static bool gpu_is_captured(void *gpu, const struct launch *where)
{
    return is_captured(gpu, where);
}

static int64_t gpu_wait(void *gpu, void *event)
{
    int64_t ns = RECORD_NS + TRACE_LATENCY_NS + SYNC_NS;

    (void)event;
    spend(gpu, 4 * ns);
    return ns;
}

const struct limiter_gpu trace_gpu = {
    .now_ns = gpu_now,
    .make_event = gpu_event,
    .record = gpu_record,
    .query = gpu_query,
    .elapsed_ms = gpu_elapsed,
    .is_idle = gpu_is_idle,
    .asks_others = gpu_asks_others,
    .is_captured = gpu_is_captured,
    .wait_ns = gpu_wait,
};
