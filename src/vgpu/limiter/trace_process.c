/* SPDX-License-Identifier: Apache-2.0 */

/* Processes: their threads' launches, their helper threads, and how they begin and end. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/trace_state.h"

#define LAUNCH_NS 3000
#define CAPTURE_NS 3e6 /* mean */
#define REBIRTH_NS 1e8
#define WAITS 4 /* and kernels, in a stream that waits */

static bool may_go(struct world *world, struct thread *thread, int64_t *ret_until_ns)
{
    struct process *process = thread->process;

    if (process >= &world->processes[world->tenants]) /* a neighbour keeps a queue of its own */
        return *ret_until_ns = world->now_ns + 200000,
               trace_advance(&world->device, (double)world->now_ns),
               trace_unfinished(&world->device, process->context,
                                trace_stream_of(&thread->launch)) < 8;
    if (world->oracle)
        return trace_oracle_may_go(process, ret_until_ns);
    return limiter_may_go(process->limiter, &thread->cache, &thread->launch, &thread->waiting,
                          ret_until_ns);
}

void trace_note_waits(struct process *process, int64_t since_ns)
{
    struct world *world = process->world;
    const int64_t beyond_ns = world->now_ns - MAX(since_ns, process->debt.until_ns);

    for (unsigned i = 0; i < process->program.threads; i++) {
        struct thread *thread = &process->threads[i];

        if (!trace_is_held(thread) || process->debt.is_others || beyond_ns <= 0)
            continue;
        thread->beyond_ns += beyond_ns;
        world->beyond_ns = MAX(world->beyond_ns, thread->beyond_ns);
    }
    process->debt = trace_debt_of(&process->region, &process->share.own, world->now_ns);
}

static void queue(struct world *world, struct thread *thread)
{
    struct process *process = thread->process;

    trace_launch(&world->device, process->context, trace_stream_of(&thread->launch),
                 thread->length_ns, trace_waits_for(process, thread), world->now_ns);
}

bool trace_streams_are_done(const struct world *world, const struct thread *thread)
{
    const struct process *process = thread->process;

    for (unsigned i = 0; i < process->program.streams; i++) {
        if (trace_unfinished(&world->device, process->context,
                             (int)(thread->number * process->program.streams + i)))
            return false;
    }
    return true;
}

/* Another thread launches from now on. */
static void relay(struct thread *thread)
{
    if (thread->process->limiter && thread->cache.limiter)
        limiter_end_thread(thread->cache.limiter, &thread->cache);
    thread->cache = (struct launch_cache){0};
}

/* The launch is made: its thread goes on, or waits for its kernel, or the host keeps it. Where
 * others are about, or a look at it is to find it so, the kernel is not queued at once. False when
 * the launch has not returned. */
static bool launches(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;
    const bool is_held_up = program->held && trace_draw_below(world, program->held) == 0;

    thread->is_early = is_held_up ? program->held_early : program->blocking || program->threads > 1;
    thread->in_launch = thread->is_early || is_held_up;
    thread->at_ns = world->now_ns + LAUNCH_NS + (is_held_up ? program->held_ns : 0);
    if (thread->is_early)
        return false;
    world->now_ns += LAUNCH_NS;
    queue(world, thread);
    return !thread->in_launch;
}

static void after_launch(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;

    thread->has_launch = false;
    if (trace_pair_spins(thread) && thread->launches % 2)
        world->longest_wait_ns = MAX(world->longest_wait_ns, world->now_ns - thread->held_since_ns);
    thread->launches++;
    if (program->gated && thread->launches % program->gated == 0)
        world->device.contexts[thread->process->context].gates++;
    thread->at_ns = world->now_ns;
    if (program->relay && thread->launches % program->relay == 0)
        relay(thread);
    if (program->batch && ++thread->in_batch >= program->batch) {
        thread->in_batch = 0;
        thread->at_ns = NEVER;
    }
}

static void end_launch(struct world *world, struct thread *thread)
{
    thread->in_launch = false;
    if (thread->process->limiter) {
        limiter_returned(thread->process->limiter, &thread->launch, &thread->ticket);
        limiter_end(thread->process->limiter, &thread->ticket, true);
    }
    after_launch(world, thread);
}

/* What is launched into a captured stream never comes by here, and runs nothing. */
static bool begins_capture(struct world *world, struct thread *thread)
{
    double gap_ns = thread->process->program.capture_gap_ns;

    if (gap_ns <= 0 || world->now_ns < thread->capture_ns)
        return false;
    thread->captures_until_ns =
        world->now_ns + (int64_t)trace_exponential(&world->random, CAPTURE_NS);
    thread->capture_ns =
        thread->captures_until_ns + (int64_t)trace_exponential(&world->random, gap_ns);
    thread->at_ns = thread->captures_until_ns;
    return true;
}

static void begin_launch(struct process *process, struct thread *thread)
{
    (void)limiter_begin(process->limiter, &thread->cache, &thread->launch, &thread->waiting,
                        &thread->ticket);
    limiter_calls(process->limiter, &thread->ticket);
}

/* As often as the stream comes after it: what waits in it stays little. */
static void choose_launch(struct world *world, struct thread *thread)
{
    const struct process *process = thread->process;
    int stream;

    trace_choose_launch(world, thread);
    stream = trace_stream_of(&thread->launch);
    if (process->program.wait_ns && (unsigned)stream % process->program.streams == 0 &&
        trace_unfinished(&world->device, process->context, stream) < WAITS)
        trace_wait(&world->device, process->context, stream,
                   world->now_ns + process->program.wait_ns);
}

