/* SPDX-License-Identifier: Apache-2.0 */

/* The limiter's parts, each alone; as a whole limiter_trace_test.c judges them. */

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "region/bucket.h"
#include "vgpu/limiter/costs.h"
#include "vgpu/limiter/limiter.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/overlap.h"
#include "vgpu/limiter/presence.h"
#include "vgpu/limiter/side.h"
#include "vgpu/limiter/streams.h"
#include "vgpu/limiter/tails.h"

#define assert_near(is, wanted, within)                                                            \
    assert_true(fabs((double)(is) - (double)(wanted)) <= (within))

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

        presence_init(&presence, NULL);
        for (int64_t at = 0; at < 8 * NS_PER_S; at += 10 * NS_PER_MS) {
            double device_ns = ((double)at + 3000) * (1 + sign * 20e-6);

            assert_near(presence_late_ns(&presence, device_ns, (double)at, at), 0, 0);
        }
        /* One that had to wait for a slice of 2 ms is. */
        assert_true(presence_late_ns(&presence, (8e9 + 2e6) * (1 + sign * 20e-6), 8e9,
                                     8 * NS_PER_S) > 1.5e6);
    }
}

/* Of a program that begins with kernels in all queues, each is late: the first one, too. */
static void the_first_probe_may_be_late(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 0.2e6);
    assert_near(presence_late_ns(&presence, 40e6, 0.2e6, NS_PER_MS), 39.8e6, 0.02e6);
    presence_note_end(&presence, 40e6 - 300);
    assert_int_equal(presence_resolve(&presence, 0.2e6, 40e6), 0);
    presence_open(&presence, 41e6);
    assert_true(presence_late_ns(&presence, 80e6, 41e6, 42 * NS_PER_MS) > 0);
    presence_note_end(&presence, 80e6);
    assert_int_equal(presence_resolve(&presence, 41e6, 80e6), 0);
    presence_new_base(&presence);
    assert_near(presence_late_ns(&presence, 9e6, 8e6, 100 * NS_PER_MS), 1e6, 0.02e6);
}

static void probes_in_a_kernel_say_what_was_ours(void **state)
{
    struct presence presence;
    double charge_ns;

    (void)state;
    presence_init(&presence, NULL);
    assert_near(presence_always(&presence, 0, 1e6, 1e6, &charge_ns), 1e6, 0);
    assert_near(charge_ns, 1e6, 0);
    for (unsigned i = 0; i < 400; i++) {
        if (i % 4) {
            presence_open(&presence, i * 10e6);
            assert_int_equal(presence_resolve(&presence, i * 10e6, i * 10e6 + 0.9e6), 1);
        } else {
            presence_on(&presence, i * 10e6);
        }
    }
    assert_true(presence_contended(&presence));
    assert_near(presence_part_so_far(&presence, 0, 4e9), 0.25, 0.01);
    assert_near(presence_always(&presence, 0, 4e9, 4e9, &charge_ns), 1e9, 4e7);
    assert_near(charge_ns, 1e9, 4e7);
}

/* One after another; in the slices of others some probes find us off the device. */
struct kernels {
    struct presence presence;
    struct lot lot;
    double at_ns, next_probe_ns;
};

static void run_kernel(struct kernels *kernels, double ours_ns, double others_ns)
{
    double end_ns = kernels->at_ns + ours_ns + others_ns;

    for (; kernels->next_probe_ns < end_ns;
         kernels->next_probe_ns += 2.5e6 * (0.5 + lot_draw(&kernels->lot))) {
        if (kernels->next_probe_ns < end_ns - others_ns) {
            presence_on(&kernels->presence, kernels->next_probe_ns);
        } else {
            presence_open(&kernels->presence, kernels->next_probe_ns);
            (void)presence_resolve(&kernels->presence, kernels->next_probe_ns, end_ns);
        }
    }
    kernels->at_ns = end_ns;
}

/* Few of them have a slice of others within, which come when ours is over, and those are ten times
 * as long as the rest. */
static void what_is_charged_beside_others_adds_up(void **state)
{
    (void)state;
    for (unsigned always = 0; always < 2; always++) {
        struct kernels kernels = {.lot.state = 11 + always};
        double ours_ns = 0, charged_ns = 0, slice_ns = 0, charge_ns;

        presence_init(&kernels.presence, NULL);
        for (unsigned i = 0; i < 40000; i++) {
            double start_ns = kernels.at_ns, own_ns = 150e3 + 150e3 * lot_draw(&kernels.lot);
            double others_ns = slice_ns + own_ns >= PRESENCE_SLICE_NS ? 2e6 : 0;
            double length_ns = own_ns + others_ns;

            run_kernel(&kernels, own_ns, others_ns);
            if (always)
                (void)presence_always(&kernels.presence, start_ns, kernels.at_ns, length_ns,
                                      &charge_ns);
            else
                (void)presence_doubt(&kernels.presence, start_ns, kernels.at_ns, 1, 100e3,
                                     &charge_ns);
            slice_ns = others_ns > 0 ? 0 : slice_ns + own_ns;
            ours_ns += own_ns;
            charged_ns += charge_ns;
        }
        assert_near(charged_ns / ours_ns, 1, 0.02);
    }
}

