/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor ascend_vendor;

/* What HAMi 2.10 added; the rest is in the vectors. */

enum { CHIP_910B3, CHIP_910C };

#define TEXT(value)                                                                                \
    {                                                                                              \
        .kind = SECTION_TEXT, .text = (value)                                                      \
    }
#define KEYS(names_, items_)                                                                       \
    {                                                                                              \
        .kind = SECTION_KEYS, .count = ARRAY_SIZE(items_), .names = (names_), .items = (items_)    \
    }
#define LIST(items_)                                                                               \
    {                                                                                              \
        .kind = SECTION_LIST, .count = ARRAY_SIZE(items_), .items = (items_)                       \
    }

static const struct section_name template_names[] = {{"name", {1, 1}}, {"memory", {1, 1}}};
static const struct section template_items[] = {TEXT("vir05_1c_16g"), TEXT("16384")};
static const struct section templates[] = {KEYS(template_names, template_items)};

static const struct section_name chip_names[] = {
    {"commonWord", {1, 1}},       {"resourceName", {1, 1}},      {"resourceMemoryName", {1, 1}},
    {"resourceCoreName", {1, 1}}, {"memoryAllocatable", {1, 1}}, {"memoryCapacity", {1, 1}},
    {"templates", {1, 1}},        {"overwriteEnv", {1, 1}},      {"superPod", {1, 1}},
};
static const struct section b3_items[] = {
    TEXT("Ascend910B3"),
    TEXT("huawei.com/Ascend910B3"),
    TEXT("huawei.com/Ascend910B3-memory"),
    TEXT("huawei.com/Ascend910B3-core"),
    TEXT("65536"),
    TEXT("65536"),
    LIST(templates),
    TEXT("true"),
    TEXT("false"),
};
static const struct section c_items[] = {
    TEXT("Ascend910C"),
    TEXT("huawei.com/Ascend910C"),
    TEXT("huawei.com/Ascend910C-memory"),
    TEXT("huawei.com/Ascend910C-core"),
    TEXT("65536"),
    TEXT("65536"),
    LIST(templates),
    TEXT("true"),
    TEXT("true"),
};
static const struct section chips[] = {KEYS(chip_names, b3_items), KEYS(chip_names, c_items)};
static const struct section_name names[] = {{"hamiVnpuCore", {1, 1}}, {"configs", {1, 1}}};
static const struct section items[] = {TEXT("false"), LIST(chips)};
static const struct section section = KEYS(names, items);

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_load(&fixture, &ascend_vendor, &section);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define CHIP(word, id, index)                                                                      \
    "{\\\"id\\\":\\\"" id "\\\",\\\"index\\\":" #index ",\\\"count\\\":4,\\\"devmem\\\":65536,"    \
    "\\\"devcore\\\":20,\\\"type\\\":\\\"" word "\\\",\\\"health\\\":true}"
#define NODE(word, mode, chips)                                                                    \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"hami.io/node-register-" word "\":\"" chips   \
    "\"" mode "}}}"
#define SPLITS_SOFTLY ",\"hami-vnpu-core\":\"true\""
#define SOFT "\"huawei.com/vnpu-mode\":\"hami-core\""

#define B3(more) "\"huawei.com/Ascend910B3\":\"1\"" more
#define PART(memory, core)                                                                         \
    B3(",\"huawei.com/Ascend910B3-memory\":\"" memory "\",\"huawei.com/Ascend910B3-core\":\"" core \
       "\"")
#define C(count) "\"huawei.com/Ascend910C\":\"" #count "\""

static void soft_parts_are_of_any_size(void **state)
{
    (void)state;
    vendor_fixture_set_node(
        &fixture, NODE("Ascend910B3", SPLITS_SOFTLY, "[" CHIP("Ascend910B3", "a", 0) "]"));
    assert_string_equal(vendor_fixture_give(&fixture, SOFT, PART("1000", "30"),
                                            "hami.io/Ascend910B3-devices-allocated"),
                        "a,Ascend910B3,1000,30:;");
    assert_string_equal(text_pairs_get(&fixture.written, "huawei.com/Ascend910B3"),
                        "[{\"UUID\":\"a\",\"memory\":1000,\"core\":30}]");
    assert_int_equal(vendor_fixture_place(&fixture, SOFT, PART("2000", "60")), PLACE_FITS);
    assert_string_equal(vendor_fixture_refuse(&fixture, SOFT, PART("2000", "20")),
                        "1/1 CardInsufficientCore");
    assert_string_equal(vendor_fixture_refuse(&fixture, SOFT, PART("65000", "5")),
                        "1/1 CardInsufficientMemory");
}

