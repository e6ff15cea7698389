/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/kunlun/kunlun.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

/* The rest is in the vectors. */

static const char *const keys[][2] = {{"resourceCountName", "kunlunxin.com/xpu"},
                                      {"resourceVCountName", "kunlunxin.com/vxpu"},
                                      {"resourceVMemoryName", "kunlunxin.com/vxpu-memory"}};

enum { WHOLE, PARTS };

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &kunlun_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define COUNTED(count, healthy)                                                                    \
    "{\"metadata\":{\"name\":\"n\"},\"status\":{\"capacity\":{\"kunlunxin.com/xpu\":\"" count      \
    "\"},\"allocatable\":{\"kunlunxin.com/xpu\":\"" healthy "\"}}}"
#define REGISTERED(devices)                                                                        \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"hami.io/node-register-xpu\":\"" devices      \
    "\"}}}"
#define CARD(id, type)                                                                             \
    "{\\\"id\\\":\\\"" id "\\\",\\\"count\\\":4,\\\"devmem\\\":98304,\\\"devcore\\\":100,"         \
    "\\\"type\\\":\\\"" type "\\\",\\\"health\\\":true}"

#define CARDS(count) "\"kunlunxin.com/xpu\":\"" #count "\""
#define PART(mib) "\"kunlunxin.com/vxpu\":\"1\",\"kunlunxin.com/vxpu-memory\":\"" #mib "\""

/* The cards that are asked for after each other, and what the last one gets. */
static void cards_are_given_as_they_are_connected(void **state)
{
    static const struct {
        const char *avoided, *limits, *given;
    } rows[] = {
        {"", CARDS(1), "0"},
        {"", CARDS(2), "0,1"},
        {"", CARDS(4), "0,1,2,3"},
        {"", CARDS(8), "0,1,2,3,4,5,6,7"},
        {"n-kunlun-1", CARDS(4), "4,5,6,7"},
        {"n-kunlun-1,n-kunlun-2,n-kunlun-5", CARDS(1), "4"},
        {"n-kunlun-1,n-kunlun-2,n-kunlun-3,n-kunlun-5,n-kunlun-6,n-kunlun-7", CARDS(2), "0,4"},
        {"n-kunlun-1,n-kunlun-2,n-kunlun-3,n-kunlun-4,n-kunlun-6,n-kunlun-7", CARDS(2), NULL},
        {"n-kunlun-2,n-kunlun-3,n-kunlun-6,n-kunlun-7", CARDS(4), "0,1,4,5"},
        {"n-kunlun-3,n-kunlun-7", CARDS(4), "0,1,4,5"},
        {"n-kunlun-0,n-kunlun-7", CARDS(4), "1,2,5,6"},
        {"", CARDS(3), NULL},
        {"", CARDS(5), NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *avoid =
            arena_printf(fixture.arena, "\"baidu.com/nouse-gpuuuid\":\"%s\"", rows[i].avoided);

        vendor_fixture_set_node(&fixture, COUNTED("8", "8"));
        assert_string_equal(
            vendor_fixture_give(&fixture, avoid, rows[i].limits, "BAIDU_COM_DEVICE_IDX"),
            rows[i].given ? rows[i].given : "");
    }
}

static void only_some_numbers_of_cards_can_ever_be_had(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, COUNTED("8", "8"));
    assert_string_equal(vendor_fixture_refuse(&fixture, "", CARDS(3)), "1/8 NumaNotFit");
    assert_true(fixture.failure.for_good);
    assert_int_equal(vendor_fixture_place(&fixture, "", CARDS(1)), PLACE_FITS);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", CARDS(8)), "1/8 NumaNotFit");
    assert_false(fixture.failure.for_good);
}

