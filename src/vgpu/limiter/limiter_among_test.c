/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs of several threads and streams beside other contexts, in stepped time: what waits for
 * the next slice, what a change of the context is taken for, and clocks that run apart.
 */

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/parts_fixture.h"
#include "vgpu/limiter/trace_world.h"

enum {
    RUNS = 2,
};

static double share_of(const char *what, const struct setup *setup)
{
    double share = 0;

    for (unsigned run = 0; run < RUNS; run++)
        share += trace_run(setup, 1 + 2 * 7919 * run, false).share / RUNS;
    print_message("%s: %.2f of %u %%\n", what, share, setup->cores);
    return share;
}

static struct program program(double length_ns, unsigned threads, unsigned streams, unsigned batch)
{
    struct program program = trace_program(length_ns, 0);

    program.threads = threads;
    program.streams = streams;
    program.batch = batch;
    return program;
}

/* Each thread waits for its own streams, so that launches go into idle ones while others run: once
 * no kernel waits behind another, the device sees them at its next slice. */
static void threads_whose_launches_wait_for_slices_have_their_share(void **state)
{
    struct setup setup = {
        .cores = 49,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(87e3, 4, 3, 64), program(10e3, 1, 1, 1)},
    };

    (void)state;
    assert_near(share_of("four threads of three streams beside another context", &setup), 49, 1);
    setup.programs[0] = program(87e3, 4, 1, 64);
    assert_near(share_of("four threads of one", &setup), 49, 1);
    setup.programs[0] = program(200e3, 4, 3, 64);
    assert_near(share_of("kernels of 200 us", &setup), 49, 1);
    /* What ran when the slice ended did not run until the next one. */
    setup.programs[0] = program(180e3, 4, 4, 32);
    setup.programs[0].lengths = LENGTHS_SPREAD;
    setup.programs[0].shortest_ns = 20e3;
    setup.programs[1] = program(800e3, 1, 1, 1);
    setup.cores = 35;
    assert_near(share_of("kernels of about 180 us in sixteen streams", &setup), 35, 0.5);
    setup.programs[0] = program(200e3, 4, 1, 1);
    setup.cores = 10;
    assert_near(share_of("four threads of one, that wait for each", &setup), 10, 0.5);
}

/* Where a kernel that is measured each time ran beside short ones, others may have done so, too. */
static void long_kernels_share_what_was_paid_for_short_ones(void **state)
{
    struct setup setup = {
        .cores = 60,
        .tenants = 1,
        .programs = {program(180e3, 1, 4, 0)},
    };

    (void)state;
    setup.programs[0].shapes = 2;
    setup.programs[0].length_ns[1] = 260e3;
    assert_near(share_of("kernels of 180 and 260 us in four streams", &setup), 60, 1.6);
}

/* Two processes of a container begin together: at first nobody knows that they share the device. */
static void others_that_are_not_met_yet_are_no_doubt(void **state)
{
    struct setup setup = {
        .cores = 75,
        .tenants = 2,
        .programs = {program(5e3, 1, 1, 0), program(63e3, 1, 4, 64)},
    };

    (void)state;
    setup.programs[1].lengths = LENGTHS_TRICKS;
    setup.programs[1].shortest_ns = 20e3;
    assert_near(share_of("short kernels, and a sibling's in four streams", &setup), 75, 3);
}

/* The host's clock may be set right meanwhile. It takes a second to learn how fast. */
static void clocks_may_run_apart_fast(void **state)
{
    static const double drifts[] = {40e-6, 100e-6, 500e-6, 3e-3, -100e-6, -3e-3};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(drifts); i++) {
        struct setup setup = {
            .cores = 30,
            .tenants = 1,
            .drift = drifts[i],
            .programs = {program(1e6, 1, 1, 16)},
        };
        char what[64];

        (void)snprintf(what, sizeof(what), "%+.0f ppm", drifts[i] * 1e6);
        assert_near(share_of(what, &setup), 30, 2.5);
    }
}

/* Streams that wait for something else pass for company only until it is seen that they are busy
 * with nothing. */
static void streams_that_wait_are_no_company(void **state)
{
    struct setup setup = {
        .cores = 20,
        .tenants = 1,
        .programs = {program(25e3, 4, 2, 0)},
    };

    (void)state;
    setup.programs[0].wait_ns = 2500 * NS_PER_US;
    assert_near(share_of("a stream of each thread waits 2.5 ms at a time", &setup), 20, 3);
    setup.programs[0].wait_ns = 10 * NS_PER_MS;
    assert_near(share_of("10 ms", &setup), 20, 3);
}

