/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Kernels that run side by side, in streams or threads, in stepped time. Where some are longer than
 * others, or slow each other a little, they look as if they filled the device and waited for each
 * other. An honest program has its share all the same.
 */

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/trace_world.h"

enum {
    CORES = 30,
};

/* Points of a hundred above the limit. */
#define OVER 1.0

struct beside {
    unsigned streams, batch, steps;
    double length_ns; /* of the shortest */
    double slowing;
    double least; /* share */
};

static void check_share(const struct beside *beside)
{
    enum { RUNS = 2 };
    double share = 0;
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .slowing = beside->slowing,
        .programs = {trace_program(beside->length_ns, 0)},
    };

    setup.programs[0].streams = beside->streams;
    setup.programs[0].batch = beside->batch;
    setup.programs[0].steps = beside->steps;
    for (unsigned run = 0; run < RUNS; run++)
        share += trace_run(&setup, 1 + 2 * 7919 * run, false).share / RUNS;
    print_message("%u streams%s, kernels of %.0f us, up to %u times as long, slowed by %.0f %%: "
                  "%.2f %%\n",
                  beside->streams, beside->batch ? "" : " that nobody waits for",
                  beside->length_ns / 1e3, MAX(beside->steps, 1u), 100 * beside->slowing, share);
    assert_true(share < CORES + OVER);
    assert_true(share > beside->least);
}

/* The first of a batch is the one that runs alone, and is the shortest: the others take 2, 3, ...
 * times as long, by their place in the batch, which may be their stream. */
static void kernels_that_are_longer_later_in_a_batch_keep_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 4, .batch = 4, .steps = 4, .length_ns = 5e3, .least = 29.9},
        {.streams = 8, .batch = 8, .steps = 8, .length_ns = 5e3, .least = 29.9},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 5e3, .least = 29.9},
        {.streams = 16, .batch = 32, .steps = 32, .length_ns = 5e3, .least = 29.9},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 10e3, .least = 29.9},
        {.streams = 4, .batch = 4, .steps = 4, .length_ns = 20e3, .least = 29.9},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 20e3, .least = 29.9},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

/* Nobody waits for a batch, and hardly any kernel runs alone. */
static void kernels_that_are_longer_in_some_streams_keep_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 4, .steps = 4, .length_ns = 5e3, .least = 29.9},
        {.streams = 16, .steps = 16, .length_ns = 10e3, .least = 29.9},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

/* By bandwidth or caches that they share, say. */
static void kernels_that_slow_each_other_a_little_keep_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 8, .length_ns = 10e3, .slowing = 0.01, .least = 29.9},
        {.streams = 16, .length_ns = 10e3, .slowing = 0.01, .least = 29.9},
        {.streams = 16, .batch = 16, .length_ns = 10e3, .slowing = 0.02, .least = 29.9},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

/* In as many threads, of which each waits for a batch of its own, or, without one, for nothing. */
static void check_threads(unsigned threads, double length_ns, unsigned batch, bool blocking,
                          double below)
{
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .programs = {trace_program(length_ns, 0)},
    };
    double share;

    setup.programs[0].threads = threads;
    setup.programs[0].batch = batch;
    setup.programs[0].blocking = blocking;
    share = trace_run(&setup, 1, false).share;
    print_message("%u threads, kernels of %.0f us, batches of %u%s: %.2f %%\n", threads,
                  length_ns / 1e3, batch, blocking ? ", blocking launches" : "", share);
    assert_true(share < CORES + 0.1);
    assert_true(share > CORES - below);
}

/* Two that launch at once are let go at once: each of the launches is begun before the other's
 * kernel is queued. */
static void threads_that_launch_at_once_have_their_share(void **state)
{
    (void)state;
    check_threads(2, 10e3, 1, false, 0.1);
    check_threads(4, 10e3, 0, false, 0.1);
    check_threads(3, 30e3, 1, false, 0.1);
    check_threads(4, 90e3, 4, false, 0.1);
    check_threads(2, 90e3, 0, true, 1);
    check_threads(4, 90e3, 0, true, 1);
    check_threads(3, 30e3, 0, true, 4);
}

