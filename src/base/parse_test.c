/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>

#include "base/check.h"
#include "base/util.h"

static void bytes_are_read_as_written(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t bytes;
    } cases[] = {
        {"0", 0, 0},
        {"512", 0, 512},
        {"1k", 0, KIB},
        {"3000m", 0, 3000 * MIB},
        {"2g", 0, 2 * GIB},
        {"10Gi", 0, 10 * GIB},
        {"512MB", 0, 512 * MIB},
        {"1MiB", 0, MIB},
        {"1T", 0, KIB * GIB},
        {"2Pi", 0, 2 * MIB * GIB},
        {"1e", 0, GIB * GIB},
        {"16E", -ERANGE, 0},
        {"1e6", -EINVAL, 0},
        {"1.5g", 0, 3 * GIB / 2},
        {"0.5k", 0, 512},
        {"010g", 0, 10 * GIB},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"17179869184g", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {" 5g", -EINVAL, 0},
        {"5 g", -EINVAL, 0},
        {"5gg", -EINVAL, 0},
        {"5i", -EINVAL, 0},
        {"1.g", -EINVAL, 0},
        {".5g", -EINVAL, 0},
        {"0x10g", -EINVAL, 0},
        {"g", -EINVAL, 0},
        {"abc", -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t bytes = 0;

        print_message("\"%s\"\n", cases[i].text);
        assert_int_equal(parse_bytes(cases[i].text, &bytes), cases[i].r);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void percentages_stay_within_their_bound(void **state)
{
    unsigned percent = 7;

    (void)state;
    assert_int_equal(parse_percent("30", 100, &percent), 0);
    assert_int_equal(percent, 30);
    assert_int_equal(parse_percent("100%", 100, &percent), 0);
    assert_int_equal(percent, 100);
    assert_int_equal(parse_percent("101", 100, &percent), -ERANGE);
    assert_int_equal(parse_percent("50k", 100, &percent), -EINVAL);
    assert_int_equal(parse_percent("%", 100, &percent), -EINVAL);
    assert_int_equal(percent, 100);
}

static void numbers_are_decimal_and_whole(void **state)
{
    uint64_t value = 7;

    (void)state;
    assert_int_equal(parse_u64("042", &value), 0);
    assert_int_equal(value, 42);
    assert_int_equal(parse_u64("1.5", &value), -EINVAL);
    assert_int_equal(parse_u64("1k", &value), -EINVAL);
    assert_int_equal(parse_u64("99999999999999999999", &value), -ERANGE);
    assert_int_equal(value, 42);
}

static void times_are_as_go_has_them(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t ms;
    } cases[] = {
        {"5m", 0, 300000},
        {"5m0s", 0, 300000},
        {"1h2m3.5s", 0, 3723500},
        {"300ms", 0, 300},
        {"1m30ms", 0, 60030},
        {"0", 0, 0},
        {"0s", 0, 0},
        {"1.0019s", 0, 1001},
        {"", -EINVAL, 7},
        {"5", -EINVAL, 7},
        {"m", -EINVAL, 7},
        {"5m ", -EINVAL, 7},
        {"-5m", -EINVAL, 7},
        {"5d", -EINVAL, 7},
        {"1.s", -EINVAL, 7},
        {"9223372036854775807h", -ERANGE, 7},
        {"5124095576030431h5124095576030431h", -ERANGE, 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ms = 7;

        assert_int_equal(parse_duration(cases[i].text, &ms), cases[i].r);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void flags_are_as_go_has_them(void **state)
{
    bool value = false;
    unsigned level = 7;

    (void)state;
    assert_int_equal(parse_bool("True", &value), 0);
    assert_true(value);
    assert_int_equal(parse_bool("yes", &value), -EINVAL);
    assert_int_equal(parse_bool("", &value), -EINVAL);
    assert_true(value);
    assert_int_equal(parse_bool("f", &value), 0);
    assert_false(value);
    assert_int_equal(parse_verbosity("=4", &level), 0);
    assert_int_equal(level, 4);
    assert_int_equal(parse_verbosity("==4", &level), -EINVAL);
    assert_int_equal(parse_verbosity("4294967296", &level), -ERANGE);
    assert_int_equal(level, 4);
    assert_int_equal(parse_verbosity("10", &level), 0);
    assert_int_equal(level, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_read_as_written),
        cmocka_unit_test(percentages_stay_within_their_bound),
        cmocka_unit_test(numbers_are_decimal_and_whole),
        cmocka_unit_test(times_are_as_go_has_them),
        cmocka_unit_test(flags_are_as_go_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