/* Nor where others come and go. What it takes the host to measure each launch they pay as well. */
static void streams_that_wait_are_no_company_beside_others(void **state)
{
    static const struct {
        unsigned cores;
        int64_t wait_ns;
        double think_ns;       /* the neighbour's; 0: there is none */
        double capture_gap_ns; /* streams that are captured can't be looked at */
    } cases[] = {{52, 2500000, 3e6, 0},
                 {52, 10000000, 3e6, 0},
                 {40, 5000000, 1e6, 0},
                 {60, 1000000, 0, 0},
                 {56, 4000000, 0, 2e6}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = cases[i].cores,
            .tenants = 1,
            .neighbours = cases[i].think_ns > 0,
            .programs = {program(20e3, 1, 2, 0), program(1e6, 1, 1, 1)},
        };
        char what[64];

        setup.programs[0].wait_ns = cases[i].wait_ns;
        setup.programs[0].capture_gap_ns = cases[i].capture_gap_ns;
        setup.programs[1].think_ns = cases[i].think_ns;
        (void)snprintf(what, sizeof(what), "waits %.1f ms, a neighbour thinks %.0f ms",
                       (double)cases[i].wait_ns / 1e6, cases[i].think_ns / 1e6);
        assert_true(share_of(what, &setup) < cases[i].cores + 5.5);
    }
}

/* What is measured in them ran since it began, and not since it was launched. */
static void long_kernels_that_wait_are_no_company_before_they_run(void **state)
{
    static const struct {
        unsigned cores, streams, threads;
        double length_ns, wait_ns, think_ns; /* the neighbour's; 0: there is none */
    } cases[] = {{69, 2, 1, 1.7e6, 6.1e6, 0},
                 {57, 3, 1, 2.2e6, 7.2e6, 3.2e6},
                 {45, 2, 1, 2.6e6, 13e6, 0.2e6},
                 {57, 1, 3, 11.85e6, 10.8e6, 0.7e6}};

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = cases[i].cores,
            .tenants = 1,
            .neighbours = cases[i].think_ns > 0,
            .programs = {program(cases[i].length_ns, cases[i].threads, cases[i].streams, 0),
                         program(100e3, 1, 1, 2)},
        };
        char what[64];

        setup.programs[0].wait_ns = (int64_t)cases[i].wait_ns;
        setup.programs[1].think_ns = cases[i].think_ns;
        (void)snprintf(what, sizeof(what), "%.1f ms, after %.1f, a neighbour thinks %.1f ms",
                       cases[i].length_ns / 1e6, cases[i].wait_ns / 1e6, cases[i].think_ns / 1e6);
        assert_true(share_of(what, &setup) < cases[i].cores + 3.5);
    }
}

/* Five looks were as long as a slice of ours and one of others', and kept step with them. */
static void looks_do_not_keep_step_with_slices(void **state)
{
    struct setup setup = {
        .cores = 69,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(6e6, 1, 2, 0), program(160e3, 1, 1, 2)},
    };

    (void)state;
    setup.programs[0].lengths = LENGTHS_SPREAD;
    setup.programs[0].length_ns[setup.programs[0].shapes++] = 34e3;
    setup.programs[1].think_ns = 827e3;
    assert_near(share_of("kernels of up to 6 ms beside two of 160 us", &setup), 69, 2);
}

/* A tenant who can hold our stream up, and does so for slowly longer times, seems to have a clock
 * that runs slower. */
static void probes_that_are_held_up_are_no_absence(void **state)
{
    struct setup setup = {
        .cores = 30,
        .tenants = 1,
        .hold_ns = 500 * NS_PER_US,
        .hold_period_ns = 1200 * NS_PER_MS,
        .programs = {program(1e6, 1, 1, 16)},
    };

    (void)state;
    assert_near(share_of("probes are held up by up to 0.5 ms", &setup), 30, 7);
    setup.hold_ns = 3 * NS_PER_MS;
    assert_near(share_of("3 ms", &setup), 30, 4);
}

/* One that waits for each of its kernels leaves the device again and again. Of kernels that took
 * long those that are so are told from short ones that waited for a slice. */
