/* SPDX-License-Identifier: Apache-2.0 */

/* Idle streams whose work is seen late, as the context's next slice begins. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define MS(count) ((count)*NS_PER_MS)

enum { CONTEXTS = 4 };

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

/* The first one, on the device, puts work into an idle stream: 1 if that is seen at once. */
static int is_seen_at_once(const struct testing *contexts, int others)
{
    const struct testing *first = &contexts[0];
    CUresult answer;

    for (int i = 0; i <= others; i++)
        launch(&contexts[i], 0, MS(3));
    record(first, 0, 0);
    testing_step(MS(1));
    record(first, 1, 1);
    launch(first, 1, NS_PER_US);
    record(first, 2, 1);
    answer = cuEventQuery(first->events[1]);
    testing_step(MS(100));
    OK(cuEventQuery(first->events[2]));
    if (answer == CUDA_SUCCESS)
        return 1;
    HOLDS(answer == CUDA_ERROR_NOT_READY);
    /* With 1 ms of the context's kernel to go, which the other one slowed. */
    HOLDS(testing_between(first->events[1], first->events[0]) == MS(1) + NS_PER_US);
    HOLDS(testing_between(first->events[1], first->events[2]) == 2 * NS_PER_US);
    return 0;
}

static void seen_at_once(int *ret_hundredths)
{
    struct testing contexts[CONTEXTS];

    testing_begin(&contexts[0]);
    for (int i = 1; i < CONTEXTS; i++)
        testing_begin_context(&contexts[i], 0);
    for (int others = 0; others < CONTEXTS; others++) {
        ret_hundredths[others] = 0;
        for (int i = 0; i < 100; i++)
            ret_hundredths[others] += is_seen_at_once(contexts, others);
    }
}

/* As often as was seen on a real card. */
static void by_how_many_wait(void)
{
    int seen[CONTEXTS];

    seen_at_once(seen);
    HOLDS(seen[0] == 100);
    HOLDS(seen[1] >= 70 && seen[1] <= 90);
    HOLDS(seen[2] >= 3 && seen[2] <= 20);
    HOLDS(seen[3] >= 40 && seen[3] <= 68);
}

static void always(void)
{
    int seen[CONTEXTS];

    seen_at_once(seen);
    for (int i = 0; i < CONTEXTS; i++)
        HOLDS(seen[i] == 100);
}

/* Once nobody else waits any more the end of the slice will do. */
static void until_the_slice_ends(void)
{
    struct testing one, other;
    int late = 0;

    testing_begin(&one);
    for (int i = 0; i < 40; i++) {
        testing_begin_context(&other, 0);
        launch(&one, 0, MS(10));
        launch(&other, 0, MS(10));
        testing_step(MS(1));
        record(&one, 0, 1);
        late += cuEventQuery(one.events[0]) == CUDA_ERROR_NOT_READY;
        OK(cuCtxDestroy(other.context));
        OK(cuCtxSetCurrent(one.context));
        testing_step(MS(1));
        OK(cuEventQuery(one.events[0]));
        testing_step(MS(100));
    }
    HOLDS(late >= 2 && late <= 20);
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

HOLDS_IN(an_idle_stream_may_be_seen_late, "event-resolution=1ns", by_how_many_wait)
HOLDS_IN(or_always_at_once, "idle-streams=prompt", always)
HOLDS_IN(a_late_stream_waits_until_the_slice_ends, "", until_the_slice_ends)
HOLDS_IN(late_streams_may_go, "", that_go)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_stream_may_be_seen_late),
        cmocka_unit_test(or_always_at_once),
        cmocka_unit_test(a_late_stream_waits_until_the_slice_ends),
        cmocka_unit_test(late_streams_may_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