/* Those that are too short for a probe are charged in full, however much others have of the rest.
 */
static void short_kernels_are_not_taken_for_long_ones(void **state)
{
    struct kernels kernels = {.lot.state = 5};
    double ours_ns = 0, charged_ns = 0, charge_ns;

    (void)state;
    presence_init(&kernels.presence, NULL);
    for (unsigned i = 0; i < 20000; i++) {
        double start_ns = kernels.at_ns, own_ns = i % 100 ? 10e3 : 2e6;
        double others_ns = i % 100 ? 0 : 4e6;

        run_kernel(&kernels, own_ns, others_ns);
        (void)presence_always(&kernels.presence, start_ns, kernels.at_ns, own_ns + others_ns,
                              &charge_ns);
        ours_ns += own_ns * (i % 100 > 0);
        charged_ns += charge_ns * (i % 100 > 0);
    }
    assert_near(charged_ns / ours_ns, 1, 0.02);
}

/* Right behind a kernel of ours it had waited for that, in its hardware queue. */
static void a_probe_behind_work_of_ours_tells_nothing(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 1e6);
    presence_note_end(&presence, 1.6e6);
    assert_int_equal(presence_resolve(&presence, 1e6, 1.6e6), 0);
    assert_int_equal(presence.voided, 1);
    assert_false(presence_contended(&presence));

    /* What ended before it was sent says nothing of it. */
    presence_open(&presence, 3e6);
    assert_int_equal(presence_resolve(&presence, 3e6, 4e6), 1);
    /* Times before a new base are against another moment. */
    presence_open(&presence, 5e6);
    presence_new_base(&presence);
    assert_int_equal(presence_resolve(&presence, 5e6, 6e6), 0);
}

static double on_device(struct presence *presence, double from_ns, double to_ns)
{
    return presence_part_so_far(presence, from_ns, to_ns);
}

/* A late probe is done as a slice begins: whether it was sent in the one before is known by when
 * that began, by what ended since, or by how long others mostly have the device. */
static void a_late_probe_may_have_been_sent_in_a_slice(void **state)
{
    const double slice = PRESENCE_SLICE_NS, absence = 2.4e6;
    struct presence presence;
    double at;

    (void)state;
    presence_init(&presence, NULL);
    presence.on_device = 0.5;
    presence_open(&presence, 0);
    assert_int_equal(presence_resolve(&presence, 0, 1e6), 1); /* a slice begins at 1 ms */

    presence_open(&presence, 1.5e6);               /* in it */
    presence_open(&presence, 1e6 + slice + 0.1e6); /* after it */
    at = 1e6 + slice + absence;
    assert_int_equal(presence_resolve(&presence, 1.5e6, at), 1);
    assert_near(on_device(&presence, 1.4e6, 1.6e6), (1 + 4 * 0.5) / 5, 1e-9);
    assert_near(on_device(&presence, 1.7e6, at), (0 + 4 * 0.5) / 5, 1e-9);
    assert_near(presence.absence_ns, absence, 1);

    /* Others did not want it: our slice was longer, by whole slices. */
    presence_note_on(&presence, at + 1.5 * slice);
    presence_open(&presence, at + 1.8 * slice);
    assert_int_equal(presence_resolve(&presence, at + 1.8 * slice, at + 2 * slice + absence), 0);
    at += 2 * slice + absence;

    /* Nothing is known of the slice before: it was as long before this one as others mostly take.
     */
    presence_open(&presence, at + 50e6 - absence - 0.5 * slice);
    presence_open(&presence, at + 50e6 - absence + 0.1e6);
    assert_int_equal(presence_resolve(&presence, at + 50e6 - absence - 0.5 * slice, at + 50e6), 1);
    at += 50e6;

    /* Something of ours ended after it was sent. */
    presence_open(&presence, at + slice + 1e6);
    presence_note_end(&presence, at + slice + 1.5e6);
    assert_int_equal(presence_resolve(&presence, at + slice + 1e6, at + slice + 3e6), 0);
    assert_int_equal(presence.voided, 0);
}

/* Where none ever outlasts a kernel's end, events complete at once on the device: a late probe was
 * off it, until one does outlast an end. */
static void late_probes_are_off_a_device_that_answers_at_once(void **state)
{
    struct presence presence;
    double at = 1e6;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 0);
    (void)presence_resolve(&presence, 0, at);
    for (unsigned i = 0; i < 200; i++, at += 5e6) {
        presence_note_end(&presence, at + 0.5e6);
        presence_open(&presence, at + 1e6); /* in our slice, if that is a whole one */
        assert_int_equal(presence_resolve(&presence, at + 1e6, at + 5e6), i >= 94);
    }

    presence_open(&presence, at + 1e6);
    presence_note_end(&presence, at + 1.5e6);
    assert_int_equal(presence_resolve(&presence, at + 1e6, at + 5e6), 0);
    at += 5e6;
    presence_open(&presence, at + 1e6);
    assert_int_equal(presence_resolve(&presence, at + 1e6, at + 5e6), 0);
}

