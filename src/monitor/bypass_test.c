/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/bypass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define SECOND INT64_C(1000000000)
#define HALF (SECOND / 2)
#define M(mib) (UINT64_C(mib) << 20)

struct fixture {
    struct bypass bypass;
    int64_t now_ns;
    struct bypass_process processes[BYPASS_PROCESSES_MAX];
    struct bypass_grant grants[4];
    struct bypass_time times[4];
    struct bypass_look look;
};

static struct fixture *f;

static int begin(void **state)
{
    (void)state;
    f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->now_ns = 1000 * SECOND;
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(f);
    return 0;
}

static void clear(void)
{
    f->look =
        (struct bypass_look){.processes = f->processes, .grants = f->grants, .times = f->times};
}

static struct bypass_process *process(const char *pod, const char *uuid, uint64_t bytes)
{
    struct bypass_process *made = &f->processes[f->look.process_count++];

    *made = (struct bypass_process){.pid = (pid_t)f->look.process_count, .bytes = bytes};
    COPY_TEXT(made->pod_uid, pod);
    COPY_TEXT(made->uuid, uuid);
    return made;
}

static struct bypass_process *honest(const char *pod, const char *uuid, uint64_t bytes)
{
    struct bypass_process *made = process(pod, uuid, bytes);

    made->has_slot = made->has_ledger = true;
    made->ledger_bytes = bytes;
    return made;
}

static void grant(const char *pod, const char *uuid, uint64_t bytes, unsigned cores)
{
    struct bypass_grant *made = &f->grants[f->look.grant_count++];

    *made = (struct bypass_grant){
        .has_limit = bytes != 0, .limit_bytes = bytes, .has_cores = cores != 0, .cores = cores};
    COPY_TEXT(made->pod_uid, pod);
    COPY_TEXT(made->uuid, uuid);
}

static void judge(void)
{
    f->now_ns += HALF;
    f->look.now_ns = f->now_ns;
    bypass_judge(&f->bypass, &f->look);
}

/* The kind that counts; BYPASS_NONE: none does. */
static enum bypass_kind lasting(void)
{
    enum bypass_kind kind = BYPASS_NONE;

    for (size_t i = 0; i < f->bypass.count; i++) {
        if (!f->bypass.cases[i].lasts)
            continue;
        assert_int_equal(kind, BYPASS_NONE);
        kind = f->bypass.cases[i].kind;
    }
    return kind;
}

static enum bypass_kind judge_for(unsigned looks)
{
    for (unsigned i = 0; i < looks; i++)
        judge();
    return lasting();
}

static void honest_processes_are_left_alone(void **state)
{
    (void)state;
    clear();
    grant("a", "GPU-0", M(1000), 30);
    grant("b", "GPU-0", 0, 0); /* no limits */
    (void)honest("a", "GPU-0", M(600));
    (void)honest("a", "GPU-0", M(400));
    (void)honest("b", "GPU-0", M(39000));
    process("b", "GPU-0", UINT64_MAX)->has_slot = true; /* the driver does not tell */
    (void)process("", "GPU-0", M(5000));                /* the node's own */
    honest("a", "GPU-0", M(63))->ledger_bytes = 0;      /* within the slack */
    assert_int_equal(judge_for(100), BYPASS_NONE);
    assert_int_equal(f->bypass.own, 1);
    assert_int_equal(f->bypass.count, 0);
}

static void each_kind_is_found_once_it_lasted(void **state)
{
    static const enum bypass_kind kinds[] = {BYPASS_NOT_GIVEN, BYPASS_NO_SLOT, BYPASS_LEDGER,
                                             BYPASS_MEMORY};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct bypass_process *bad;

        (void)end(state);
        (void)begin(state);
        clear();
        grant("a", "GPU-0", M(1000), 30);
        (void)honest("a", "GPU-0", M(300));
        bad = honest("a", kinds[i] == BYPASS_NOT_GIVEN ? "GPU-1" : "GPU-0", M(400));
        if (kinds[i] == BYPASS_NO_SLOT)
            bad->has_slot = false;
        if (kinds[i] == BYPASS_LEDGER)
            bad->ledger_bytes = M(335);
        if (kinds[i] == BYPASS_MEMORY)
            bad->bytes = bad->ledger_bytes = M(765); /* the slot says so, too */
        /* The first look only begins; then each adds half a second. */
        assert_int_equal(judge_for(6), BYPASS_NONE);
        assert_false(bad->condemned);
        assert_int_equal(judge_for(1), kinds[i]);
        assert_true(bad->condemned);
        assert_false(f->processes[0].condemned);
        assert_int_equal(judge_for(10), kinds[i]);
        f->look.process_count = 1;
        assert_int_equal(judge_for(1), BYPASS_NONE);
    }
}

static void a_moment_is_none(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        clear();
        grant("a", "GPU-0", M(1000), 30);
        honest("a", "GPU-0", M(400))->has_slot = i % 20 > 3;
        assert_int_equal(judge_for(1), BYPASS_NONE);
    }
}

