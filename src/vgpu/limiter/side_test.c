/* SPDX-License-Identifier: Apache-2.0 */

/* Streams that are busy for longer than what is charged. */

#include "vgpu/limiter/side.h"

#include "base/check.h"
#include "base/util.h"
#include "vgpu/limiter/parts_fixture.h"

/* From 1 ms on, each ms; until when it is found that busy was longer than what was charged. */
static int64_t found_after_ms(bool (*is_busy)(int64_t ms), double charged, double on_device,
                              double sure)
{
    struct side side = {0};

    for (int64_t ms = 1; ms < 5000; ms++) {
        if (side_look(&side, is_busy(ms), (int64_t)(charged * (double)ms * 1e6), on_device, sure,
                      ms * NS_PER_MS) > 0) {
            assert_near(side.open_ns, 0, 0); /* it begins anew */
            return ms;
        }
    }
    return -1;
}

static bool always(int64_t ms)
{
    (void)ms;
    return true;
}

static bool every_second(int64_t ms)
{
    return ms % 2;
}

static bool every_fourth_second(int64_t ms)
{
    return ms / 1000 % 4 == 3;
}

static void streams_that_are_busy_for_nothing_are_found(void **state)
{
    (void)state;
    assert_int_equal(found_after_ms(always, 0, 1, 1), 51);
    assert_in_range(found_after_ms(always, 0.3, 1, 1), 77, 80);
    assert_in_range(found_after_ms(every_second, 0.3, 1, 1), 342, 345);
    /* What was charged before they were busy counts for 50 ms. */
    assert_in_range(found_after_ms(every_fourth_second, 0.3, 1, 1), 3154, 3157);
    assert_int_equal(found_after_ms(always, 0.85, 1, 1), -1);
    assert_int_equal(found_after_ms(every_second, 0.43, 1, 1), -1);
    assert_int_equal(found_after_ms(always, 0.3, 0.35, 1), -1); /* others were on the device */
    assert_int_equal(found_after_ms(always, 0.3, 1, 0.35), -1); /* or may have been */
}

static void nothing_is_said_of_time_in_which_nobody_looked(void **state)
{
    struct side side = {0};

    (void)state;
    for (int64_t i = 1; i < 100; i++)
        assert_near(side_look(&side, true, 0, 1, 1, i * 25 * NS_PER_MS), 0, 0);
}

/* After so many ms, of looks each ms. */
static double doubt_after(int64_t ms, bool (*is_busy)(int64_t ms), double charged, double on_device)
{
    struct side side = {0};

    for (int64_t i = 1; i <= ms; i++)
        (void)side_look(&side, is_busy(i), (int64_t)(charged * (double)i * 1e6), on_device, 1,
                        i * NS_PER_MS);
    return side_doubt(&side);
}

static bool never(int64_t ms)
{
    (void)ms;
    return false;
}

static void what_is_charged_and_not_seen_busy_is_doubted(void **state)
{
    (void)state;
    assert_near(doubt_after(101, never, 0.5, 1), 0, 1e-6);
    assert_near(doubt_after(201, never, 0.5, 1), 0.5, 1e-6);
    assert_near(doubt_after(2000, never, 0.5, 1), 1, 1e-6);
    assert_near(doubt_after(2000, every_second, 0.52, 1), 0, 0.01);
    assert_near(doubt_after(2000, every_second, 0.6, 1), 0.9, 0.02);
    assert_near(doubt_after(2000, always, 0.5, 1), 0, 0);
    assert_near(doubt_after(2000, never, 0.5, 0.9), 0, 0); /* others were on the device */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_are_busy_for_nothing_are_found),
        cmocka_unit_test(nothing_is_said_of_time_in_which_nobody_looked),
        cmocka_unit_test(what_is_charged_and_not_seen_busy_is_doubted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
