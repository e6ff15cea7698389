/* SPDX-License-Identifier: Apache-2.0 */

/* Devices that are held and let go together, and how it is found that they ought to be. */

#include "vgpu/limiter/gang.h"

#include <stdlib.h>

#include "base/check.h"
#include "region/bucket.h"

#define T0 (INT64_C(1000) * NS_PER_S)
#define HALF (BUCKET_ONE / 2)

static struct region region;

static struct region_compute *bucket_of(unsigned device)
{
    return &region.ext->devices[device].compute;
}

/* At half of each, with nothing saved up. */
static int new_devices(void **state)
{
    (void)state;
    region.base = calloc(1, sizeof(*region.base));
    region.ext = calloc(1, sizeof(*region.ext));
    if (!region.base || !region.ext)
        return -1;
    region.base->device_count = 3;
    for (unsigned i = 0; i < 3; i++)
        bucket_set_rate(bucket_of(i), HALF, T0);
    return 0;
}

static int free_devices(void **state)
{
    (void)state;
    free(region.base);
    free(region.ext);
    return 0;
}

static bool allows(unsigned device, int64_t price_ns, int64_t now_ns)
{
    int64_t until_ns = now_ns;
    bool allowed = bucket_is_open(bucket_of(device), HALF, now_ns, &until_ns);

    allowed = gang_allows(&region, device, allowed, price_ns, now_ns, &until_ns);
    assert_true(allowed || until_ns > now_ns);
    return allowed;
}

/* A launch that goes, and is charged. */
static void launch(unsigned device, int64_t price_ns, int64_t now_ns)
{
    gang_note_gone(&region, device, price_ns, now_ns);
    bucket_charge(bucket_of(device), HALF, price_ns);
}

/* Device 0 waits from one moment to another. */
static void wait_for(struct gang_wait *wait, int64_t from_ns, int64_t to_ns)
{
    gang_look(&region, 0, wait, true, from_ns);
    gang_look(&region, 0, wait, true, to_ns - NS_PER_MS);
    gang_look(&region, 0, wait, false, to_ns);
}

/* The same while launches of device 1 are held for all of it, and then go or do not. */
static void wait_while_held(struct gang_wait *wait, int64_t from_ns, int64_t to_ns, bool goes)
{
    gang_note_held(&region, 1, from_ns);
    gang_look(&region, 0, wait, true, from_ns);
    gang_look(&region, 0, wait, true, to_ns - 2 * NS_PER_MS);
    if (goes)
        gang_note_gone(&region, 1, 0, to_ns - NS_PER_MS);
    gang_look(&region, 0, wait, false, to_ns);
    gang_note_gone(&region, 1, 0, to_ns);
}

static bool are_bound(int64_t now_ns)
{
    return region.ext->devices[0].gang.until_ns > now_ns &&
           region.ext->devices[1].gang.until_ns > now_ns;
}

static void bind_both(int64_t now_ns)
{
    struct gang_wait wait = {0};

    wait_while_held(&wait, now_ns - 80 * NS_PER_MS, now_ns, true);
    assert_true(are_bound(now_ns));
}

static void a_debt_is_nobody_elses(void **state)
{
    (void)state;
    launch(0, NS_PER_S, T0);
    assert_false(allows(0, NS_PER_MS, T0 + NS_PER_MS));
    assert_true(allows(1, NS_PER_MS, T0 + NS_PER_MS));
}

static void waits_that_end_by_what_was_let_go_bind(void **state)
{
    struct gang_wait wait = {0};
    int64_t now_ns = T0;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_false(are_bound(now_ns));
        wait_while_held(&wait, now_ns, now_ns + 10 * NS_PER_MS, true);
        now_ns += 10 * NS_PER_MS;
    }
    assert_true(are_bound(now_ns));
    assert_int_equal(region.ext->devices[2].gang.until_ns, 0);
    assert_false(are_bound(now_ns + 60 * NS_PER_S));
}

static void other_waits_do_not(void **state)
{
    struct gang_wait wait = {0};
    int64_t now_ns = T0;

    (void)state;
    /* Each third one ends while the other's launches are held on, */
    for (unsigned i = 0; i < 300; i++) {
        wait_while_held(&wait, now_ns, now_ns + 10 * NS_PER_MS, i % 3 != 2);
        now_ns += 10 * NS_PER_MS;
    }
    assert_false(are_bound(now_ns));
    /* they are short, or nothing was held. */
    wait = (struct gang_wait){0};
    for (unsigned i = 0; i < 300; i++) {
        wait_while_held(&wait, now_ns, now_ns + 4 * NS_PER_MS, true);
        wait_for(&wait, now_ns + 10 * NS_PER_MS, now_ns + 110 * NS_PER_MS);
        now_ns += 200 * NS_PER_MS;
    }
    assert_false(are_bound(now_ns));
}

