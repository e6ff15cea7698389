/* SPDX-License-Identifier: Apache-2.0 */

/* Probes tell which part of the time was ours while others had the device, too. */

#include "vgpu/limiter/presence.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/parts_fixture.h"

/* Of a kernel that says nothing of a slice but by its end. */
static void note_end(struct presence *presence, double end_ns)
{
    presence_note_end(presence, (struct presence_run){end_ns, end_ns, end_ns});
}

/* One that was in its queue before it began. */
static struct presence_run kernel_of(double began_ns, double end_ns)
{
    return (struct presence_run){began_ns, began_ns - 5e3, end_ns};
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
            presence_open(&presence, i * 10e6, WORK_UNKNOWN);
            assert_int_equal(presence_resolve(&presence, i * 10e6, i * 10e6 + 0.9e6), 1);
        } else {
            presence_on(&presence, i * 10e6, WORK_UNKNOWN);
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
            presence_on(&kernels->presence, kernels->next_probe_ns, WORK_UNKNOWN);
        } else {
            presence_open(&kernels->presence, kernels->next_probe_ns, WORK_UNKNOWN);
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
    presence_open(&presence, 1e6, WORK_UNKNOWN);
    note_end(&presence, 1.6e6);
    assert_int_equal(presence_resolve(&presence, 1e6, 1.6e6), 0);
    assert_int_equal(presence.voided, 1);
    assert_false(presence_contended(&presence));

    /* What ended before it was sent says nothing of it. */
    presence_open(&presence, 3e6, WORK_UNKNOWN);
    assert_int_equal(presence_resolve(&presence, 3e6, 4e6), 1);
    /* Against another moment it is the same. */
    presence_open(&presence, 5e6, WORK_UNKNOWN);
    note_end(&presence, 5.5e6);
    presence_move(&presence, 5e6);
    assert_int_equal(presence_resolve(&presence, 0, 1e6), 0);
    assert_int_equal(presence.voided, 1);
}

/* What is left of a kernel when a slice begins ends right after the probe, and says nothing. */
static void what_is_left_of_a_kernel_does_not_void_a_probe(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 1e6, WORK_UNKNOWN);
    note_end(&presence, 2e6 + 1500);
    assert_int_equal(presence_resolve(&presence, 1e6, 2e6), 1);
    assert_int_equal(presence.voided, 0);
    assert_near(presence.slice_ns, 2e6, 0);
}

/* It was out as the base was recorded anew, and is against neither. */
static void a_probe_that_cannot_be_told_is_forgotten(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 0, WORK_RUNS);
    (void)presence_resolve(&presence, 0, 1e6);
    presence_open(&presence, 3e6, WORK_RUNS);
    presence_forget(&presence);
    assert_int_equal(presence.open, 0);
    assert_near(presence.slice_ns, 1e6, 0);
    assert_near(presence_part_so_far(&presence, 2.9e6, 3.1e6), presence.on_device, 0);
}

static double on_device(struct presence *presence, double from_ns, double to_ns)
{
    return presence_part_so_far(presence, from_ns, to_ns);
}

/* A slice may end early, where none of ours waits behind another: that it would have lasted on says
 * nothing then, but what ended after a probe was sent ran as it was. */
