/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Kernels that run side by side and leave room for each other, but look as if they filled the
 * device, in stepped time. One that runs alone says how long a kernel takes alone: where those
 * beside it are longer, or slow each other a little, they seem to wait for each other. What that
 * costs an honest program must stay small.
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
static void kernels_that_are_longer_later_in_a_batch_keep_most_of_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 4, .batch = 4, .steps = 4, .length_ns = 5e3, .least = 23.2},
        {.streams = 8, .batch = 8, .steps = 8, .length_ns = 5e3, .least = 23.5},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 5e3, .least = 24.5},
        {.streams = 16, .batch = 32, .steps = 32, .length_ns = 5e3, .least = 23.5},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 10e3, .least = 24.5},
        {.streams = 4, .batch = 4, .steps = 4, .length_ns = 20e3, .least = 26.5},
        {.streams = 16, .batch = 16, .steps = 16, .length_ns = 20e3, .least = 28.9},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

/* Nobody waits for a batch, and hardly any kernel runs alone. */
static void kernels_that_are_longer_in_some_streams_keep_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 4, .steps = 4, .length_ns = 5e3, .least = 29},
        {.streams = 16, .steps = 16, .length_ns = 10e3, .least = 29},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

/* By bandwidth or caches that they share, say. */
static void kernels_that_slow_each_other_a_little_keep_the_share(void **state)
{
    static const struct beside cases[] = {
        {.streams = 8, .length_ns = 10e3, .slowing = 0.01, .least = 29.4},
        {.streams = 16, .length_ns = 10e3, .slowing = 0.01, .least = 29.4},
        {.streams = 16, .batch = 16, .length_ns = 10e3, .slowing = 0.02, .least = 29.4},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_share(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_are_longer_later_in_a_batch_keep_most_of_the_share),
        cmocka_unit_test(kernels_that_are_longer_in_some_streams_keep_the_share),
        cmocka_unit_test(kernels_that_slow_each_other_a_little_keep_the_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
