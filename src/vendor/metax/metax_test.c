/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/metax/metax.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

/* The rest is in the vectors. */

static const char *const keys[][2] = {{"resourceCountName", "metax-tech.com/gpu"},
                                      {"resourceVCountName", "metax-tech.com/sgpu"},
                                      {"resourceVMemoryName", "metax-tech.com/vmemory"},
                                      {"resourceVCoreName", "metax-tech.com/vcore"},
                                      {"sgpuTopologyAware", "true"}};

enum { WHOLE, SHARES };

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &metax_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(cards)                                                                                \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"metax-tech.com/node-gpu-devices\":\"" cards  \
    "\"}}}"
#define CARD(id, more)                                                                             \
    "{\\\"uuid\\\":\\\"" id "\\\",\\\"totalDevCount\\\":16,\\\"totalCompute\\\":100,"              \
    "\\\"totalVRam\\\":65536,\\\"healthy\\\":true" more "}"
#define ZONE(zone) ",\\\"linkZone\\\":" #zone
#define QOS(text) ",\\\"qosPolicy\\\":\\\"" text "\\\""

#define SHARE(cores, memory)                                                                       \
    "\"metax-tech.com/sgpu\":\"1\",\"metax-tech.com/vcore\":\"" #cores                             \
    "\",\"metax-tech.com/vmemory\":\"" memory "\""
#define GIVEN "hami.io/metax-sgpu-devices-allocated"
#define ONLINE "\"metax-tech.com/sgpu-app-class\":\"online\""
#define OFFLINE "\"metax-tech.com/sgpu-app-class\":\"offline\""
#define POLICY(text) "\"metax-tech.com/sgpu-qos-policy\":\"" text "\""

static void memory_without_a_unit_is_in_gib(void **state)
{
    static const struct {
        const char *memory, *given;
    } rows[] = {{"2", "2048"}, {"2Gi", "2048"}, {"1500Mi", "1500"}, {"1G", "953"}, {"0", "65536"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *limits =
            arena_printf(fixture.arena,
                         "\"metax-tech.com/sgpu\":\"1\",\"metax-tech.com/vcore\":\"5\","
                         "\"metax-tech.com/vmemory\":\"%s\"",
                         rows[i].memory);

        vendor_fixture_set_node(&fixture, NODE("[" CARD("a", "") "]"));
        assert_string_equal(vendor_fixture_give(&fixture, "", limits, GIVEN),
                            arena_printf(fixture.arena, "a,Metax-SGPU,%s,5:;", rows[i].given));
    }
}

/* Online pods run beside each other; offline ones don't come to them, and pods without a class to
 * neither. */
static void classes_keep_apart(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE("[" CARD("a", "") "]"));
    assert_string_equal(vendor_fixture_give(&fixture, ONLINE, SHARE(50, "1"), GIVEN),
                        "a,Metax-SGPU,1024,0:;");
    assert_string_equal(vendor_fixture_give(&fixture, ONLINE, SHARE(100, "1"), GIVEN),
                        "a,Metax-SGPU,1024,0:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, OFFLINE, SHARE(5, "1")),
                        "1/1 CardAppClassMismatch");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(5, "1")),
                        "1/1 CardAppClassMismatch");
}

static void a_card_is_shared_by_one_policy(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE("[" CARD("a", QOS("best-effort")) "]"));
    assert_int_equal(vendor_fixture_place(&fixture, POLICY("fixed-share"), SHARE(5, "1")),
                     PLACE_FITS);
    /* The agent still says best-effort. */
    assert_string_equal(vendor_fixture_refuse(&fixture, POLICY("best-effort"), SHARE(5, "1")),
                        "1/1 CardQosPolicyMismatch");
    vendor_fixture_set_node(&fixture, NODE("[" CARD("a", QOS("fixed-share")) "]"));
    assert_int_equal(vendor_fixture_place(&fixture, POLICY("fixed-share"), SHARE(5, "1")),
                     PLACE_FITS);
    assert_int_equal(vendor_fixture_place(&fixture, POLICY("fixed-share"), SHARE(5, "1")),
                     PLACE_FITS);
}