/* It is sent in a slice's kernel, and that ends before the next slice: it need not be waited for.
 */
static void a_probe_that_outlasts_its_kernel_was_in_its_slice(void **state)
{
    struct presence presence;
    double charge_ns;

    (void)state;
    presence_init(&presence, NULL);
    for (unsigned i = 0; i < 100; i++) {
        presence_open(&presence, i * 10e6);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 5e6);
    }
    presence_open(&presence, 1000.2e6);
    (void)presence_always(&presence, 1000e6, 1001e6, 1e6, &charge_ns);
    assert_true(charge_ns > 0.5e6);
    assert_near(presence_part_so_far(&presence, 1000e6, 1001e6), presence.on_device, 1e-9);
}

static void neighbours_that_left_are_forgotten(void **state)
{
    struct presence presence;
    double charge_ns;

    (void)state;
    presence_init(&presence, NULL);
    for (unsigned i = 0; i < 100; i++) {
        presence_open(&presence, i * 10e6);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 0.5e6);
        presence_on(&presence, i * 10e6 + 0.6e6);
    }
    (void)presence_always(&presence, 0, 1e9, 1e9, &charge_ns);
    assert_near(presence.on_device, 0.5, 0.1);
    for (unsigned i = 100; i < 110; i++)
        presence_on(&presence, i * 10e6);
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

    /* The other names of the legacy stream and of a thread's own. */
    for (uintptr_t name = 1; name <= 2; name++) {
        const struct launch unnamed = {.stream = (void *)name};

        streams_use(&streams, &unnamed, NS_PER_MS);
        assert_int_equal(streams_beside(&streams, &launch, 0, others), STREAMS - 2);
        streams_forget(&streams, (void *)name);
    }
}

/* Tails */

static struct {
    bool is_idle, is_done, joins, is_captured;
    unsigned recorded;
} fake_stream;

static void *fake_tail(void *gpu)
{
    (void)gpu;
    return &fake_stream;
}

static bool fake_record(void *gpu, void *event, const struct launch *where)
{
    (void)gpu;
    (void)event;
    (void)where;
    fake_stream.recorded++;
    return true;
}

static enum event_state fake_query(void *gpu, void *event)
{
    (void)gpu;
    (void)event;
    return fake_stream.is_done ? EVENT_DONE : EVENT_NOT_YET;
}

static bool fake_stream_is_idle(void *gpu, const struct launch *where)
{
    (void)gpu;
    (void)where;
    return fake_stream.is_idle;
}

static bool fake_asks_others(void *gpu)
{
    (void)gpu;
    return !fake_stream.joins;
}

static bool fake_is_captured(void *gpu, const struct launch *where)
{
    (void)gpu;
    (void)where;
    return fake_stream.is_captured;
}

static const struct limiter_gpu gpu_of_tails = {
    .make_event = fake_tail,
    .record = fake_record,
    .query = fake_query,
    .is_idle = fake_stream_is_idle,
    .asks_others = fake_asks_others,
    .is_captured = fake_is_captured,
};

static struct samples fake_samples;

static double look(struct tails *tails, int64_t charged_ms, double on_device, int64_t now_ms)
{
    return tails_look(tails, &fake_samples, &gpu_of_tails, NULL, charged_ms * NS_PER_MS, on_device,
                      now_ms * NS_PER_MS) /
           1e6;
}

static struct launch begin_tail_in(struct tails *tails, void *stream)
{
    struct launch launch = launch_of(0x1000, 1);

    launch.stream = stream;
    fake_stream.is_idle = fake_stream.is_done = false;
    fake_stream.recorded = 0;
    assert_int_equal(tails_use(tails, &launch, 0, NS_PER_MS), TAILS_KNOWN);
    return launch;
}

static struct launch begin_tail(struct tails *tails)
{
    return begin_tail_in(tails, (void *)64);
}

static void a_stream_is_in_doubt_that_is_busy_beyond_what_was_charged(void **state)
{
    struct tails tails = {0};

    (void)state;
    (void)begin_tail(&tails);
    assert_near(look(&tails, 1, 1, 1000), 0, 0); /* here the event is recorded */
    assert_int_equal(fake_stream.recorded, 1);
    assert_near(look(&tails, 1, 1, 1040), 0, 0);
    assert_near(look(&tails, 1, 1, 1400), 399, 1e-6);
    assert_near(look(&tails, 1, 1, 1405), 0, 0); /* not due */
    assert_near(look(&tails, 101, 1, 1500), 399, 1e-6);
    assert_near(look(&tails, 500, 1, 1600), 0, 0);   /* charged as it runs, or for others */
    assert_near(look(&tails, 101, 0.2, 1700), 0, 0); /* others were on the device */

    /* The next event is for what comes after; what was charged for before is done. */
    fake_stream.is_done = true;
    assert_near(look(&tails, 500, 1, 1800), 0, 0);
    fake_stream.is_done = false;
    assert_near(look(&tails, 500, 1, 2800), 1000 - 499, 1e-6);
    fake_stream.is_done = true;
    assert_near(look(&tails, 500, 1, 2900), 0, 0);
    fake_stream.is_done = false;
    assert_near(look(&tails, 500, 1, 3000), 100, 1e-6);
    assert_int_equal(fake_stream.recorded, 3);
}

