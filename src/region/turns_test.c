/* SPDX-License-Identifier: Apache-2.0 */
#include "region/turns.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "region/bucket.h"

#define T0 (INT64_C(1000) * NS_PER_S)

/* A region of two processes, seen by each. */
struct two {
    struct region_base *base;
    struct region_ext *ext;
    struct region of[2];
};

static struct two two_processes(void)
{
    struct two two = {.base = calloc(1, sizeof(*two.base)), .ext = calloc(1, sizeof(*two.ext))};

    assert_non_null(two.base);
    assert_non_null(two.ext);
    two.base->slot_count = 2;
    for (int i = 0; i < 2; i++)
        two.of[i] = (struct region){.base = two.base, .ext = two.ext, .fd = -1, .slot = i};
    return two;
}

static void end(struct two *two)
{
    free(two->base);
    free(two->ext);
}

static void who_was_served_least_is_next(void **state)
{
    struct two two = two_processes();

    (void)state;
    turns_want(&two.of[0], 3, T0, T0);
    turns_want(&two.of[1], 3, T0, T0);
    assert_true(turns_is_ours(&two.of[0], 3, T0));
    turns_serve(&two.of[0], 3, 20 * NS_PER_MS);
    assert_false(turns_is_ours(&two.of[0], 3, T0));
    assert_true(turns_is_ours(&two.of[1], 3, T0));
    turns_serve(&two.of[1], 3, 19 * NS_PER_MS);
    assert_true(turns_is_ours(&two.of[0], 3, T0));
    assert_true(turns_is_ours(&two.of[1], 3, T0));
    /* Another device has turns of its own. */
    turns_serve(&two.of[0], 3, 20 * NS_PER_MS);
    turns_want(&two.of[0], 4, T0, T0);
    turns_want(&two.of[1], 4, T0, T0);
    assert_true(turns_is_ours(&two.of[0], 4, T0));
    end(&two);
}

static void who_wants_nothing_keeps_nobody_waiting(void **state)
{
    struct two two = two_processes();

    (void)state;
    turns_serve(&two.of[0], 0, NS_PER_S);
    turns_want(&two.of[0], 0, T0, T0);
    assert_true(turns_is_ours(&two.of[0], 0, T0));
    turns_want(&two.of[1], 0, T0, T0 + NS_PER_MS);
    /* A newcomer starts where the others are: it has saved up nothing. */
    turns_serve(&two.of[0], 0, NS_PER_MS);
    assert_true(turns_is_ours(&two.of[0], 0, T0));
    turns_serve(&two.of[0], 0, NS_PER_MS);
    assert_false(turns_is_ours(&two.of[0], 0, T0));
    assert_false(turns_is_ours(&two.of[0], 0, T0 + NS_PER_MS + TURNS_WANT_NS - 1));
    assert_true(turns_is_ours(&two.of[0], 0, T0 + NS_PER_MS + TURNS_WANT_NS));
    end(&two);
}

static void who_wants_little_saves_little_up(void **state)
{
    struct two two = two_processes();
    int64_t end_ns = T0 + 10 * NS_PER_S, waited = 0;

    (void)state;
    two.ext->devices[1].compute.longest_ns = NS_PER_MS;
    /* For ten seconds one wants the device all the time, and takes a hundredth of it. */
    for (int64_t now_ns = T0; now_ns < end_ns; now_ns += 50 * NS_PER_MS) {
        for (unsigned i = 0; i < 2; i++) {
            turns_want(&two.of[i], 1, now_ns, now_ns);
            (void)turns_is_ours(&two.of[i], 1, now_ns);
        }
        turns_serve(&two.of[0], 1, 49 * NS_PER_MS);
        turns_serve(&two.of[1], 1, NS_PER_MS / 2);
    }
    /* Now it takes all. */
    turns_want(&two.of[0], 1, end_ns, end_ns);
    turns_want(&two.of[1], 1, end_ns, end_ns);
    assert_true(turns_is_ours(&two.of[1], 1, end_ns));
    for (; !turns_is_ours(&two.of[0], 1, end_ns); waited += NS_PER_MS) {
        assert_true(waited < 100 * NS_PER_MS);
        turns_serve(&two.of[1], 1, NS_PER_MS);
    }
    assert_true(waited > 0);
    end(&two);
}

static int64_t balance_after(int64_t owed, int64_t since_ns, int64_t died_ns, uint64_t rate)
{
    struct two two = two_processes();
    struct region_compute *compute = &two.ext->devices[2].compute;
    int64_t balance;

    compute->rate = rate;
    compute->zero_ns = T0;
    bucket_charge(compute, BUCKET_ONE / 2, owed);
    turns_owe(&two.of[1], 2, 0, owed, since_ns);
    turns_settle(two.ext, 1, 2, died_ns);
    assert_int_equal(two.ext->turns[1][2].unsettled_ns, 0);
    balance = bucket_balance(compute, BUCKET_ONE / 2, T0);
    end(&two);
    return balance;
}

static void what_a_dead_process_was_charged_for_nothing_is_given_back(void **state)
{
    (void)state;
    /* Of 14 s that it was charged, its kernel ran for two at most. */
    assert_int_equal(balance_after(14 * NS_PER_S, T0, T0 + 2 * NS_PER_S, BUCKET_ONE / 2),
                     -2 * NS_PER_S);
    /* It may have run all the time: a process that kills itself gains nothing. */
    assert_int_equal(balance_after(NS_PER_S, T0, T0 + 2 * NS_PER_S, BUCKET_ONE / 2), -NS_PER_S);
    /* What the tenant wrote there is no excuse. */
    assert_int_equal(balance_after(NS_PER_S, T0 + NS_PER_S, T0, BUCKET_ONE / 2), -NS_PER_S);
    assert_int_equal(balance_after(NS_PER_S, T0, T0, UINT64_MAX), -NS_PER_S);
}