/* What is recalled from the annotations is what was charged. */
static void a_grant_is_recalled_as_it_was_placed(void **state)
{
    static const char *const rows[] = {"", ONLINE, OFFLINE, POLICY("burst-share"),
                                       OFFLINE "," POLICY("fixed-share")};
    const struct vendor_instance *shares = &fixture.vendors.instances[SHARES];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct pod pod = vendor_fixture_pod(&fixture, rows[i], "");
        struct place_usage usage = {0};
        struct pod_devices devices;
        const char *text;

        vendor_fixture_set_node(&fixture, NODE("[" CARD("a", "") "]"));
        text = vendor_fixture_give(&fixture, rows[i], SHARE(30, "1"), GIVEN);
        assert_int_equal(
            vendor_read_grant(shares, text, &pod.annotations, fixture.arena, &devices, NULL),
            CODEC_EXACT);
        assert_int_equal(place_usage_add_pod(&usage, &shares->id, &devices, "", fixture.arena), 0);
        assert_int_equal(place_usage_discharge(fixture.devices, 1, &usage), 0);
        assert_int_equal(fixture.devices[0].used.parts, 0);
        assert_int_equal(fixture.devices[0].used.tasks, 0);
    }
}

/* Whole cards are taken of one zone, and of the smallest that has enough. */
static void whole_cards_are_of_one_zone(void **state)
{
    static const char node[] = NODE("[" CARD("a", ZONE(1)) "," CARD("b", ZONE(1)) "," CARD(
        "c", ZONE(1)) "," CARD("d", ZONE(2)) "," CARD("e", ZONE(2)) "," CARD("f", ZONE(0)) "]");
    static const struct {
        const char *count, *given;
    } rows[] = {
        {"2", "[[{\"uuid\":\"e\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"d\",\"compute\":100,\"vRam\":65536}]]"},
        {"3", "[[{\"uuid\":\"c\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"b\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"a\",\"compute\":100,\"vRam\":65536}]]"},
        {"4", "[[{\"uuid\":\"e\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"d\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"c\",\"compute\":100,\"vRam\":65536},"
              "{\"uuid\":\"b\",\"compute\":100,\"vRam\":65536}]]"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, node);
        assert_string_equal(
            vendor_fixture_give(
                &fixture, "",
                arena_printf(fixture.arena, "\"metax-tech.com/sgpu\":\"%s\"", rows[i].count),
                "metax-tech.com/gpu-devices-allocated"),
            rows[i].given);
    }
}

static void admission_checks_class_and_policy(void **state)
{
    static const struct {
        const char *annotations, *limits, *wrong;
    } rows[] = {
        {"\"metax-tech.com/sgpu-app-class\":\"x\"", SHARE(1, "1"), "sgpu-app-class"},
        {ONLINE, "\"metax-tech.com/sgpu\":\"2\"", "limits[metax-tech.com/sgpu]"},
        {POLICY("best"), SHARE(1, "1"), "sgpu-qos-policy"},
        {POLICY(""), SHARE(1, "1"), "sgpu-qos-policy"},
        {"", SHARE(-1, "1"), "limits[metax-tech.com/vcore]"},
    };
    struct mutations mutations;
    struct error err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(vendor_fixture_admit(&fixture, SHARES, rows[i].annotations, rows[i].limits,
                                              &mutations, &err),
                         -EINVAL);
        if (!strstr(err.text, rows[i].wrong))
            fail_msg("%s", err.text);
    }
    assert_int_equal(vendor_fixture_admit(&fixture, SHARES, "", SHARE(1, "1"), &mutations, &err),
                     1);
    assert_string_equal(mutations.items[0].value, "best-effort");
    assert_int_equal(
        vendor_fixture_admit(&fixture, SHARES, ONLINE, SHARE(1, "1"), &mutations, &err), 1);
    assert_int_equal(mutations.count, 0);
}

static void the_agent_of_shares_is_there_while_it_registers(void **state)
{
    const struct vendor_instance *shares = &fixture.vendors.instances[SHARES];
    const struct node registered = vendor_fixture_parse(&fixture, NODE("[]"));
    const struct node gone =
        vendor_fixture_parse(&fixture, "{\"metadata\":{\"name\":\"n\",\"annotations\":{"
                                       "\"metax-tech.com/node-gpu-devices\":\"[]\"}},\"status\":{"
                                       "\"allocatable\":{\"metax-tech.com/sgpu\":\"0\"}}}");

    (void)state;
    assert_true(vendor_is_alive(shares, &registered));
    assert_false(vendor_is_alive(shares, &gone));
    assert_string_equal(vendor_prepare_bind(shares, &registered)->key, "hami.io/mutex.lock");
    assert_null(vendor_prepare_bind(&fixture.vendors.instances[WHOLE], &registered));
}

