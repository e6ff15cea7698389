/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spelling.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void names_are_near_that_differ_by_two_letters_or_by_hyphens(void **state)
{
    static const struct {
        const char *one, *other;
        bool near;
    } cases[] = {
        {"use-gpuuuid", "use-gpuuuid", false},
        {"use-gpu-uuid", "use-gpuuuid", true}, /* a hyphen alone */
        {"use-gpuuid", "use-gpuuuid", true},
        {"use-gpuuids", "use-gpuuuid", true},
        {"use-gputype", "use-gpuuuid", false},
        {"nouse-gpuuuid", "use-gpuuuid", true},
        {"not-use-gpuuuid", "use-gpuuuid", false},
        {"", "ab", true},
        {"", "abc", false},
        {"abcd", "badc", false},
    };
    char long_name[200];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(spelling_is_near(cases[i].one, cases[i].other), cases[i].near);
        assert_int_equal(spelling_is_near(cases[i].other, cases[i].one), cases[i].near);
    }
    assert_int_equal(spelling_distance("no-use-gpuuuid", "nouse-gpuuuid"), 0);
    assert_int_equal(spelling_distance("no-use-gpuuuid", "use-gpuuuid"), 2);
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    assert_false(spelling_is_near(long_name, long_name + 1));
    assert_true(spelling_is_near(long_name + 72, long_name + 73));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_near_that_differ_by_two_letters_or_by_hyphens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
