/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor vastai_vendor;

static const char *const keys[][2] = {{"resourceCountName", "vastaitech.com/va"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &vastai_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(devices)                                                                              \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"hami.io/node-va-register\":\"[" devices      \
    "]\"}}}"
#define DEVICE(id, custom)                                                                         \
    "{\\\"id\\\":\\\"" id "\\\",\\\"count\\\":1,\\\"devmem\\\":32768,\\\"type\\\":\\\"Vastai\\\"," \
    "\\\"health\\\":true,\\\"custominfo\\\":{" custom "}}"
#define DIE(id, aic) DEVICE(id, "\\\"AIC\\\":\\\"" aic "\\\",\\\"DeviceStrategy\\\":\\\"die\\\"")
#define ASKED(count) "\"vastaitech.com/va\":\"" count "\""

static const char *const key = "hami.io/Vastai-devices-allocated";
static const char *const mutex = "\"hami.io/gpu-scheduler-policy\":\"mutex\"";

static void dies_of_a_container_are_of_one_card_where_they_can_be(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE(DIE("a0", "7") "," DIE("a1", "7") "," DIE("b0", "8")));
    assert_string_equal(vendor_fixture_give(&fixture, "", ASKED("2"), key),
                        "a1,Vastai,0,0:a0,Vastai,0,0:;");
    assert_string_equal(vendor_fixture_give(&fixture, "", ASKED("1"), key), "b0,Vastai,0,0:;");
    vendor_fixture_set_node(&fixture, NODE(DIE("a0", "7") "," DIE("a1", "7") "," DIE("b0", "8")));
    assert_string_equal(vendor_fixture_give(&fixture, "", ASKED("3"), key),
                        "b0,Vastai,0,0:a1,Vastai,0,0:a0,Vastai,0,0:;");
}

static void with_mutex_a_card_is_taken_once_a_die_is(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE(DIE("a0", "7") "," DIE("a1", "7") "," DIE("b0", "8")));
    assert_string_equal(
        vendor_fixture_give(&fixture, "\"vastaitech.com/use-gpuuuid\":\"a0\"", ASKED("1"), key),
        "a0,Vastai,0,0:;");
    assert_string_equal(vendor_fixture_give(&fixture, mutex, ASKED("1"), key), "b0,Vastai,0,0:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, mutex, ASKED("1")),
                        "1/3 ExclusiveDeviceAllocateConflict, 2/3 CardTimeSlicingExhausted");
    assert_string_equal(vendor_fixture_give(&fixture, "", ASKED("1"), key), "a1,Vastai,0,0:;");
}

static void whole_cards_know_no_dies(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture,
                            NODE(DEVICE("a", "") "," DEVICE("b", "") "," DEVICE("c", "")));
    assert_string_equal(vendor_fixture_give(&fixture, "", ASKED("2"), key),
                        "c,Vastai,0,0:b,Vastai,0,0:;");
    assert_string_equal(vendor_fixture_give(&fixture, mutex, ASKED("1"), key), "a,Vastai,0,0:;");
}

static float score(const char *node, const char *asked)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    struct place_options options = {0};
    struct placement placement;
    struct demand demand;
    struct pod pod;

    vendor_fixture_set_node(&fixture, node);
    pod = vendor_fixture_pod(&fixture, "", asked);
    assert_int_equal(vendor_read_demand(&fixture.vendors, &pod, fixture.arena, &demand), 1);
    assert_ptr_equal(demand.containers[0].requests[0].vendor, &instance->id);
    assert_int_equal(
        place_pod(&fixture.node, &demand, &options, fixture.arena, &placement, &fixture.failure),
        PLACE_FITS);
    return placement.score;
}

static void a_node_scores_by_dies_of_one_card(void **state)
{
    (void)state;
    assert_true(score(NODE(DIE("a0", "7") "," DIE("a1", "7")), ASKED("2")) == 1.0f);
    assert_true(score(NODE(DIE("a0", "7") "," DIE("b0", "8")), ASKED("2")) == 0.5f);
    assert_true(score(NODE(DEVICE("a", "") "," DEVICE("b", "")), ASKED("2")) == 0);
}

static void its_agent_waits_for_the_nodes_lock(void **state)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    struct node node = vendor_fixture_parse(&fixture, NODE(DIE("a0", "7")));

    (void)state;
    assert_string_equal(vendor_prepare_bind(instance, &node)->key, "hami.io/mutex.lock");
    node.annotations.count = 0;
    assert_null(vendor_prepare_bind(instance, &node));
}

static void custom_information_of_any_kind_is_none(void **state)
{
    static const char *const customs[] = {
        NODE(DEVICE("a", "\\\"AIC\\\":7")), NODE(DEVICE("a", "\\\"AIC\\\":null")),
        NODE(DEVICE("a", "\\\"AIC\\\":\\\"0123456789012345678901234567890123456789\\\"")),
        NODE(DEVICE("a", "\\\"DeviceStrategy\\\":[1]"))};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(customs); i++)
        assert_true(score(customs[i], ASKED("1")) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dies_of_a_container_are_of_one_card_where_they_can_be),
        cmocka_unit_test(with_mutex_a_card_is_taken_once_a_die_is),
        cmocka_unit_test(whole_cards_know_no_dies),
        cmocka_unit_test(a_node_scores_by_dies_of_one_card),
        cmocka_unit_test(its_agent_waits_for_the_nodes_lock),
        cmocka_unit_test(custom_information_of_any_kind_is_none),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
