/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/trace_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "vgpu/limiter/trace_state.h"

static int64_t window_of(const struct world *world)
{
    return world->setup->window_ns ? world->setup->window_ns : TRACE_WINDOW_NS;
}

/* A batch is over. Returns how long its thread thinks. */
static int64_t end_batch(struct world *world, const struct thread *thread)
{
    const struct program *program = &thread->process->program;

    if (thread->process == &world->processes[0] && thread->batch_since_ns > world->mark_ns &&
        world->batches < BATCHES)
        world->took_ms[world->batches++] =
            (double)(world->now_ns + SYNC_NS - thread->batch_since_ns) / 1e6;
    if (program->by_chance)
        return (int64_t)(program->think_ns * (0.5 - 0.5 * log(1 - trace_draw(world))));
    return (int64_t)program->think_ns;
}

/* Who waits for the bucket hears when it is worth while to look again. */
static void wake_waiters(struct world *world, unsigned container)
{
    for (unsigned i = 0; i < world->tenants; i++) {
        struct process *process = &world->processes[i];

        for (unsigned j = 0; j < process->program.threads; j++) {
            struct thread *thread = &process->threads[j];

            if (process->limiter && process->region.ext == world->ext + container &&
                trace_is_held(thread))
                thread->at_ns =
                    MIN(thread->at_ns, world->now_ns + (int64_t)(trace_draw(world) * SLACK_NS));
        }
    }
}

static void hear_wakes(struct world *world)
{
    for (unsigned i = 0; i < (world->apart ? world->tenants : 1); i++) {
        const uint32_t wake = world->ext[i].devices[0].compute.wake;

        if (wake == world->wakes[i])
            continue;
        world->wakes[i] = wake;
        wake_waiters(world, i);
    }
}

/* Whoever is next. */
static void step(struct world *world)
{
    struct process *helped = NULL, *turned = NULL;
    struct thread *thread = NULL;
    int64_t at_ns = window_of(world);

    for (unsigned i = 0; i < world->count; i++) {
        struct process *process = &world->processes[i];

        if (process->born_ns || process->killed_ns < at_ns) {
            int64_t event_ns = process->born_ns ? process->born_ns : process->killed_ns;

            if (event_ns < at_ns)
                at_ns = event_ns, turned = process, thread = NULL, helped = NULL;
        }
        if (process->born_ns)
            continue;
        for (unsigned j = 0; j < process->program.threads; j++) {
            struct thread *candidate = &process->threads[j];

            if (candidate->at_ns == NEVER && trace_streams_are_done(world, candidate))
                candidate->at_ns = world->now_ns + SYNC_NS +
                                   (candidate->in_launch ? 0 : end_batch(world, candidate));
            if (candidate->at_ns < at_ns)
                at_ns = candidate->at_ns, thread = candidate, helped = turned = NULL;
        }
        if (process->limiter && process->tick_ns < at_ns)
            at_ns = process->tick_ns, helped = process, thread = NULL, turned = NULL;
    }

    /* Until then a kernel's end may be what somebody waits for. */
    if (at_ns > world->now_ns) {
        trace_advance_to_an_end(&world->device, (double)at_ns);
        if (world->device.now_ns < (double)at_ns) {
            world->now_ns = MAX(world->now_ns, (int64_t)world->device.now_ns + 1);
            return;
        }
    }
    world->now_ns = MAX(world->now_ns, at_ns);
    if (thread)
        trace_step_thread(world, thread);
    else if (helped)
        trace_step_helper(world, helped);
    else if (turned && turned->born_ns)
        trace_begin_process(world, turned);
    else if (turned)
        trace_kill_process(world, turned);
}

/* At the window's end: a kernel of each stream that is not done, and of the process at least. */
static double grain_of(const struct process *process)
{
    unsigned busy = 0;

    for (unsigned i = 0; i < process->program.threads * process->program.streams; i++)
        busy += trace_unfinished(&process->world->device, process->context, (int)i) > 0;
    return 100 * process->longest_ns * MAX(busy, 1u) / (double)window_of(process->world);
}

