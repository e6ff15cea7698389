/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/trace_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/limiter.h"
#include "vgpu/limiter/trace_debt.h"
#include "vgpu/limiter/trace_device.h"

/*
 * Kernels in several streams that are about as short as the host needs to launch them overlap less
 * while they are measured, since that takes the host's time, too: they are charged too much, up to
 * half of it. Traces have none that are shorter than this.
 */
#define OVERLAP_LEAST_NS 20e3

#define LAUNCH_NS 3000
#define RECORD_NS 800
#define QUERY_NS 300
#define SYNC_NS 5000   /* from a kernel's end until the waiting thread runs */
#define CAPTURE_NS 3e6 /* mean */
#define REBIRTH_NS 1e8
#define TICK_NS 2500000
#define SLACK_NS 50000 /* of a timer */
#define NEVER INT64_MAX

enum {
    THREADS = 4, /* of a process */
    EVENTS = (2 + SAMPLE_MARKS) * SAMPLES + TAILS + 8,
    BATCHES = 65536, /* remembered */
    CELL_PATH = 128,
    HANDLES = 16, /* a stream's handle is its number and this: the first ones have a meaning */
};

struct thread {
    struct process *process;
    unsigned number;
    struct launch_cache cache;
    struct waiting waiting;
    int64_t at_ns;   /* when it goes on; NEVER: when its streams are done */
    bool has_launch; /* chosen, and held up */
    bool in_launch;  /* a blocking one */
    struct ticket ticket;
    struct launch launch;
    double length_ns;
    unsigned launches, in_batch;
    unsigned burst;                        /* of LENGTHS_TRICKS: launches until the next long one */
    int64_t captures_until_ns, capture_ns; /* its first stream; the next time */
    int64_t held_since_ns, batch_since_ns;
    int64_t beyond_ns; /* that it has waited although its process owed nothing */
};

struct process {
    struct world *world;
    int context;
    struct region region; /* of its own: only the slot differs */
    struct share share;
    struct limiter *limiter; /* NULL: none, or the oracle's */
    struct program program;
    struct thread threads[THREADS];
    struct trace_event events[EVENTS];
    unsigned events_used;
    int64_t tick_ns, answer_ns; /* of the helper thread */
    double longest_ns;          /* kernel so far */
    int64_t killed_ns, born_ns; /* next; born_ns: 0: it lives */
    double lost_ns;             /* by the oracle: not used in time */
    double busy_before_ns;      /* of its contexts that are gone */
    struct trace_debt debt;     /* after the last step */
    uint64_t fate;              /* when it is killed: the same for the oracle */
};

struct world {
    const struct setup *setup;
    struct trace_device device;
    int64_t now_ns; /* of whoever is at work */
    uint64_t random;
    bool oracle;
    unsigned cores;
    double lost_ns; /* the container's: what the oracle did not let it save up */
    bool apart;
    char cells[64]; /* folder of their cells */
    struct region_base *base;
    struct region_ext *ext;
    struct process processes[PROCESSES];
    uint32_t wakes[PROCESSES]; /* of each container's bucket, so far */
    unsigned count, tenants;   /* the first are of the container, the others neighbours */
    int64_t longest_wait_ns;   /* of a launch that a kernel spins for */
    int64_t beyond_ns;         /* the longest that any waited beyond what its process owed */
    int64_t mark_ns;           /* the first */
    double took_ms[BATCHES];   /* the first tenant's batches since */
    unsigned batches;
};

static double draw_from(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (double)(*random >> 11) / 9007199254740992.0;
}

static double draw(struct world *world)
{
    return draw_from(&world->random);
}

static unsigned draw_below(struct world *world, unsigned bound)
{
    return (unsigned)(draw(world) * bound);
}

/* The seam */

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

/* The last but one stream of a context is the limiter's. */
static int stream_of(const struct launch *where)
{
    return where ? (int)(uintptr_t)where->stream - HANDLES : TRACE_STREAMS - 2;
}

/* A capture of one of the program's threads: nothing may be done in its stream. */
static bool is_captured(const struct process *process, const struct launch *where)
{
    unsigned stream = (unsigned)stream_of(where);
    const struct thread *thread = &process->threads[stream / process->program.streams % THREADS];

    return where && stream % process->program.streams == 0 &&
           process->world->now_ns < thread->captures_until_ns;
}

