/* SPDX-License-Identifier: Apache-2.0 */
#include "region/bucket.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"

#define T0 (INT64_C(1000) * NS_PER_S)

static void a_rate_is_earned_and_spent(void **state)
{
    struct region_compute compute = {.zero_ns = T0};
    uint32_t rate = bucket_rate(50);

    (void)state;
    assert_int_equal(rate, BUCKET_ONE / 2);
    assert_int_equal(bucket_balance(&compute, rate, T0), 0);
    assert_int_equal(bucket_balance(&compute, rate, T0 + NS_PER_MS), NS_PER_MS / 2);
    bucket_charge(&compute, rate, NS_PER_MS);
    assert_int_equal(bucket_balance(&compute, rate, T0 + NS_PER_MS), -NS_PER_MS / 2);
    bucket_charge(&compute, rate, -NS_PER_MS);
    assert_int_equal(bucket_balance(&compute, rate, T0 + NS_PER_MS), NS_PER_MS / 2);
    assert_int_equal(compute.charged_ns, 0);
}

static void what_is_saved_up_is_capped(void **state)
{
    struct region_compute compute = {.zero_ns = T0};
    uint32_t rate = bucket_rate(50);

    (void)state;
    assert_int_equal(bucket_balance(&compute, rate, T0 + 100 * NS_PER_S), BUCKET_CREDIT_NS / 2);
    /* A tenant of long kernels keeps what two of them cost. */
    compute = (struct region_compute){.zero_ns = T0, .longest_ns = NS_PER_S};
    assert_int_equal(bucket_balance(&compute, rate, T0 + 100 * NS_PER_S), 2 * NS_PER_S);
}

static void damage_costs_a_minute_at_most(void **state)
{
    struct region_compute compute = {.zero_ns = INT64_MAX / 2, .longest_ns = INT64_MAX};
    uint32_t rate = bucket_rate(50);

    (void)state;
    assert_int_equal(bucket_balance(&compute, rate, T0), -30 * NS_PER_S);
    compute.zero_ns = INT64_MIN / 2;
    assert_true(bucket_balance(&compute, rate, T0) <= 120 * NS_PER_S);
}

static void a_new_rate_keeps_the_balance(void **state)
{
    struct region_compute compute = {.zero_ns = T0};

    (void)state;
    bucket_set_rate(&compute, bucket_rate(20), T0);
    assert_int_equal(bucket_balance(&compute, bucket_rate(20), T0), 0);
    bucket_charge(&compute, bucket_rate(20), 40 * NS_PER_MS);
    bucket_set_rate(&compute, bucket_rate(60), T0);
    assert_true(llabs(bucket_balance(&compute, bucket_rate(60), T0) + 40 * NS_PER_MS) < 1000);
    /* Again is nothing. */
    bucket_set_rate(&compute, bucket_rate(60), T0 + NS_PER_S);
    assert_int_equal(compute.rate, bucket_rate(60));
}

enum {
    THREADS = 8,
    CHARGES = 100000,
};

static void *charge_often(void *argument)
{
    struct region_compute *compute = argument;

    for (int i = 0; i < CHARGES; i++)
        bucket_charge(compute, bucket_rate(50), 3);
    return NULL;
}

static void charges_of_many_add_up_exactly(void **state)
{
    struct region_compute compute = {.zero_ns = T0};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, charge_often, &compute), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(compute.charged_ns, 3 * THREADS * CHARGES);
    assert_int_equal(compute.zero_ns, T0 + 6 * THREADS * CHARGES);
}

static void waits_are_counted_by_ranges(void **state)
{
    (void)state;
    assert_int_equal(region_wait_range(0), 0);
    assert_int_equal(region_wait_range(NS_PER_MS), 0);
    assert_int_equal(region_wait_range(NS_PER_MS + 1), 1);
    assert_int_equal(region_wait_range(5 * NS_PER_S), REGION_WAITS - 2);
    assert_int_equal(region_wait_range(5 * NS_PER_S + 1), REGION_WAITS - 1);
    assert_int_equal(region_wait_range(INT64_MAX), REGION_WAITS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_is_earned_and_spent),
        cmocka_unit_test(what_is_saved_up_is_capped),
        cmocka_unit_test(damage_costs_a_minute_at_most),
        cmocka_unit_test(a_new_rate_keeps_the_balance),
        cmocka_unit_test(charges_of_many_add_up_exactly),
        cmocka_unit_test(waits_are_counted_by_ranges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