static void pauses_and_new_processes_gain_nothing(void **state)
{
    unsigned looks = 0;

    (void)state;
    while (lasting() == BYPASS_NONE && looks < 100) {
        clear();
        grant("a", "GPU-0", M(1000), 30);
        if (looks % 4 < 3) /* a second and a half of four halves */
            process("a", "GPU-0", M(400))->pid = (pid_t)(100 + looks);
        judge();
        looks++;
    }
    assert_in_range(looks, 7, 20);
}

static void pods_that_were_given_nothing_are_found(void **state)
{
    (void)state;
    clear();
    (void)process("stranger", "GPU-0", M(1));
    assert_int_equal(judge_for(7), BYPASS_NOT_GIVEN);
}

static void one_pod_is_not_accused_for_another(void **state)
{
    (void)state;
    clear();
    grant("a", "GPU-0", M(1000), 30);
    grant("b", "GPU-0", M(1000), 30);
    (void)honest("a", "GPU-0", M(900));
    (void)honest("b", "GPU-0", M(2000));
    assert_int_equal(judge_for(8), BYPASS_MEMORY);
    for (size_t i = 0; i < f->bypass.count; i++)
        assert_string_equal(f->bypass.cases[i].pod_uid, "b");
}

static void a_look_that_comes_late_proves_little(void **state)
{
    (void)state;
    clear();
    (void)process("a", "GPU-0", M(1));
    judge();
    f->now_ns += 1000 * SECOND;
    assert_int_equal(judge_for(1), BYPASS_NONE);
}

static void time_is_a_mean_of_ten_looks(void **state)
{
    static const struct {
        unsigned percents[2]; /* at even and odd looks */
        unsigned cores;
        enum bypass_kind kind;
    } cases[] = {
        {{30, 30}, 30, BYPASS_NONE},     {{50, 50}, 30, BYPASS_NONE}, /* the slack */
        {{51, 51}, 30, BYPASS_COMPUTE},  {{0, 99}, 30, BYPASS_NONE},
        {{10, 100}, 30, BYPASS_COMPUTE}, {{100, 100}, 0, BYPASS_NONE}, /* no limit */
        {{900, 900}, 80, BYPASS_NONE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)end(state);
        (void)begin(state);
        for (unsigned k = 0; k < 2 * BYPASS_COMPUTE_LOOKS; k++) {
            clear();
            grant("a", "GPU-0", 0, cases[i].cores);
            f->look.has_times = k % 2 == 0;
            f->look.time_count = 1;
            COPY_TEXT(f->times[0].pod_uid, "a");
            COPY_TEXT(f->times[0].uuid, "GPU-0");
            f->times[0].percent = cases[i].percents[k / 2 % 2];
            if (k < 2 * BYPASS_COMPUTE_LOOKS - 2)
                assert_int_equal(judge_for(1), BYPASS_NONE);
            else
                judge();
        }
        assert_int_equal(lasting(), cases[i].kind);
        clear();
        grant("a", "GPU-0", 0, cases[i].cores);
        f->look.has_times = true; /* it uses nothing any more */
        assert_int_equal(judge_for(1), BYPASS_NONE);
    }
}

static void a_case_is_told_once_and_after_a_while_again(void **state)
{
    struct bypass_case *item = &f->bypass.cases[0];

    (void)state;
    clear();
    (void)process("a", "GPU-0", M(1));
    assert_int_equal(judge_for(3), BYPASS_NONE);
    assert_false(bypass_take_news(item, f->now_ns));
    assert_int_equal(judge_for(4), BYPASS_NOT_GIVEN);
    assert_true(bypass_take_news(item, f->now_ns));
    assert_false(bypass_take_news(item, f->now_ns + BYPASS_AGAIN_NS - 1));
    clear(); /* gone and back: that is no news */
    assert_int_equal(judge_for(50), BYPASS_NONE);
    (void)process("a", "GPU-0", M(1));
    assert_int_equal(judge_for(7), BYPASS_NOT_GIVEN);
    assert_false(bypass_take_news(item, f->now_ns));
    assert_true(bypass_take_news(item, f->now_ns + BYPASS_AGAIN_NS));
}

/* Pods come and go; what is remembered of them is bounded, and what counts is kept. */
static void cases_are_bounded(void **state)
{
    char pod[32];

    (void)state;
    for (unsigned i = 0; i < 3 * BYPASS_CASES_MAX; i++) {
        clear();
        (void)process("lasts", "GPU-0", M(1));
        (void)snprintf(pod, sizeof(pod), "pod-%u", i);
        (void)process(pod, "GPU-0", M(1));
        judge();
        assert_true(f->bypass.count <= BYPASS_CASES_MAX);
    }
    assert_int_equal(lasting(), BYPASS_NOT_GIVEN);
    clear();
    assert_int_equal(judge_for(30), BYPASS_NONE);
    assert_int_equal(f->bypass.count, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(honest_processes_are_left_alone),
        TEST(each_kind_is_found_once_it_lasted),
        TEST(a_moment_is_none),
        TEST(pauses_and_new_processes_gain_nothing),
        TEST(pods_that_were_given_nothing_are_found),
        TEST(one_pod_is_not_accused_for_another),
        TEST(a_look_that_comes_late_proves_little),
        TEST(time_is_a_mean_of_ten_looks),
        TEST(a_case_is_told_once_and_after_a_while_again),
        TEST(cases_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