static void a_stream_without_work_is_in_no_doubt(void **state)
{
    struct tails tails = {0};

    (void)state;
    (void)begin_tail(&tails);
    fake_stream.is_idle = true;
    for (unsigned i = 1; i < 100; i++)
        assert_near(look(&tails, 0, 1, 100 * i), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);

    /* What was charged for others meanwhile explains nothing of what it does then. */
    assert_near(look(&tails, 900, 1, 10000), 0, 0);
    fake_stream.is_idle = false;
    assert_near(look(&tails, 900, 1, 10100), 0, 0);
    assert_near(look(&tails, 900, 1, 10300), 200, 1e-6);
}

static void a_stream_with_a_young_measurement_needs_no_event(void **state)
{
    struct tails tails = {0};

    (void)state;
    fake_samples.pending = 1;
    fake_samples.list[7].state = SAMPLE_PENDING;
    fake_samples.list[7].kind = SAMPLE_ALWAYS;
    fake_samples.list[7].launch = begin_tail(&tails);
    fake_samples.list[7].began_ns = 990 * NS_PER_MS;
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
    fake_samples.list[7].launch.stream = (void *)72;
    assert_near(look(&tails, 1, 1, 1010), 0, 0);
    assert_int_equal(fake_stream.recorded, 1);
    fake_samples = (struct samples){0};
}

/* A long kernel keeps those behind it waiting, of which many a one is measured. */
static void measurements_behind_a_long_kernel_do_not_hide_it(void **state)
{
    struct tails tails = {0};

    (void)state;
    fake_samples.pending = 2;
    for (unsigned i = 0; i < 2; i++) {
        fake_samples.list[i].state = SAMPLE_PENDING;
        fake_samples.list[i].kind = SAMPLE_DRAWN;
        fake_samples.list[i].launch = begin_tail(&tails);
        fake_samples.list[i].began_ns = (990 + 60 * i) * NS_PER_MS;
    }
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
    assert_near(look(&tails, 1, 1, 1060), 0, 0);
    assert_int_equal(fake_stream.recorded, 1);
    assert_near(look(&tails, 1, 1, 1400), 339, 1e-6);
    fake_samples = (struct samples){0};
}

