/* SPDX-License-Identifier: Apache-2.0 */

/* Streams whose last launches have not ended: how long each was busy beyond what was charged. */

#include "vgpu/limiter/tails.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/parts_fixture.h"
#include "vgpu/limiter/samples.h"

static void *fake_tail(void *gpu)
{
    (void)gpu;
    return &fake_stream;
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
    fake_samples.taken[0] = 1 << 7;
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
    fake_samples.taken[0] = 3;
    for (unsigned i = 0; i < 2; i++) {
        fake_samples.list[i].state = SAMPLE_PENDING;
        fake_samples.list[i].kind = SAMPLE_DRAWN;
        fake_samples.list[i].launch = begin_tail(&tails);
        fake_samples.list[i].began_ns = (990 + 60 * i) * NS_PER_MS;
    }
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
    assert_near(look(&tails, 1, 1, 1060), 0, 0);
    assert_near(look(&tails, 1, 1, 1400), 339, 1e-6);
    /* The last of them stands for an event, which a full queue would block. */
    assert_int_equal(fake_stream.recorded, 0);
    fake_samples.taken[0] = 2;
    assert_near(look(&tails, 1, 1, 1500), 439, 1e-6);
    fake_samples.taken[0] = 0;
    assert_near(look(&tails, 1, 1, 1600), 0, 0);
    assert_int_equal(fake_stream.recorded, 1);
    fake_samples = (struct samples){0};
}

/* What came after the measurement is marked as its stream ends. */
static void the_end_of_a_stream_behind_a_measurement_is_marked(void **state)
{
    struct tails tails = {0};

    (void)state;
    fake_samples.pending = 1;
    fake_samples.taken[0] = 1;
    fake_samples.list[0].state = SAMPLE_PENDING;
    fake_samples.list[0].kind = SAMPLE_DRAWN;
    fake_samples.list[0].launch = begin_tail(&tails);
    fake_samples.list[0].began_ns = 900 * NS_PER_MS;
    assert_near(look(&tails, 1, 1, 1000), 0, 0);
    assert_int_equal(fake_stream.recorded, 0);
    assert_true(
        tails_forget(&tails, &fake_samples, &gpu_of_tails, NULL, (void *)64, 0, 1010 * NS_PER_MS));
    assert_int_equal(fake_stream.recorded, 1);
    fake_samples = (struct samples){0};
    assert_near(look(&tails, 1, 1, 1400), 399, 1e-6);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_in_doubt_that_is_busy_beyond_what_was_charged),
        cmocka_unit_test(a_stream_without_work_is_in_no_doubt),
        cmocka_unit_test(a_stream_with_a_young_measurement_needs_no_event),
        cmocka_unit_test(measurements_behind_a_long_kernel_do_not_hide_it),
        cmocka_unit_test(the_end_of_a_stream_behind_a_measurement_is_marked),
        cmocka_unit_test(the_legacy_stream_gets_no_event),
        cmocka_unit_test(while_one_joins_a_capture_no_stream_is_asked),
        cmocka_unit_test(the_end_of_a_stream_is_marked_anew),
        cmocka_unit_test(a_stream_that_ends_is_looked_at_until_its_work_has_ended),
        cmocka_unit_test(streams_that_are_not_used_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