/* Both pairs of lists count, and what only one of them allows is not allowed. */
static void both_pairs_of_lists_count(void **state)
{
    static const struct {
        const char *annotations, *given;
    } rows[] = {
        {"\"hami.io/use-xpu-uuid\":\"n-kunlun-3,n-kunlun-4\"", "3"},
        {"\"baidu.com/use-gpuuuid\":\"n-kunlun-4\"", "4"},
        {"\"hami.io/use-xpu-uuid\":\"n-kunlun-3,n-kunlun-4\","
         "\"baidu.com/use-gpuuuid\":\"n-kunlun-4\"",
         "4"},
        {"\"hami.io/use-xpu-uuid\":\"n-kunlun-3\",\"baidu.com/use-gpuuuid\":\"n-kunlun-4\"", ""},
        {"\"hami.io/no-use-xpu-uuid\":\"n-kunlun-0\",\"baidu.com/nouse-gpuuuid\":\"n-kunlun-1\"",
         "2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, COUNTED("8", "8"));
        assert_string_equal(
            vendor_fixture_give(&fixture, rows[i].annotations, CARDS(1), "BAIDU_COM_DEVICE_IDX"),
            rows[i].given);
    }
    vendor_fixture_set_node(&fixture, COUNTED("8", "8"));
    assert_string_equal(vendor_fixture_refuse(&fixture, "\"hami.io/use-xpu-uuid\":\"x\"", CARDS(1)),
                        "8/8 CardUuidMismatch");
}

static void as_many_cards_as_are_healthy_are_given_out(void **state)
{
    unsigned given = 0;

    (void)state;
    vendor_fixture_set_node(&fixture, COUNTED("8", "6"));
    while (vendor_fixture_place(&fixture, "", CARDS(1)) == PLACE_FITS)
        given++;
    assert_int_equal(given, 6);

    /* Cards that are in use stay the ones that are counted as healthy. */
    vendor_fixture_set_node(&fixture, COUNTED("8", "8"));
    assert_string_equal(vendor_fixture_give(&fixture, "", CARDS(4), "BAIDU_COM_DEVICE_IDX"),
                        "0,1,2,3");
    vendor_fixture_set_node(&fixture, COUNTED("8", "7"));
    assert_true(fixture.devices[0].healthy);
    assert_false(fixture.devices[7].healthy);
}

static void parts_of_a_card_are_of_one_size(void **state)
{
    const char *const key = "hami.io/xpu-devices-allocated";

    (void)state;
    vendor_fixture_set_node(&fixture, REGISTERED("[" CARD("0000-1a", "XPU-P800") "]"));
    assert_string_equal(vendor_fixture_give(&fixture, "", PART(1), key), "0000-1a,XPU,24576,25:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", PART(30000)), "1/1 NumaNotFit");
    for (unsigned i = 0; i < 3; i++)
        assert_string_equal(vendor_fixture_give(&fixture, "", PART(24576), key),
                            "0000-1a,XPU,24576,25:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", PART(24576)), "1/1 NumaNotFit");
}

static void memory_is_rounded_up_at_admission(void **state)
{
    static const struct {
        const char *asked, *value;
    } rows[] = {{"1", "24576"},
                {"24577", "49152"},
                {"49153", "98304"},
                {"98305", "98304"},
                {"24576", NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *limits = arena_printf(
            fixture.arena, "\"kunlunxin.com/vxpu\":\"1\",\"kunlunxin.com/vxpu-memory\":\"%s\"",
            rows[i].asked);
        struct error err = ERROR_INIT;
        struct mutations mutations;

        assert_int_equal(vendor_fixture_admit(&fixture, PARTS, "", limits, &mutations, &err), 1);
        assert_int_equal(mutations.count, rows[i].value ? 2 : 1);
        if (rows[i].value)
            assert_string_equal(mutations.items[0].value, rows[i].value);
    }
}

static void the_agent_of_parts_waits_for_the_lock(void **state)
{
    const struct node counted = vendor_fixture_parse(&fixture, COUNTED("8", "8"));
    const struct node registered = vendor_fixture_parse(&fixture, REGISTERED("[]"));

    (void)state;
    assert_null(vendor_prepare_bind(&fixture.vendors.instances[WHOLE], &registered));
    assert_ptr_equal(vendor_prepare_bind(&fixture.vendors.instances[WHOLE], &counted),
                     &vendor_turn_lock);
    assert_null(vendor_prepare_bind(&fixture.vendors.instances[PARTS], &counted));
    assert_string_equal(vendor_prepare_bind(&fixture.vendors.instances[PARTS], &registered)->key,
                        "hami.io/mutex.lock");
    assert_string_equal(fixture.vendors.instances[PARTS].handshake_key,
                        "hami.io/node-handshake-xpu");
}

static void nothing_can_be_had_of_garbage(void **state)
{
    static const char *const rows[] = {
        REGISTERED("[null]"),
        REGISTERED("{}"),
        REGISTERED("[" CARD("a", "P800") "]"),
        REGISTERED("[" CARD("a:b", "xpu") "]"),
        COUNTED("-1", "8"),
        COUNTED("1500m", "8"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, rows[i]);
        assert_int_equal(vendor_fixture_place(&fixture, "", PART(1)), PLACE_NO_FIT);
        assert_int_equal(vendor_fixture_place(&fixture, "", CARDS(1)), PLACE_NO_FIT);
    }
    /* More cards than a node can have, and more than two wings. */
    vendor_fixture_set_node(&fixture, COUNTED("1000000", "1000000"));
    assert_int_equal(fixture.node.device_count, PLACE_MAX_DEVICES);
    vendor_fixture_set_node(&fixture, COUNTED("16", "16"));
    assert_int_equal(vendor_fixture_place(&fixture, "", CARDS(8)), PLACE_FITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cards_are_given_as_they_are_connected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_some_numbers_of_cards_can_ever_be_had, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(both_pairs_of_lists_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_many_cards_as_are_healthy_are_given_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(parts_of_a_card_are_of_one_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_is_rounded_up_at_admission, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_agent_of_parts_waits_for_the_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_had_of_garbage, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