/* Its event would wait for all blocking streams, and keep them waiting. */
static void the_legacy_stream_gets_no_event(void **state)
{
    struct tails tails = {0};
    struct launch launch = begin_tail_in(&tails, NULL);

    (void)state;
    assert_near(look(&tails, 1, 1, 100), 0, 0);
    assert_near(look(&tails, 1, 1, 500), 399, 1e-6);
    assert_int_equal(tails.out, 1);
    tails_note_done(&tails, &launch, 99 * NS_PER_MS);
    assert_near(look(&tails, 1, 1, 600), 499, 1e-6);
    tails_note_done(&tails, &launch, 101 * NS_PER_MS); /* it began behind what was there */
    assert_int_equal(tails.out, 0);
    assert_near(look(&tails, 1, 1, 700), 0, 0);
    assert_near(look(&tails, 1, 1, 1000), 300, 1);
    fake_stream.is_captured = true; /* a blocking stream is: nothing may be asked */
    fake_stream.is_idle = true;
    assert_near(look(&tails, 1, 1, 1100), 400, 1);
    fake_stream.is_captured = false;
    assert_false(tails.is_new);
    assert_near(look(&tails, 1, 1, 1200), 0, 0);
    assert_true(tails.is_new); /* long unused: blocking streams keep it busy alone */
    fake_stream.is_idle = false;
    assert_near(look(&tails, 1, 1, 1300), 0, 0);
    assert_near(look(&tails, 1, 1, 2000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
}

static void while_one_joins_a_capture_no_stream_is_asked(void **state)
{
    struct tails tails = {0};

    (void)state;
    (void)begin_tail(&tails);
    fake_stream.joins = true;
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
    assert_true(tails.is_blind);
    fake_stream.joins = false;
    assert_near(look(&tails, 1, 1, 1100), 0, 0);
    assert_int_equal(fake_stream.recorded, 1);
    assert_true(tails.is_blind); /* what it did not see meanwhile may happen again */

    /* An event that is out already can be asked. */
    fake_stream.joins = true;
    assert_near(look(&tails, 1, 1, 1500), 399, 1);
    fake_stream.joins = false;
    fake_stream.is_done = true;
    assert_near(look(&tails, 1, 1, 29000), 0, 0);
    assert_true(tails.is_blind);
    assert_near(look(&tails, 1, 1, 32000), 0, 0);
    assert_false(tails.is_blind);

    fake_stream.is_captured = true;
    assert_near(look(&tails, 1, 1, 33000), 0, 0);
    assert_true(tails.is_blind);
    assert_int_equal(fake_stream.recorded, 3);
    fake_stream.is_captured = false;
}

/* A mark that is out already does not hide what is launched just before the stream ends. */
static void the_end_of_a_stream_is_marked_anew(void **state)
{
    struct tails tails = {0};

    (void)state;
    (void)begin_tail(&tails);
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 1);
    assert_true(
        tails_forget(&tails, &fake_samples, &gpu_of_tails, NULL, (void *)64, 0, 1010 * NS_PER_MS));
    assert_int_equal(fake_stream.recorded, 2);
    assert_int_equal(tails.out, 1);
}

static void a_stream_that_ends_is_looked_at_until_its_work_has_ended(void **state)
{
    struct tails tails = {0};

    (void)state;
    (void)begin_tail(&tails);
    assert_false(
        tails_forget(&tails, &fake_samples, &gpu_of_tails, NULL, (void *)72, 0, NS_PER_MS));
    assert_true(tails_forget(&tails, &fake_samples, &gpu_of_tails, NULL, (void *)64, 0, NS_PER_MS));
    assert_int_equal(fake_stream.recorded, 1);
    assert_near(look(&tails, 0, 1, 101), 100, 1e-6);
    assert_false(
        tails_forget(&tails, &fake_samples, &gpu_of_tails, NULL, (void *)64, 0, 200 * NS_PER_MS));
    fake_stream.is_done = true;
    assert_near(look(&tails, 0, 1, 201), 0, 0);
    assert_int_equal(tails.out, 0);
    assert_int_equal(fake_stream.recorded, 1);
}

static void streams_that_are_not_used_make_room(void **state)
{
    struct tails tails = {0};
    struct launch launch = launch_of(0x1000, 1);

    (void)state;
    for (uintptr_t i = 0; i < TAILS; i++) {
        launch.stream = (void *)(i * 8); /* 0: the legacy one */
        assert_int_equal(tails_use(&tails, &launch, 0, 1 + (int64_t)i), TAILS_KNOWN);
    }
    launch.stream = (void *)1; /* its other name */
    assert_int_equal(tails_use(&tails, &launch, 0, TAILS), TAILS_KNOWN);
    launch.stream = (void *)4096;
    assert_int_equal(tails_use(&tails, &launch, 0, NS_PER_MS), TAILS_FULL);
    assert_int_equal(tails_use(&tails, &launch, 0, 2 * NS_PER_S), TAILS_REPLACED);
    assert_int_equal(tails_use(&tails, &launch, 0, 2 * NS_PER_S), TAILS_KNOWN);

    /* A thread's own, by both names. */
    launch.stream = (void *)2;
    assert_int_equal(tails_use(&tails, &launch, 0, NS_PER_MS), TAILS_HIDDEN);
    launch.stream = NULL;
    launch.per_thread = true;
    assert_int_equal(tails_use(&tails, &launch, 0, NS_PER_MS), TAILS_HIDDEN);
}

/* Measurements */

static int64_t fake_now_ns;

static int64_t fake_now(void *gpu)
{
    (void)gpu;
    return fake_now_ns;
}

static void *new_event(void *gpu)
{
    static char events[4096];
    static unsigned made;

    (void)gpu;
    return &events[made++ % sizeof(events)];
}

static void *no_event(void *gpu)
{
    (void)gpu;
    return NULL;
}

static const struct limiter_gpu gpu_of_samples = {
    .now_ns = fake_now,
    .make_event = new_event,
    .record = fake_record,
    .query = fake_query,
    .is_idle = fake_stream_is_idle,
};

/* Of a launch that paid 1 ns; beside one other stream, or alone. */
static struct sample *measure_in(struct samples *samples, uintptr_t stream, unsigned others)
{
    const struct launch other = {.stream = (void *)8};
    struct launch launch = launch_of(0x1000, 1);
    struct sample *sample;

    launch.stream = (void *)stream;
    sample = samples_begin(samples, &gpu_of_samples, NULL, SAMPLE_ALWAYS, &launch, &other, others,
                           ++fake_now_ns);
    if (sample) {
        sample->paid_ns = 1;
        assert_true(samples_end(samples, &gpu_of_samples, NULL, sample, true));
    }
    return sample;
}

static bool make_room(struct samples *samples)
{
    assert_int_equal(samples_can_make_room(samples, &gpu_of_samples, NULL),
                     samples_make_room(samples, &gpu_of_samples, NULL));
    return samples_can_make_room(samples, &gpu_of_samples, NULL);
}

static void begin_samples(struct samples *samples)
{
    *samples = (struct samples){.behind_tries = CALIBRATION_TRIES};
    fake_stream.is_idle = fake_stream.is_done = false;
    fake_now_ns = NS_PER_S;
}

static void what_waits_behind_others_in_a_stream_is_measured_with_them(void **state)
{
    static struct samples samples;
    const struct sample *first;
    const void *start, *end;

    (void)state;
    begin_samples(&samples);
    first = measure_in(&samples, 16, 0);
    start = first->start;
    for (unsigned i = 1; i < SAMPLES; i++)
        assert_non_null(measure_in(&samples, 16, 0));
    assert_false(samples_have_room(&samples, &gpu_of_samples, NULL));
    assert_null(measure_in(&samples, 24, 0));

    end = samples.list[1].end;
    assert_true(make_room(&samples));
    assert_ptr_equal(first->start, start);
    assert_ptr_equal(first->end, end);
    assert_ptr_not_equal(samples.list[1].end, end);
    assert_int_equal(first->paid_ns, 2);
    assert_true(first->is_sum);
    assert_int_equal(samples.always, SAMPLES - 1);
    assert_non_null(measure_in(&samples, 24, 0));
    assert_false(samples_have_room(&samples, &gpu_of_samples, NULL));
}

static void what_waits_in_as_many_streams_leaves_no_room(void **state)
{
    static struct samples samples;

    (void)state;
    begin_samples(&samples);
    for (unsigned i = 0; i < SAMPLES; i++)
        assert_non_null(measure_in(&samples, 16 + i, 0));
    assert_false(make_room(&samples));
    assert_null(measure_in(&samples, 16, 0));
}

/* It ends between a launch into it and the event behind that. */
static void a_launch_is_measured_whose_stream_ends(void **state)
{
    static struct samples samples;
    struct launch launch = launch_of(0x1000, 1);
    struct sample *sample;

    (void)state;
    begin_samples(&samples);
    launch.stream = (void *)16;
    for (int ends = 0; ends < 2; ends++) {
        sample = samples_begin(&samples, &gpu_of_samples, NULL, SAMPLE_ALWAYS, &launch, NULL, 0,
                               ++fake_now_ns);
        assert_true(samples_are_open_in(&samples, launch.stream));
        assert_false(samples_are_open_in(&samples, (void *)24));
        if (ends)
            samples_end_stream(&samples, &gpu_of_samples, NULL, launch.stream);
        assert_int_equal(samples_end(&samples, &gpu_of_samples, NULL, sample, false), ends);
        assert_false(samples_are_open_in(&samples, launch.stream));
    }
}

static void without_events_there_is_no_room(void **state)
{
    static struct samples samples;
    struct limiter_gpu without = gpu_of_samples;

    (void)state;
    begin_samples(&samples);
    without.make_event = no_event;
    assert_false(samples_make_room(&samples, &without, NULL));
    assert_true(make_room(&samples));                         /* once there are some again */
    assert_true(samples_make_room(&samples, &without, NULL)); /* and those are kept */
}

static void where_marks_stay_out_it_is_measured_without(void **state)
{
    static struct samples samples;
    struct sample *sample;

    (void)state;
    begin_samples(&samples);
    for (unsigned i = 0; i < SAMPLES; i++) {
        sample = measure_in(&samples, 16, 1);
        assert_true(sample && sample_has_company(sample));
        samples_free(&samples, sample);
    }
    assert_false(samples_have_room(&samples, &gpu_of_samples, NULL));
    assert_true(make_room(&samples));
    fake_stream.recorded = 0;
    sample = measure_in(&samples, 16, 1);
    assert_true(sample && !sample_has_company(sample));
    assert_int_equal(fake_stream.recorded, 1); /* its start */
    samples_free(&samples, sample);
    fake_stream.is_done = true;
    sample = measure_in(&samples, 16, 1);
    assert_true(sample && sample_has_company(sample));
}

/* Credit */

/* The stream 8 never comes to an end. */
static bool fake_is_idle(void *gpu, const struct launch *where)
{
    (void)gpu;
    return where->stream != (void *)8;
}

static const struct limiter_gpu fake_gpu = {
    .now_ns = fake_now,
    .make_event = no_event, /* nothing is ever measured */
    .is_idle = fake_is_idle,
    .asks_others = fake_asks_others,
    .is_captured = fake_is_captured,
};

struct container {
    struct region region;
    struct share share;
    struct limiter limiter;
};

static struct container *new_container(unsigned percent)
{
    struct container *container = calloc(1, sizeof(*container));

    assert_non_null(container);
    container->region.base = calloc(1, sizeof(*container->region.base));
    container->region.ext = calloc(1, sizeof(*container->region.ext));
    assert_true(container->region.base && container->region.ext);
    container->share.region = &container->region;
    container->share.rate = bucket_rate(percent);
    fake_now_ns = NS_PER_S;
    limiter_init(&container->limiter, &fake_gpu, NULL, &container->share, 1);
    (void)share_balance(&container->share, fake_now_ns);
    return container;
}

static void free_container(struct container *container)
{
    free(container->region.base);
    free(container->region.ext);
    free(container);
}

/* How many of a thousand threads' launches go in ten seconds, of a shape that takes so long, at
 * such a debt. */
static unsigned gone_on_credit(double length_ns, int64_t debt_ns)
{
    enum { THREADS = 1000 };
    struct container *container = new_container(30);
    struct limiter *limiter = &container->limiter;
    struct waiting *waiting = calloc(THREADS, sizeof(*waiting));
    struct launch_cache cache = {0};
    struct launch busy = launch_of(0x1000, 1), launch = launch_of(0x2000, 1);
    int64_t until_ns;
    unsigned gone = 0;

    busy.stream = (void *)8;
    launch.stream = (void *)16;
    streams_use(&limiter->streams, &busy, fake_now_ns);
    for (unsigned i = 0; i < 10; i++)
        (void)costs_learn(&limiter->costs, costs_of(&limiter->costs, &launch), length_ns);
    for (int64_t end_ns = fake_now_ns + 10 * NS_PER_S; fake_now_ns < end_ns;
         fake_now_ns += NS_PER_MS) {
        /* The debt stays: others add to it. */
        container->region.ext->devices[0].compute.zero_ns = fake_now_ns + debt_ns * 10 / 3;
        for (unsigned i = 0; i < THREADS; i++) {
            if (!limiter_may_go(limiter, &cache, &launch, &waiting[i], &until_ns))
                continue;
            assert_true(waiting[i].on_credit);
            waiting[i] = (struct waiting){0};
            gone++;
        }
    }
    free(waiting);
    free_container(container);
    return gone;
}

/* Beside a stream that is busy with what nobody measured, a launch may be what that waits for. */
/* From 1 ms on, each ms; until when it is found that busy was longer than what was charged. */
static int64_t found_after_ms(bool (*is_busy)(int64_t ms), double charged, double on_device)
{
    struct side side = {0};

    for (int64_t ms = 1; ms < 5000; ms++) {
        if (side_look(&side, is_busy(ms), (int64_t)(charged * (double)ms * 1e6), on_device,
                      ms * NS_PER_MS) > 0) {
            assert_near(side.open_ns, 0, 0); /* it begins anew */
            return ms;
        }
    }
    return -1;
}

static bool always(int64_t ms)
{
    (void)ms;
    return true;
}

static bool every_second(int64_t ms)
{
    return ms % 2;
}

static bool every_fourth_second(int64_t ms)
{
    return ms / 1000 % 4 == 3;
}

static void streams_that_are_busy_for_nothing_are_found(void **state)
{
    (void)state;
    assert_int_equal(found_after_ms(always, 0, 1), 51);
    assert_in_range(found_after_ms(always, 0.3, 1), 80, 82);
    assert_in_range(found_after_ms(every_second, 0.3, 1), 400, 402);
    /* What was charged before they were busy counts for 50 ms. */
    assert_in_range(found_after_ms(every_fourth_second, 0.3, 1), 3159, 3161);
    assert_int_equal(found_after_ms(always, 0.8, 1), -1);
    assert_int_equal(found_after_ms(every_second, 0.4, 1), -1);
    assert_int_equal(found_after_ms(always, 0.3, 0.37), -1); /* others were on the device */
}

static void nothing_is_said_of_time_in_which_nobody_looked(void **state)
{
    struct side side = {0};

    (void)state;
    for (int64_t i = 1; i < 100; i++)
        assert_near(side_look(&side, true, 0, 1, i * 25 * NS_PER_MS), 0, 0);
}

static void a_crowd_gets_no_more_on_credit_than_one(void **state)
{
    unsigned gone;

    (void)state;
    gone = gone_on_credit(500e3, NS_PER_S);
    assert_true(gone > 150 && gone <= 200); /* each 50 ms */
    gone = gone_on_credit(500e3, 10 * NS_PER_S);
    assert_true(gone > 2 && gone <= 6); /* more and more slowly */
    gone = gone_on_credit(20e6, NS_PER_S);
    assert_true(gone > 2 && gone <= 70); /* each 160 ms */
}

static void what_is_not_busy_gives_no_credit(void **state)
{
    struct container *container = new_container(30);
    struct waiting waiting = {0};
    struct launch_cache cache = {0};
    struct launch launch = launch_of(0x2000, 1);
    int64_t until_ns = 0;

    (void)state;
    launch.stream = (void *)16;
    container->region.ext->devices[0].compute.zero_ns = fake_now_ns + NS_PER_S;
    for (unsigned i = 0; i < 999; i++) {
        assert_false(limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns));
        assert_true(until_ns > fake_now_ns);
        fake_now_ns += NS_PER_MS;
    }
    fake_now_ns += 2 * NS_PER_MS;
    assert_true(limiter_may_go(&container->limiter, &cache, &launch, &waiting, &until_ns));
    assert_false(waiting.on_credit);
    free_container(container);
}

