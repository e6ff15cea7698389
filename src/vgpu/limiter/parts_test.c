/* SPDX-License-Identifier: Apache-2.0 */

/* The limiter's parts, each alone; as a whole limiter_trace_test.c judges them. */

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/costs.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/overlap.h"
#include "vgpu/limiter/presence.h"
#include "vgpu/limiter/streams.h"

#define assert_near(is, wanted, within) assert_true(fabs((is) - (wanted)) <= (within))

static struct launch launch_of(uintptr_t function, uint32_t blocks)
{
    return (struct launch){
        .function = (const void *)function, .grid = {blocks, 1, 1}, .block = {128, 1, 1}};
}

/* Costs */

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
    assert_near(cost_risk_ns(costs, cost), 20e3, 1);
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

/* Overlap */

static void a_moment_is_charged_once(void **state)
{
    struct overlap overlap = {0};

    (void)state;
    assert_near(overlap_take(&overlap, (struct interval){10, 20}), 10, 1e-9);
    assert_near(overlap_take(&overlap, (struct interval){15, 25}), 5, 1e-9);
    assert_near(overlap_take(&overlap, (struct interval){12, 24}), 0, 1e-9);
    assert_near(overlap_take(&overlap, (struct interval){5, 30}), 10, 1e-9);
    assert_near(overlap_take(&overlap, (struct interval){40, 40}), 0, 0);
    assert_near(overlap_take(&overlap, (struct interval){50, 40}), 0, 0);
    overlap_forget(&overlap);
    assert_near(overlap_take(&overlap, (struct interval){10, 20}), 10, 1e-9);
}

static void intervals_in_any_order_add_up_to_their_union(void **state)
{
    struct lot lot = {.state = 7};

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        struct overlap overlap = {0};
        bool covered[100] = {0};
        double sum = 0;
        unsigned expected = 0;

        for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
            unsigned start = (unsigned)(lot_draw(&lot) * 100);
            unsigned end = start + (unsigned)(lot_draw(&lot) * (100 - start));

            sum += overlap_take(&overlap, (struct interval){start, end});
            for (unsigned j = start; j < end; j++)
                covered[j] = true;
        }
        for (unsigned j = 0; j < 100; j++)
            expected += covered[j];
        assert_near(sum, expected, 1e-6);
    }
}

static void short_kernels_overlap_as_those_measured_did(void **state)
{
    struct overlap overlap = {0};

    (void)state;
    assert_near(overlap_factor(&overlap), 1, 0);
    for (unsigned i = 0; i < 1000; i++)
        overlap_note(&overlap, 30e3, 10e3);
    assert_near(overlap_factor(&overlap), 1.0 / 3, 0.001);
    for (unsigned i = 0; i < 200; i++)
        overlap_note(&overlap, 30e3, 30e3);
    assert_near(overlap_factor(&overlap), 1, 0.03);
}

/* Presence */

/* The device's clock runs 20 ppm faster or slower: no probe is late for that. */
static void a_drifting_clock_is_not_lateness(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct presence presence;

        presence_init(&presence);
        for (int64_t at = 0; at < 8 * NS_PER_S; at += 10 * NS_PER_MS) {
            double device_ns = ((double)at + 3000) * (1 + sign * 20e-6);

            assert_near(presence_late_ns(&presence, device_ns, (double)at, at), 0, 0);
        }
        /* One that had to wait for a slice of 2 ms is. */
        assert_true(presence_late_ns(&presence, (8e9 + 2e6) * (1 + sign * 20e-6), 8e9,
                                     8 * NS_PER_S) > 1.5e6);
    }
}

static void probes_in_a_kernel_say_what_was_ours(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence);
    assert_near(presence_part(&presence, 0, 1e6), 1, 0);
    for (unsigned i = 0; i < 400; i++) {
        if (i % 4) {
            presence_open(&presence, i * 1e6);
            assert_int_equal(presence_resolve(&presence, i * 1e6 + 0.9e6), 1);
        } else {
            presence_on(&presence, i * 1e6);
        }
    }
    assert_true(presence_contended(&presence));
    assert_near(presence_part(&presence, 0, 400e6), 0.25, 0.01);
}

/* Something of ours ended after the probe was sent: we were there, and it waited behind that. */
static void a_probe_behind_work_of_ours_tells_nothing(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence);
    presence_open(&presence, 1e6);
    presence_note_end(&presence, 1.5e6);
    assert_int_equal(presence_resolve(&presence, 1.6e6), 0);
    assert_int_equal(presence.voided, 1);
    assert_false(presence_contended(&presence));

    /* What ended before it was sent says nothing of it. */
    presence_open(&presence, 3e6);
    assert_int_equal(presence_resolve(&presence, 4e6), 1);
    /* Times before a new base are against another moment. */
    presence_open(&presence, 5e6);
    presence_new_base(&presence);
    assert_int_equal(presence_resolve(&presence, 6e6), 0);
}

static void neighbours_that_left_are_forgotten(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence);
    for (unsigned i = 0; i < 100; i++) {
        presence_open(&presence, i * 1e6);
        (void)presence_resolve(&presence, i * 1e6 + 0.5e6);
        presence_on(&presence, i * 1e6 + 0.6e6);
    }
    assert_near(presence_part(&presence, 0, 100e6), 0.5, 0.1);
    for (unsigned i = 100; i < 110; i++)
        presence_on(&presence, i * 1e6);
    assert_near(presence.on_device, 1, 0);
}

/* Streams */

static void the_streams_beside_one(void **state)
{
    struct streams streams = {0};
    struct launch launch = launch_of(0x1000, 1), others[STREAMS];

    (void)state;
    for (uintptr_t i = 0; i < 20; i++) { /* stream 0 is the legacy one: it can't be marked */
        launch.stream = (void *)(i * 8);
        streams_use(&streams, &launch, (int64_t)i + 1);
    }
    assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 1);
    for (unsigned i = 0; i < STREAMS - 1; i++)
        assert_true((uintptr_t)others[i].stream >= 4 * 8); /* the first four gave way */
    streams_forget(&streams, (void *)(10 * 8));
    assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 2);
    assert_int_equal(streams_beside(&streams, &launch, NS_PER_S, others), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_is_believed_after_three),
        cmocka_unit_test(a_cost_tells_when_it_changed),
        cmocka_unit_test(long_kernels_are_measured_each_time),
        cmocka_unit_test(risk_goes_by_the_mean_square),
        cmocka_unit_test(a_crowd_of_shapes_gives_up_those_measured_least),
        cmocka_unit_test(the_lot_is_what_it_says),
        cmocka_unit_test(a_moment_is_charged_once),
        cmocka_unit_test(intervals_in_any_order_add_up_to_their_union),
        cmocka_unit_test(short_kernels_overlap_as_those_measured_did),
        cmocka_unit_test(a_drifting_clock_is_not_lateness),
        cmocka_unit_test(probes_in_a_kernel_say_what_was_ours),
        cmocka_unit_test(a_probe_behind_work_of_ours_tells_nothing),
        cmocka_unit_test(neighbours_that_left_are_forgotten),
        cmocka_unit_test(the_streams_beside_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
