/* SPDX-License-Identifier: Apache-2.0 */

/* What launches of a shape cost, and the lot that draws which of them are measured. */

#include "vgpu/limiter/costs.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/parts_fixture.h"

static void a_shape_is_believed_after_three(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch launch = launch_of(0x1000, 1);
    struct cost *cost = costs_of(costs, &launch);

    (void)state;
    assert_near(cost_expected(cost), COSTS_FIRST_NS, 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(cost_is_known(cost));
        assert_near(cost_risk_ns(costs, cost), 0, 0); /* measured whatever the lot says */
        (void)costs_learn(costs, cost, 20e3);
    }
    assert_true(cost_is_known(cost));
    assert_ptr_equal(costs_of(costs, &launch), cost);
    assert_near(cost_expected(cost), 20e3, 1e-6);
    free(costs);
}

/* What is seldom and long may not have been seen yet. */
static void a_shape_is_measured_less_the_more_it_was_measured(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch launch = launch_of(0x1000, 1);
    struct cost *cost = costs_of(costs, &launch);
    double before_ns = 1e9;

    (void)state;
    for (unsigned i = 0; i < 600; i++) {
        (void)costs_learn(costs, cost, 5e3);
        if (!cost_is_known(cost))
            continue;
        assert_true(cost_risk_ns(costs, cost) <= before_ns);
        before_ns = cost_risk_ns(costs, cost);
        if (i == 31) /* of so many the next one is one of two launches */
            assert_near(before_ns, COSTS_GAP_NS / 2, 1);
    }
    assert_near(before_ns, 5e3, 1); /* by what it takes */
    free(costs);
}

static void a_cost_tells_when_it_changed(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch launch = launch_of(0x1000, 1);
    struct cost *cost = costs_of(costs, &launch);

    (void)state;
    assert_true(costs_learn(costs, cost, 20e3));
    assert_false(costs_learn(costs, cost, 20e3));
    assert_false(costs_learn(costs, cost, 20.9e3));
    assert_true(costs_learn(costs, cost, 90e3));
    assert_true(costs_learn(costs, cost, 1));
    free(costs);
}

static void long_kernels_are_measured_each_time(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch launch = launch_of(0x1000, 1), other = launch_of(0x1000, 2),
                  stranger = launch_of(0x2000, 2);
    struct cost *cost = costs_of(costs, &launch);

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        (void)costs_learn(costs, cost, 2e6);
    assert_true(cost_is_long(cost));
    assert_near(cost_risk_ns(costs, cost), 0, 0);

    /* A new shape of a function that was long in another may be long as well. */
    for (unsigned i = 0; i < 4; i++) {
        (void)costs_learn(costs, costs_of(costs, &other), 10e3);
        (void)costs_learn(costs, costs_of(costs, &stranger), 10e3);
    }
    assert_near(cost_risk_ns(costs, costs_of(costs, &other)), 0, 0);
    assert_true(cost_risk_ns(costs, costs_of(costs, &stranger)) > 0);
    free(costs);
}

/* One long one among many short ones: the mean says little, the mean square all. */
static void risk_goes_by_the_mean_square(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch launch = launch_of(0x1000, 1);
    struct cost *cost = costs_of(costs, &launch);

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        (void)costs_learn(costs, cost, i % 10 ? 5e3 : 500e3);
    assert_true(cost_risk_ns(costs, cost) > 2 * cost_expected(cost));
    free(costs);
}

static void a_crowd_of_shapes_gives_up_those_measured_least(void **state)
{
    struct costs *costs = calloc(1, sizeof(*costs));
    struct launch kept = launch_of(0x1000, 1);
    struct cost *cost = costs_of(costs, &kept);

    (void)state;
    for (unsigned i = 0; i < 10; i++)
        (void)costs_learn(costs, cost, 20e3);
    for (uint32_t i = 0; i < 40000; i++) {
        struct launch launch = launch_of(0x2000, i);

        assert_ptr_equal(costs_of(costs, &launch)->function, launch.function);
    }
    assert_int_equal(costs_of(costs, &kept)->measured, 10);
    free(costs);
}

static void what_a_shape_takes_alone_is_a_mean_of_its_own(void **state)
{
    struct cost cost = {0};

    (void)state;
    cost_learn_alone(&cost, 50e3);
    assert_near(cost.alone_ns, 50e3, 1);
    for (unsigned i = 0; i < 200; i++)
        cost_learn_alone(&cost, i % 2 ? 60e3 : 80e3);
    assert_near(cost.alone_ns, 70e3, 1e3);
}

/* The lot */

static void the_lot_is_what_it_says(void **state)
{
    struct lot lot = {.state = 12345};
    double sum = 0, square = 0;
    unsigned beyond = 0;

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        double drawn = lot_exponential(&lot);

        assert_true(drawn >= 0);
        sum += drawn / 200000;
        square += drawn * drawn / 200000;
        beyond += drawn > 2;
    }
    assert_near(sum, 1, 0.02);
    assert_near(square, 2, 0.08);
    assert_near(beyond / 200000.0, exp(-2), 0.005);
    for (double x = 0.001; x < 20; x *= 1.3)
        assert_near(lot_chance(x), 1 - exp(-x), 0.0002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_is_believed_after_three),
        cmocka_unit_test(a_shape_is_measured_less_the_more_it_was_measured),
        cmocka_unit_test(a_cost_tells_when_it_changed),
        cmocka_unit_test(long_kernels_are_measured_each_time),
        cmocka_unit_test(risk_goes_by_the_mean_square),
        cmocka_unit_test(a_crowd_of_shapes_gives_up_those_measured_least),
        cmocka_unit_test(what_a_shape_takes_alone_is_a_mean_of_its_own),
        cmocka_unit_test(the_lot_is_what_it_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
