/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <stdio.h>

#include "base/check.h"
#include "base/util.h"

enum {
    KEYS = 40000,
    BUCKETS = 4096, /* uthash has about as many for so many keys */
    EVEN = KEYS / BUCKETS,
};

/* Numbered names differ in a few bytes, at any place of the last word or the one before. */
static void keys_that_differ_in_a_number_share_no_bucket_with_many(void **state)
{
    static const struct {
        const char *before, *after;
        int digits;
    } forms[] = {
        {"", "", 1},
        {"node-", "", 5},
        {"node-", ".example", 5},
        {"pod-", "", 6},
        {"gpu-", "-pool-a", 1},
        {"worker-", "-long", 8},
        {"uid_", "", 1},
        {"00000000-0000-0000-0000-", "", 12},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        static unsigned buckets[BUCKETS];
        unsigned most = 0;

        memset(buckets, 0, sizeof(buckets));
        for (unsigned number = 0; number < KEYS; number++) {
            char key[64];
            size_t len = (size_t)snprintf(key, sizeof(key), "%s%0*u%s", forms[i].before,
                                          forms[i].digits, number, forms[i].after);

            most = MAX(most, ++buckets[hash_bytes(key, len) % BUCKETS]);
        }
        if (most > 4 * EVEN)
            print_message("%s...%s: %u in a bucket\n", forms[i].before, forms[i].after, most);
        assert_true(most <= 4 * EVEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_differ_in_a_number_share_no_bucket_with_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
