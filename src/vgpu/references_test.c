/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/references.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

enum {
    KEYS = 4096,
    ROUNDS = 400000,
};

/* Addresses and handles look like this: equal but for a few bits in the middle. */
static uint64_t key_of(unsigned number)
{
    return UINT64_C(0x600000000000) + ((uint64_t)number + 1) * 0x200000;
}

/* Against a plain array. */
static void what_was_added_and_not_removed_is_there(void **state)
{
    static uint64_t wanted[KEYS];
    struct references table = {0};
    unsigned seed = 7;
    size_t count = 0;

    (void)state;
    assert_null(references_find(&table, 5));
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned number = (unsigned)rand_r(&seed) % (i < ROUNDS / 2 ? KEYS : 64);
        struct reference_row *row = references_find(&table, key_of(number));

        assert_int_equal(row != NULL, wanted[number] != 0);
        if (row) {
            assert_int_equal(row->units, wanted[number]);
            references_remove(&table, row);
            wanted[number] = 0;
            count--;
        } else {
            assert_true(references_reserve(&table));
            row = references_add(&table, key_of(number));
            assert_int_equal(row->handles + row->maps + row->shared, 0);
            row->units = wanted[number] = i + 1;
            count++;
        }
        assert_int_equal(table.count, count);
    }
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(references_find(&table, key_of(i)) != NULL, wanted[i] != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_and_not_removed_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
