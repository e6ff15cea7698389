/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What measurements alone would miss, in stepped time: what the device does while a measurement
 * takes the host's time, which shows with many streams, and kernels whose launches never return.
 */

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/trace_world.h"

enum {
    CORES = 30,
};

/* Points of a hundred above the limit. */
#define OVER 1.5

static double share_of(unsigned streams, double length_ns)
{
    struct setup setup = {
        .cores = CORES,
        .tenants = 1,
        .programs = {trace_program(length_ns, 0)},
    };

    /* One launch in each, and all are waited for. */
    setup.programs[0].streams = setup.programs[0].batch = streams;
    return trace_run(&setup, 1, false).share;
}

static void sixteen_streams_get_no_more_than_the_limit(void **state)
{
    static const struct {
        unsigned streams;
        double length_ns;
    } cases[] = {{4, 50e3}, {8, 50e3}, {16, 50e3}, {8, 100e3}, {16, 100e3}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        double share = share_of(cases[i].streams, cases[i].length_ns);

        print_message("%u streams, kernels of %.0f us: %.2f %%\n", cases[i].streams,
                      cases[i].length_ns / 1e3, share);
        assert_true(share < CORES + OVER);
        assert_true(share > CORES - 1);
    }
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_streams_get_no_more_than_the_limit),
        cmocka_unit_test(who_is_killed_in_launches_that_block_gets_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