static void begin_regions(const struct world *world)
{
    for (unsigned i = 0; i < (world->apart ? world->tenants : 1); i++) {
        memset(&world->ext[i].devices[0], 0, sizeof(world->ext[i].devices[0]));
        memset(world->ext[i].turns, 0, (size_t)PROCESSES * sizeof(world->ext[i].turns[0]));
    }
}

static void begin_cells(struct world *world)
{
    COPY_TEXT(world->cells, "/tmp/hami-test-cells-XXXXXX");
    if (!mkdtemp(world->cells))
        abort();
    for (unsigned i = 0; i < world->tenants; i++)
        trace_make_cell(world, i);
}

static void end_cells(struct world *world)
{
    char path[CELL_PATH];

    for (unsigned i = 0; i < world->tenants; i++) {
        card_close(&world->processes[i].share.card);
        trace_cell_path(world, i, path, sizeof(path));
        (void)unlink(path);
    }
    (void)rmdir(world->cells);
}

static void run_until(struct world *world, int64_t until_ns)
{
    int64_t since_ns;

    while (world->now_ns < until_ns) {
        since_ns = world->now_ns;
        step(world);
        hear_wakes(world);
        for (unsigned i = 0; i < world->tenants; i++) {
            if (world->processes[i].limiter)
                trace_note_waits(&world->processes[i], since_ns);
        }
    }
    trace_advance(&world->device, (double)world->now_ns);
}

static int compare(const void *a, const void *b)
{
    const double *first = a, *second = b;

    return (*first > *second) - (*first < *second);
}

struct result trace_run(const struct setup *setup, uint64_t seed, bool oracle)
{
    static struct world world;
    /* The container's, or those of tenants apart. */
    static struct region_base base[PROCESSES];
    static struct region_ext ext[PROCESSES];
    struct result result = {0};

    world = (struct world){
        .setup = setup,
        .mark_ns = setup->marks_ns[0],
        .oracle = oracle,
        .random = seed | 1,
        .cores = setup->cores,
        .apart = setup->apart,
        .base = base,
        .ext = ext,
        .tenants = setup->tenants,
        .now_ns = 1000,
    };
    begin_regions(&world);
    if (world.apart)
        begin_cells(&world);
    trace_init(&world.device, setup->drift);
    world.device.filled = setup->filled;
    world.device.slowing = setup->slowing;
    for (unsigned i = 0; i < setup->tenants + setup->neighbours; i++)
        trace_add_process(&world, setup->programs[i]);

    for (unsigned mark = 0; mark < MARKS && setup->marks_ns[mark]; mark++) {
        run_until(&world, setup->marks_ns[mark]);
        for (unsigned i = 0; i < world.tenants; i++)
            result.busy_ms[mark][i] = trace_busy_of(&world.processes[i]) / 1e6;
    }
    run_until(&world, window_of(&world));
    result.share = 100 * trace_busy_of_tenants(&world) / (double)world.now_ns;
    result.charged = 100 * (double)ext->devices[0].compute.charged_ns / (double)world.now_ns;
    for (unsigned i = 0; i < world.tenants; i++) {
        result.grain += grain_of(&world.processes[i]);
        result.longest_ms = MAX(result.longest_ms, world.processes[i].longest_ns / 1e6);
        result.launches += world.processes[i].threads[0].launches;
    }
    qsort(world.took_ms, world.batches, sizeof(world.took_ms[0]), compare);
    result.batches = world.batches;
    result.p99_ms = world.batches ? world.took_ms[world.batches * 99 / 100] : 0;
    result.beyond_ms = (double)world.beyond_ns / 1e6;
    result.longest_wait_ms = (double)world.longest_wait_ns / 1e6;
    for (unsigned i = 0; i < world.count; i++)
        free(world.processes[i].limiter);
    if (world.apart)
        end_cells(&world);
    trace_end(&world.device);
    return result;
}
