/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs on a clock stepped by hand that may want more than their share, drawn at random from all
 * that trace_world.h knows of: streams that wait for something, threads that are kept in launches,
 * long kernels among short ones, threads and processes that soon end, captures. They may have less
 * than the limit, since measuring takes the host's time.
 *
 * usage: limiter_attack_test [PROGRAMS [SEED]]
 *
 * Prints each that has more, with the arguments that repeat it alone: PROGRAMS 1, its SEED.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "vgpu/limiter/trace_state.h"
#include "vgpu/limiter/trace_world.h"

/* Points of a hundred above the limit, beyond what one kernel of each process is of the window. */
#define POINTS 3.0     /* a program with more is printed, */
#define OVER_PART 0.03 /* and no more than this part of them may be, */
#define MOST 15.0      /* nor one with more than this */

static bool part(uint64_t *random, double chance)
{
    return trace_draw_from(random) < chance;
}

static double log_uniform(uint64_t *random, double least, double most)
{
    return least * pow(most / least, trace_draw_from(random));
}

static unsigned some(uint64_t *random, double least, double most)
{
    return (unsigned)log_uniform(random, least, most);
}

static struct program draw_tenant(uint64_t *random)
{
    struct program program = trace_program(log_uniform(random, 5e3, 2e7), 0);

    program.shortest_ns = 5e3;
    if (part(random, 0.3))
        program.length_ns[program.shapes++] = log_uniform(random, 5e3, 2e7);
    program.lengths = (enum lengths)(trace_draw_from(random) * LENGTHS_COUNT);
    if (part(random, 0.3))
        program.threads = some(random, 1, 4);
    if (part(random, 0.5))
        program.streams = some(random, 2, 5);
    if (part(random, 0.5))
        program.batch = some(random, 1, 100);
    if (part(random, 0.4))
        program.wait_ns = (int64_t)log_uniform(random, 1e5, 2e7);
    if (part(random, 0.3)) {
        program.held = some(random, 1, 5);
        program.held_ns =
            (int64_t)(part(random, 0.5) ? program.length_ns[0] * log_uniform(random, 0.3, 3)
                                        : log_uniform(random, 2e3, 2e7));
        program.held_early = part(random, 0.3);
    }
    if (part(random, 0.2)) {
        program.rare = some(random, 2, 5000);
        program.rare_ns = log_uniform(random, 1e5, 3e7);
    }
    if (part(random, 0.1))
        program.relay = some(random, 1, 100);
    if (part(random, 0.1))
        program.steps = some(random, 2, 100);
    if (program.batch && part(random, 0.3))
        program.think_ns = log_uniform(random, 1e4, 1e7);
    program.blocking = part(random, 0.1);
    if (part(random, 0.15))
        program.life_ns = log_uniform(random, 3e7, 2e9);
    if (part(random, 0.1))
        program.capture_gap_ns = log_uniform(random, 1e6, 1e8);
    return program;
}

static struct program draw_neighbour(uint64_t *random)
{
    struct program program = trace_program(log_uniform(random, 2e4, 1e7), 0);

    if (part(random, 0.7)) {
        program.batch = some(random, 1, 5);
        program.think_ns = log_uniform(random, 1e5, 1e7);
    }
    return program;
}

static struct setup draw_setup(uint64_t seed)
{
    uint64_t random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    struct setup setup = {.tenants = 1};

    for (unsigned i = 0; i < 10; i++)
        (void)trace_draw_from(&random);
    setup.cores = 10 + (unsigned)(60 * trace_draw_from(&random));
    setup.neighbours = part(&random, 0.5) ? some(&random, 1, 3) : 0;
    setup.filled = part(&random, 0.2);
    setup.programs[0] = draw_tenant(&random);
    for (unsigned i = 0; i < setup.neighbours; i++)
        setup.programs[1 + i] = draw_neighbour(&random);
    return setup;
}

/* Points above the limit. */
static double judge(uint64_t seed, bool verbose)
{
    struct setup setup = draw_setup(seed);
    struct result got = trace_run(&setup, seed, false);
    double over = MAX(got.share - setup.cores - got.grain, 0.0);

    if (over > POINTS || verbose) {
        printf("seed %llu: %.2f %%, charged %.2f %%, %+.2f points, grain %.2f\n",
               (unsigned long long)seed, got.share, got.charged, over, got.grain);
        trace_print(&setup);
    }
    return over;
}

int main(int argc, char **argv)
{
    unsigned programs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    double most = 0, sum = 0;
    unsigned count = 0;

    for (unsigned i = 0; i < programs; i++) {
        double over = judge(first + i, argc > 2 && programs == 1);

        count += over > POINTS;
        most = MAX(most, over);
        sum += over;
    }
    printf("%u programs, %.3f points above the limit on average, at most %.2f, %u with more than "
           "%.0f\n",
           programs, sum / programs, most, count, POINTS);
    return most > MOST || count > MAX(OVER_PART * programs, 1.0) ? EXIT_FAILURE : EXIT_SUCCESS;
}
