/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The limiter on a clock stepped by hand, with the random programs of trace_world.h: the device's
 * own count of busy time judges. The bar is what an oracle reaches with the same programs.
 *
 * usage: limiter_trace_test [TRACES [SEED]]
 *
 * Prints each trace that is off, with the arguments that repeat it alone: TRACES 1, its SEED.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "vgpu/limiter/trace_world.h"

/* Points of a hundred, beyond what one kernel of each process is of the window. */
#define POINTS 1.0   /* a trace that is further off is printed, */
#define OFF_PART 0.1 /* and no more than this part of them may be, */
#define MEAN 0.6     /* nor all of them by more on average, */
#define OVER 4.0     /* nor one by more above the limit */

#define ORACLES 3 /* runs, for who is off the first one */

/* Nobody waits longer than what he owes, in time and in turns, and for this: 10 ms for what is on
 * its way, and until somebody looks. */
#define BEYOND_MS 15.0

/* A launch that a kernel spins for waits no longer than this and SPUN_KERNELS of the longest: from
 * when that runs longer than expected. */
#define SPUN_MS 300.0
#define SPUN_KERNELS 5
#define WINDOW_MS ((double)TRACE_WINDOW_NS / 1e6)
#define SPUN_EACH 4 /* traces for one of these */

struct totals {
    bool verbose;
    double sum, over, beyond_ms;
    unsigned traces, off, late;
    double spun_over, longest_ms;
    unsigned spun, stuck;
};

/* Points that a program is away from what oracles reach, and less than those that a kernel of each
 * process is of the window. */
struct miss {
    double points, grain, oracle;
};

/* What the oracle reaches depends on its lot as well: who is off is held against several of its
 * runs. More than one and less than the limit is nobody's loss. */
static struct miss miss_of(const struct setup *setup, uint64_t seed, const struct result *got)
{
    double least = setup->cores, most = setup->cores;
    struct miss miss = {.grain = got->grain};

    for (unsigned i = 0; i < ORACLES && (!i || fabs(miss.points) > POINTS + miss.grain); i++) {
        struct result want = trace_run(setup, seed + i * UINT64_C(0x9e3779b97f4a7c16), true);

        miss.oracle = want.share;
        least = MIN(least, want.share);
        most = MAX(most, want.share);
        miss.grain = MAX(miss.grain, want.grain);
        miss.points = MAX(got->share - most, 0.0) + MIN(got->share - least, 0.0);
    }
    return miss;
}

static void judge_trace(struct totals *totals, uint64_t seed)
{
    struct setup setup = trace_setup(seed);
    struct result got = trace_run(&setup, seed, false);
    struct miss miss = miss_of(&setup, seed, &got);
    bool late = got.beyond_ms > BEYOND_MS, off = fabs(miss.points) > POINTS + miss.grain;

    totals->traces++;
    totals->beyond_ms = MAX(totals->beyond_ms, got.beyond_ms);
    totals->late += late;
    totals->sum += fabs(miss.points);
    totals->over = MAX(totals->over, miss.points - miss.grain);
    totals->off += off;
    if (!totals->verbose && !off && !late)
        return;
    printf("seed %llu: %.2f %%, charged %.2f %%, oracle %.2f %%, %+.2f points, grain %.2f; "
           "%.1f ms beyond what was owed\n",
           (unsigned long long)seed, got.share, got.charged, miss.oracle, miss.points, miss.grain,
           got.beyond_ms);
    trace_print(&setup);
}

/* Kernels that spin for the next launch: it is let go although the spinning uses up the share. */
static void judge_spins(struct totals *totals, uint64_t seed)
{
    struct setup setup = trace_setup(seed);
    struct program *program = &setup.programs[0];
    struct result got;
    double over, most_ms;
    bool bad;

    for (unsigned i = 0; i < setup.neighbours; i++)
        setup.programs[1 + i] = setup.programs[setup.tenants + i];
    setup.tenants = 1;
    program->threads = program->streams = 1;
    program->batch = program->batch % 4 ? 0 : program->batch;
    program->blocking = false;
    program->life_ns = program->capture_gap_ns = 0;
    program->spins = true;
    got = trace_run(&setup, seed, false);
    /* While it spins it runs. What spins goes with what it spins for: the grain is two kernels. */
    over = got.share - setup.cores - 2 * got.grain - got.longest_wait_ms * 100 / WINDOW_MS;
    most_ms = SPUN_MS + SPUN_KERNELS * got.longest_ms;
    bad = got.longest_wait_ms > most_ms || over > OVER;

    totals->spun++;
    totals->spun_over = MAX(totals->spun_over, over);
    totals->longest_ms = MAX(totals->longest_ms, got.longest_wait_ms);
    totals->stuck += bad;
    if (!bad && !totals->verbose)
        return;
    printf("seed %llu, spinning: %.2f %%, charged %.2f %%, longest wait %.1f ms, %.0f launches\n",
           (unsigned long long)seed, got.share, got.charged, got.longest_wait_ms, got.launches);
    trace_print(&setup);
}

int main(int argc, char **argv)
{
    unsigned traces = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct totals totals = {
        .verbose = argc > 2,
    };

    for (unsigned i = 0; i < traces; i++) {
        judge_trace(&totals, first + i);
        if (i % SPUN_EACH == 0)
            judge_spins(&totals, first + i);
    }
    printf("%u traces, mean error %.3f points, at most %.2f above, %u off by more than %.0f\n",
           totals.traces, totals.sum / totals.traces, totals.over, totals.off, POINTS);
    printf("nobody waited more than %.1f ms beyond what he owed\n", totals.beyond_ms);
    printf("%u spinning, at most %.2f points above, a launch waited at most %.1f ms\n", totals.spun,
           totals.spun_over, totals.longest_ms);
    return totals.off > MAX(OFF_PART * traces, 1.0) || totals.sum / traces > MEAN ||
                   totals.over > OVER || totals.stuck || totals.late
               ? EXIT_FAILURE
               : EXIT_SUCCESS;
}
