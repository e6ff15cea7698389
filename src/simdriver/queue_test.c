/* SPDX-License-Identifier: Apache-2.0 */

/* Hardware queues, in which a stream may wait behind another, and kernels that wait for others. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define MS(count) ((count)*NS_PER_MS)

static void launch(const struct testing *t, unsigned stream, int64_t work_ns)
{
    OK(testing_launch(t->kernel, t->streams[stream], 1, work_ns, 0));
}

static void record(const struct testing *t, unsigned event, unsigned stream)
{
    OK(cuEventRecord(t->events[event], t->streams[stream]));
}

/*
 * Two kernels in the first stream, then one each in the second and the ninth, all small: when those
 * two ended.
 */
static void run_three(int64_t *ret_second, int64_t *ret_ninth)
{
    struct testing t;

    testing_begin(&t);
    record(&t, 0, 0);
    launch(&t, 0, MS(10));
    launch(&t, 0, MS(3));
    launch(&t, 1, MS(1));
    record(&t, 1, 1);
    launch(&t, 8, MS(1));
    record(&t, 2, 8);
    testing_step(MS(100));
    OK(cuCtxSynchronize());
    HOLDS(testing_busy_ns() == MS(13));
    *ret_second = testing_between(t.events[0], t.events[1]);
    *ret_ninth = testing_between(t.events[0], t.events[2]);
}

static void the_ninth_waits(void)
{
    int64_t second, ninth;

    run_three(&second, &ninth);
    HOLDS(second == MS(1));
    HOLDS(ninth == MS(11)); /* the first stream's second kernel had to start first */
}

static void nobody_waits(void)
{
    int64_t second, ninth;

    run_three(&second, &ninth);
    HOLDS(second == MS(1) && ninth == MS(1));
}

static void nobody_waits_by_the_environment(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "12", 1);
    nobody_waits();
}

static void all_wait_by_the_environment(void)
{
    int64_t second, ninth;

    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    run_three(&second, &ninth);
    HOLDS(second == MS(11));
    HOLDS(ninth == MS(12)); /* the record before it holds it up */
}

static void a_stream_may_wait_behind_another(void **state)
{
    (void)state;
    (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    assert_int_equal(testing_run("", the_ninth_waits), 0);
    assert_int_equal(testing_run("queues=12", nobody_waits), 0);
    assert_int_equal(testing_run("", nobody_waits_by_the_environment), 0);
    assert_int_equal(testing_run("queues=32", all_wait_by_the_environment), 0);
}

static void overlap(void)
{
    struct testing t;

    testing_begin(&t);
    record(&t, 0, 0);
    launch(&t, 0, MS(10));
    launch(&t, 8, MS(1));
    record(&t, 1, 8);
    testing_step(MS(1));
    HOLDS(testing_between(t.events[0], t.events[1]) == MS(1));
}

static void kernels_of_one_queue_overlap_once_they_started(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", overlap), 0);
}

/* What blocks a queue is gone: the stream that stood behind goes on. */
static void front_goes(void)
{
    struct testing t;

    testing_begin(&t);
    launch(&t, 1, MS(50));
    record(&t, 0, 1);
    OK(cuStreamWaitEvent(t.streams[0], t.events[0], 0));
    launch(&t, 8, MS(1));
    record(&t, 1, 8);
    testing_step(MS(2));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(t.events[1]));
    testing_step(MS(48));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(t.events[1]));
    testing_step(MS(1));
    OK(cuEventQuery(t.events[1]));
    OK(cuStreamDestroy_v2(t.streams[0]));
    launch(&t, 8, MS(1));
    testing_step(MS(1));
    OK(cuStreamQuery(t.streams[8]));
}

static void a_wait_holds_up_its_queue(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", front_goes), 0);
}

/* Kernels that wait for flags */

struct flags {
    struct testing t;
    CUfunction waits, posts;
};

static void flags_load(struct flags *flags)
{
    static const char image[] = "hamisim-module 1\nsize=4096\nkernel w waits\nkernel p posts\n";
    CUmodule module;

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&flags->waits, module, "w"));
    OK(cuModuleGetFunction(&flags->posts, module, "p"));
}

static void flags_begin(struct flags *flags)
{
    testing_begin(&flags->t);
    flags_load(flags);
}

