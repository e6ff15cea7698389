/* SPDX-License-Identifier: Apache-2.0 */

/* Measurements on their way, of which there are only so many. */

#include "vgpu/limiter/samples.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/parts_fixture.h"

static void *new_event(void *gpu)
{
    static char events[4096];
    static unsigned made;

    (void)gpu;
    return &events[made++ % sizeof(events)];
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
    without.make_event = fake_no_event;
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

/* Of one that runs: its start is done, its end is not. */
static enum event_state query_running(void *gpu, void *event)
{
    const struct samples *samples = gpu;

    for (unsigned i = 0; i < SAMPLES; i++) {
        if (samples->list[i].end == event)
            return EVENT_NOT_YET;
    }
    return EVENT_DONE;
}

/* Recording there would block, if its queue is full. */
static void a_stream_that_waits_gets_no_mark(void **state)
{
    struct samples samples;

    (void)state;
    begin_samples(&samples);
    assert_non_null(measure_in(&samples, 8, 0));
    assert_int_equal(measure_in(&samples, 16, 1)->mark_count, 1);
    fake_now_ns += 60 * NS_PER_MS;
    assert_int_equal(measure_in(&samples, 16, 1)->mark_count, 0);
    fake_stream.is_done = true; /* it has begun */
    assert_int_equal(measure_in(&samples, 16, 1)->mark_count, 1);
}

/* A pair behind each kernel that waits would fill its stream's queue. */
static void few_calibrations_are_on_their_way_at_once(void **state)
{
    struct samples samples;

    (void)state;
    begin_samples(&samples);
    samples.behind_tries = 0;
    for (unsigned i = 0; i < 3 * CALIBRATIONS; i++)
        assert_non_null(measure_in(&samples, 16, 0));
    assert_int_equal(samples.behind_tries, CALIBRATIONS);
    samples_for_each (i, samples.taken)
        samples_free(&samples, &samples.list[i]);
    assert_int_equal(samples.behind_out, 0);
    assert_non_null(measure_in(&samples, 16, 0));
    assert_int_equal(samples.behind_tries, CALIBRATIONS + 1);
}

static void look_in_vain(struct samples *samples, const struct limiter_gpu *ops)
{
    unsigned looked = 0;
    double length_ns;

    assert_null(samples_next(samples, ops, samples, &looked, fake_now_ns, &length_ns));
    assert_int_equal(looked, SAMPLES_POLLED);
}

static void each_look_goes_on_after_the_one_before(void **state)
{
    static const unsigned places[] = {0, 1, 62, 63, 64, 65, 127, 128, 190, 191};
    static struct samples samples;
    struct limiter_gpu ops = gpu_of_samples;
    uint64_t kept[SAMPLE_WORDS] = {0xff000, 0, 0xff000};

    (void)state;
    ops.query = query_running;
    begin_samples(&samples);
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++)
        kept[places[i] / 64] |= UINT64_C(1) << (places[i] % 64);
    for (unsigned i = 0; i < SAMPLES; i++)
        assert_non_null(measure_in(&samples, 16, 0));
    for (unsigned i = 0; i < SAMPLES; i++) {
        if (!(kept[i / 64] >> (i % 64) & 1))
            samples_free(&samples, &samples.list[i]);
    }
    assert_memory_equal(samples.taken, kept, sizeof(kept));
    assert_int_equal(samples.pending, 26);

    look_in_vain(&samples, &ops);
    assert_false(samples.list[140].started_ns);
    assert_true(samples.list[128].started_ns);
    look_in_vain(&samples, &ops); /* the rest, and the first ones again */
    assert_memory_equal(samples.started, kept, sizeof(kept));
    assert_ptr_equal(samples_leader(&samples), &samples.list[0]);
    samples_free(&samples, &samples.list[0]);
    assert_ptr_equal(samples_leader(&samples), &samples.list[1]);
}

static bool elapsed_5_s(void *gpu, void *from, void *to, double *ret_ms)
{
    (void)gpu;
    (void)from;
    (void)to;
    *ret_ms = 5000;
    return fake_stream.is_idle;
}

/* Where the driver does not tell, the old one stays, and it is not asked at each look. */
static void the_base_is_recorded_anew_or_stays(void **state)
{
    struct limiter_gpu gpu = gpu_of_samples;
    static struct samples samples;
    int64_t host_ns;
    double ms;

    (void)state;
    gpu.elapsed_ms = elapsed_5_s;
    begin_samples(&samples);
    assert_false(samples_renew_base(&samples, &gpu, NULL, NS_PER_S, &ms, &host_ns));
    for (unsigned tells = 0; tells < 2; tells++) {
        const int64_t base_ns = samples.base_ns, due_ns = samples.renew_ns;

        fake_stream.is_idle = tells;
        fake_stream.is_done = false;
        assert_false(samples_renew_base(&samples, &gpu, NULL, due_ns - 1, &ms, &host_ns));
        fake_stream.recorded = 0;
        assert_false(samples_renew_base(&samples, &gpu, NULL, due_ns, &ms, &host_ns));
        assert_false(samples_renew_base(&samples, &gpu, NULL, due_ns + 1, &ms, &host_ns));
        fake_stream.is_done = true;
        assert_int_equal(samples_renew_base(&samples, &gpu, NULL, due_ns + 2, &ms, &host_ns),
                         tells);
        assert_int_equal(samples.base_ns, tells ? due_ns : base_ns);
        assert_false(samples_renew_base(&samples, &gpu, NULL, due_ns + 3, &ms, &host_ns));
        assert_int_equal(fake_stream.recorded, 1);
    }
    assert_int_equal(host_ns, samples.base_ns - NS_PER_S);
}

