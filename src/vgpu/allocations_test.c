/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/allocations.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/util.h"
#include "vgpu/pages.h"
#include "vgpu/vgpu.h"

static int forget_all(void **state)
{
    (void)state;
    allocations_after_fork();
    return 0;
}

static void what_is_added_is_taken_once(void **state)
{
    struct allocation entry = {.units = (UINT64_C(1) << 34) - 1, .device = 15, .context = 32767};
    struct allocation taken = {0};

    (void)state;
    assert_false(allocations_take(ALLOCATION_ADDRESS, 0x1000, &taken));
    assert_true(allocations_add(ALLOCATION_ADDRESS, 0x1000, &entry));
    assert_false(allocations_take(ALLOCATION_MODULE, 0x1000, &taken));
    assert_true(allocations_take(ALLOCATION_ADDRESS, 0x1000, &taken));
    assert_int_equal(taken.units, entry.units);
    assert_int_equal(taken.device, 15);
    assert_int_equal(taken.context, 32767);
    assert_false(taken.shared);
    assert_false(allocations_take(ALLOCATION_ADDRESS, 0x1000, &taken));
    assert_false(allocations_add(ALLOCATION_ADDRESS, 0, &entry));
}

/* However many come in between: the first is not among the young any more. */
static void the_last_entry_of_a_handle_counts(void **state)
{
    struct allocation entry = {.units = 1};

    (void)state;
    for (uint64_t between = 0; between < 4096; between = 2 * between + 1) {
        entry.units = 1;
        assert_true(allocations_add(ALLOCATION_ADDRESS, 0x1000, &entry));
        for (uint64_t i = 0; i < between; i++)
            assert_true(allocations_add(ALLOCATION_ADDRESS, 0x100000 + i * 512, &entry));
        entry.units = 2;
        assert_true(allocations_add(ALLOCATION_ADDRESS, 0x1000, &entry));
        assert_true(allocations_take(ALLOCATION_ADDRESS, 0x1000, &entry));
        assert_int_equal(entry.units, 2);
    }
}

/* Against a plain array, through many doublings and their moving. */
static void a_random_walk_agrees_with_an_array(void **state)
{
    enum { HANDLES = 20000, STEPS = 400000 };
    uint64_t *units = calloc(HANDLES, sizeof(*units));
    unsigned seed = 7, live = 0;

    (void)state;
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned at = (unsigned)rand_r(&seed) % HANDLES;
        /* Device addresses are multiples of 512 and close together. */
        uint64_t handle = UINT64_C(0x7f0000000000) + at * UINT64_C(512);
        struct allocation entry = {.units = i + 1, .device = at % 16, .context = at % 3};

        if (units[at]) {
            assert_true(allocations_take(ALLOCATION_ADDRESS, handle, &entry));
            assert_int_equal(entry.units, units[at]);
            assert_int_equal(entry.device, at % 16);
            units[at] = 0;
            live--;
        } else {
            assert_false(allocations_take(ALLOCATION_ADDRESS, handle, &entry));
            assert_true(allocations_add(ALLOCATION_ADDRESS, handle, &entry));
            units[at] = i + 1;
            live++;
        }
    }
    assert_true(live > HANDLES / 4);
    free(units);
}

static void enter_many(void)
{
    for (uint64_t i = 1; i <= 10000; i++) {
        struct allocation entry = {.units = i, .context = i % 2 ? 1 : 2};

        assert_true(allocations_add(ALLOCATION_ADDRESS, i * 512, &entry));
    }
}

static void what_is_shared_is_so_wherever_it_stands(void **state)
{
    struct allocation_lent lent;
    struct allocations_bag bag;
    struct allocation entry;

    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        entry = (struct allocation){.units = i * PAGE_UNITS, .context = 1};
        assert_true(allocations_add(ALLOCATION_ADDRESS, i, &entry));
        if (i % 2)
            assert_true(allocations_share(ALLOCATION_ADDRESS, i, &lent));
    }
    assert_false(allocations_share(ALLOCATION_ADDRESS, 1001, &lent));
    assert_false(allocations_look(ALLOCATION_ADDRESS, 1001, &entry));
    for (uint64_t i = 1; i <= 500; i++) {
        assert_true(allocations_look(ALLOCATION_ADDRESS, i, &entry));
        assert_int_equal(entry.shared, i % 2);
        assert_true(allocations_take(ALLOCATION_ADDRESS, i, &entry));
        assert_int_equal(entry.shared, i % 2);
        assert_int_equal(entry.units, i * PAGE_UNITS);
    }
    allocations_take_context(ALLOCATION_ADDRESS, 1, &bag);
    assert_int_equal(bag.shared_units, 250 * 750 * PAGE_UNITS);
    assert_int_equal(bag.units, 250 * 751 * PAGE_UNITS);
    assert_int_equal(bag.small_units, 0);
    allocations_give_back(ALLOCATION_ADDRESS, 2, &bag);
    assert_true(allocations_look(ALLOCATION_ADDRESS, 501, &entry));
    assert_true(entry.shared && entry.context == 2);
    assert_true(allocations_look(ALLOCATION_ADDRESS, 502, &entry));
    assert_false(entry.shared);
}

static void a_context_takes_its_entries_with_it(void **state)
{
    struct allocation entry;
    struct allocations_bag bag;

    (void)state;
    enter_many();
    allocations_take_context(ALLOCATION_ADDRESS, 1, &bag);
    assert_int_equal(bag.small_units, 1024 * 1024);      /* the odd numbers to 2,047 */
    assert_int_equal(bag.units, 25000000 - 1024 * 1024); /* and from there to 9,999 */
    allocations_drop(&bag);
    allocations_take_context(ALLOCATION_ADDRESS, 1, &bag);
    assert_int_equal(bag.units, 0);
    allocations_drop(&bag);
    for (uint64_t i = 1; i <= 10000; i++)
        assert_int_equal(allocations_take(ALLOCATION_ADDRESS, i * 512, &entry), i % 2 == 0);
}

static void a_context_that_did_not_end_has_its_entries_back(void **state)
{
    struct allocation entry;
    struct allocations_bag bag;

    (void)state;
    enter_many();
    allocations_take_context(ALLOCATION_ADDRESS, 1, &bag);
    allocations_give_back(ALLOCATION_ADDRESS, 3, &bag);
    for (uint64_t i = 1; i <= 10000; i++) {
        assert_true(allocations_take(ALLOCATION_ADDRESS, i * 512, &entry));
        assert_int_equal(entry.units, i);
        assert_int_equal(entry.context, i % 2 ? 3 : 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_added_is_taken_once, forget_all),
        cmocka_unit_test_setup(the_last_entry_of_a_handle_counts, forget_all),
        cmocka_unit_test_setup(a_random_walk_agrees_with_an_array, forget_all),
        cmocka_unit_test_setup(what_is_shared_is_so_wherever_it_stands, forget_all),
        cmocka_unit_test_setup(a_context_takes_its_entries_with_it, forget_all),
        cmocka_unit_test_setup(a_context_that_did_not_end_has_its_entries_back, forget_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