static void where_kernels_are_short_a_slice_ends_with_them(void **state)
{
    struct presence presence;

    (void)state;
    for (int are_short = 0; are_short < 2; are_short++) {
        presence_init(&presence, NULL);
        presence_open(&presence, 0, WORK_RUNS);
        (void)presence_resolve(&presence, 0, 1e6);
        presence.are_short = are_short;
        presence.absence_ns = 0.3e6; /* of others, who are brief */
        presence_open(&presence, 1.2e6, WORK_RUNS);
        note_end(&presence, 1.4e6);
        presence_open(&presence, 1.5e6, WORK_RUNS);
        assert_int_equal(presence_resolve(&presence, 1.2e6, 1.9e6), are_short);
        assert_near(on_device(&presence, 1.1e6, 1.3e6), (1 + 4 * presence.on_device) / 5, 1e-9);
        assert_near(on_device(&presence, 1.45e6, 1.55e6), (!are_short + 4 * presence.on_device) / 5,
                    1e-9);
    }
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
    presence_open(&presence, 0, WORK_UNKNOWN);
    assert_int_equal(presence_resolve(&presence, 0, 1e6), 1); /* a slice begins at 1 ms */

    presence_open(&presence, 1.5e6, WORK_UNKNOWN);               /* in it */
    presence_open(&presence, 1e6 + slice + 0.1e6, WORK_UNKNOWN); /* after it */
    at = 1e6 + slice + absence;
    presence_note_running(&presence, kernel_of(1.1e6, 0));
    assert_int_equal(presence_resolve(&presence, 1.5e6, at), 1);
    assert_near(on_device(&presence, 1.4e6, 1.6e6), (1 + 4 * 0.5) / 5, 1e-9);
    assert_near(on_device(&presence, 1.7e6, at), (0 + 4 * 0.5) / 5, 1e-9);
    assert_near(presence.absence_ns, absence, 1);

    /* Others did not want it: our slice was longer, by whole slices. */
    presence_note_on(&presence, at + 1.5 * slice);
    presence_open(&presence, at + 1.8 * slice, WORK_RUNS);
    assert_int_equal(presence_resolve(&presence, at + 1.8 * slice, at + 2 * slice + absence), 0);
    at += 2 * slice + absence;

    /* Had a kernel waited, it had been looked after. */
    presence_note_on(&presence, at + 1.5 * slice);
    presence_open(&presence, at + 1.8 * slice, WORK_WAITS);
    assert_int_equal(presence_resolve(&presence, at + 1.8 * slice, at + 2 * slice + absence), 1);
    at += 2 * slice + absence;

    /* Nothing is known of the slice before: it was as long before this one as others mostly take.
     */
    presence_open(&presence, at + 50e6 - absence - 0.5 * slice, WORK_RUNS);
    presence_open(&presence, at + 50e6 - absence + 0.1e6, WORK_RUNS);
    assert_int_equal(presence_resolve(&presence, at + 50e6 - absence - 0.5 * slice, at + 50e6), 1);
    at += 50e6;

    /* But for a slice that began since it was sent, in which it had been done. */
    presence_open(&presence, at + 50e6 - absence - 1.1 * slice, WORK_RUNS);
    presence_open(&presence, at + 50e6 - absence - 0.5 * slice, WORK_RUNS);
    assert_int_equal(presence_resolve(&presence, at + 50e6 - absence - 1.1 * slice, at + 50e6), 2);
    at += 50e6;

    /* Something of ours ended after it was sent. */
    presence_open(&presence, at + slice + 1e6, WORK_UNKNOWN);
    note_end(&presence, at + slice + 1.5e6);
    assert_int_equal(presence_resolve(&presence, at + slice + 1e6, at + slice + 3e6), 0);
    assert_int_equal(presence.voided, 0);
}

/* A kernel that had to wait for the device says when a slice began, but none after the probe's. */
/* Begins a slice of ours at 10 ms, where others are known to have the device for 2.4 ms. */
static void begin_slice(struct presence *presence)
{
    presence_init(presence, NULL);
    presence_open(presence, 0, WORK_UNKNOWN);
    (void)presence_resolve(presence, 0, 1e6);
    presence_open(presence, 2e6, WORK_UNKNOWN);
    presence_note_running(presence, kernel_of(1.5e6, 0));
    (void)presence_resolve(presence, 2e6, 1e6 + PRESENCE_SLICE_NS + 2.4e6);
    assert_near(presence->absence_ns, 2.4e6, 1);
    presence_open(presence, 9e6, WORK_UNKNOWN);
    (void)presence_resolve(presence, 9e6, 10e6);
}

/* Where no kernel runs on in the next slice, the one before may have ended with its last kernel,
 * whose end is told with the next one. */
static void a_slice_that_did_not_last_ended_before_others_had_theirs(void **state)
{
    static const struct {
        struct presence_run kernel;
        bool is_over, lasted;
    } cases[] = {
        {{10.5e6, 10.4e6, 0}, false, true},       /* it ran, and runs on, */
        {{10.5e6, 10.4e6, 13.1e6}, true, true},   /* or did */
        {{10.5e6, 10.4e6, 10.7e6}, true, false},  /* it was over by then */
        {{10.5e6, 10.51e6, 13.1e6}, true, false}, /* its start ran in the slice before, not it, */
        {{10.5e6, 10.51e6, 0}, false, false},
        {{9.5e6, 9.51e6, 0}, false, true},   /* but if that began later than its launch came */
        {{10.9e6, 10.8e6, 0}, false, false}, /* after the probe was sent */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct presence presence;

        /* Two ms before the next slice begins: within a slice, and within what others have. */
        begin_slice(&presence);
        presence_open(&presence, 10.8e6, WORK_RUNS);
        if (cases[i].is_over)
            presence_note_end(&presence, cases[i].kernel);
        else
            presence_note_running(&presence, cases[i].kernel);
        assert_int_equal(presence_resolve(&presence, 10.8e6, 13e6), !cases[i].lasted);
        /* The next slice's probes are told by its kernels. */
        presence_open(&presence, 13.8e6, WORK_RUNS);
        assert_int_equal(presence_resolve(&presence, 13.8e6, 15.9e6), 1);
    }
}

