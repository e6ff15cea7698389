/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor biren_vendor;

static const char *const keys[][2] = {{"resourceCountName", "birentech.com/gpu"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &biren_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(devices)                                                                              \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"hami.io/node-biren-register\":\"" devices    \
    "\"}}}"
#define CARD(id, type)                                                                             \
    "{\\\"id\\\":\\\"" id "\\\",\\\"count\\\":1,\\\"devmem\\\":32768,\\\"type\\\":\\\"" type       \
    "\\\",\\\"health\\\":true,\\\"devicepairscore\\\":{}}"
#define TWO_CARDS NODE("[" CARD("card_0", "Biren106C") "," CARD("card_1", "Biren106C") "]")
#define ONE "\"birentech.com/gpu\":\"1\""

/* Its agent pops the one that says -allocated. */
static const char *const lasting = "hami.io/Biren-devices-to-allocate";

static void a_card_goes_to_one_container(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, TWO_CARDS);
    assert_string_equal(fixture.vendors.instances[0].allocated_key, lasting);
    assert_string_equal(vendor_fixture_give(&fixture, "", ONE, lasting), "card_1,Biren,0,0:;");
    assert_string_equal(text_pairs_get(&fixture.written, "hami.io/Biren-devices-allocated"),
                        "card_1,Biren,0,0:;");
    assert_string_equal(vendor_fixture_give(&fixture, "", ONE, lasting), "card_0,Biren,0,0:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", ONE), "2/2 CardTimeSlicingExhausted");
}

static void cards_are_asked_for_by_their_names(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, TWO_CARDS);
    assert_string_equal(
        vendor_fixture_give(&fixture, "\"birentech.com/use-gpuuuid\":\"card_0\"", ONE, lasting),
        "card_0,Biren,0,0:;");
    assert_string_equal(
        vendor_fixture_refuse(&fixture, "\"birentech.com/nouse-gpuuuid\":\"card_1\"", ONE),
        "1/2 CardTimeSlicingExhausted, 1/2 CardUuidMismatch");
}

static void a_card_of_another_name_is_not_given_out(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE("[" CARD("card_0", "BR106C") "]"));
    assert_int_equal(fixture.node.device_count, 1);
    assert_string_equal(vendor_fixture_give(&fixture, "", ONE, lasting), "");
}

static void its_agent_waits_for_the_nodes_lock(void **state)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    struct node node = vendor_fixture_parse(&fixture, TWO_CARDS);

    (void)state;
    assert_string_equal(vendor_prepare_bind(instance, &node)->key, "hami.io/mutex.lock");
    node.annotations.count = 0;
    assert_null(vendor_prepare_bind(instance, &node));
}

static void what_can_not_be_counted_is_denied(void **state)
{
    struct error err = ERROR_INIT;
    struct mutations mutations;

    (void)state;
    assert_int_equal(vendor_fixture_admit(&fixture, 0, "", ONE, &mutations, &err), 1);
    assert_int_equal(mutations.count, 0);
    assert_int_equal(
        vendor_fixture_admit(&fixture, 0, "", "\"birentech.com/gpu\":\"-1\"", &mutations, &err),
        -EINVAL);
    assert_int_equal(vendor_fixture_admit(&fixture, 0, "", "", &mutations, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_goes_to_one_container),
        cmocka_unit_test(cards_are_asked_for_by_their_names),
        cmocka_unit_test(a_card_of_another_name_is_not_given_out),
        cmocka_unit_test(its_agent_waits_for_the_nodes_lock),
        cmocka_unit_test(what_can_not_be_counted_is_denied),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