static void who_is_bound_is_held_for_the_others_debt(void **state)
{
    const int64_t now_ns = T0 + 100 * NS_PER_MS;

    (void)state;
    bind_both(now_ns);
    assert_true(allows(1, NS_PER_MS, now_ns));
    launch(0, 70 * NS_PER_MS, now_ns); /* 20 ms more than there was */
    launch(1, 70 * NS_PER_MS - 30 * NS_PER_MS, now_ns);
    assert_false(allows(0, NS_PER_MS, now_ns));
    assert_true(bucket_balance(bucket_of(1), HALF, now_ns) > 0);
    assert_true(allows(2, NS_PER_MS, now_ns));
    /* Device 1 may do as much as device 0 did, and no more. */
    assert_true(allows(1, 40 * NS_PER_MS, now_ns));
    assert_false(allows(1, 61 * NS_PER_MS, now_ns));
    launch(1, 30 * NS_PER_MS, now_ns);
    assert_false(allows(1, NS_PER_MS, now_ns));
    assert_false(allows(0, NS_PER_MS, now_ns));
    /* Once all is repaid, all are let go. */
    assert_false(allows(1, NS_PER_MS, now_ns + 39 * NS_PER_MS));
    gang_note_gone(&region, 0, 10 * NS_PER_MS, now_ns);
    assert_true(allows(1, 50 * NS_PER_MS, now_ns + 41 * NS_PER_MS));
    assert_true(allows(0, 50 * NS_PER_MS, now_ns + 41 * NS_PER_MS));
    /* Then nobody is behind, or ahead, for what was before. */
    launch(1, 5 * NS_PER_MS, now_ns + 41 * NS_PER_MS);
    assert_true(allows(0, 5 * NS_PER_MS, now_ns + 41 * NS_PER_MS));
    assert_false(allows(0, 11 * NS_PER_MS, now_ns + 41 * NS_PER_MS));
    assert_false(allows(1, NS_PER_MS, now_ns + 41 * NS_PER_MS));
}

/* A rank that is late for long leaves the others a debt that may take longer than they are bound
 * for. Until it is repaid nobody catches up, and who is waited for goes once that is sure. */
static void a_long_debt_is_repaid_together(void **state)
{
    struct gang_wait wait = {0};
    int64_t now_ns = T0 + 100 * NS_PER_MS;

    (void)state;
    bind_both(now_ns);
    launch(0, 25 * NS_PER_S, now_ns); /* 50 s at a half */
    for (unsigned s = 0; s < 45; s++)
        assert_false(allows(1, NS_PER_MS, now_ns + s * NS_PER_S));
    now_ns += 45 * NS_PER_S;
    gang_note_held(&region, 1, now_ns);
    gang_look(&region, 0, &wait, true, now_ns + 3 * NS_PER_MS);
    assert_false(allows(1, NS_PER_MS, now_ns + 3 * NS_PER_MS));
    gang_look(&region, 0, &wait, true, now_ns + 5 * NS_PER_MS);
    assert_true(allows(1, NS_PER_MS, now_ns + 5 * NS_PER_MS));
    gang_note_gone(&region, 1, NS_PER_MS, now_ns + 5 * NS_PER_MS);
    assert_false(allows(1, NS_PER_MS, now_ns + 5 * NS_PER_MS));
    gang_look(&region, 0, &wait, false, now_ns + 6 * NS_PER_MS);
    now_ns += 6 * NS_PER_S;
    assert_true(allows(1, NS_PER_MS, now_ns));
    assert_true(allows(0, NS_PER_MS, now_ns));
}

