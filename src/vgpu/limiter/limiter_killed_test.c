/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Processes that are killed, again and again, in stepped time: what they ran is paid for, and
 * nothing else, though each life has to find out anew what its kernels take.
 */

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/trace_world.h"

enum {
    CORES = 30,
};

/* Points of a hundred above the limit, and below. */
#define OVER 1.5
#define UNDER 1.5

/* Nobody settles what a killed process ran, and no launch of its own ever returns. */
static void who_is_killed_in_launches_that_block_gets_no_more(void **state)
{
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .programs = {trace_program(400e6, 0)},
    };
    double share;

    (void)state;
    setup.programs[0].blocking = true;
    setup.programs[0].life_ns = 350e6;
    share = trace_run(&setup, 1, false).share;
    print_message("killed: %.2f %%\n", share);
    assert_true(share < CORES + OVER);
    assert_true(share > 1);
}

/* What it paid for and did not run is given back: of a queue that is done one by one, all but what
 * ran since the last one was done, and of two side by side, what the other one was not charged for.
 */
static void who_is_killed_pays_for_no_more_than_it_ran(void **state)
{
    enum { RUNS = 4 };
    static const struct {
        enum lengths lengths;
        double length_ns;
        unsigned streams;
        double most; /* points */
    } cases[] = {
        {LENGTHS_FIXED, 1e6, 1, 0.5},
        {LENGTHS_BIMODAL, 20e6, 1, 0.5},
        {LENGTHS_BIMODAL, 60e6, 2, 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = 2 * CORES,
            .tenants = 1,
            .programs = {trace_program(cases[i].length_ns, 0)},
        };
        double over = 0;

        setup.programs[0].lengths = cases[i].lengths;
        setup.programs[0].streams = cases[i].streams;
        setup.programs[0].life_ns = 300e6;
        for (unsigned run = 0; run < RUNS; run++) {
            struct result result = trace_run(&setup, 1 + 2 * 7919 * run, false);

            over += (result.charged - result.share) / RUNS;
        }
        print_message("kernels of %.0f ms in %u streams, killed after 300 ms: %.2f points too much "
                      "charged\n",
                      cases[i].length_ns / 1e6, cases[i].streams, over);
        assert_true(over < cases[i].most);
        assert_true(over > -cases[i].most);
    }
}

/* What is ours of a kernel beside another process' takes a while to be found out: each life knows
 * what those before it found. */
static void who_is_killed_soon_beside_another_gets_no_more(void **state)
{
    static const struct {
        enum lengths lengths;
        double length_ns;
    } cases[] = {{LENGTHS_TRICKS, 500e3}, {LENGTHS_BIMODAL, 50e3}, {LENGTHS_BIMODAL, 500e3}};
    enum { RUNS = 4 };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct program program = trace_program(cases[i].length_ns, 0);
        struct setup setup = {.cores = CORES, .tenants = 2};
        double share = 0;

        program.lengths = cases[i].lengths;
        program.shortest_ns = 5e3;
        setup.programs[0] = setup.programs[1] = program;
        setup.programs[0].life_ns = 75e6;
        for (uint64_t run = 0; run < RUNS; run++)
            share += trace_run(&setup, 5 + 7919 * run, false).share / RUNS;
        print_message("kernels of %.0f us on average, one process killed each 75 ms: %.2f %%\n",
                      cases[i].length_ns / 1e3, share);
        assert_true(share < CORES + OVER);
        assert_true(share > CORES - UNDER);
    }
}

/* Each of its kernels is over before a probe comes to the device, so that none is prompt: when one
 * was sent, on the device's clock, is found out in each life anew. */
static void who_is_killed_soon_with_kernels_shorter_than_slices_gets_no_more(void **state)
{
    enum { RUNS = 4 };
    struct setup setup = {
        .cores = 5,
        .tenants = 1,
        .neighbours = 2,
        .programs = {trace_program(800e3, 0), trace_program(1e6, 0), trace_program(2e6, 0)},
    };
    double share = 0;

    (void)state;
    setup.programs[0].streams = 4;
    setup.programs[0].batch = 1;
    setup.programs[0].life_ns = 300e6;
    for (unsigned run = 0; run < RUNS; run++)
        share += trace_run(&setup, 1 + 2 * 7919 * run, false).share / RUNS;
    print_message("kernels of 0.8 ms beside two others, killed after 300 ms: %.2f %%\n", share);
    assert_true(share < setup.cores + 1);
    assert_true(share > setup.cores - 1);
}

/* A long kernel that is drawn beside others' work stands for several. Not all of its time is ours,
 * though by the time that it ends each kernel of its shape is measured. */
static void long_kernels_of_new_processes_pay_nothing_of_others_time(void **state)
{
    enum { RUNS = 8 };

    (void)state;
    for (unsigned neighbours = 2; neighbours <= 3; neighbours++) {
        struct setup setup = {
            .cores = 20,
            .tenants = 1,
            .neighbours = neighbours,
            .programs = {trace_program(3e6, 0), trace_program(1e6, 0), trace_program(1e6, 0),
                         trace_program(1e6, 0)},
        };
        double share = 0;

        setup.programs[0].lengths = LENGTHS_TRICKS;
        setup.programs[0].shortest_ns = 5e3;
        setup.programs[0].life_ns = 1e9;
        for (unsigned run = 0; run < RUNS; run++)
            share += trace_run(&setup, 1 + 2 * 7919 * run, false).share / RUNS;
        print_message("3 ms among 5 us beside %u others, killed each second: %.2f %%\n", neighbours,
                      share);
        assert_true(share < setup.cores + 0.75);
        assert_true(share > setup.cores - 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_killed_in_launches_that_block_gets_no_more),
        cmocka_unit_test(who_is_killed_pays_for_no_more_than_it_ran),
        cmocka_unit_test(who_is_killed_soon_beside_another_gets_no_more),
        cmocka_unit_test(who_is_killed_soon_with_kernels_shorter_than_slices_gets_no_more),
        cmocka_unit_test(long_kernels_of_new_processes_pay_nothing_of_others_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
