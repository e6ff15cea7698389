/* SPDX-License-Identifier: Apache-2.0 */

/* Probes tell which part of the time was ours while others had the device, too. */

#include "vgpu/limiter/presence.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/parts_fixture.h"

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

/* Where the host's clock is being set right they run apart much faster: then a second is enough to
 * learn it, and another to learn that it is over. */
static void a_clock_that_is_set_right_is_soon_no_lateness(void **state)
{
    static const double drifts[] = {100e-6, -100e-6, 500e-6, -500e-6, 5e-3, 0};
    struct presence presence;
    double device_ns = 3000;
    int64_t at = 0;

    (void)state;
    presence_init(&presence, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(drifts); i++) {
        for (int64_t from = at; at < from + 4 * NS_PER_S; at += 10 * NS_PER_MS) {
            double late_ns = presence_late_ns(&presence, device_ns, (double)at, at);

            assert_true(late_ns <= 0 || at < from + 1500 * NS_PER_MS);
            device_ns += 10e6 * (1 + drifts[i]);
        }
        /* One that has to wait for a slice is late all the same. */
        assert_true(presence_late_ns(&presence, device_ns + 2e6, (double)at, at) > 1.9e6);
    }
}

/* Probes that others hold up by chance make no drift. */
static void lateness_by_chance_is_no_drift(void **state)
{
    struct lot lot = {.state = 5};
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    for (int64_t at = 0; at < 60 * NS_PER_S; at += 10 * NS_PER_MS) {
        double wait_ns = lot_draw(&lot) < 0.05 ? 0 : 4e6 * lot_draw(&lot);
        double late_ns = presence_late_ns(&presence, (double)at + 3000 + wait_ns, (double)at, at);

        assert_true(late_ns >= wait_ns - 100e3 || wait_ns < PRESENCE_PROMPT_NS);
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

    (void)state;
    presence_init(&presence, NULL);
    assert_near(presence_always(&presence, 0, 1e6, 1e6), 1e6, 0);
    assert_near(presence_charge(&presence, 0, 1e6, 1e6, 1e6), 1e6, 0);
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
    assert_near(presence_always(&presence, 0, 4e9, 4e9), 1e9, 4e7);
    assert_near(presence_charge(&presence, 0, 4e9, 4e9, 4e9), 1e9, 4e7);
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

static double charge_always(struct kernels *kernels, double start_ns, double length_ns)
{
    (void)presence_always(&kernels->presence, start_ns, kernels->at_ns, length_ns);
    return presence_charge(&kernels->presence, start_ns, kernels->at_ns, length_ns, length_ns);
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
                charge_ns = charge_always(&kernels, start_ns, length_ns);
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
        charge_ns = charge_always(&kernels, start_ns, own_ns + others_ns);
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

/* What is left of a kernel when a slice begins ends right after the probe, and says nothing. */
static void what_is_left_of_a_kernel_does_not_void_a_probe(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 1e6);
    presence_note_end(&presence, 2e6 + 1500);
    assert_int_equal(presence_resolve(&presence, 1e6, 2e6), 1);
    assert_int_equal(presence.voided, 0);
    assert_near(presence.slice_ns, 2e6, 0);
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

    /* But for a slice that began since it was sent, in which it had been done. */
    presence_open(&presence, at + 50e6 - absence - 1.1 * slice);
    presence_open(&presence, at + 50e6 - absence - 0.5 * slice);
    assert_int_equal(presence_resolve(&presence, at + 50e6 - absence - 1.1 * slice, at + 50e6), 2);
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

    (void)state;
    presence_init(&presence, NULL);
    for (unsigned i = 0; i < 100; i++) {
        presence_open(&presence, i * 10e6);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 5e6);
    }
    presence_open(&presence, 1000.2e6);
    (void)presence_always(&presence, 1000e6, 1001e6, 1e6);
    assert_true(presence_charge(&presence, 1000e6, 1001e6, 1e6, 1e6) > 0.5e6);
    assert_near(presence_part_so_far(&presence, 1000e6, 1001e6), presence.on_device, 1e-9);
}

static void neighbours_that_left_are_forgotten(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    for (unsigned i = 0; i < 100; i++) {
        presence_open(&presence, i * 10e6);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 0.5e6);
        presence_on(&presence, i * 10e6 + 0.6e6);
    }
    (void)presence_always(&presence, 0, 1e9, 1e9);
    assert_near(presence.on_device, 0.5, 0.1);
    for (unsigned i = 100; i < 110; i++)
        presence_on(&presence, i * 10e6);
    assert_near(presence.on_device, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drifting_clock_is_not_lateness),
        cmocka_unit_test(a_clock_that_is_set_right_is_soon_no_lateness),
        cmocka_unit_test(lateness_by_chance_is_no_drift),
        cmocka_unit_test(the_first_probe_may_be_late),
        cmocka_unit_test(probes_in_a_kernel_say_what_was_ours),
        cmocka_unit_test(what_is_charged_beside_others_adds_up),
        cmocka_unit_test(short_kernels_are_not_taken_for_long_ones),
        cmocka_unit_test(a_probe_behind_work_of_ours_tells_nothing),
        cmocka_unit_test(what_is_left_of_a_kernel_does_not_void_a_probe),
        cmocka_unit_test(a_late_probe_may_have_been_sent_in_a_slice),
        cmocka_unit_test(late_probes_are_off_a_device_that_answers_at_once),
        cmocka_unit_test(a_probe_that_outlasts_its_kernel_was_in_its_slice),
        cmocka_unit_test(neighbours_that_left_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