static bool gpu_record(void *gpu, void *event, const struct launch *where)
{
    struct process *process = gpu;

    spend(process, RECORD_NS);
    if (is_captured(process, where))
        return false;
    trace_record(&process->world->device, process->context, stream_of(where), event,
                 process->world->now_ns);
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
    return trace_unfinished(&process->world->device, process->context, stream_of(where)) == 0;
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

static const struct limiter_gpu stepped_gpu = {
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

/* Programs */

static double log_uniform(struct world *world, double least, double most)
{
    return least * pow(most / least, draw(world));
}

static struct program random_program(struct world *world, double most_ns)
{
    static const unsigned batches[] = {0, 0, 1, 4, 16, 64};
    struct program program = {
        .lengths = draw_below(world, LENGTHS_COUNT),
        .shapes = 1 + draw_below(world, SHAPES),
        .threads = draw(world) < 0.8 ? 1 : 1 + draw_below(world, THREADS),
        .streams = draw(world) < 0.6 ? 1 : 1 + draw_below(world, 4),
        .batch = batches[draw_below(world, ARRAY_SIZE(batches))],
        .blocking = draw(world) < 0.05,
    };
    double length;

    program.shortest_ns = program.threads * program.streams > 1 ? OVERLAP_LEAST_NS : 5e3;
    length = log_uniform(world, program.shortest_ns, most_ns);
    for (unsigned i = 0; i < SHAPES; i++)
        program.length_ns[i] =
            MIN(MAX(length * pow(4, 2 * draw(world) - 1), program.shortest_ns), most_ns);
    if (program.batch && draw(world) < 0.3)
        program.think_ns = log_uniform(world, 1e4, 2e7);
    if (draw(world) < 0.1)
        program.capture_gap_ns = log_uniform(world, 1e6, 1e8);
    if (draw(world) < 0.1)
        program.life_ns = log_uniform(world, 3e8, 3e9);
    return program;
}

static double normal(struct world *world)
{
    return sqrt(-2 * log(1 - draw(world))) * cos(2 * M_PI * draw(world));
}

static double length_of(struct world *world, struct thread *thread, unsigned shape)
{
    const struct program *program = &thread->process->program;
    double length = program->length_ns[shape];

    if (program->rare && (thread->launches + 1) % program->rare == 0)
        return program->rare_ns;
    switch (program->lengths) {
    case LENGTHS_SPREAD:
        return length * exp(0.4 * normal(world) - 0.08);
    case LENGTHS_BIMODAL:
        return draw(world) < 0.2 ? 9 * length / 2.6 : length / 2.6;
    case LENGTHS_TRICKS:
        if (thread->burst) {
            thread->burst--;
            return program->shortest_ns;
        }
        thread->burst = draw_below(world, 100);
        return length;
    default:
        return length;
    }
}

static void choose_launch(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;
    unsigned shape = draw_below(world, program->shapes);
    unsigned stream = thread->number * program->streams + thread->launches % program->streams;

    if (program->spins && thread->launches % 2)
        stream = TRACE_STREAMS - 1;

    thread->launch = (struct launch){
        .function = (void *)(uintptr_t)(0x1000 + shape / 2 * 64),
        .grid = {1 + shape, 1, 1},
        .block = {128, 1, 1},
        .stream = (void *)(uintptr_t)(stream + HANDLES),
    };
    thread->length_ns = length_of(world, thread, shape);
    thread->process->longest_ns = MAX(thread->process->longest_ns, thread->length_ns);
    thread->waiting = (struct waiting){0};
    thread->has_launch = true;
    thread->beyond_ns = 0;
    thread->held_since_ns = world->now_ns;
    if (!thread->in_batch)
        thread->batch_since_ns = world->now_ns;
}

static double busy_of(const struct process *process)
{
    return process->busy_before_ns + process->world->device.contexts[process->context].busy_ns;
}

static double busy_of_tenants(const struct world *world)
{
    double busy = 0;

    for (unsigned i = 0; i < world->tenants; i++)
        busy += busy_of(&world->processes[i]);
    return busy;
}

static double queued_by_tenants(const struct world *world)
{
    double queued = 0;

    for (unsigned i = 0; i < world->tenants; i++) {
        const struct process *process = &world->processes[i];

        for (unsigned j = 0; j < process->program.threads * process->program.streams; j++)
            queued += (double)trace_unfinished(&world->device, process->context, (int)j);
    }
    return queued;
}

/* Whether some of what a limit earned is left. No more is saved up than a bucket does. */
static bool oracle_has(const struct world *world, double busy_ns, unsigned cores, double longest_ns,
                       double *lost_ns)
{
    const double rate = (double)cores / 100;
    const double most_ns = MAX((double)BUCKET_CREDIT_NS * rate, 2 * longest_ns);
    double left_ns = (double)world->now_ns * rate - *lost_ns - busy_ns;

    *lost_ns += MAX(left_ns - most_ns, 0.0);
    return left_ns > 0;
}

static double longest_of_tenants(const struct world *world)
{
    double longest_ns = 0;

    for (unsigned i = 0; i < world->tenants; i++)
        longest_ns = MAX(longest_ns, world->processes[i].longest_ns);
    return longest_ns;
}

/* Knows what the device did, and lets go while that is less than the limit. */
static bool oracle_may_go(struct process *process, int64_t *ret_until_ns)
{
    struct world *world = process->world;
    unsigned own = process->program.cores ? process->program.cores : world->cores;
    bool all_have, it_has;

    trace_advance(&world->device, (double)world->now_ns);
    *ret_until_ns = world->now_ns + 100000;
    all_have = oracle_has(world, busy_of_tenants(world), world->cores, longest_of_tenants(world),
                          &world->lost_ns);
    it_has = oracle_has(world, busy_of(process), own, process->longest_ns, &process->lost_ns);
    return all_have && it_has && queued_by_tenants(world) < 64;
}

static bool may_go(struct world *world, struct thread *thread, int64_t *ret_until_ns)
{
    struct process *process = thread->process;

    if (process >= &world->processes[world->tenants]) /* a neighbour keeps a queue of its own */
        return *ret_until_ns = world->now_ns + 200000,
               trace_advance(&world->device, (double)world->now_ns),
               trace_unfinished(&world->device, process->context, stream_of(&thread->launch)) < 8;
    if (world->oracle)
        return oracle_may_go(process, ret_until_ns);
    return limiter_may_go(process->limiter, &thread->cache, &thread->launch, &thread->waiting,
                          ret_until_ns);
}

/* Whether the first launch of a thread's present pair spins until the second is done. */
static bool pair_spins(const struct thread *thread)
{
    const struct program *program = &thread->process->program;

    return program->spins && thread->launches / 2 % (program->spares + 1) == program->spares;
}

/* The launch that comes next, where this one spins until that is done; 0: for none. */
static int waits_for(const struct process *process, const struct thread *thread)
{
    const struct trace_context *context = &process->world->device.contexts[process->context];

    if (!pair_spins(thread) || thread->launches % 2)
        return 0;
    return (int)context->streams[TRACE_STREAMS - 1].launched + 1;
}

/* It has asked for its launch, and been refused. */
static bool is_held(const struct thread *thread)
{
    return thread->has_launch && !thread->in_launch;
}

/* What the process' launches have waited since the last step, but for what it owed. */
static void note_waits(struct process *process, int64_t since_ns)
{
    struct world *world = process->world;
    const int64_t beyond_ns = world->now_ns - MAX(since_ns, process->debt.until_ns);

    for (unsigned i = 0; i < process->program.threads; i++) {
        struct thread *thread = &process->threads[i];

        if (!is_held(thread) || process->debt.is_others || beyond_ns <= 0)
            continue;
        thread->beyond_ns += beyond_ns;
        world->beyond_ns = MAX(world->beyond_ns, thread->beyond_ns);
    }
    process->debt = trace_debt_of(&process->region, &process->share.own, world->now_ns);
}

static void launch_now(struct world *world, struct thread *thread)
{
    struct process *process = thread->process;

    world->now_ns += LAUNCH_NS;
    trace_launch(&world->device, process->context, stream_of(&thread->launch), thread->length_ns,
                 waits_for(process, thread), world->now_ns);
}

static bool streams_are_done(const struct world *world, const struct thread *thread)
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

/* The launch is made: its thread goes on, or waits for its kernel, or the host keeps it. False when
 * the launch has not returned. */
static bool returns(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;
    bool is_held_up = program->held && draw_below(world, program->held) == 0;

    thread->in_launch = program->blocking || is_held_up;
    if (thread->in_launch)
        thread->at_ns = program->blocking ? NEVER : world->now_ns + program->held_ns;
    return !thread->in_launch;
}

static void after_launch(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;

    thread->has_launch = false;
    if (pair_spins(thread) && thread->launches % 2)
        world->longest_wait_ns = MAX(world->longest_wait_ns, world->now_ns - thread->held_since_ns);
    thread->launches++;
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

static double exponential(uint64_t *random, double mean)
{
    return -mean * log(1 - draw_from(random));
}

/* What is launched into a captured stream never comes by here, and runs nothing. */
static bool begins_capture(struct world *world, struct thread *thread)
{
    double gap_ns = thread->process->program.capture_gap_ns;

    if (gap_ns <= 0 || world->now_ns < thread->capture_ns)
        return false;
    thread->captures_until_ns = world->now_ns + (int64_t)exponential(&world->random, CAPTURE_NS);
    thread->capture_ns = thread->captures_until_ns + (int64_t)exponential(&world->random, gap_ns);
    thread->at_ns = thread->captures_until_ns;
    return true;
}

static void begin_launch(struct process *process, struct thread *thread)
{
    (void)limiter_begin(process->limiter, &thread->cache, &thread->launch, &thread->waiting,
                        &thread->ticket);
    limiter_calls(process->limiter, &thread->ticket);
}

static void step_thread(struct world *world, struct thread *thread)
{
    struct process *process = thread->process;
    int64_t until_ns = 0;

    if (thread->in_launch) {
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
        launch_now(world, thread);
        if (returns(world, thread))
            after_launch(world, thread);
        return;
    }
    if (!may_go(world, thread, &until_ns)) {
        thread->at_ns = MAX(until_ns, world->now_ns + 1000) + (int64_t)(draw(world) * SLACK_NS);
        return;
    }
    if (process->limiter)
        begin_launch(process, thread);
    launch_now(world, thread);
    if (returns(world, thread))
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

static void step_helper(struct world *world, struct process *process)
{
    if (process->answer_ns) {
        limiter_probe_answer(process->limiter);
        process->answer_ns = 0;
    } else {
        look_after(world, process);
    }
    process->tick_ns = process->answer_ns
                           ? process->answer_ns
                           : MAX(world->now_ns + TICK_NS / 4,
                                 MIN(world->now_ns + TICK_NS, process->limiter->probe.due_ns));
}

/* A process begins, or its successor in the same slot. */
static void begin_process(struct world *world, struct process *process)
{
    bool limited = process < &world->processes[world->tenants] && !world->oracle;

    process->context = trace_open(&world->device);
    process->events_used = 0;
    process->born_ns = process->tick_ns = process->answer_ns = 0;
    process->killed_ns =
        process->program.life_ns > 0
            ? world->now_ns + (int64_t)exponential(&process->fate, process->program.life_ns)
            : NEVER;
    memset(process->events, 0, sizeof(process->events));
    memset(process->threads, 0, sizeof(process->threads));
    for (unsigned i = 0; i < process->program.threads; i++) {
        process->threads[i].process = process;
        process->threads[i].number = i;
        process->threads[i].at_ns =
            MAX(world->now_ns, process->program.starts_ns) + (int64_t)(draw(world) * 1e6);
    }
    if (!limited)
        return;
    process->limiter = calloc(1, sizeof(*process->limiter));
    if (!process->limiter)
        abort();
    limiter_init(process->limiter, &stepped_gpu, process, &process->share, world->random);
}

/* By SIGKILL: nothing is settled but by those who find the slot. */
static void kill_process(struct world *world, struct process *process)
{
    struct trace_context *context = &world->device.contexts[process->context];

    trace_advance(&world->device, (double)world->now_ns);
    trace_kill(&world->device, process->context);
    process->busy_before_ns += context->busy_ns;
    context->busy_ns = 0;
    free(process->limiter);
    process->limiter = NULL;
    process->killed_ns = NEVER;
    process->born_ns = world->now_ns + (int64_t)exponential(&process->fate, REBIRTH_NS);
    if (process < &world->processes[world->tenants] && !world->oracle)
        turns_settle(process->region.ext, (unsigned)process->region.slot, 0, world->now_ns);
}

static void cell_path(const struct world *world, unsigned number, char *path, size_t size)
{
    const struct program *program = &world->setup->programs[number];
    char name[16], file[32];

    (void)snprintf(name, sizeof(name), "%u", number);
    (void)card_cell_name(file, sizeof(file), name, program->high ? 0 : CARD_PRIORITY,
                         program->cores);
    (void)snprintf(path, size, "%s/%s", world->cells, file);
}

static void make_cell(const struct world *world, unsigned number)
{
    char path[CELL_PATH];

    cell_path(world, number, path, sizeof(path));
    if (card_make_cell(path) < 0)
        abort();
}

static void open_cell(struct process *process, unsigned number)
{
    const char *folder = process->world->cells;
    char path[CELL_PATH];

    cell_path(process->world, number, path, sizeof(path));
    if (card_open_ranked(&process->share.card, path, folder, true,
                         process->program.high ? 0 : CARD_PRIORITY) < 0)
        abort();
}

static void add_process(struct world *world, struct program program)
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
    begin_process(world, process);
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
        return (int64_t)(program->think_ns * (0.5 - 0.5 * log(1 - draw(world))));
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
                is_held(thread))
                thread->at_ns =
                    MIN(thread->at_ns, world->now_ns + (int64_t)(draw(world) * SLACK_NS));
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
    int64_t at_ns = TRACE_WINDOW_NS;

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

            if (candidate->at_ns == NEVER && streams_are_done(world, candidate))
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
        step_thread(world, thread);
    else if (helped)
        step_helper(world, helped);
    else if (turned && turned->born_ns)
        begin_process(world, turned);
    else if (turned)
        kill_process(world, turned);
}

struct setup trace_setup(uint64_t seed)
{
    struct world lots = {.random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};
    struct setup setup = {0};
    double most_ns;

    for (int i = 0; i < 10; i++)
        (void)draw(&lots);
    most_ns = draw(&lots) < 0.9 ? 2e8 : 1e10;
    setup.cores = 5 + draw_below(&lots, 91);
    setup.tenants = draw(&lots) < 0.6 ? 1 : 1 + draw_below(&lots, draw(&lots) < 0.8 ? 4 : 8);
    setup.neighbours = draw(&lots) < 0.5 ? 0 : 1 + draw_below(&lots, 3);
    setup.drift = (2 * draw(&lots) - 1) * 20e-6;
    for (unsigned i = 0; i < setup.tenants; i++)
        setup.programs[i] = random_program(&lots, most_ns);
    /* The first has the container's, some of the others less. */
    for (unsigned i = 1; i < setup.tenants; i++) {
        if (draw(&lots) < 0.3)
            setup.programs[i].cores = 1 + draw_below(&lots, setup.cores);
    }
    for (unsigned i = setup.tenants; i < setup.tenants + setup.neighbours; i++)
        setup.programs[i] = random_program(&lots, 2e7);
    return setup;
}

/* At the window's end: a kernel of each stream that is not done, and of the process at least. */
static double grain_of(const struct process *process)
{
    unsigned busy = 0;

    for (unsigned i = 0; i < process->program.threads * process->program.streams; i++)
        busy += trace_unfinished(&process->world->device, process->context, (int)i) > 0;
    return 100 * process->longest_ns * MAX(busy, 1u) / (double)TRACE_WINDOW_NS;
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
        make_cell(world, i);
}

static void end_cells(struct world *world)
{
    char path[CELL_PATH];

    for (unsigned i = 0; i < world->tenants; i++) {
        card_close(&world->processes[i].share.card);
        cell_path(world, i, path, sizeof(path));
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
                note_waits(&world->processes[i], since_ns);
        }
    }
    trace_advance(&world->device, (double)world->now_ns);
}

static int compare(const void *a, const void *b)
{
    const double *first = a, *second = b;

    return (*first > *second) - (*first < *second);
}

struct program trace_program(double length_ns, unsigned cores)
{
    struct program program = {
        .lengths = LENGTHS_FIXED,
        .shortest_ns = length_ns,
        .shapes = 1,
        .threads = 1,
        .streams = 1,
        .cores = cores,
    };

    for (unsigned i = 0; i < SHAPES; i++)
        program.length_ns[i] = length_ns;
    return program;
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
    for (unsigned i = 0; i < setup->tenants + setup->neighbours; i++)
        add_process(&world, setup->programs[i]);

    for (unsigned mark = 0; mark < MARKS && setup->marks_ns[mark]; mark++) {
        run_until(&world, setup->marks_ns[mark]);
        for (unsigned i = 0; i < world.tenants; i++)
            result.busy_ms[mark][i] = busy_of(&world.processes[i]) / 1e6;
    }
    run_until(&world, TRACE_WINDOW_NS);
    result.share = 100 * busy_of_tenants(&world) / (double)world.now_ns;
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
