/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "kube/check_server.h"
#include "plugin/plugin.h"

static bool says(const char *word)
{
    return strstr(server.body, word) != NULL;
}

static void describe(void *node, const char *why_no_cards, const char *handler,
                     struct node_condition *ret_condition)
{
    (void)node;
    (void)handler;
    *ret_condition = (struct node_condition){.ready = !why_no_cards};
    COPY_TEXT(ret_condition->reason, why_no_cards ? "NoCards" : "VendorSays");
    COPY_TEXT(ret_condition->message, why_no_cards ? why_no_cards : "by the vendor");
}

static const struct node_vendor vendor = {.describe = describe};
static const struct plugin_options options = {.node_name = "node-1"};
static struct plugin plugin;

static int begin(void **state)
{
    (void)state;
    memset(&server, 0, sizeof(server));
    memset(&plugin, 0, sizeof(plugin));
    plugin.vendor = &vendor;
    plugin.options = &options;
    plugin.has_cards = true;
    plugin.gate.outcome = FITNESS_GOOD;
    plugin.way = WAY_LATE;
    return 0;
}

static void see(const char *status)
{
    yyjson_doc *doc = yyjson_read(status, strlen(status), 0);

    assert_non_null(doc);
    plugin_condition_seen(&plugin, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
}

static void the_runtime_or_kubelet_is_at_fault_where_no_way_is_left(void **state)
{
    static const struct {
        bool has_cards;
        enum fitness_outcome outcome;
        enum way way;
        const char *reason;
    } cases[] = {
        {true, FITNESS_NO_CDI, WAY_CLOSED, "RuntimeWithoutCDI"},
        {true, FITNESS_OLD_KUBELET, WAY_CLOSED, "KubeletTooOld"},
        {true, FITNESS_NO_CDI, WAY_ORDERED, "VendorSays"},
        {true, FITNESS_OLD_KUBELET, WAY_ORDERED, "VendorSays"},
        {true, FITNESS_OLD_KUBELET, WAY_ANNOTATED, "VendorSays"},
        {true, FITNESS_GOOD, WAY_LATE, "VendorSays"},
        {true, FITNESS_UNKNOWN, WAY_UNKNOWN, "VendorSays"},
        {false, FITNESS_NO_CDI, WAY_CLOSED, "NoCards"},
        {false, FITNESS_OLD_KUBELET, WAY_CLOSED, "NoCards"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)begin(state);
        plugin.has_cards = cases[i].has_cards;
        plugin.gate.outcome = cases[i].outcome;
        plugin.way = cases[i].way;
        (void)error_set(&plugin.why_none, 0, "none");
        (void)error_set(&plugin.gate.why, 0, "the gate");
        see("{}");
        plugin_condition_check(&plugin);
        if (server.writes != 1 || !says(cases[i].reason))
            fail_msg("%zu: %u, %s", i, server.writes, server.body);
    }
}

static void the_condition_is_written_where_the_node_has_another(void **state)
{
    (void)state;
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 0); /* what the Node has is not known yet */
    see("{\"conditions\":[{\"type\":\"hami.io/DriverReady\",\"status\":\"True\","
        "\"reason\":\"VendorSays\",\"message\":\"by the vendor\"}]}");
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 0);
    see("{\"conditions\":[{\"type\":\"hami.io/DriverReady\",\"status\":\"True\","
        "\"reason\":\"VendorSays\",\"message\":\"another\"}]}");
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 1);
    assert_false(says("lastTransitionTime")); /* it was true before */
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 1); /* under way */
    answer(500);
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 2);
    answer(200);
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 2);
    see("{\"conditions\":[{\"type\":\"hami.io/DriverReady\",\"status\":\"False\","
        "\"reason\":\"VendorSays\",\"message\":\"by the vendor\"}]}");
    plugin_condition_check(&plugin);
    assert_int_equal(server.writes, 3);
    assert_true(says("lastTransitionTime"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_runtime_or_kubelet_is_at_fault_where_no_way_is_left),
        cmocka_unit_test_setup(the_condition_is_written_where_the_node_has_another, begin),
    };

    return cmocka_run_group_tests_name("condition", tests, NULL, NULL);
}
