/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/check.h"
#include "base/util.h"
#include "ctl/ctl.h"

static void durations_are_read_as_written(void **state)
{
    static const struct {
        const char *text;
        int r;
        int64_t ns;
    } cases[] = {
        {"90", 0, 90 * NS_PER_S},
        {"500ms", 0, 500 * NS_PER_MS},
        {"10m", 0, 600 * NS_PER_S},
        {"2h", 0, 7200 * NS_PER_S},
        {"1.5s", 0, 1500 * NS_PER_MS},
        {"0", 0, 0},
        {"", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"1 s", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"10d", -EINVAL, 0},
        {"inf", -EINVAL, 0},
        {"99999999", -ERANGE, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t ns = 0;

        print_message("\"%s\"\n", cases[i].text);
        assert_int_equal(ctl_parse_duration(cases[i].text, &ns), cases[i].r);
        assert_int_equal(ns, cases[i].ns);
    }
}

static void sizes_are_short(void **state)
{
    char text[CTL_SIZE_TEXT];

    (void)state;
    assert_string_equal(ctl_format_size(0, text), "0 B");
    assert_string_equal(ctl_format_size(1023, text), "1023 B");
    assert_string_equal(ctl_format_size(300 * MIB, text), "300 MiB");
    assert_string_equal(ctl_format_size(3 * GIB / 2, text), "1.5 GiB");
    assert_string_equal(ctl_format_size(80 * GIB, text), "80 GiB");
    assert_string_equal(ctl_format_size(UINT64_MAX, text), "16777216 TiB");
}

static void no_share_of_the_cores_is_not_all_of_them(void **state)
{
    char text[CTL_SIZE_TEXT];

    (void)state;
    assert_string_equal(ctl_format_cores(0, text), "no limit on cores");
    assert_string_equal(ctl_format_cores(1, text), "cores 1%");
    assert_string_equal(ctl_format_cores(100, text), "cores 100%");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read_as_written),
        cmocka_unit_test(sizes_are_short),
        cmocka_unit_test(no_share_of_the_cores_is_not_all_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