static void others_that_come_and_go_are_not_paid_for(void **state)
{
    struct setup setup = {
        .cores = 64,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(761e3, 1, 1, 0), program(455e3, 1, 1, 64)},
    };

    (void)state;
    setup.programs[0].lengths = LENGTHS_TRICKS;
    setup.programs[0].shortest_ns = 5e3;
    setup.programs[1].blocking = true;
    assert_near(share_of("long kernels among short ones, beside one that comes and goes", &setup),
                64, 3.5);
}

/* Eight processes of a container beside another: none has a slice while a probe of its waits. */
static void crowds_are_charged_no_slices_that_they_did_not_have(void **state)
{
    struct setup setup = trace_setup(300660);

    (void)state;
    assert_near(share_of("eight processes of many kinds beside another", &setup), 75, 2);
}

/* The first of several kernels side by side that ends is charged for what it ran beside the others:
 * others' slices then are none of theirs. */
static void a_slice_of_others_counts_once_for_kernels_side_by_side(void **state)
{
    struct setup setup = {
        .cores = 60,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(2e6, 1, 4, 0), program(17e6, 1, 1, 4)},
    };

    (void)state;
    setup.programs[1].lengths = LENGTHS_TRICKS;
    setup.programs[1].shortest_ns = 5e3;
    assert_near(share_of("kernels of 2 ms in four streams", &setup), 60, 2);
    setup.programs[0].length_ns[1] = 800e3;
    setup.programs[0].shapes = 2;
    assert_near(share_of("kernels of 2 and 0.8 ms in four streams", &setup), 60, 2);
}

/* A context that runs out of kernels gives the device up at once: what others have then is none of
 * its slice. Side by side kernels are charged too much here for other reasons, too. */
static void a_slice_that_ends_early_is_none_of_the_rest(void **state)
{
    const double lengths_ns[] = {2250e3, 161e3, 237e3, 2309e3};
    struct setup setup = {
        .cores = 80,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(0, 3, 4, 0), program(100e3, 1, 1, 1)},
    };

    (void)state;
    memcpy(setup.programs[0].length_ns, lengths_ns, sizeof(lengths_ns));
    setup.programs[0].shapes = ARRAY_SIZE(lengths_ns);
    setup.programs[0].lengths = LENGTHS_TRICKS;
    setup.programs[0].shortest_ns = 20e3;
    assert_near(
        share_of("long kernels among short ones of three threads, beside a brief one", &setup), 80,
        11);
}

/* The same of short kernels, which the lot finds: as late as others let it be told, they had ended
 * when the device left. */
static void short_kernels_of_threads_are_charged_no_slices_of_others(void **state)
{
    struct setup setup = {
        .cores = 25,
        .tenants = 1,
        .neighbours = 1,
        .programs = {program(25e3, 3, 4, 0), program(5e6, 1, 1, 0)},
    };

    (void)state;
    setup.programs[0].lengths = LENGTHS_BIMODAL;
    assert_near(share_of("25 us in four streams of three threads beside 5 ms", &setup), 25, 2);
    setup.programs[0] = program(100e3, 3, 4, 0);
    setup.programs[0].lengths = LENGTHS_TRICKS;
    setup.programs[0].shortest_ns = 20e3;
    assert_near(share_of("100 us among 20 us", &setup), 25, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_that_ends_early_is_none_of_the_rest),
        cmocka_unit_test(short_kernels_of_threads_are_charged_no_slices_of_others),
        cmocka_unit_test(others_that_come_and_go_are_not_paid_for),
        cmocka_unit_test(crowds_are_charged_no_slices_that_they_did_not_have),
        cmocka_unit_test(a_slice_of_others_counts_once_for_kernels_side_by_side),
        cmocka_unit_test(threads_whose_launches_wait_for_slices_have_their_share),
        cmocka_unit_test(long_kernels_share_what_was_paid_for_short_ones),
        cmocka_unit_test(others_that_are_not_met_yet_are_no_doubt),
        cmocka_unit_test(clocks_may_run_apart_fast),
        cmocka_unit_test(streams_that_wait_are_no_company),
        cmocka_unit_test(streams_that_wait_are_no_company_beside_others),
        cmocka_unit_test(long_kernels_that_wait_are_no_company_before_they_run),
        cmocka_unit_test(looks_do_not_keep_step_with_slices),
        cmocka_unit_test(probes_that_are_held_up_are_no_absence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
