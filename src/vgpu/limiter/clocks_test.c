/* SPDX-License-Identifier: Apache-2.0 */

/* How far the device's clock is ahead of the host's, and what is late by it. */

#include "vgpu/limiter/clocks.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/parts_fixture.h"

/* The device's clock runs 20 ppm faster or slower: no probe is late for that. */
static void a_drifting_clock_is_not_lateness(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        struct clocks clocks = {0};

        for (int64_t at = 0; at < 8 * NS_PER_S; at += 10 * NS_PER_MS) {
            double device_ns = ((double)at + 3000) * (1 + sign * 20e-6);

            assert_near(clocks_late_ns(&clocks, device_ns, (double)at, at), 0, 0);
        }
        /* One that had to wait for a slice of 2 ms is. */
        assert_true(clocks_late_ns(&clocks, (8e9 + 2e6) * (1 + sign * 20e-6), 8e9, 8 * NS_PER_S) >
                    1.5e6);
    }
}

/* Where the host's clock is being set right they run apart much faster: then a second is enough to
 * learn it, and another to learn that it is over. */
static void a_clock_that_is_set_right_is_soon_no_lateness(void **state)
{
    static const double drifts[] = {100e-6, -100e-6, 500e-6, -500e-6, 5e-3, 0};
    struct clocks clocks = {0};
    double device_ns = 3000;
    int64_t at = 0;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(drifts); i++) {
        for (int64_t from = at; at < from + 4 * NS_PER_S; at += 10 * NS_PER_MS) {
            double late_ns = clocks_late_ns(&clocks, device_ns, (double)at, at);

            assert_true(late_ns <= 0 || at < from + 1500 * NS_PER_MS);
            device_ns += 10e6 * (1 + drifts[i]);
        }
        /* One that has to wait for a slice is late all the same. */
        assert_true(clocks_late_ns(&clocks, device_ns + 2e6, (double)at, at) > 1.9e6);
    }
}

/* Probes that others hold up by chance make no drift. */
static void lateness_by_chance_is_no_drift(void **state)
{
    struct lot lot = {.state = 5};
    struct clocks clocks = {0};

    (void)state;
    for (int64_t at = 0; at < 60 * NS_PER_S; at += 10 * NS_PER_MS) {
        double wait_ns = lot_draw(&lot) < 0.05 ? 0 : 4e6 * lot_draw(&lot);
        double late_ns = clocks_late_ns(&clocks, (double)at + 3000 + wait_ns, (double)at, at);

        assert_true(late_ns >= wait_ns - 100e3 || wait_ns < CLOCKS_PROMPT_NS);
    }
}

/* Of a program that begins with kernels in all queues, each is late: the first one, too. */
static void the_first_probe_may_be_late(void **state)
{
    struct clocks clocks = {0};

    (void)state;
    assert_near(clocks_late_ns(&clocks, 40e6, 0.2e6, NS_PER_MS), 39.8e6, 0.02e6);
    assert_true(clocks_late_ns(&clocks, 80e6, 41e6, 42 * NS_PER_MS) > 0);
}

/* Beside others that always wait for it, each probe of a program of one kernel at a time waits for
 * a slice. What is seen done tells how far the clocks are apart; from another moment on, too. */
static void what_is_seen_done_tells_where_all_are_late(void **state)
{
    const double ahead_ns = -700e3; /* the base had to wait, too */
    struct clocks clocks = {0};
    struct lot lot = {.state = 3};
    int64_t at = 0;

    (void)state;
    for (; at < 20 * NS_PER_S; at += 7 * NS_PER_MS) {
        double host_ns = (double)at, done_ns = host_ns + ahead_ns + 3e6 + 1e6 * lot_draw(&lot);

        (void)clocks_late_ns(&clocks, done_ns, host_ns, at);
        clocks_note_seen(&clocks, done_ns, done_ns - ahead_ns + 8e3 + 300e3 * lot_draw(&lot), at);
    }
    assert_near(clocks_device_ns(&clocks, 20e9), 20e9 + ahead_ns, 100e3);
    assert_near(clocks_host_ns(&clocks, 20e9 + ahead_ns), 20e9, 100e3);
    clocks_move(&clocks, 20e9 + 300e3, 20e9);
    assert_near(clocks_device_ns(&clocks, 0), ahead_ns - 300e3, 100e3);

    /* Prompt ones tell it better. */
    for (unsigned i = 0; i < 5; i++, at += 7 * NS_PER_MS)
        (void)clocks_late_ns(&clocks, i * 7e6 - 998e3, i * 7e6, at);
    assert_near(clocks_device_ns(&clocks, 0), -998e3, 10e3);
}

/* So does the last look at one that was not done yet, from the first few on; but not where probes
 * are prompt, whoever holds one up. */
static void what_is_not_done_yet_tells_where_all_are_late(void **state)
{
    const double ahead_ns = -700e3;
    struct clocks clocks = {0};
    struct lot lot = {.state = 3};
    int64_t at = 0;

    (void)state;
    for (; at < 100 * NS_PER_MS; at += 7 * NS_PER_MS) {
        double host_ns = (double)at, asked_ns = host_ns + 1e6 + 900e3 * lot_draw(&lot);

        clocks_note_unseen(&clocks, host_ns + 2e6 + ahead_ns, asked_ns, at + 2 * NS_PER_MS);
        assert_near(clocks_late_ns(&clocks, host_ns + 2e6 + ahead_ns, host_ns, at), 2e6, 900e3);
    }
    assert_near(clocks_device_ns(&clocks, 100e6), 100e6 + ahead_ns, 250e3);
    assert_true(clocks_device_ns(&clocks, 100e6) > 100e6 + ahead_ns);

    for (unsigned i = 0; i < 5; i++, at += 7 * NS_PER_MS)
        (void)clocks_late_ns(&clocks, (double)at + ahead_ns + 3e3, (double)at, at);
    clocks_note_unseen(&clocks, (double)at + ahead_ns, (double)at + 100e3, at);
    assert_near(clocks_device_ns(&clocks, (double)at), (double)at + ahead_ns + 3e3, 1e3);
}

/* One that was seen late is no bound that could be used. */
static void what_was_seen_once_is_not_sure(void **state)
{
    struct clocks clocks = {0};

    (void)state;
    assert_near(clocks_late_ns(&clocks, 10e6 + 3e3, 10e6, NS_PER_MS), 0, 0);
    clocks_note_seen(&clocks, 11e6, 13e6, 2 * NS_PER_MS);
    clocks_note_seen(&clocks, 21e6, 21.1e6, 3 * NS_PER_MS);
    assert_near(clocks_device_ns(&clocks, 20e6), 20e6 + 3e3, 1e3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drifting_clock_is_not_lateness),
        cmocka_unit_test(a_clock_that_is_set_right_is_soon_no_lateness),
        cmocka_unit_test(lateness_by_chance_is_no_drift),
        cmocka_unit_test(the_first_probe_may_be_late),
        cmocka_unit_test(what_is_seen_done_tells_where_all_are_late),
        cmocka_unit_test(what_is_not_done_yet_tells_where_all_are_late),
        cmocka_unit_test(what_was_seen_once_is_not_sure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