/* The gap of a launch of 1,015 us that was looked at so often. */
static int64_t gap_after(struct samples *samples, const struct limiter_gpu *gpu, unsigned idle,
                         unsigned busy)
{
    struct launch launch = launch_of(0x1000, 1);
    struct sample *sample;
    int64_t gap_ns;

    launch.stream = (void *)16;
    sample = samples_begin(samples, gpu, NULL, SAMPLE_ALWAYS, &launch, NULL, 0, fake_now_ns);
    fake_stream.is_done = true; /* its start */
    for (unsigned i = 0; i < idle + busy; i++) {
        fake_now_ns += 100000;
        fake_stream.is_idle = i < idle;
        samples_look(samples, gpu, NULL);
    }
    /* After it has returned, which says nothing of it. */
    fake_stream.is_idle = false;
    fake_now_ns += 100000;
    samples_look(samples, gpu, NULL);
    samples_note_returned(sample, fake_now_ns - 50000);
    assert_int_equal(sample->looks, idle + busy);
    assert_int_equal(sample->busy_looks, fake_stream.is_captured ? idle + busy : busy);
    gap_ns = samples_gap_ns(samples, sample, 1015000);
    samples_free(samples, sample);
    return gap_ns;
}

/* Nobody knows what a launch does: the looks say how often its kernel was there. */
static void of_a_launch_what_was_seen_busy_is_the_kernels(void **state)
{
    struct limiter_gpu gpu = gpu_of_samples;
    struct samples samples;

    (void)state;
    gpu.asks_others = fake_asks_others;
    gpu.is_captured = fake_is_captured;
    begin_samples(&samples);
    assert_int_equal(gap_after(&samples, &gpu, 0, 0), 1015000);
    assert_int_equal(gap_after(&samples, &gpu, 4, 0), 1015000);
    assert_int_equal(gap_after(&samples, &gpu, 0, 5), 1015000 - 1015000 * 5 / 10);
    for (unsigned i = 0; i < 40; i++)
        (void)gap_after(&samples, &gpu, 0, 8);
    assert_near(gap_after(&samples, &gpu, 0, 8), 0, 20000);
    for (unsigned i = 0; i < 40; i++)
        (void)gap_after(&samples, &gpu, 4, 4);
    assert_near(gap_after(&samples, &gpu, 4, 4), 507500, 20000);

    /* Who sees to it that nobody can look pays for all of it. */
    fake_stream.is_captured = true;
    begin_samples(&samples);
    assert_int_equal(gap_after(&samples, &gpu, 9, 0), 1015000 - 1015000 * 9 / 10);
}

/* Launches that are over when they return, and the looks at them. */
static void looks_say_what_launches_take_beside_their_kernels(void **state)
{
    struct samples samples = {0};
    struct sample sample = {.looks = 1, .busy_looks = 1};

    (void)state;
    samples_note_over(&samples, &(struct sample){0}, 40e3);
    assert_near(samples_beside_ns(&samples), 40e3, 1e-6); /* nobody looked: all of it */
    for (unsigned i = 0; i < 400; i++) {
        sample.busy_looks = i % 4 > 0;
        samples_note_over(&samples, &sample, i % 2 ? 20e3 : 60e3);
    }
    assert_near(samples_beside_ns(&samples), 10e3, 1e3); /* a quarter of 40 us */
    for (unsigned i = 0; i < 400; i++) {
        sample.busy_looks = 1;
        samples_note_over(&samples, &sample, 40e3);
    }
    assert_near(samples_beside_ns(&samples), 40e3 / 65, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_behind_others_in_a_stream_is_measured_with_them),
        cmocka_unit_test(what_waits_in_as_many_streams_leaves_no_room),
        cmocka_unit_test(a_launch_is_measured_whose_stream_ends),
        cmocka_unit_test(without_events_there_is_no_room),
        cmocka_unit_test(where_marks_stay_out_it_is_measured_without),
        cmocka_unit_test(a_stream_that_waits_gets_no_mark),
        cmocka_unit_test(few_calibrations_are_on_their_way_at_once),
        cmocka_unit_test(each_look_goes_on_after_the_one_before),
        cmocka_unit_test(the_base_is_recorded_anew_or_stays),
        cmocka_unit_test(looks_say_what_launches_take_beside_their_kernels),
        cmocka_unit_test(of_a_launch_what_was_seen_busy_is_the_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
