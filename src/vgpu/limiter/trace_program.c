/* SPDX-License-Identifier: Apache-2.0 */

/* Programs, drawn at random, and what each of their threads launches next. */

#include <math.h>
#include <stdio.h>

#include "base/util.h"
#include "vgpu/limiter/trace_state.h"

/*
 * Kernels in several streams that are about as short as the host needs to launch them overlap less
 * while they are measured, since that takes the host's time, too: they are charged too much, up to
 * half of it. Traces have none that are shorter than this.
 */
#define OVERLAP_LEAST_NS 20e3

static double log_uniform(struct world *world, double least, double most)
{
    return least * pow(most / least, trace_draw(world));
}

static struct program random_program(struct world *world, double most_ns)
{
    static const unsigned batches[] = {0, 0, 1, 4, 16, 64};
    struct program program = {
        .lengths = trace_draw_below(world, LENGTHS_COUNT),
        .shapes = 1 + trace_draw_below(world, SHAPES),
        .threads = trace_draw(world) < 0.8 ? 1 : 1 + trace_draw_below(world, THREADS),
        .streams = trace_draw(world) < 0.6 ? 1 : 1 + trace_draw_below(world, 4),
        .batch = batches[trace_draw_below(world, ARRAY_SIZE(batches))],
        .blocking = trace_draw(world) < 0.05,
    };
    double length;

    program.shortest_ns = program.threads * program.streams > 1 ? OVERLAP_LEAST_NS : 5e3;
    length = log_uniform(world, program.shortest_ns, most_ns);
    for (unsigned i = 0; i < SHAPES; i++)
        program.length_ns[i] =
            MIN(MAX(length * pow(4, 2 * trace_draw(world) - 1), program.shortest_ns), most_ns);
    if (program.batch && trace_draw(world) < 0.3)
        program.think_ns = log_uniform(world, 1e4, 2e7);
    if (trace_draw(world) < 0.1)
        program.capture_gap_ns = log_uniform(world, 1e6, 1e8);
    if (trace_draw(world) < 0.1)
        program.life_ns = log_uniform(world, 3e8, 3e9);
    return program;
}

static double normal(struct world *world)
{
    return sqrt(-2 * log(1 - trace_draw(world))) * cos(2 * M_PI * trace_draw(world));
}

static double length_of(struct world *world, struct thread *thread, unsigned shape)
{
    const struct program *program = &thread->process->program;
    double length = program->length_ns[shape];

    if (program->rare && (thread->launches + 1) % program->rare == 0)
        return program->rare_ns;
    if (program->turns && thread->launches >= program->turns)
        return program->rare_ns * (thread->launches == program->turns ? 10 : 1);
    if (program->steps)
        return length * (1 + thread->launches % program->steps);
    switch (program->lengths) {
    case LENGTHS_SPREAD:
        return length * exp(0.4 * normal(world) - 0.08);
    case LENGTHS_BIMODAL:
        return trace_draw(world) < 0.2 ? 9 * length / 2.6 : length / 2.6;
    case LENGTHS_TRICKS:
        if (thread->burst) {
            thread->burst--;
            return program->shortest_ns;
        }
        thread->burst = trace_draw_below(world, 100);
        return length;
    default:
        return length;
    }
}

static unsigned shape_of(struct world *world, const struct thread *thread)
{
    const struct program *program = &thread->process->program;

    if (program->gated)
        return thread->launches % program->gated ? 2 : 0;
    if (program->turns)
        return thread->launches == program->turns ? 2 : 0;
    return trace_draw_below(world, program->shapes);
}

void trace_choose_launch(struct world *world, struct thread *thread)
{
    const struct program *program = &thread->process->program;
    unsigned shape = shape_of(world, thread);
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

bool trace_pair_spins(const struct thread *thread)
{
    const struct program *program = &thread->process->program;

    return program->spins && thread->launches / 2 % (program->spares + 1) == program->spares;
}

int trace_waits_for(const struct process *process, const struct thread *thread)
{
    const struct trace_context *context = &process->world->device.contexts[process->context];
    const unsigned gated = process->program.gated;

    if (gated && thread->launches >= gated && thread->launches % gated == 0)
        return -(int)(thread->launches / gated) - 1;
    if (!trace_pair_spins(thread) || thread->launches % 2)
        return 0;
    return (int)context->streams[TRACE_STREAMS - 1].launched + 1;
}

struct setup trace_setup(uint64_t seed)
{
    struct world lots = {.random = seed * UINT64_C(0x9e3779b97f4a7c15) | 1};
    struct setup setup = {0};
    double most_ns;

    for (int i = 0; i < 10; i++)
        (void)trace_draw(&lots);
    most_ns = trace_draw(&lots) < 0.9 ? 2e8 : 1e10;
    setup.cores = 5 + trace_draw_below(&lots, 91);
    setup.tenants =
        trace_draw(&lots) < 0.6 ? 1 : 1 + trace_draw_below(&lots, trace_draw(&lots) < 0.8 ? 4 : 8);
    setup.neighbours = trace_draw(&lots) < 0.5 ? 0 : 1 + trace_draw_below(&lots, 3);
    setup.drift = (2 * trace_draw(&lots) - 1) * 20e-6;
    for (unsigned i = 0; i < setup.tenants; i++)
        setup.programs[i] = random_program(&lots, most_ns);
    /* The first has the container's, some of the others less. */
    for (unsigned i = 1; i < setup.tenants; i++) {
        if (trace_draw(&lots) < 0.3)
            setup.programs[i].cores = 1 + trace_draw_below(&lots, setup.cores);
    }
    for (unsigned i = setup.tenants; i < setup.tenants + setup.neighbours; i++)
        setup.programs[i] = random_program(&lots, 2e7);
    return setup;
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

static void print_program(const struct program *program)
{
    static const char *const lengths[] = {"fixed", "spread", "bimodal", "tricks"};

    printf("%s of", lengths[program->lengths]);
    for (unsigned i = 0; i < program->shapes; i++)
        printf(" %.0f", program->length_ns[i] / 1e3);
    printf(" us, %u threads, %u streams each, batches of %u, %.0f us between%s", program->threads,
           program->streams, program->batch, program->think_ns / 1e3,
           program->blocking ? ", blocking launches" : "");
    if (program->steps)
        printf(", longer by as much %u times", program->steps);
    if (program->rare)
        printf(", each %u. %.0f us", program->rare, program->rare_ns / 1e3);
    if (program->wait_ns)
        printf(", a stream waits %.0f us", (double)program->wait_ns / 1e3);
    if (program->held)
        printf(", one of %u launches held %.0f us%s", program->held, (double)program->held_ns / 1e3,
               program->held_early ? " before it is made" : "");
    if (program->relay)
        printf(", a thread for each %u", program->relay);
    if (program->capture_gap_ns > 0)
        printf(", captures every %.0f us", program->capture_gap_ns / 1e3);
    if (program->cores)
        printf(", at most %u %%", program->cores);
    if (program->life_ns > 0)
        printf(", killed after %.0f ms", program->life_ns / 1e6);
    printf("\n");
}

void trace_print(const struct setup *setup)
{
    printf("  limit %u %%, drift %+.0f ppm, %u processes, %u neighbours%s\n", setup->cores,
           setup->drift * 1e6, setup->tenants, setup->neighbours,
           setup->filled ? ", kernels fill the device" : "");
    for (unsigned i = 0; i < setup->tenants + setup->neighbours; i++) {
        printf("    %s: ", i < setup->tenants ? "tenant" : "neighbour");
        print_program(&setup->programs[i]);
    }
}