static void soft_parts_need_a_node_that_splits_softly(void **state)
{
    static const char *const nodes[] = {
        NODE("Ascend910B3", "",
             "[" CHIP("Ascend910B3", "a", 0) "," CHIP("Ascend910B3", "b", 1) "]"),
        NODE("Ascend910B3", ",\"hami-vnpu-core\":\"yes\"",
             "[" CHIP("Ascend910B3", "a", 0) "," CHIP("Ascend910B3", "b", 1) "]"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        vendor_fixture_set_node(&fixture, nodes[i]);
        assert_string_equal(vendor_fixture_refuse(&fixture, SOFT, PART("1000", "30")),
                            "1/2 ModeNotFit");
        assert_string_equal(vendor_fixture_give(&fixture, "", B3(""), "huawei.com/Ascend910B3"),
                            "[{\"UUID\":\"b\"}]");
    }
}

static void chips_of_a_super_pod_go_by_the_card(void **state)
{
    static const char node[] =
        NODE("Ascend910C", "",
             "[" CHIP("Ascend910C", "a", 0) "," CHIP("Ascend910C", "b", 1) "," CHIP(
                 "Ascend910C", "c", 2) "," CHIP("Ascend910C", "d", 3) "]");
    const char *const key = "huawei.com/Ascend910C";

    (void)state;
    vendor_fixture_set_node(&fixture, node);
    assert_string_equal(vendor_fixture_give(&fixture, "", C(2), key),
                        "[{\"UUID\":\"d\"},{\"UUID\":\"c\"}]");
    vendor_fixture_set_node(&fixture, node);
    assert_string_equal(
        vendor_fixture_give(&fixture, "\"hami.io/no-use-Ascend910C-uuid\":\"d\"", C(2), key),
        "[{\"UUID\":\"b\"},{\"UUID\":\"a\"}]");
    assert_string_equal(
        vendor_fixture_refuse(&fixture, "\"hami.io/no-use-Ascend910C-uuid\":\"d\"", C(2)),
        "1/4 AllocatedCardsInsufficientRequest, 1/4 CardUuidMismatch, 2/4 CardInsufficientMemory");
    vendor_fixture_set_node(&fixture, node);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", C(3)),
                        "2/4 AllocatedCardsInsufficientRequest");
    assert_true(fixture.failure.for_good);
}

/* The limit that a count becomes; "": it stays. */
static void counts_of_a_super_pod_are_rounded(void **state)
{
    static const struct {
        const char *limits, *count;
    } rows[] = {{C(1), "2"}, {C(2), ""}, {C(4), ""}, {C(3), NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;
        int r = vendor_fixture_admit(&fixture, CHIP_910C, "", rows[i].limits, &mutations, &err);

        assert_int_equal(r, rows[i].count ? 1 : -EINVAL);
        if (!rows[i].count)
            assert_non_null(strstr(err.text, "limits[huawei.com/Ascend910C]"));
        else if (*rows[i].count)
            assert_string_equal(mutations.items[0].value, rows[i].count);
    }
}

static void cores_are_for_soft_parts(void **state)
{
    static const struct {
        const char *annotations, *limits, *wrong;
    } rows[] = {
        {"", PART("1000", "30"), "Ascend910B3-core"},
        {SOFT, PART("1000", "101"), "Ascend910B3-core"},
        {SOFT, PART("0", "30"), "Ascend910B3-memory"},
        {SOFT, PART("99999999999", "30"), "Ascend910B3-memory"},
        {"", PART("99999", "0"), "Ascend910B3-memory"},
    };
    struct mutations mutations;
    struct error err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(vendor_fixture_admit(&fixture, CHIP_910B3, rows[i].annotations,
                                              rows[i].limits, &mutations, &err),
                         -EINVAL);
        if (!strstr(err.text, rows[i].wrong))
            fail_msg("%s", err.text);
    }
    assert_int_equal(
        vendor_fixture_admit(&fixture, CHIP_910B3, SOFT, PART("1000", "30"), &mutations, &err), 1);
    assert_int_equal(mutations.count, 1);
    assert_int_equal(
        vendor_fixture_admit(&fixture, CHIP_910B3, "", PART("1000", "0"), &mutations, &err), 1);
    assert_string_equal(mutations.items[0].value, "16384");
}

static void who_asks_for_no_chip_sees_none(void **state)
{
    struct mutations mutations;
    struct error err;

    (void)state;
    assert_true(fixture.vendors.instances[CHIP_910C].changes_all_pods);
    assert_int_equal(
        vendor_fixture_admit(&fixture, CHIP_910C, "", "\"cpu\":\"1\"", &mutations, &err), 0);
    assert_int_equal(mutations.count, 1);
    assert_string_equal(mutations.items[0].name, "ASCEND_VISIBLE_DEVICES");
    assert_string_equal(mutations.items[0].value, "");
    /* One that asks for another chip keeps what that chip's agent sets. */
    assert_int_equal(vendor_fixture_admit(&fixture, CHIP_910C, "", B3(""), &mutations, &err), 0);
    assert_int_equal(mutations.count, 0);
}

static void its_agent_waits_for_the_nodes_lock(void **state)
{
    const struct node node = vendor_fixture_parse(&fixture, NODE("Ascend910C", "", "[]"));

    (void)state;
    assert_null(vendor_prepare_bind(&fixture.vendors.instances[CHIP_910B3], &node));
    assert_string_equal(vendor_prepare_bind(&fixture.vendors.instances[CHIP_910C], &node)->key,
                        "hami.io/mutex.lock");
}

/* An agent may say that three chips stand on one card. */
static void a_chip_is_given_once(void **state)
{
    (void)state;
    vendor_fixture_set_node(
        &fixture, NODE("Ascend910C", "",
                       "[" CHIP("Ascend910C", "a", 0) "," CHIP("Ascend910C", "b", 1) "," CHIP(
                           "Ascend910C", "c", 0) "," CHIP("Ascend910C", "d", 2) "]"));
    assert_string_equal(vendor_fixture_refuse(&fixture, "", C(4)),
                        "2/4 AllocatedCardsInsufficientRequest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_chip_is_given_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(soft_parts_are_of_any_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(soft_parts_need_a_node_that_splits_softly, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(chips_of_a_super_pod_go_by_the_card, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_of_a_super_pod_are_rounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cores_are_for_soft_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_asks_for_no_chip_sees_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_agent_waits_for_the_nodes_lock, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