/* Who is held sleeps until something is worth a look. */
static void who_is_held_is_woken(void **state)
{
    const int64_t now_ns = T0 + 100 * NS_PER_MS;
    struct gang_wait wait = {0};
    uint32_t before, own;

    (void)state;
    bind_both(now_ns);
    launch(0, 70 * NS_PER_MS, now_ns);
    assert_false(allows(0, NS_PER_MS, now_ns));
    before = bucket_of(1)->wake;
    own = bucket_of(0)->wake;
    gang_note_gone(&region, 0, NS_PER_MS, now_ns);
    gang_look(&region, 0, &wait, true, now_ns);
    assert_int_equal(bucket_of(1)->wake, before); /* nobody is held there */
    gang_note_held(&region, 1, now_ns);
    gang_note_gone(&region, 0, NS_PER_MS, now_ns); /* it may be behind now */
    assert_int_equal(bucket_of(1)->wake, before + 1);
    gang_look(&region, 0, &wait, true, now_ns); /* or waited for */
    assert_int_equal(bucket_of(1)->wake, before + 2);
    assert_int_equal(bucket_of(0)->wake, own);
}

/* What another device waits for goes in debt, as long as that is not too much. */
static void who_is_waited_for_goes(void **state)
{
    const int64_t now_ns = T0 + 100 * NS_PER_MS;
    struct gang_wait wait = {0};

    (void)state;
    bind_both(now_ns);
    launch(1, 100 * NS_PER_MS, now_ns);
    assert_false(allows(1, NS_PER_MS, now_ns));
    gang_look(&region, 0, &wait, true, now_ns);
    assert_true(allows(1, NS_PER_MS, now_ns));
    assert_false(allows(1, NS_PER_MS, now_ns + 10 * NS_PER_MS)); /* who died waits no more */
    gang_look(&region, 0, &wait, true, now_ns + 10 * NS_PER_MS);
    assert_true(allows(1, NS_PER_MS, now_ns + 10 * NS_PER_MS));
    launch(1, GANG_DEBT_NS, now_ns + 10 * NS_PER_MS);
    assert_false(allows(1, NS_PER_MS, now_ns + 10 * NS_PER_MS));
    gang_look(&region, 0, &wait, false, now_ns + 11 * NS_PER_MS);
}

static void others_help_after_a_tenth_of_a_second(void **state)
{
    struct gang_wait wait = {0};

    (void)state;
    launch(1, 200 * NS_PER_MS, T0);
    gang_look(&region, 0, &wait, true, T0);
    assert_false(allows(1, NS_PER_MS, T0));
    gang_look(&region, 0, &wait, true, T0 + 99 * NS_PER_MS);
    assert_false(allows(1, NS_PER_MS, T0 + 99 * NS_PER_MS));
    gang_look(&region, 0, &wait, true, T0 + 100 * NS_PER_MS);
    assert_true(allows(1, NS_PER_MS, T0 + 100 * NS_PER_MS));
    gang_look(&region, 0, &wait, false, T0 + 101 * NS_PER_MS);
    assert_false(allows(1, NS_PER_MS, T0 + 101 * NS_PER_MS));
}

/* Any program of the container may write the words. */
static void damage_lets_nobody_have_more(void **state)
{
    (void)state;
    bind_both(T0 + 100 * NS_PER_MS);
    launch(1, 3 * NS_PER_S, T0 + 100 * NS_PER_MS);
    region.base->device_count = UINT64_MAX;
    region.ext->devices[0].gang.gone_ns = INT64_MAX / 2;
    region.ext->devices[0].gang.late_ns = INT64_MAX / 2;
    region.ext->devices[0].gang.late_since_ns = 1;
    assert_false(allows(1, NS_PER_MS, T0 + 100 * NS_PER_MS));
    region.ext->devices[1].compute.rate = UINT64_MAX;
    assert_false(allows(1, NS_PER_MS, T0 + 100 * NS_PER_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_debt_is_nobody_elses, new_devices, free_devices),
        cmocka_unit_test_setup_teardown(waits_that_end_by_what_was_let_go_bind, new_devices,
                                        free_devices),
        cmocka_unit_test_setup_teardown(other_waits_do_not, new_devices, free_devices),
        cmocka_unit_test_setup_teardown(who_is_bound_is_held_for_the_others_debt, new_devices,
                                        free_devices),
        cmocka_unit_test_setup_teardown(a_long_debt_is_repaid_together, new_devices, free_devices),
        cmocka_unit_test_setup_teardown(who_is_held_is_woken, new_devices, free_devices),
        cmocka_unit_test_setup_teardown(who_is_waited_for_goes, new_devices, free_devices),
        cmocka_unit_test_setup_teardown(others_help_after_a_tenth_of_a_second, new_devices,
                                        free_devices),
        cmocka_unit_test_setup_teardown(damage_lets_nobody_have_more, new_devices, free_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
