/* SPDX-License-Identifier: Apache-2.0 */

/* Work that the device sees late, as its context's next slice begins. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/state.h"
#include "simdriver/testing.h"

#define MS(count) ((count)*NS_PER_MS)

static void launch(const struct testing *t, unsigned stream, int64_t work_ns)
{
    OK(cuCtxSetCurrent(t->context));
    OK(testing_launch(t->kernel, t->streams[stream], 100, work_ns, 0));
}

static void record(const struct testing *t, unsigned event, unsigned stream)
{
    OK(cuCtxSetCurrent(t->context));
    OK(cuEventRecord(t->events[event], t->streams[stream]));
}

static void is_late(const struct testing *t, unsigned event)
{
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(t->events[event]));
}

static void is_done(const struct testing *t, unsigned event)
{
    OK(cuEventQuery(t->events[event]));
}

/* The first one begins on the device, and each has one kernel. */
static void beside(int others)
{
    struct testing contexts[4], *first = &contexts[0];

    testing_begin(first);
    record(first, 0, 0);
    for (int i = 0; i <= others; i++) {
        if (i > 0)
            testing_begin_context(&contexts[i], 0);
        launch(&contexts[i], 0, MS(3));
    }
    record(first, 1, 0);
    testing_step(MS(1));
    record(first, 2, 1);
    launch(first, 1, NS_PER_US);
    record(first, 3, 1);
    is_late(first, 2);
    testing_step(MS(100));
    /* With 1 ms of the context's kernel to go, which the other one slowed. */
    HOLDS(testing_between(first->events[0], first->events[1]) == MS(3 + 2 * others) + NS_PER_US);
    HOLDS(testing_between(first->events[0], first->events[2]) == MS(2 + 2 * others));
    HOLDS(testing_between(first->events[2], first->events[3]) == 2 * NS_PER_US);
}

static void beside_one(void)
{
    beside(1);
}

static void beside_three(void)
{
    beside(3);
}

static void begin_two(struct testing *one, struct testing *other)
{
    testing_begin(one);
    testing_begin_context(other, 0);
}

static void behind_another(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(1));
    launch(&one, 0, MS(3));
    launch(&other, 0, MS(10));
    record(&one, 0, 1);
    is_done(&one, 0);
    testing_step(MS(1) - 1);
    record(&one, 0, 1);
    launch(&one, 2, 1);
    record(&one, 1, 3);
    is_done(&one, 0);
    is_done(&one, 1);

    /* From then on none does. */
    testing_step(10);
    record(&one, 0, 1);
    is_late(&one, 0);
}

static void one_that_comes_later(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(5));
    launch(&other, 0, MS(10));
    testing_step(MS(1));
    launch(&one, 0, MS(5));
    record(&one, 0, 1);
    testing_step(MS(3) - 1);
    is_late(&one, 0);
    testing_step(1);
    is_done(&one, 0);

    /* In this slice it waits. */
    testing_step(MS(1));
    record(&one, 0, 1);
    is_done(&one, 0);
}

static void an_event_behind_it(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(5));
    record(&one, 0, 0);
    launch(&other, 0, MS(10));
    testing_step(MS(1));
    record(&one, 1, 1);
    is_late(&one, 1);
}

static void until_others_come(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(20));
    for (int i = 0; i < 5; i++) {
        record(&one, 0, 1);
        is_done(&one, 0);
        testing_step(MS(1));
    }
    launch(&other, 0, MS(10));
    record(&one, 0, 1);
    is_late(&one, 0);
}

static void to_those_who_wait(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    record(&one, 0, 0);
    launch(&one, 0, MS(1));
    launch(&other, 0, MS(10));
    testing_step(MS(1) / 2);
    launch(&one, 0, MS(1));
    record(&one, 1, 0);
    testing_step(MS(100));
    /* one 0-1, other 1-3, one 3-4 */
    HOLDS(testing_between(one.events[0], one.events[1]) == MS(4));
}

static void always(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(1));
    launch(&other, 0, MS(10));
    testing_step(MS(1) / 2);
    record(&one, 0, 1);
    launch(&one, 0, MS(1));
    is_done(&one, 0);
    record(&one, 0, 0);
    testing_step(MS(2));
    is_done(&one, 0);
}

/* Once nobody else waits any more the end of the slice will do. */
static void until_the_slice_ends(void)
{
    struct testing one, other;

    begin_two(&one, &other);
    launch(&one, 0, MS(10));
    launch(&other, 0, MS(10));
    testing_step(MS(1));
    record(&one, 0, 1);
    OK(cuCtxDestroy(other.context));
    OK(cuCtxSetCurrent(one.context));
    testing_step(MS(1) - 1);
    record(&one, 1, 2);
    is_late(&one, 0);
    is_late(&one, 1);
    testing_step(1);
    is_done(&one, 0);
    is_done(&one, 1);
    testing_step(MS(3));
    record(&one, 0, 1);
    is_done(&one, 0);
}