void trace_step_thread(struct world *world, struct thread *thread)
{
    struct process *process = thread->process;
    int64_t until_ns = 0;
    bool is_queued;

    if (thread->in_launch) {
        is_queued = !thread->is_early;
        thread->is_early = false;
        if (!is_queued)
            queue(world, thread);
        if (!is_queued && process->program.blocking)
            thread->at_ns = NEVER;
        else
            end_launch(world, thread);
        return;
    }
    if (!thread->has_launch && begins_capture(world, thread))
        return;
    if (!thread->has_launch)
        choose_launch(world, thread);
    if (process->limiter && thread->cache.limiter == process->limiter &&
        thread->cache.generation == process->limiter->generation &&
        launch_cache_pays(&thread->cache, &thread->launch)) {
        thread->ticket = (struct ticket){0};
        if (launches(world, thread))
            after_launch(world, thread);
        return;
    }
    if (!may_go(world, thread, &until_ns)) {
        thread->at_ns =
            MAX(until_ns, world->now_ns + 1000) + (int64_t)(trace_draw(world) * SLACK_NS);
        return;
    }
    if (process->limiter)
        begin_launch(process, thread);
    if (launches(world, thread))
        end_launch(world, thread);
}

static void look_after(struct world *world, struct process *process)
{
    bool busy = limiter_is_busy(process->limiter, world->now_ns);

    limiter_rest(process->limiter, !busy);
    if (!busy)
        return;
    limiter_poll(process->limiter);
    limiter_look(process->limiter);
    if (limiter_probe(process->limiter))
        process->answer_ns = world->now_ns + LIMITER_ANSWER_NS;
}

void trace_step_helper(struct world *world, struct process *process)
{
    if (process->answer_ns) {
        limiter_probe_answer(process->limiter);
        process->answer_ns = 0;
    } else {
        look_after(world, process);
    }
    process->tick_ns = process->answer_ns ? process->answer_ns : limiter_due_ns(process->limiter);
}

void trace_begin_process(struct world *world, struct process *process)
{
    bool limited = process < &world->processes[world->tenants] && !world->oracle;

    process->context = trace_open(&world->device);
    process->events_used = 0;
    process->born_ns = process->tick_ns = process->answer_ns = 0;
    process->killed_ns =
        process->program.life_ns > 0
            ? world->now_ns + (int64_t)trace_exponential(&process->fate, process->program.life_ns)
            : NEVER;
    memset(process->events, 0, sizeof(process->events));
    memset(process->threads, 0, sizeof(process->threads));
    for (unsigned i = 0; i < process->program.threads; i++) {
        process->threads[i].process = process;
        process->threads[i].number = i;
        process->threads[i].at_ns =
            MAX(world->now_ns, process->program.starts_ns) + (int64_t)(trace_draw(world) * 1e6);
    }
    if (!limited)
        return;
    process->limiter = calloc(1, sizeof(*process->limiter));
    if (!process->limiter)
        abort();
    limiter_init(process->limiter, &trace_gpu, process, &process->share, world->random);
}

void trace_kill_process(struct world *world, struct process *process)
{
    struct trace_context *context = &world->device.contexts[process->context];

    trace_advance(&world->device, (double)world->now_ns);
    trace_kill(&world->device, process->context);
    process->busy_before_ns += context->busy_ns;
    context->busy_ns = 0;
    free(process->limiter);
    process->limiter = NULL;
    process->killed_ns = NEVER;
    process->born_ns = world->now_ns + (int64_t)trace_exponential(&process->fate, REBIRTH_NS);
    if (process < &world->processes[world->tenants] && !world->oracle)
        turns_settle(process->region.ext, (unsigned)process->region.slot, 0, world->now_ns);
}

void trace_cell_path(const struct world *world, unsigned number, char *path, size_t size)
{
    const struct program *program = &world->setup->programs[number];
    char name[16], file[32];

    (void)snprintf(name, sizeof(name), "%u", number);
    (void)card_cell_name(file, sizeof(file), name, program->high ? 0 : CARD_PRIORITY,
                         program->cores);
    (void)snprintf(path, size, "%s/%s", world->cells, file);
}

void trace_make_cell(const struct world *world, unsigned number)
{
    char path[CELL_PATH];

    trace_cell_path(world, number, path, sizeof(path));
    if (card_make_cell(path) < 0)
        abort();
}

static void open_cell(struct process *process, unsigned number)
{
    const char *folder = process->world->cells;
    char path[CELL_PATH];

    trace_cell_path(process->world, number, path, sizeof(path));
    if (card_open_ranked(&process->share.card, path, folder, true,
                         process->program.high ? 0 : CARD_PRIORITY) < 0)
        abort();
}

void trace_add_process(struct world *world, struct program program)
{
    struct process *process = &world->processes[world->count];
    const unsigned number = world->count++, container = world->apart ? number : 0;

    *process = (struct process){.world = world, .program = program};
    process->fate = (world->random ^ number) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    process->region =
        (struct region){.base = world->base + container, .ext = world->ext + container, .fd = -1};
    process->region.slot = (int)(number - container);
    process->share = (struct share){.region = &process->region};
    process->share.rate = bucket_rate(program.cores ? program.cores : world->cores);
    if (world->apart)
        open_cell(process, number);
    if (number < world->tenants)
        process->region.base->slot_count = (int32_t)process->region.slot + 1;
    trace_begin_process(world, process);
}
