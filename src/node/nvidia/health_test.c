/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/health.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "driver/nvml.h"

#define SECOND INT64_C(1000000000)

/* A driver that does not tell what a card needs, and one that says "nothing". */
static const struct nvml_health silent = {.has_errors = true};
static const struct nvml_health fine = {.has_errors = true, .has_action = true};

struct fixture {
    struct health health;
    int64_t now_ns;
    struct card card;
};

static struct fixture begin(void)
{
    return (struct fixture){.now_ns = 1000 * SECOND};
}

static bool is_well(struct fixture *f, const char *uuid, const struct nvml_health *reading)
{
    f->card = (struct card){.healthy = true, .max_tasks = 10};
    COPY_TEXT(f->card.uuid, uuid);
    health_judge(&f->health, reading, f->now_ns, &f->card);
    assert_int_equal(f->card.healthy, !f->card.why[0]);
    return f->card.healthy;
}

static bool fails(struct fixture *f, uint64_t xid)
{
    return health_event(&f->health, "GPU-a", NVML_EVENT_XID, xid, f->now_ns);
}

static void an_error_takes_one_card_out(void **state)
{
    struct fixture f = begin();

    (void)state;
    assert_true(is_well(&f, "GPU-a", &silent));
    assert_true(fails(&f, 79));
    assert_false(is_well(&f, "GPU-a", &silent));
    assert_string_equal(f.card.why, "XID 79");
    assert_true(is_well(&f, "GPU-b", &silent));
    assert_int_equal(health_find(&f.health, "GPU-a")->errors, 1);
}

static void what_does_not_count_takes_none_out(void **state)
{
    struct fixture f = begin();

    (void)state;
    assert_false(fails(&f, 31));
    assert_false(health_event(&f.health, "GPU-a", NVML_EVENT_SINGLE_BIT_ECC, 0, f.now_ns));
    assert_false(health_event(&f.health, "GPU-a", NVML_EVENT_RECOVERY_ACTION, 1, f.now_ns));
    assert_true(is_well(&f, "GPU-a", &silent));
    assert_true(health_event(&f.health, "GPU-a", NVML_EVENT_DOUBLE_BIT_ECC, 0, f.now_ns));
    assert_false(is_well(&f, "GPU-a", &silent));
}

static void an_error_of_a_card_that_is_not_known_takes_all_out(void **state)
{
    struct fixture f = begin();

    (void)state;
    assert_true(is_well(&f, "GPU-a", &silent));
    assert_true(is_well(&f, "GPU-b", &silent));
    assert_true(health_event(&f.health, NULL, NVML_EVENT_XID, 79, f.now_ns));
    assert_false(is_well(&f, "GPU-a", &silent));
    assert_false(is_well(&f, "GPU-b", &silent));
}

static void where_the_driver_tells_nothing_quiet_heals(void **state)
{
    struct fixture f = begin();

    (void)state;
    (void)fails(&f, 79);
    f.now_ns += HEALTH_QUIET_NS - SECOND;
    assert_false(is_well(&f, "GPU-a", &silent));
    (void)fails(&f, 79); /* from then on */
    f.now_ns += HEALTH_QUIET_NS - 1;
    assert_false(is_well(&f, "GPU-a", &silent));
    f.now_ns += 1;
    assert_true(is_well(&f, "GPU-a", &silent));
}

static void a_card_that_fails_again_stays_out_twice_as_long(void **state)
{
    struct fixture f = begin();
    int64_t quiet_ns = HEALTH_QUIET_NS;

    (void)state;
    for (int i = 0; i < 10; i++) {
        (void)fails(&f, 79);
        f.now_ns += quiet_ns - 1;
        assert_false(is_well(&f, "GPU-a", &silent));
        f.now_ns += 1;
        assert_true(is_well(&f, "GPU-a", &silent));
        f.now_ns += HEALTH_TRIED_NS - 1;
        quiet_ns = MIN(quiet_ns * 2, HEALTH_LONGEST_NS);
    }
    f.now_ns += 1; /* it was well for long enough: as if it had never failed */
    (void)fails(&f, 79);
    f.now_ns += HEALTH_QUIET_NS;
    assert_true(is_well(&f, "GPU-a", &silent));
}

static void where_the_driver_says_that_nothing_is_needed_that_heals(void **state)
{
    struct nvml_health asking = {.has_action = true, .action = NVML_RECOVERY_GPU_RESET};
    struct fixture f = begin();

    (void)state;
    (void)fails(&f, 95);
    f.now_ns += SECOND;
    assert_false(is_well(&f, "GPU-a", &asking));
    assert_string_equal(f.card.why, "the driver asks for a reset of the card");
    f.now_ns += 100 * HEALTH_LONGEST_NS;
    assert_false(is_well(&f, "GPU-a", &asking));
    f.now_ns += HEALTH_TOLD_NS - 1;
    assert_false(is_well(&f, "GPU-a", &fine));
    assert_string_equal(f.card.why, "XID 95");
    f.now_ns += 1;
    assert_true(is_well(&f, "GPU-a", &fine));
}

