/* SPDX-License-Identifier: Apache-2.0 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "region/shares.h"

static struct region_ext *ext;

static int begin(void **state)
{
    (void)state;
    ext = aligned_alloc(CACHE_LINE, sizeof(*ext));
    memset(ext, 0, sizeof(*ext));
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(ext);
    return 0;
}

static void a_handle_is_known_while_its_memory_is_there(void **state)
{
    char first[64] = "first", second[64] = "second";
    uint64_t a = share_hash(first, sizeof(first)), b = share_hash(second, sizeof(second));

    (void)state;
    assert_int_not_equal(a, b);
    assert_false(share_is_known(ext, a));
    assert_true(share_add(ext, 3, a, 0x1000));
    assert_true(share_add(ext, 3, a, 0x1000));
    assert_true(share_add(ext, 4, b, 0x1000));
    assert_true(share_is_known(ext, a));

    /* Another process' memory at the same address is another one's. */
    share_remove(ext, 4, 0x1000);
    assert_false(share_is_known(ext, b));
    assert_true(share_is_known(ext, a));
    share_remove(ext, 3, 0x1000);
    assert_false(share_is_known(ext, a));
}

static void the_dead_leave_no_row(void **state)
{
    (void)state;
    for (unsigned i = 0; i < REGION_SHARES; i++)
        assert_true(share_add(ext, 1 + i % 2, 100 + i, i));
    assert_false(share_add(ext, 5, 1, 1));
    shares_settle(ext, 1);
    assert_false(share_is_known(ext, 100));
    assert_true(share_is_known(ext, 101));
    for (unsigned i = 0; i < REGION_SHARES / 2; i++)
        assert_true(share_add(ext, 5, 1 + i, 1));
    assert_false(share_add(ext, 5, 1000000, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_handle_is_known_while_its_memory_is_there, begin, end),
        cmocka_unit_test_setup_teardown(the_dead_leave_no_row, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
