/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/watchdog.h"

#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"

enum {
    PERIOD_MS = 10,
};

struct fixture {
    struct watchdog watchdog;
    uv_loop_t loop;
    uv_timer_t end;
    sem_t answer; /* ask() waits for it */
    unsigned begun, asked, done, late;
    bool was_late; /* watchdog_is_late() when done() came */
};

static void begin(void *data)
{
    struct fixture *fixture = data;

    fixture->begun++;
}

static void ask(void *data)
{
    struct fixture *fixture = data;

    fixture->asked++;
    (void)sem_wait(&fixture->answer);
}

static void done(void *data)
{
    struct fixture *fixture = data;

    fixture->done++;
    if (fixture->done == 2)
        watchdog_stop(&fixture->watchdog);
}

static void late(void *data)
{
    struct fixture *fixture = data;

    fixture->late++;
    fixture->was_late = watchdog_is_late(&fixture->watchdog);
    (void)sem_post(&fixture->answer);
    (void)sem_post(&fixture->answer);
}

static const struct watchdog_ops ops = {.begin = begin, .ask = ask, .done = done, .late = late};

static void start_every(struct fixture *fixture, unsigned period_ms)
{
    const struct watchdog_options options = {
        .ops = &ops, .data = fixture, .period_ms = period_ms, .late_periods = 3};

    *fixture = (struct fixture){.begun = 0};
    assert_int_equal(uv_loop_init(&fixture->loop), 0);
    assert_int_equal(sem_init(&fixture->answer, 0, 0), 0);
    watchdog_start(&fixture->watchdog, &fixture->loop, &options);
}

static void start(struct fixture *fixture)
{
    start_every(fixture, PERIOD_MS);
}

static void a_slow_answer_is_late_once(void **state)
{
    struct fixture fixture;

    (void)state;
    start(&fixture);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture.loop), 0);
    assert_int_equal(fixture.begun, 2);
    assert_int_equal(fixture.asked, 2);
    assert_int_equal(fixture.done, 2);
    assert_int_equal(fixture.late, 1);
    assert_true(fixture.was_late);
    assert_false(watchdog_is_late(&fixture.watchdog));
}

static void on_end(uv_timer_t *timer)
{
    struct fixture *fixture = timer->data;

    watchdog_stop(&fixture->watchdog);
    uv_close((uv_handle_t *)timer, NULL);
}

static void count_late(void *data)
{
    struct fixture *fixture = data;

    fixture->late++;
}

static void run_until(struct fixture *fixture, uv_timer_cb end, unsigned end_ms)
{
    (void)uv_timer_init(&fixture->loop, &fixture->end);
    fixture->end.data = fixture;
    (void)uv_timer_start(&fixture->end, end, end_ms, 0);
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture->loop), 0);
}

static void on_answer(uv_timer_t *timer)
{
    struct fixture *fixture = timer->data;

    (void)sem_post(&fixture->answer);
    (void)sem_post(&fixture->answer);
    uv_close((uv_handle_t *)timer, NULL);
}

static void an_answer_that_stays_away_is_told_of_once(void **state)
{
    const struct watchdog_ops patient = {.ask = ask, .done = done, .late = count_late};
    struct fixture fixture;

    (void)state;
    start(&fixture);
    fixture.watchdog.options.ops = &patient;
    run_until(&fixture, on_answer, 10 * PERIOD_MS);
    assert_int_equal(fixture.done, 2);
    assert_int_equal(fixture.late, 1);
}

static void on_end_and_answer(uv_timer_t *timer)
{
    struct fixture *fixture = timer->data;

    watchdog_stop(&fixture->watchdog);
    on_answer(timer);
}

/* In a process of its own, which a watchdog that does not end as it should would end otherwise. */
static void assert_ends(bool (*ends_well)(struct fixture *fixture))
{
    struct fixture fixture;
    int status = -1;
    pid_t child;

    child = fork();
    if (child == 0) {
        start(&fixture);
        _exit(ends_well(&fixture) ? 2 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
}

static bool ends_with_an_answer(struct fixture *fixture)
{
    static const struct watchdog_ops patient = {.ask = ask, .done = done, .late = count_late};

    fixture->watchdog.options.ops = &patient;
    run_until(fixture, on_end_and_answer, 50);
    return fixture->asked == 1 && fixture->done == 1;
}

static void an_answer_after_the_end_is_waited_for(void **state)
{
    (void)state;
    assert_ends(ends_with_an_answer);
}

static void on_hurry_and_answer(uv_timer_t *timer)
{
    struct fixture *fixture = timer->data;

    watchdog_hurry(&fixture->watchdog);
    on_answer(timer);
}

/* Long before the next period. */
static void in_a_hurry_the_next_is_asked_when_this_is_answered(void **state)
{
    struct fixture fixture;

    (void)state;
    start_every(&fixture, 3600 * 1000);
    run_until(&fixture, on_hurry_and_answer, 20);
    assert_int_equal(fixture.asked, 2);
    assert_int_equal(fixture.done, 2);
}

static void stop_when_done(void *data)
{
    struct fixture *fixture = data;

    fixture->done++;
    watchdog_stop(&fixture->watchdog);
}

static bool ends_at_once(struct fixture *fixture)
{
    static const struct watchdog_ops prompt = {
        .ask = ask, .done = stop_when_done, .late = count_late};

    fixture->watchdog.options.ops = &prompt;
    (void)sem_post(&fixture->answer);
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    return uv_loop_close(&fixture->loop) == 0;
}

/* Before the others: they would not notice how theirs ends. */
static void a_watchdog_that_waits_for_nothing_ends_at_once(void **state)
{
    (void)state;
    assert_ends(ends_at_once);
}

static void nothing_is_asked_after_the_end_although_it_was_in_a_hurry(void **state)
{
    const struct watchdog_ops hurried = {.ask = ask, .done = stop_when_done, .late = count_late};
    struct fixture fixture;

    (void)state;
    start(&fixture);
    fixture.watchdog.options.ops = &hurried;
    run_until(&fixture, on_hurry_and_answer, 20);
    assert_int_equal(fixture.asked, 1);
    assert_int_equal(fixture.done, 1);
}

static void no_answer(void *data)
{
    (void)data;
}

/* In a process of its own: it is to end, with a thread that never comes back. */
static void a_thread_that_hangs_does_not_hold_up_the_end(void **state)
{
    const struct watchdog_ops silent = {.ask = ask, .done = done, .late = no_answer};
    struct fixture fixture;
    int status = -1;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        start(&fixture);
        fixture.watchdog.options.ops = &silent;
        (void)uv_timer_init(&fixture.loop, &fixture.end);
        fixture.end.data = &fixture;
        (void)uv_timer_start(&fixture.end, on_end, 50, 0);
        (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest end[] = {
        cmocka_unit_test(a_watchdog_that_waits_for_nothing_ends_at_once),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_answer_is_late_once),
        cmocka_unit_test(an_answer_that_stays_away_is_told_of_once),
        cmocka_unit_test(an_answer_after_the_end_is_waited_for),
        cmocka_unit_test(in_a_hurry_the_next_is_asked_when_this_is_answered),
        cmocka_unit_test(nothing_is_asked_after_the_end_although_it_was_in_a_hurry),
        cmocka_unit_test(a_thread_that_hangs_does_not_hold_up_the_end),
    };

    /* Where it fails the others would be ended with success, by their watchdogs. */
    return cmocka_run_group_tests(end, NULL, NULL) ? EXIT_FAILURE
                                                   : cmocka_run_group_tests(tests, NULL, NULL);
}