/* A reading without a word between two that say "nothing" breaks the time that is waited. */
static void silence_is_not_the_word_nothing(void **state)
{
    struct fixture f = begin();

    (void)state;
    (void)fails(&f, 95);
    f.now_ns += HEALTH_TOLD_NS - SECOND;
    assert_false(is_well(&f, "GPU-a", &fine));
    assert_false(is_well(&f, "GPU-a", &silent));
    f.now_ns += HEALTH_TOLD_NS - 1;
    assert_false(is_well(&f, "GPU-a", &fine));
    f.now_ns += 1;
    assert_true(is_well(&f, "GPU-a", &fine));
}

static void what_the_driver_asks_for_counts_without_an_error(void **state)
{
    struct fixture f = begin();

    (void)state;
    for (unsigned action = 1; action < 9; action++) {
        struct nvml_health asking = {.has_action = true, .action = action};

        assert_false(is_well(&f, "GPU-a", &asking));
        assert_true(is_well(&f, "GPU-a", &fine));
    }
}

static void errors_are_seen_in_the_count_where_there_are_no_events(void **state)
{
    struct nvml_health reading = {.has_errors = true, .uncorrected = 7};
    struct fixture f = begin();

    (void)state;
    assert_true(is_well(&f, "GPU-a", &reading)); /* those of before */
    reading.corrected = 1000;
    assert_true(is_well(&f, "GPU-a", &reading));
    reading.uncorrected = 8;
    assert_false(is_well(&f, "GPU-a", &reading));
    f.now_ns += HEALTH_QUIET_NS;
    assert_true(is_well(&f, "GPU-a", &reading));
    reading.uncorrected = 0; /* a reset */
    assert_true(is_well(&f, "GPU-a", &reading));
}

static void while_nobody_waits_for_events_no_card_is_well(void **state)
{
    struct fixture f = begin();

    (void)state;
    COPY_TEXT(f.health.unwatched, "cannot wait");
    assert_false(is_well(&f, "GPU-a", &fine));
    assert_string_equal(f.card.why, "cannot wait");
    f.health.unwatched[0] = '\0';
    assert_true(is_well(&f, "GPU-a", &fine));
}

static void with_all_disabled_only_the_answer_counts(void **state)
{
    struct nvml_health asking = {.has_action = true, .action = 1, .has_errors = true};
    struct fixture f = begin();

    (void)state;
    f.health.rules.disabled.all = true;
    COPY_TEXT(f.health.unwatched, "cannot wait");
    assert_false(fails(&f, 79));
    assert_true(is_well(&f, "GPU-a", &asking));
    asking.uncorrected = 1;
    assert_true(is_well(&f, "GPU-a", &asking));
}

static void a_card_that_is_sick_for_another_reason_keeps_it(void **state)
{
    struct fixture f = begin();

    (void)state;
    (void)fails(&f, 79);
    f.card = (struct card){.uuid = "GPU-a", .healthy = false, .why = "it is lost"};
    health_judge(&f.health, &silent, f.now_ns, &f.card);
    assert_string_equal(f.card.why, "it is lost");
}

static void how_a_card_is_set_up_counts(void **state)
{
    struct nvml_health reading = {.has_action = true};
    struct fixture f = begin();

    (void)state;
    reading.is_split = true;
    assert_false(is_well(&f, "GPU-a", &reading));
    reading.is_split = false;
    reading.compute_mode = NVML_COMPUTE_PROHIBITED;
    assert_false(is_well(&f, "GPU-a", &reading));
    f.health.rules.disabled.all = true; /* that is no error */
    assert_false(is_well(&f, "GPU-a", &reading));
    reading.compute_mode = NVML_COMPUTE_EXCLUSIVE;
    assert_true(is_well(&f, "GPU-a", &reading));
    assert_int_equal(f.card.max_tasks, 1);
    reading.compute_mode = NVML_COMPUTE_DEFAULT;
    assert_true(is_well(&f, "GPU-a", &reading));
    assert_int_equal(f.card.max_tasks, 10);
}

/* Cards come and go for ever. */
static void the_records_are_bounded(void **state)
{
    struct fixture f = begin();
    char uuid[32];

    (void)state;
    for (int i = 0; i < 3 * CARDS_MAX; i++) {
        (void)snprintf(uuid, sizeof(uuid), "GPU-%d", i);
        assert_true(health_event(&f.health, uuid, NVML_EVENT_XID, 79, f.now_ns));
        assert_false(is_well(&f, uuid, &silent));
    }
    assert_int_equal(f.health.count, CARDS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_takes_one_card_out),
        cmocka_unit_test(what_does_not_count_takes_none_out),
        cmocka_unit_test(an_error_of_a_card_that_is_not_known_takes_all_out),
        cmocka_unit_test(where_the_driver_tells_nothing_quiet_heals),
        cmocka_unit_test(a_card_that_fails_again_stays_out_twice_as_long),
        cmocka_unit_test(where_the_driver_says_that_nothing_is_needed_that_heals),
        cmocka_unit_test(silence_is_not_the_word_nothing),
        cmocka_unit_test(what_the_driver_asks_for_counts_without_an_error),
        cmocka_unit_test(errors_are_seen_in_the_count_where_there_are_no_events),
        cmocka_unit_test(while_nobody_waits_for_events_no_card_is_well),
        cmocka_unit_test(with_all_disabled_only_the_answer_counts),
        cmocka_unit_test(a_card_that_is_sick_for_another_reason_keeps_it),
        cmocka_unit_test(how_a_card_is_set_up_counts),
        cmocka_unit_test(the_records_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