/* However many more the agent says: the 256th pod would hide the policy of the others. */
static void a_card_has_at_most_255_shares(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE("[{\\\"uuid\\\":\\\"a\\\",\\\"totalDevCount\\\":1000,"
                                           "\\\"totalCompute\\\":100,\\\"totalVRam\\\":65536,"
                                           "\\\"healthy\\\":true}]"));
    for (int i = 0; i < 255; i++)
        assert_int_equal(vendor_fixture_place(&fixture, POLICY("fixed-share"), SHARE(0, "100Mi")),
                         PLACE_FITS);
    assert_int_equal(vendor_fixture_place(&fixture, POLICY("fixed-share"), SHARE(0, "100Mi")),
                     PLACE_NO_FIT);
    assert_int_equal(vendor_fixture_place(&fixture, POLICY("burst-share"), SHARE(0, "100Mi")),
                     PLACE_NO_FIT);
}

/* Quotas are written as pods write it, but for thousands. */
static void a_quota_of_memory_with_a_unit_is_bytes(void **state)
{
    static const struct {
        const char *text;
        int64_t mib;
    } rows[] = {{"2", 2048}, {"2Gi", 2048}, {"1500Mi", 1500},
                {"1G", 953}, {"0", 0},      {"1k", 1024000}};
    const struct vendor *vendor = fixture.vendors.instances[SHARES].vendor;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct resource memory = {.name = "", .text = rows[i].text};

        assert_int_equal(quantity_parse(memory.text, strlen(memory.text), &memory.quantity), 0);
        assert_int_equal(vendor->bound_mib(&memory), rows[i].mib);
    }
}

static void nothing_can_be_had_of_garbage(void **state)
{
    static const char *const rows[] = {
        NODE(""),
        NODE("x"),
        NODE("{}"),
        NODE("[null]"),
        NODE("[{}]"),
        NODE("[[]]"),
        NODE("[{\\\"uuid\\\":5}]"),
        NODE("[{\\\"uuid\\\":\\\"a\\\",\\\"totalVRam\\\":99999999999,\\\"healthy\\\":true}]"),
        NODE("[{\\\"uuid\\\":\\\"a\\\",\\\"totalDevCount\\\":-1,\\\"healthy\\\":true}]"),
        NODE("[{\\\"uuid\\\":\\\"a\\\\u0000b\\\",\\\"totalDevCount\\\":1,\\\"healthy\\\":true}]"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, rows[i]);
        assert_int_equal(vendor_fixture_place(&fixture, "", SHARE(1, "1")), PLACE_NO_FIT);
    }
}

/* A node whose agent says how well sets of so many cards are connected. */
static void nodes_are_scored_by_what_their_agent_says(void **state)
{
    static const char node[] =
        "{\"metadata\":{\"name\":\"n\",\"annotations\":{"
        "\"metax-tech.com/gpu.topology.losses\":\"{\\\"1\\\":7,\\\"2\\\":40,\\\"900\\\":1}\","
        "\"metax-tech.com/gpu.topology.scores\":\"bad\"}},"
        "\"status\":{\"capacity\":{\"metax-tech.com/gpu\":\"4\"}}}";
    const struct place_rules *rules = fixture.vendors.instances[WHOLE].id.rules;
    struct container_device items[] = {{.uuid = "n-metax-0"}, {.uuid = "n-metax-1"}};
    struct container_devices container = {.count = 2, .items = items};
    const struct pod_devices given = {.count = 1, .containers = &container};
    struct place_fitted fitted = {.given = &given, .node_order = PLACE_BINPACK};

    (void)state;
    vendor_fixture_set_node(&fixture, node);
    fitted.vendor = &fixture.vendors.instances[WHOLE].id;
    fitted.devices = fixture.devices;
    fitted.device_count = fixture.node.device_count;
    assert_true(rules->score_node(&fitted) == 1960);
    container.count = 1;
    assert_true(rules->score_node(&fitted) == 1993);
    fitted.node_order = PLACE_SPREAD;
    assert_true(rules->score_node(&fitted) == 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_without_a_unit_is_in_gib, set_up, tear_down),
        cmocka_unit_test_setup_teardown(classes_keep_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_card_is_shared_by_one_policy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_grant_is_recalled_as_it_was_placed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_cards_are_of_one_zone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(admission_checks_class_and_policy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_agent_of_shares_is_there_while_it_registers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_had_of_garbage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_card_has_at_most_255_shares, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_quota_of_memory_with_a_unit_is_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nodes_are_scored_by_what_their_agent_says, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
