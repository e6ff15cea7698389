/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/ledgers.h"

#include "base/check.h"
#include "base/util.h"

static uint64_t say(struct ledgers *ledgers, pid_t pid, uint64_t start_ticks, const char *uuid,
                    uint64_t bytes, int64_t at_s)
{
    return ledgers_most(ledgers, pid, start_ticks, uuid, bytes, at_s * NS_PER_S);
}

static void the_most_of_the_last_seconds_counts(void **state)
{
    struct ledgers ledgers = {NULL};

    (void)state;
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 100, 1000), 100);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 0, 1001), 100);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 50, 1004), 100);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 60, 1009), 100);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 0, 1010), 60);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 0, 1030), 0);
    ledgers_deinit(&ledgers);
}

static void each_process_has_its_own_on_each_card(void **state)
{
    struct ledgers ledgers = {NULL};

    (void)state;
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 100, 1000), 100);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-b", 1, 1000), 1);
    assert_int_equal(say(&ledgers, 1, 8, "GPU-a", 2, 1000), 2); /* the number is another's now */
    assert_int_equal(say(&ledgers, 2, 7, "GPU-a", 3, 1000), 3);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 0, 1001), 100);
    ledgers_deinit(&ledgers);
}

static void those_of_whom_nothing_is_said_are_forgotten(void **state)
{
    struct ledgers ledgers = {NULL};

    (void)state;
    (void)say(&ledgers, 1, 7, "GPU-a", 100, 1000);
    (void)say(&ledgers, 2, 7, "GPU-a", 100, 1006);
    ledgers_forget_old(&ledgers, 1009 * NS_PER_S);
    assert_int_equal(say(&ledgers, 1, 7, "GPU-a", 0, 1009), 100);
    ledgers_forget_old(&ledgers, 1019 * NS_PER_S);
    assert_null(ledgers.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_of_the_last_seconds_counts),
        cmocka_unit_test(each_process_has_its_own_on_each_card),
        cmocka_unit_test(those_of_whom_nothing_is_said_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