/* Threads that are held for their share go together, each in its stream, where their kernels run
 * side by side, and one by one where each fills the device. */
static void held_threads_go_side_by_side(void **state)
{
    static const struct {
        unsigned threads;
        double length_ns;
        bool filled;
        double least; /* kernels in as much time of the device as the share is */
    } cases[] = {
        {4, 1e6, false, 3.5},
        {4, 2e6, false, 3.5},
        {2, 20e6, false, 1.3},
        {4, 2e6, true, 0.97},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = CORES,
            .tenants = 1,
            .filled = cases[i].filled,
            .programs = {trace_program(cases[i].length_ns, 0)},
        };
        struct result result;
        double beside;

        setup.programs[0].threads = cases[i].threads;
        setup.programs[0].batch = 1;
        result = trace_run(&setup, 1, false);
        /* The launches are the first thread's. */
        beside =
            result.launches * cases[i].threads * cases[i].length_ns / TRACE_WINDOW_NS * 100 / CORES;
        print_message("%u threads, kernels of %.0f ms%s: %.2f %%, %.2f side by side\n",
                      cases[i].threads, cases[i].length_ns / 1e6,
                      cases[i].filled ? " that fill the device" : "", result.share, beside);
        assert_true(result.share < CORES + OVER);
        assert_true(result.share > CORES - OVER);
        assert_true(beside > cases[i].least);
    }
}

/* Of very long kernels in the streams of one thread few go side by side at once, however little of
 * the device those took that did before. */
static void long_kernels_go_side_by_side_a_few_at_a_time(void **state)
{
    static const struct {
        unsigned cores;
        double length_ns, over;
    } cases[] = {
        {5, 2e9, 2}, /* 3 s can be owed, and the first ones take more */
        {30, 300e6, OVER},
        {50, 6e9, OVER},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = cases[i].cores,
            .tenants = 1,
            .window_ns = 300 * NS_PER_S,
            .programs = {trace_program(cases[i].length_ns, 0)},
        };
        double share;

        setup.programs[0].streams = 16;
        setup.programs[0].batch = 0;
        share = trace_run(&setup, 1, false).share;
        print_message("16 streams, kernels of %.1f s at %u %%: %.2f %%\n", cases[i].length_ns / 1e9,
                      cases[i].cores, share);
        assert_true(share < cases[i].cores + cases[i].over);
        assert_true(share > cases[i].cores - OVER);
    }
}

/* Two threads that wait for none of their long kernels get ahead of their share by less than two of
 * them take: what is on its way beside another counts as half charged until it is known. */
static void long_kernels_of_two_threads_get_little_ahead(void **state)
{
    const double length_ns = 180e6;
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .programs = {trace_program(length_ns, 0)},
    };

    (void)state;
    setup.programs[0].threads = 2;
    setup.programs[0].batch = 0;
    setup.programs[0].lengths = LENGTHS_SPREAD;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        double share = trace_run(&setup, seed, false).share;

        print_message("2 threads, kernels around %.0f ms: %.2f %%\n", length_ns / 1e6, share);
        assert_true(share < CORES + 2 * length_ns / TRACE_WINDOW_NS * 100);
        assert_true(share > CORES - 2 * length_ns / TRACE_WINDOW_NS * 100);
    }
}

/* A kernel waits until its thread has made all launches behind it, in the same stream, as programs
 * have it that measure: they go although it puts the container in debt. */