/* The first process pays so much in advance, in a container that has half of the device. */
static struct region_compute *pay_in_advance(struct two *two, int64_t amount_ns)
{
    struct region_compute *compute = &two->ext->devices[2].compute;

    compute->rate = BUCKET_ONE / 2;
    compute->zero_ns = T0;
    bucket_charge(compute, BUCKET_ONE / 2, amount_ns);
    turns_owe(&two->of[0], 2, 0, amount_ns, T0);
    return compute;
}

/* Half of the device earns 30 s of it in the most that is owed. */
static void what_may_be_given_back_is_not_dropped(void **state)
{
    struct two two = two_processes();
    struct region_compute *compute = pay_in_advance(&two, 30 * NS_PER_S);

    (void)state;
    /* The other one runs for 20 s meanwhile. */
    bucket_charge(compute, BUCKET_ONE / 2, 20 * NS_PER_S);
    turns_limit_debt(&two.of[1], 2, T0);
    bucket_charge(compute, BUCKET_ONE / 2, -30 * NS_PER_S);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -20 * NS_PER_S);
    /* Where nothing is, no more than those 30 s are owed, */
    turns_owe(&two.of[0], 2, 30 * NS_PER_S, 0, 0);
    bucket_charge(compute, BUCKET_ONE / 2, 100 * NS_PER_S);
    turns_limit_debt(&two.of[1], 2, T0);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -30 * NS_PER_S);
    /* whatever the tenant wrote there. */
    two.ext->turns[0][2].unsettled_ns = two.ext->turns[1][2].unsettled_ns = INT64_MIN;
    bucket_charge(compute, BUCKET_ONE / 2, NS_PER_S);
    turns_limit_debt(&two.of[1], 2, T0);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -30 * NS_PER_S);
    end(&two);
}

/* It would be given back nonetheless, when others want the card again: who was charged 20 s for a
 * kernel of half a second left its container, of 10 %, as much as a neighbour of 80 % had. */
static void what_may_be_given_back_is_not_forgiven(void **state)
{
    struct two two = two_processes();
    struct region_compute *compute = pay_in_advance(&two, 20 * NS_PER_S);

    (void)state;
    bucket_charge(compute, BUCKET_ONE / 2, 5 * NS_PER_S);
    turns_forgive(&two.of[1], 2, T0);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -20 * NS_PER_S);
    /* It ran for one second: that is owed, */
    bucket_charge(compute, BUCKET_ONE / 2, -19 * NS_PER_S);
    turns_owe(&two.of[0], 2, 20 * NS_PER_S, 0, 0);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -NS_PER_S);
    /* until the card is found idle the next time. */
    turns_forgive(&two.of[1], 2, T0);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), 0);
    end(&two);
}

/* Else what one of them says would have the other one's debt dropped, and given back nonetheless:
 * 95 % of the device were seen at a limit of 10 %. */
static void contexts_of_a_process_owe_what_each_does(void **state)
{
    struct two two = two_processes();
    struct region_compute *compute = &two.ext->devices[2].compute;
    struct region_turn *turn = &two.ext->turns[0][2];

    (void)state;
    compute->rate = BUCKET_ONE / 2;
    compute->zero_ns = T0;
    bucket_charge(compute, BUCKET_ONE / 2, 50 * NS_PER_S);
    turns_owe(&two.of[0], 2, 0, NS_PER_S, T0);
    turns_owe(&two.of[0], 2, 0, 50 * NS_PER_S, T0 + NS_PER_S);
    assert_int_equal(turn->unsettled_ns, 51 * NS_PER_S);
    /* The first one's work is done. */
    turns_owe(&two.of[0], 2, NS_PER_S, 0, 0);
    assert_int_equal(turn->unsettled_ns, 50 * NS_PER_S);
    turns_limit_debt(&two.of[1], 2, T0);
    turns_settle(two.ext, 0, 2, T0 + 2 * NS_PER_S);
    assert_int_equal(bucket_balance(compute, BUCKET_ONE / 2, T0), -2 * NS_PER_S);
    /* Where only one has work the time is its own. */
    turns_owe(&two.of[0], 2, 0, NS_PER_S, T0);
    turns_owe(&two.of[0], 2, 0, NS_PER_S, T0 + NS_PER_S);
    turns_owe(&two.of[0], 2, NS_PER_S, 0, 0);
    assert_int_equal(turn->since_ns, T0);
    turns_owe(&two.of[0], 2, NS_PER_S, NS_PER_S, T0 + 2 * NS_PER_S);
    assert_int_equal(turn->since_ns, T0 + 2 * NS_PER_S);
    end(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_served_least_is_next),
        cmocka_unit_test(who_wants_nothing_keeps_nobody_waiting),
        cmocka_unit_test(who_wants_little_saves_little_up),
        cmocka_unit_test(what_a_dead_process_was_charged_for_nothing_is_given_back),
        cmocka_unit_test(what_may_be_given_back_is_not_dropped),
        cmocka_unit_test(what_may_be_given_back_is_not_forgiven),
        cmocka_unit_test(contexts_of_a_process_owe_what_each_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