/* As long as it is not known for how long others have the device, it is for a slice of theirs. */
static void others_that_are_not_known_have_whole_slices(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 0, WORK_UNKNOWN);
    (void)presence_resolve(&presence, 0, 1e6);
    presence_open(&presence, 1.4e6, WORK_RUNS);
    presence_open(&presence, 1.6e6, WORK_RUNS);
    /* Our slice ended after 0.5 ms, */
    assert_int_equal(presence_resolve(&presence, 1.4e6, 1.5e6 + PRESENCE_SLICE_NS + 0.33e6), 1);
    /* unless a kernel runs on in the next one. */
    presence_open(&presence, 5e6, WORK_RUNS);
    presence_note_running(&presence, kernel_of(4e6, 0));
    assert_int_equal(presence_resolve(&presence, 5e6, 7e6), 0);
}

static void a_kernel_begins_with_a_slice(void **state)
{
    struct presence presence;

    (void)state;
    presence_init(&presence, NULL);
    presence_note_start(&presence, 99e6, 100e6);
    presence_note_start(&presence, 104e6, 104e6 + 5e3); /* at once */
    presence_note_start(&presence, 109e6, 110e6);
    presence_open(&presence, 101e6, WORK_UNKNOWN);                           /* in it */
    presence_open(&presence, 100e6 + PRESENCE_SLICE_NS + 1e6, WORK_UNKNOWN); /* after it */
    assert_int_equal(presence_resolve(&presence, 101e6, 105e6), 1);
    presence_open(&presence, 111e6, WORK_UNKNOWN);
    assert_int_equal(presence_resolve(&presence, 111e6, 115e6), 0);
}

/* Where none ever outlasts a kernel's end, events complete at once on the device: a late probe was
 * off it, until one does outlast an end. */
static void late_probes_are_off_a_device_that_answers_at_once(void **state)
{
    struct presence presence;
    double at = 1e6;

    (void)state;
    presence_init(&presence, NULL);
    presence_open(&presence, 0, WORK_UNKNOWN);
    (void)presence_resolve(&presence, 0, at);
    for (unsigned i = 0; i < 200; i++, at += 5e6) {
        note_end(&presence, at + 0.5e6);
        presence_open(&presence, at + 1e6, WORK_UNKNOWN); /* in our slice, if that is a whole one */
        assert_int_equal(presence_resolve(&presence, at + 1e6, at + 5e6), i >= 95);
    }

    presence_open(&presence, at + 1e6, WORK_UNKNOWN);
    note_end(&presence, at + 1.5e6);
    assert_int_equal(presence_resolve(&presence, at + 1e6, at + 5e6), 0);
    at += 5e6;
    presence_open(&presence, at + 1e6, WORK_UNKNOWN);
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
        presence_open(&presence, i * 10e6, WORK_UNKNOWN);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 5e6);
    }
    presence_open(&presence, 1000.2e6, WORK_UNKNOWN);
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
        presence_open(&presence, i * 10e6, WORK_UNKNOWN);
        (void)presence_resolve(&presence, i * 10e6, i * 10e6 + 0.5e6);
        presence_on(&presence, i * 10e6 + 0.6e6, WORK_UNKNOWN);
    }
    (void)presence_always(&presence, 0, 1e9, 1e9);
    assert_near(presence.on_device, 0.5, 0.1);
    for (unsigned i = 100; i < 110; i++)
        presence_on(&presence, i * 10e6, WORK_UNKNOWN);
    assert_near(presence.on_device, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probes_in_a_kernel_say_what_was_ours),
        cmocka_unit_test(what_is_charged_beside_others_adds_up),
        cmocka_unit_test(short_kernels_are_not_taken_for_long_ones),
        cmocka_unit_test(a_probe_behind_work_of_ours_tells_nothing),
        cmocka_unit_test(what_is_left_of_a_kernel_does_not_void_a_probe),
        cmocka_unit_test(a_probe_that_cannot_be_told_is_forgotten),
        cmocka_unit_test(where_kernels_are_short_a_slice_ends_with_them),
        cmocka_unit_test(a_late_probe_may_have_been_sent_in_a_slice),
        cmocka_unit_test(a_slice_that_did_not_last_ended_before_others_had_theirs),
        cmocka_unit_test(others_that_are_not_known_have_whole_slices),
        cmocka_unit_test(a_kernel_begins_with_a_slice),
        cmocka_unit_test(late_probes_are_off_a_device_that_answers_at_once),
        cmocka_unit_test(a_probe_that_outlasts_its_kernel_was_in_its_slice),
        cmocka_unit_test(neighbours_that_left_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