static void launches_behind_a_kernel_that_waits_for_them_go(void **state)
{
    static const struct {
        unsigned cores, launches;
        double length_ns, longest_ms;
    } cases[] = {
        {CORES, 10, 200e3, 300}, {CORES, 32, 200e3, 1200}, {CORES, 30, 1e6, 1500},
        {80, 10, 200e3, 100},    {5, 10, 200e3, 3000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct setup setup = {
            .cores = cases[i].cores,
            .tenants = 1,
            .window_ns = 20 * NS_PER_S,
            .programs = {trace_program(1e3, 0)},
        };
        struct program *program = &setup.programs[0];
        struct result result;

        program->length_ns[2] = cases[i].length_ns; /* of another function */
        program->gated = program->batch = cases[i].launches + 1;
        result = trace_run(&setup, 1, false);
        print_message("%u launches of %.1f ms behind one that waits, at %u %%: %.1f %%, %u times, "
                      "%.0f ms at most\n",
                      cases[i].launches, cases[i].length_ns / 1e6, cases[i].cores, result.share,
                      result.batches, result.p99_ms);
        assert_true(result.batches > 2);
        assert_true(result.p99_ms < cases[i].longest_ms);
        assert_true(result.share < cases[i].cores + 2 * OVER);
    }
}

/* Nor does who has long kernels among short ones, of one function or two, get further by them. */
static void long_kernels_let_no_others_go_behind_them(void **state)
{
    (void)state;
    for (unsigned shapes = 1; shapes <= SHAPES; shapes += SHAPES - 1) {
        struct setup setup = {
            .cores = CORES,
            .tenants = 1,
            .window_ns = 60 * NS_PER_S,
            .programs = {trace_program(20e3, 0)},
        };
        struct program *program = &setup.programs[0];
        double share;

        program->shapes = shapes;
        for (unsigned i = 0; i < shapes; i++)
            program->length_ns[i] = 20e3;
        program->batch = 0;
        program->rare = 5;
        program->rare_ns = 500e6;
        share = trace_run(&setup, 1, false).share;
        print_message("one of 5 kernels takes 500 ms, %u shapes: %.2f %%\n", shapes, share);
        assert_true(share < CORES + 2 * OVER);
    }
}

/* Kernels that were short each time are long behind a long one, where none is seen before that
 * ends: but for a bound on how many go there, those that went would be more than can be owed. */
static void not_many_go_behind_a_long_kernel_that_were_short(void **state)
{
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .window_ns = 120 * NS_PER_S,
        .programs = {trace_program(1e6, 0)},
    };
    double share;

    (void)state;
    setup.programs[0].turns = 500;
    setup.programs[0].rare_ns = 300e6;
    share = trace_run(&setup, 1, false).share;
    print_message("kernels of 1 ms that take 300 ms behind a long one: %.2f %%\n", share);
    assert_true(share < CORES + 2 * OVER);
}

/* Without pauses by how long what goes behind a kernel may be the first of these random programs
 * has 86 of 29 %, and 72 where kernels of the same function go. */
static void random_programs_get_no_further_behind_their_own_kernels(void **state)
{
    static const uint64_t seeds[] = {2000070, 3000012, 21000361};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(seeds); i++) {
        const struct setup setup = trace_setup(seeds[i]);
        const struct result result = trace_run(&setup, seeds[i], false);

        print_message("a random program at %u %%: %.2f %%\n", setup.cores, result.share);
        assert_true(result.share < setup.cores + 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_are_longer_later_in_a_batch_keep_the_share),
        cmocka_unit_test(kernels_that_are_longer_in_some_streams_keep_the_share),
        cmocka_unit_test(kernels_that_slow_each_other_a_little_keep_the_share),
        cmocka_unit_test(threads_that_launch_at_once_have_their_share),
        cmocka_unit_test(held_threads_go_side_by_side),
        cmocka_unit_test(long_kernels_go_side_by_side_a_few_at_a_time),
        cmocka_unit_test(long_kernels_of_two_threads_get_little_ahead),
        cmocka_unit_test(launches_behind_a_kernel_that_waits_for_them_go),
        cmocka_unit_test(long_kernels_let_no_others_go_behind_them),
        cmocka_unit_test(not_many_go_behind_a_long_kernel_that_were_short),
        cmocka_unit_test(random_programs_get_no_further_behind_their_own_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