/* The helper thread */

static void caches_go_stale_when_the_helper_begins_to_rest(void **state)
{
    struct container *container = new_container(30);
    struct limiter *limiter = &container->limiter;
    const unsigned generation = limiter->generation;

    (void)state;
    limiter->last_launch_ns = fake_now_ns;
    assert_true(limiter_is_busy(limiter, fake_now_ns));
    limiter_rest(limiter, false);
    assert_false(limiter_is_busy(limiter, fake_now_ns + NS_PER_S));
    assert_int_equal(limiter->generation, generation);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 1);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 1);
    limiter_rest(limiter, false);
    limiter_rest(limiter, true);
    assert_int_equal(limiter->generation, generation + 2);
    free_container(container);
}

/* Shares */

static void a_process_with_less_has_its_own_bucket(void **state)
{
    struct container *container = new_container(50);
    struct share less = {.region = &container->region};
    int64_t until_ns, now_ns = fake_now_ns;

    (void)state;
    less.rate = bucket_rate(20);
    assert_int_equal(share_balance(&less, now_ns), 0);
    /* It earns 20, the container 50. */
    now_ns += 10 * NS_PER_MS;
    assert_near(share_balance(&less, now_ns), 2 * NS_PER_MS, 1000);
    assert_near(share_balance(&container->share, now_ns), 5 * NS_PER_MS, 1000);
    share_charge(&less, 3 * NS_PER_MS);
    assert_near(share_balance(&less, now_ns), -NS_PER_MS, 1000);
    assert_near(share_balance(&container->share, now_ns), 2 * NS_PER_MS, 1000);
    assert_false(share_allows(&less, true, now_ns, &until_ns));
    assert_true(share_allows(&container->share, true, now_ns, &until_ns));
    /* What others of the container use is not its own, but the container's debt holds it, too. */
    now_ns += 100 * NS_PER_MS;
    share_charge(&container->share, 100 * NS_PER_MS);
    assert_false(share_allows(&less, true, now_ns, &until_ns));
    assert_false(share_allows(&container->share, true, now_ns, &until_ns));
    /* One rule for all: the container's rate comes down. */
    less.is_common = true;
    (void)share_balance(&less, now_ns);
    assert_int_equal(container->region.ext->devices[0].compute.rate, bucket_rate(20));
    free_container(container);
}

