/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/xids.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void xids_count_as_in_nvidias_plugin(void **state)
{
    static const struct {
        const char *disabled, *enabled;
        uint64_t xid;
        bool counts;
    } cases[] = {
        {NULL, NULL, 79, true},
        {NULL, NULL, 13, false},
        {NULL, NULL, 31, false},
        {NULL, NULL, 43, false},
        {NULL, NULL, 45, false},
        {NULL, NULL, 68, false},
        {NULL, NULL, 109, false},
        {"", "", 48, true},
        {"79", NULL, 79, false},
        {"48, 79 ,94", NULL, 79, false},
        {"48,79,94", NULL, 95, true},
        {"all", NULL, 79, false},
        {"xids", NULL, 79, false},
        {"48,XIDS", NULL, 79, false},
        {" All ", NULL, 79, false},
        {"everything", NULL, 79, true}, /* a malformed piece is left out */
        {"-79", NULL, 79, true},
        {"0x4f", NULL, 79, true},
        {"7 9", NULL, 79, true},
        {"79,x", NULL, 79, false},
        {"079", NULL, 79, false},
        {"18446744073709551616", NULL, 0, true},
        {NULL, "13", 13, true},
        {NULL, "13", 31, false},
        {NULL, "all", 31, true},
        {"all", "all", 79, true},
        {"all", "79", 79, true}, /* NVIDIA's plugin stops its checks before it looks */
        {"all", "79", 48, false},
        {"79", "79", 79, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct xid_rules rules;

        (void)xid_list_parse(cases[i].disabled, &rules.disabled);
        (void)xid_list_parse(cases[i].enabled, &rules.enabled);
        if (xid_counts(&rules, cases[i].xid) != cases[i].counts)
            fail_msg("disabled %s, enabled %s: %d", cases[i].disabled, cases[i].enabled,
                     (int)cases[i].xid);
    }
}

static void pieces_that_are_none_are_counted(void **state)
{
    struct xid_list list;

    (void)state;
    assert_int_equal(xid_list_parse("1,x,,2 2,3,,", &list), 2);
    assert_int_equal(list.count, 2);
}

static void lists_and_pieces_are_bounded(void **state)
{
    char text[5 * (XIDS_MAX + 2) + 1] = "";
    struct xid_list list;

    (void)state;
    for (unsigned i = 0; i < XIDS_MAX + 2; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u,", 200 + i);
    assert_int_equal(xid_list_parse(text, &list), 2);
    assert_int_equal(list.count, XIDS_MAX);
    assert_int_equal(list.xids[XIDS_MAX - 1], 200 + XIDS_MAX - 1);
    assert_int_equal(xid_list_parse("00000000000000000000079", &list), 0); /* 23 digits */
    assert_int_equal(list.xids[0], 79);
    assert_int_equal(xid_list_parse("000000000000000000000079,48", &list), 1);
    assert_int_equal(list.count, 1);
}

static void checks_are_off_when_all_is_disabled_and_nothing_enabled(void **state)
{
    struct xid_rules rules = {.disabled = {.all = true}};

    (void)state;
    assert_true(xid_rules_are_off(&rules));
    rules.enabled.count = 1;
    assert_false(xid_rules_are_off(&rules));
    rules.enabled = (struct xid_list){.all = true};
    assert_false(xid_rules_are_off(&rules));
    rules = (struct xid_rules){.disabled = {.count = 1}};
    assert_false(xid_rules_are_off(&rules));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xids_count_as_in_nvidias_plugin),
        cmocka_unit_test(pieces_that_are_none_are_counted),
        cmocka_unit_test(lists_and_pieces_are_bounded),
        cmocka_unit_test(checks_are_off_when_all_is_disabled_and_nothing_enabled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
