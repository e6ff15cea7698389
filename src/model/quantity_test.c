/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quantity.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static const struct {
    const char *text;
    enum quantity_form form; /* 0: not a quantity */
    int64_t value;
} cases[] = {
    {"3000", QUANTITY_WHOLE, 3000},
    {"3k", QUANTITY_WHOLE, 3000},
    {"1e3", QUANTITY_WHOLE, 1000},
    {"2E2", QUANTITY_WHOLE, 200},
    {"1E+1", QUANTITY_WHOLE, 10},
    {"1E", QUANTITY_WHOLE, INT64_C(1000000000000000000)},
    {"2Gi", QUANTITY_WHOLE, INT64_C(2) << 30},
    {"7Ei", QUANTITY_WHOLE, INT64_C(7) << 60},
    {"1.5k", QUANTITY_WHOLE, 1500},
    {"+2", QUANTITY_WHOLE, 2},
    {"-2", QUANTITY_WHOLE, -2},
    {"-0", QUANTITY_WHOLE, 0},
    {"00012", QUANTITY_WHOLE, 12},
    {"0", QUANTITY_WHOLE, 0},
    {"0e999", QUANTITY_WHOLE, 0},
    {"999999999999999999", QUANTITY_WHOLE, INT64_C(999999999999999999)},
    {"1500m", QUANTITY_FRACTION, 1},
    {"2000m", QUANTITY_FRACTION, 1},
    {"1.5", QUANTITY_FRACTION, 1},
    {"-1.5", QUANTITY_FRACTION, -1},
    {"1.0", QUANTITY_FRACTION, 1},
    {"0.0", QUANTITY_FRACTION, 0},
    {".5", QUANTITY_FRACTION, 1},
    {"1u", QUANTITY_FRACTION, 1},
    {"1n", QUANTITY_FRACTION, 1},
    {"10e-1", QUANTITY_FRACTION, 1},
    {"0.1Ki", QUANTITY_FRACTION, 1},
    {"1e-99999999999", QUANTITY_FRACTION, 1},
    {"9223372036854775807", QUANTITY_HUGE, 1},
    {"1e20", QUANTITY_HUGE, 1},
    {"-1e20", QUANTITY_HUGE, -1},
    {"8Ei", QUANTITY_HUGE, 1},
    {"1e99999999999", QUANTITY_HUGE, 1},
    {"", 0, 0},
    {"x", 0, 0},
    {"-", 0, 0},
    {".", 0, 0},
    {"k", 0, 0},
    {"1 ", 0, 0},
    {" 1", 0, 0},
    {"1K", 0, 0},
    {"1ki", 0, 0},
    {"1e", 0, 0},
    {"1e+", 0, 0},
    {"1.2.3", 0, 0},
    {"0x10", 0, 0},
    {"1_000", 0, 0},
    {"NaN", 0, 0},
};

static void quantities_are_read_as_kubernetes_reads_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct quantity quantity = {0};

        print_message("\"%s\"\n", cases[i].text);
        assert_int_equal(quantity_parse(cases[i].text, strlen(cases[i].text), &quantity),
                         cases[i].form ? 0 : -EINVAL);
        assert_int_equal(quantity.form, cases[i].form);
        assert_int_equal(quantity.value, cases[i].value);
    }
}

static void only_the_bytes_given_are_read(void **state)
{
    struct quantity quantity;

    (void)state;
    assert_int_equal(quantity_parse("12k", 2, &quantity), 0);
    assert_int_equal(quantity.value, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_are_read_as_kubernetes_reads_them),
        cmocka_unit_test(only_the_bytes_given_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