/* What was not seen yet stays so when all that is derived is derived anew, as after a death. */
static void through_a_repair(void)
{
    struct testing one, other;
    struct sim *sim;

    begin_two(&one, &other);
    launch(&one, 0, MS(3));
    launch(&other, 0, MS(3));
    testing_step(MS(1));
    record(&one, 0, 1);
    launch(&one, 0, MS(1));
    HOLDS(sim_open(testing_machine(), &sim, NULL) == 0);
    (void)sim_lock(sim);
    sim_repair(sim->state);
    sim_unlock(sim);
    is_late(&one, 0);
    record(&one, 1, 2);
    testing_step(MS(3) - 1);
    is_late(&one, 0);
    is_late(&one, 1);
    testing_step(1);
    is_done(&one, 0);
    is_done(&one, 1);
}

static void without_a_time(void)
{
    struct testing one, other;
    CUstream blocking;
    CUevent events[4];

    begin_two(&one, &other);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        OK(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    launch(&one, 0, MS(10));
    launch(&other, 0, MS(10));
    OK(cuEventRecord(events[0], other.streams[0]));
    OK(cuEventRecord(events[1], other.streams[1]));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(events[0]));
    OK(cuEventQuery(events[1]));
    OK(cuStreamQuery(other.streams[1]));

    /* A record that counts no more leaves it alone, and one behind another's work waits. */
    OK(cuEventRecord(events[0], other.streams[2]));
    OK(cuEventQuery(events[0]));
    OK(testing_launch(other.kernel, NULL, 100, MS(1), 0));
    OK(cuEventRecord(events[2], blocking));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(events[2]));
    OK(cuEventRecord(events[3], other.streams[3]));
    OK(cuEventQuery(events[3]));
    testing_step(MS(100));
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        OK(cuEventQuery(events[i]));
}

/* Streams and contexts that go take what was not seen yet along. */
static void that_go(void)
{
    struct testing other, contexts[8];

    testing_begin(&other);
    for (size_t i = 0; i < ARRAY_SIZE(contexts); i++) {
        const struct testing *one = &contexts[i];

        testing_begin_context(&contexts[i], 0);
        launch(one, 0, MS(10));
        launch(&other, 0, MS(10));
        testing_step(MS(1));
        for (unsigned j = 1; j < ARRAY_SIZE(one->streams); j++)
            record(one, 0, j);
        OK(cuCtxSetCurrent(one->context));
        for (unsigned j = 1; j < ARRAY_SIZE(one->streams); j += 2)
            OK(cuStreamDestroy(one->streams[j]));
        OK(cuCtxDestroy(one->context));
        record(&other, 0, 0);
        testing_step(MS(10));
        OK(cuEventQuery(other.events[0]));
    }
}

HOLDS_IN(what_comes_to_a_context_that_no_kernel_waits_in_is_late, "event-resolution=1ns",
         beside_one)
HOLDS_IN(as_much_beside_three, "event-resolution=1ns", beside_three)
HOLDS_IN(it_is_seen_while_a_kernel_waits_behind_another, "", behind_another)
HOLDS_IN(but_not_for_one_that_comes_too_late_itself, "", one_that_comes_later)
HOLDS_IN(nor_for_an_event, "", an_event_behind_it)
HOLDS_IN(alone_all_is_seen, "", until_others_come)
HOLDS_IN(a_slice_is_given_up_though_there_is_more, "event-resolution=1ns", to_those_who_wait)
HOLDS_IN(or_all_is_seen_always, "idle-streams=prompt", always)
HOLDS_IN(late_work_waits_until_the_slice_ends, "", until_the_slice_ends)
HOLDS_IN(late_work_stays_so_through_a_repair, "", through_a_repair)
HOLDS_IN(an_event_without_a_time_is_done_at_once_in_an_idle_stream, "", without_a_time)
HOLDS_IN(late_streams_may_go, "", that_go)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_to_a_context_that_no_kernel_waits_in_is_late),
        cmocka_unit_test(as_much_beside_three),
        cmocka_unit_test(it_is_seen_while_a_kernel_waits_behind_another),
        cmocka_unit_test(but_not_for_one_that_comes_too_late_itself),
        cmocka_unit_test(nor_for_an_event),
        cmocka_unit_test(alone_all_is_seen),
        cmocka_unit_test(a_slice_is_given_up_though_there_is_more),
        cmocka_unit_test(or_all_is_seen_always),
        cmocka_unit_test(late_work_waits_until_the_slice_ends),
        cmocka_unit_test(late_work_stays_so_through_a_repair),
        cmocka_unit_test(an_event_without_a_time_is_done_at_once_in_an_idle_stream),
        cmocka_unit_test(late_streams_may_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
