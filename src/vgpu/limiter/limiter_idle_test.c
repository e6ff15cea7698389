/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What one container leaves idle of a card another uses, and gives back: in stepped time, with
 * kernels of 20 us to 20 ms. The device's own count of busy time judges.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/trace_world.h"

#define COMES_NS (2 * NS_PER_S)   /* the second container */
#define SOON_NS (100 * NS_PER_MS) /* after that */
#define STEADY_NS (4 * NS_PER_S)  /* from here to the end both are held to their shares */
#define END_NS (9 * NS_PER_S)
#define GIVEN_BACK_MS 10.0 /* on average; */
#define ONCE_MS                                                                                    \
    25.0 /* in one run what is charged for kernels of a slice or more is off by as much for 100 ms \
          */
#define POINTS 1.5

static const double lengths_ns[] = {20e3, 200e3, 2e6, 20e6};

static double window_share(double from_ms, double until_ms, int64_t ns)
{
    return 100 * (until_ms - from_ms) / ((double)ns / 1e6);
}

/* What they got, from when both were there, is a mean of some runs: of kernels of ten slices of the
 * device there are few in one, which is up to 4 points off by chance, whatever the limiter does. */
static void judge(double first_ns, double second_ns)
{
    static const uint64_t seeds[] = {7, 9, 11, 15, 17, 19, 21, 23};
    struct setup setup = {
        .cores = 30,
        .tenants = 2,
        .apart = true,
        .programs = {trace_program(first_ns, 30), trace_program(second_ns, 50)},
        .marks_ns = {COMES_NS, COMES_NS + SOON_NS, STEADY_NS, END_NS},
    };
    double alone, once, beyond = 0, first = 0, second = 0;

    setup.programs[1].starts_ns = COMES_NS;
    for (size_t i = 0; i < ARRAY_SIZE(seeds); i++) {
        struct result got = trace_run(&setup, seeds[i], false);

        alone = window_share(0, got.busy_ms[0][0], COMES_NS);
        once = got.busy_ms[1][0] - got.busy_ms[0][0] - 0.3 * SOON_NS / 1e6;
        assert_true(alone >= 95);
        assert_true(once <= ONCE_MS);
        beyond += once;
        first += window_share(got.busy_ms[2][0], got.busy_ms[3][0], END_NS - STEADY_NS);
        second += window_share(got.busy_ms[2][1], got.busy_ms[3][1], END_NS - STEADY_NS);
    }
    beyond /= ARRAY_SIZE(seeds);
    first /= ARRAY_SIZE(seeds);
    second /= ARRAY_SIZE(seeds);

    print_message("kernels of %5.0f us, then beside %5.0f us: alone %.2f %%, %.2f ms too many in "
                  "the next %.0f ms, then %.2f and %.2f %%\n",
                  first_ns / 1e3, second_ns / 1e3, alone, beyond, SOON_NS / 1e6, first, second);
    assert_true(beyond <= GIVEN_BACK_MS);
    assert_true(fabs(first - 30) <= POINTS && fabs(second - 50) <= POINTS);
}

static void what_is_idle_is_used_and_given_back_within_10_ms(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ARRAY_SIZE(lengths_ns); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(lengths_ns); k++)
            judge(lengths_ns[i], lengths_ns[k]);
    }
}

/* Who has kernels that nobody can take back borrows none beside one that comes and goes: he would
 * hold that one up each time. */
static void long_kernels_are_not_borrowed_beside_who_pauses(void **unused)
{
    static const double lengths_ms[] = {20, 300, 2000};
    struct setup setup = {
        .cores = 50,
        .tenants = 2,
        .apart = true,
        .marks_ns = {STEADY_NS, END_NS},
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_SIZE(lengths_ms); i++) {
        struct result got;
        double first, second;

        setup.programs[0] = trace_program(lengths_ms[i] * 1e6, 10);
        setup.programs[1] = trace_program(20e6, 50);
        setup.programs[1].batch = 1;
        setup.programs[1].think_ns = 24e6;
        got = trace_run(&setup, 7, false);
        first = window_share(got.busy_ms[0][0], got.busy_ms[1][0], END_NS - STEADY_NS);
        second = window_share(got.busy_ms[0][1], got.busy_ms[1][1], END_NS - STEADY_NS);
        print_message("kernels of %4.0f ms at 10 %%: %.2f %%, beside 20 ms each 44 ms: %.2f %%\n",
                      lengths_ms[i], first, second);
        assert_true(first <= 10 + 100 * lengths_ms[i] * 1e6 / (END_NS - STEADY_NS));
        assert_true(second >= 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_idle_is_used_and_given_back_within_10_ms),
        cmocka_unit_test(long_kernels_are_not_borrowed_beside_who_pauses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