static void spins_until(void)
{
    struct flags f;
    int64_t busy_ns;

    flags_begin(&f);
    busy_ns = testing_busy_ns();
    record(&f.t, 0, 0);
    OK(testing_launch(f.waits, f.t.streams[0], 50, MS(2), 7));
    record(&f.t, 1, 0);
    testing_step(MS(20));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(f.t.events[1]));
    HOLDS(testing_busy_ns() - busy_ns == MS(20));

    /* Another flag's post is none; its own ends it at the moment in which the post's kernel ends.
     */
    OK(testing_launch(f.posts, f.t.streams[1], 50, MS(1), 8));
    OK(testing_launch(f.posts, f.t.streams[2], 50, MS(5), 7));
    testing_step(MS(100));
    OK(cuEventQuery(f.t.events[1]));
    HOLDS(testing_between(f.t.events[0], f.t.events[1]) >= MS(25));
    HOLDS(testing_between(f.t.events[0], f.t.events[1]) <= MS(26));
    HOLDS(testing_busy_ns() - busy_ns == testing_between(f.t.events[0], f.t.events[1]));

    /* Posted before: it runs its own time. A post is taken once. */
    record(&f.t, 0, 0);
    OK(testing_launch(f.waits, f.t.streams[0], 50, MS(2), 8));
    record(&f.t, 1, 0);
    OK(testing_launch(f.waits, f.t.streams[0], 50, MS(2), 8));
    testing_step(MS(100));
    HOLDS(testing_between(f.t.events[0], f.t.events[1]) == MS(2));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(f.t.streams[0]));
    GIVES(CUDA_ERROR_INVALID_VALUE, testing_launch(f.waits, f.t.streams[0], 50, 1, 1024));
    OK(cuCtxDestroy_v2(f.t.context));
    busy_ns = testing_busy_ns();
    testing_step(MS(100));
    HOLDS(testing_busy_ns() == busy_ns);
}

static void a_kernel_runs_until_another_has(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", spins_until), 0);
}

/* Behind the waiting one in its stream is a kernel, and behind that one in its queue the post. */
static void deadlock(void)
{
    struct flags f;

    flags_begin(&f);
    OK(testing_launch(f.waits, f.t.streams[0], 1, MS(1), 0));
    launch(&f.t, 0, MS(1));
    OK(testing_launch(f.posts, f.t.streams[8], 1, MS(1), 0));
    testing_step(MS(1000));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(f.t.streams[0]));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(f.t.streams[8]));
    OK(testing_launch(f.posts, f.t.streams[1], 1, MS(1), 0));
    testing_step(MS(3));
    OK(cuCtxSynchronize());
}

static void streams_of_one_queue_can_lock_up(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", deadlock), 0);
}

/* Two contexts of one card take turns, the waiting one wasting its own. */
static void across_contexts(void)
{
    struct flags f, g;

    flags_begin(&f);
    testing_begin_context(&g.t, 0);
    flags_load(&g);
    OK(cuCtxSetCurrent(f.t.context));
    OK(testing_launch(f.waits, f.t.streams[0], 100, MS(1), 3));
    testing_step(MS(1));
    OK(cuCtxSetCurrent(g.t.context));
    record(&g.t, 0, 0);
    OK(testing_launch(g.posts, g.t.streams[0], 100, MS(5), 3));
    record(&g.t, 1, 0);
    testing_step(MS(100));
    OK(cuCtxSynchronize());
    HOLDS(testing_between(g.t.events[0], g.t.events[1]) == MS(5 + 2 * 2)); /* in slices of 2 ms */
    OK(cuCtxSetCurrent(f.t.context));
    OK(cuCtxSynchronize());
}

/* The waiting kernel's device stands at the very moment at which the other one's has its post. */
static void across_devices(void)
{
    struct flags f, g;

    flags_begin(&f);
    testing_begin_context(&g.t, 1);
    flags_load(&g);
    OK(testing_launch(g.t.kernel, g.t.streams[0], 100, MS(4), 0));
    OK(testing_launch(g.posts, g.t.streams[0], 100, MS(5), 3));
    OK(cuCtxSetCurrent(f.t.context));
    record(&f.t, 0, 0);
    OK(testing_launch(f.waits, f.t.streams[0], 100, MS(1), 3));
    record(&f.t, 1, 0);
    testing_step(MS(100));
    HOLDS(testing_between(f.t.events[0], f.t.events[1]) == MS(9));
    HOLDS(testing_busy_ns() == MS(9));
}