static void *lift_and_limit(void *share)
{
    for (unsigned i = 0; i < 200000; i++)
        ((struct share *)share)->rate = i % 2 ? bucket_rate(30) : 0;
    return NULL;
}

/* A limit that is lifted while launches look at it. */
static void a_limit_may_be_lifted_any_moment(void **state)
{
    struct container *container = new_container(30);
    struct share *share = &container->share;
    pthread_t other;
    int64_t until_ns = 0;

    (void)state;
    share->is_common = true;
    share->rate = 0;
    assert_true(share_allows(share, true, fake_now_ns, &until_ns));
    assert_true(share_balance(share, fake_now_ns) > 0);
    assert_int_equal(pthread_create(&other, NULL, lift_and_limit, share), 0);
    while (pthread_tryjoin_np(other, NULL) != 0) {
        (void)share_balance(share, fake_now_ns);
        if (!share_allows(share, true, fake_now_ns, &until_ns))
            assert_true(until_ns > fake_now_ns);
        share_charge(share, 1);
    }
    free_container(container);
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
        cmocka_unit_test(the_lot_is_what_it_says),
        cmocka_unit_test(a_moment_is_charged_once),
        cmocka_unit_test(intervals_in_any_order_add_up_to_their_union),
        cmocka_unit_test(short_kernels_overlap_as_those_measured_did),
        cmocka_unit_test(a_drifting_clock_is_not_lateness),
        cmocka_unit_test(the_first_probe_may_be_late),
        cmocka_unit_test(probes_in_a_kernel_say_what_was_ours),
        cmocka_unit_test(what_is_charged_beside_others_adds_up),
        cmocka_unit_test(short_kernels_are_not_taken_for_long_ones),
        cmocka_unit_test(a_probe_behind_work_of_ours_tells_nothing),
        cmocka_unit_test(a_late_probe_may_have_been_sent_in_a_slice),
        cmocka_unit_test(late_probes_are_off_a_device_that_answers_at_once),
        cmocka_unit_test(a_probe_that_outlasts_its_kernel_was_in_its_slice),
        cmocka_unit_test(neighbours_that_left_are_forgotten),
        cmocka_unit_test(the_streams_beside_one),
        cmocka_unit_test(a_stream_is_in_doubt_that_is_busy_beyond_what_was_charged),
        cmocka_unit_test(a_stream_without_work_is_in_no_doubt),
        cmocka_unit_test(a_stream_with_a_young_measurement_needs_no_event),
        cmocka_unit_test(measurements_behind_a_long_kernel_do_not_hide_it),
        cmocka_unit_test(the_legacy_stream_gets_no_event),
        cmocka_unit_test(while_one_joins_a_capture_no_stream_is_asked),
        cmocka_unit_test(the_end_of_a_stream_is_marked_anew),
        cmocka_unit_test(a_stream_that_ends_is_looked_at_until_its_work_has_ended),
        cmocka_unit_test(streams_that_are_not_used_make_room),
        cmocka_unit_test(what_waits_behind_others_in_a_stream_is_measured_with_them),
        cmocka_unit_test(what_waits_in_as_many_streams_leaves_no_room),
        cmocka_unit_test(a_launch_is_measured_whose_stream_ends),
        cmocka_unit_test(without_events_there_is_no_room),
        cmocka_unit_test(where_marks_stay_out_it_is_measured_without),
        cmocka_unit_test(streams_that_are_busy_for_nothing_are_found),
        cmocka_unit_test(nothing_is_said_of_time_in_which_nobody_looked),
        cmocka_unit_test(a_crowd_gets_no_more_on_credit_than_one),
        cmocka_unit_test(what_is_not_busy_gives_no_credit),
        cmocka_unit_test(caches_go_stale_when_the_helper_begins_to_rest),
        cmocka_unit_test(a_process_with_less_has_its_own_bucket),
        cmocka_unit_test(a_limit_may_be_lifted_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
