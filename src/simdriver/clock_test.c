/* SPDX-License-Identifier: Apache-2.0 */

/* The GPU's clock beside the host's, the times of events, and launches that block. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/testing.h"

static void time_of_an_event_is_in_steps(void)
{
    struct testing t;

    testing_begin(&t);
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 1, 1300, 0));
    OK(cuEventRecord(t.events[1], t.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 1, 100, 0));
    OK(cuEventRecord(t.events[2], t.streams[0]));
    testing_step(NS_PER_MS);
    HOLDS(testing_between(t.events[0], t.events[1]) % 500 == 0);
    HOLDS(testing_between(t.events[0], t.events[1]) >= 1000);
    HOLDS(testing_between(t.events[0], t.events[1]) <= 1500);
    HOLDS(testing_between(t.events[1], t.events[2]) % 500 == 0);
    HOLDS(testing_between(t.events[1], t.events[2]) <= 500);
}

static void events_tell_half_microseconds(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", time_of_an_event_is_in_steps), 0);
}

/* A hundred seconds of the host's with a kernel running, measured by events and as busy time. */
static int64_t measure_100_s(void)
{
    struct testing t;
    int64_t busy_ns, elapsed_ns;

    testing_begin(&t);
    OK(cuEventRecord(t.events[0], t.streams[1]));
    OK(testing_launch(t.kernel, t.streams[0], 100, 200 * NS_PER_S, 0));
    testing_step(100 * NS_PER_S);
    OK(cuEventRecord(t.events[1], t.streams[1]));
    OK(cuEventQuery(t.events[1]));
    elapsed_ns = testing_between(t.events[0], t.events[1]);
    busy_ns = testing_busy_ns();
    HOLDS(labs(busy_ns - elapsed_ns) < 20 * NS_PER_US); /* a float has 24 bits */
    return busy_ns - 100 * NS_PER_S;
}

static void gains_2_ms(void)
{
    HOLDS(labs(measure_100_s() - 2 * NS_PER_MS) < 10);
}

static void loses_2_ms(void)
{
    HOLDS(labs(measure_100_s() + 2 * NS_PER_MS) < 10);
}

static void keeps_time(void)
{
    HOLDS(measure_100_s() == 0);
}

static void the_gpus_clock_drifts_against_the_hosts(void **state)
{
    (void)state;
    assert_int_equal(testing_run("clock-drift=20", gains_2_ms), 0);
    assert_int_equal(testing_run("clock-drift=-20", loses_2_ms), 0);
    assert_int_equal(testing_run("", keeps_time), 0);
}

/* A kernel's length is by the GPU's clock: what waits for it wakes no earlier than it ends. */
static void a_wait_ends_by_the_gpus_clock(void)
{
    struct testing t;

    testing_begin(&t);
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 1, 100 * NS_PER_S, 0));
    OK(cuEventRecord(t.events[1], t.streams[0]));
    testing_step(100 * NS_PER_S);
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(t.events[1]));
    testing_step(2 * NS_PER_MS + 1000);
    OK(cuEventQuery(t.events[1]));
    HOLDS(testing_between(t.events[0], t.events[1]) == 100 * NS_PER_S);
}

static void kernels_last_by_the_gpus_clock(void **state)
{
    (void)state;
    assert_int_equal(testing_run("clock-drift=-20", a_wait_ends_by_the_gpus_clock), 0);
}

/* Each wait would last until it is cut off, 100 ms, were it by the wrong clock. */
static void waits_last_as_long_as_the_work(void)
{
    struct testing t;
    int64_t from_ns;

    testing_begin(&t);
    from_ns = clock_now_ns();
    for (unsigned i = 0; i < 40; i++) {
        OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_MS, 0));
        OK(cuStreamSynchronize(t.streams[0]));
    }
    HOLDS(clock_now_ns() - from_ns >= 39 * NS_PER_MS);
    HOLDS(clock_now_ns() - from_ns < 2 * NS_PER_S);
}

static void a_drift_makes_no_wait_longer(void **state)
{
    (void)state;
    assert_int_equal(testing_run_unstopped("clock-drift=1000", waits_last_as_long_as_the_work), 0);
    assert_int_equal(testing_run_unstopped("clock-drift=-1000", waits_last_as_long_as_the_work), 0);
}

struct launching {
    struct testing t;
    pthread_t thread;
    int returned;
};

static void *launch_main(void *data)
{
    struct launching *launching = data;

    OK(cuCtxSetCurrent(launching->t.context));
    OK(testing_launch(launching->t.kernel, launching->t.streams[0], 1, 5 * NS_PER_MS, 0));
    __atomic_store_n(&launching->returned, 1, __ATOMIC_RELEASE);
    return NULL;
}

static bool returned_within(const struct launching *launching, unsigned ms)
{
    for (; ms; ms--) {
        if (__atomic_load_n(&launching->returned, __ATOMIC_ACQUIRE))
            return true;
        (void)usleep(1000);
    }
    return false;
}

static void a_launch_blocks(void)
{
    struct launching l = {0};

    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    testing_begin(&l.t);
    HOLDS(pthread_create(&l.thread, NULL, launch_main, &l) == 0);
    HOLDS(!returned_within(&l, 50));
    testing_step(5 * NS_PER_MS - 1);
    HOLDS(!returned_within(&l, 150));
    testing_step(1);
    HOLDS(returned_within(&l, 5000));
    HOLDS(pthread_join(l.thread, NULL) == 0);
    OK(cuStreamQuery(l.t.streams[0]));
}

static void a_launch_returns(void)
{
    struct testing t;

    (void)setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
    testing_begin(&t);
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_S, 0));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
}

static void launches_block_where_the_environment_says_so(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", a_launch_blocks), 0);
    assert_int_equal(testing_run("", a_launch_returns), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_tell_half_microseconds),
        cmocka_unit_test(the_gpus_clock_drifts_against_the_hosts),
        cmocka_unit_test(kernels_last_by_the_gpus_clock),
        cmocka_unit_test(a_drift_makes_no_wait_longer),
        cmocka_unit_test(launches_block_where_the_environment_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