static void flags_are_the_whole_machines(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", across_devices), 0);
    assert_int_equal(testing_run("", across_contexts), 0);
}

/*
 * At random, against a model of its own: all is enqueued at one moment, nothing slows anything
 * down, and an op starts when the one before it in its stream has ended, the one before it in its
 * queue has started, and what it waits for has ended.
 */

enum {
    STREAMS = 12,
    EVENTS = 8,
    OPS = 300,
};

struct expected {
    unsigned queues;
    int64_t stream_end[STREAMS];
    int64_t queue_start[STREAMS];
    int64_t event_end[EVENTS];
    bool recorded[EVENTS];
};

static int64_t expect(struct expected *e, unsigned stream, int64_t waited_ns, int64_t work_ns)
{
    int64_t *queue_start = &e->queue_start[stream % e->queues];
    int64_t start = MAX(MAX(e->stream_end[stream], *queue_start), waited_ns);

    *queue_start = start;
    e->stream_end[stream] = start + work_ns;
    return e->stream_end[stream];
}

static void enqueue_one(const struct testing *t, struct expected *e, unsigned *seed)
{
    unsigned stream = (unsigned)rand_r(seed) % STREAMS;
    unsigned event = 1 + (unsigned)rand_r(seed) % (EVENTS - 1);
    int64_t work_ns = rand_r(seed) % 1000000;

    switch (rand_r(seed) % 4) {
    case 0:
        record(t, event, stream);
        e->event_end[event] = expect(e, stream, 0, 0);
        e->recorded[event] = true;
        break;
    case 1:
        OK(cuStreamWaitEvent(t->streams[stream], t->events[event], 0));
        if (e->recorded[event])
            (void)expect(e, stream, e->event_end[event], 0);
        break;
    default:
        launch(t, stream, work_ns);
        (void)expect(e, stream, 0, work_ns);
        break;
    }
}

static void at_random(unsigned queues)
{
    unsigned seed = queues;
    struct testing t;

    testing_begin(&t);
    for (unsigned round = 0; round < 100; round++) {
        struct expected e = {.queues = queues};

        record(&t, 0, 0);
        for (unsigned i = 1; i < EVENTS; i++) {
            OK(cuEventDestroy_v2(t.events[i]));
            OK(cuEventCreate(&t.events[i], 0));
        }
        for (unsigned i = 0; i < OPS; i++)
            enqueue_one(&t, &e, &seed);
        for (unsigned i = 0; i < OPS; i++)
            testing_step(rand_r(&seed) % 2000000);
        testing_step(OPS * NS_PER_MS);
        OK(cuCtxSynchronize());
        for (unsigned i = 1; i < EVENTS; i++) {
            int64_t off_ns;

            if (!e.recorded[i])
                continue;
            off_ns = testing_between(t.events[0], t.events[i]) - e.event_end[i];
            HOLDS(off_ns >= -16 && off_ns <= 16); /* milliseconds in a float */
        }
    }
}

static void one_queue(void)
{
    at_random(1);
}

static void three_queues(void)
{
    at_random(3);
}

static void eight_queues(void)
{
    at_random(8);
}

static void twelve_queues(void)
{
    at_random(12);
}

static void queues_do_what_a_simple_model_says(void **state)
{
    (void)state;
    assert_int_equal(testing_run("event-resolution=1ns queues=1", one_queue), 0);
    assert_int_equal(testing_run("event-resolution=1ns queues=3", three_queues), 0);
    assert_int_equal(testing_run("event-resolution=1ns", eight_queues), 0);
    assert_int_equal(testing_run("event-resolution=1ns queues=12", twelve_queues), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_may_wait_behind_another),
        cmocka_unit_test(kernels_of_one_queue_overlap_once_they_started),
        cmocka_unit_test(a_wait_holds_up_its_queue),
        cmocka_unit_test(a_kernel_runs_until_another_has),
        cmocka_unit_test(streams_of_one_queue_can_lock_up),
        cmocka_unit_test(flags_are_the_whole_machines),
        cmocka_unit_test(queues_do_what_a_simple_model_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
