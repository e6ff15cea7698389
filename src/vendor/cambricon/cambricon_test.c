/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor cambricon_vendor;

/* The rest is in the vectors. */

static const char *const keys[][2] = {{"resourceCountName", "cambricon.com/vmlu"},
                                      {"resourceMemoryName", "cambricon.com/mlu.smlu.vmemory"},
                                      {"resourceCoreName", "cambricon.com/mlu.smlu.vcore"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &cambricon_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(capacity, allocatable)                                                                \
    "{\"metadata\":{\"name\":\"n\"},\"status\":{\"capacity\":{" capacity                           \
    "},\"allocatable\":{" allocatable "}}}"
#define AMOUNTS(cores, memory)                                                                     \
    "\"cambricon.com/mlu.smlu.vcore\":\"" cores "\",\"cambricon.com/mlu.smlu.vmemory\":\"" memory  \
    "\""
#define ASKED(cores, memory) "\"cambricon.com/vmlu\":\"1\"," AMOUNTS(cores, memory)

static void the_profile_is_of_the_first_container_with_a_card(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE(AMOUNTS("200", "192"), AMOUNTS("200", "192")));
    assert_string_equal(
        vendor_fixture_give(&fixture, "", ASKED("30", "64"), "CAMBRICON_DSMLU_PROFILE"), "1_30_64");
    assert_string_equal(text_pairs_get(&fixture.written, "CAMBRICON_DSMLU_ASSIGNED"), "false");
    assert_string_equal(text_pairs_get(&fixture.written, "CAMBRICON_DSMLU_ASSIGHED"), "false");
}

static void a_first_container_without_a_card_is_passed_over(void **state)
{
    const struct container_device device = {"n-cambricon-mlu-1", "MLU", 2560, 10};
    struct container_devices containers[] = {{0}, {1, (struct container_device *)&device}};
    const struct pod_devices given = {2, containers};
    const struct vendor_grant grant = {
        .devices = fixture.devices, .device_count = fixture.node.device_count, .given = &given};
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];
    int count =
        vendor_write_annotations(&fixture.vendors.instances[0], &grant, fixture.arena, pairs);

    (void)state;
    assert_int_equal(count, 5);
    assert_string_equal(text_pairs_get(&(struct text_pairs){pairs, 5}, "CAMBRICON_DSMLU_PROFILE"),
                        "1_10_10");
}

static void of_cards_that_kubelet_has_lost_as_many_are_sick(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE(AMOUNTS("300", "288"), AMOUNTS("200", "192")));
    assert_int_equal(fixture.node.device_count, 3);
    assert_false(fixture.devices[0].healthy);
    assert_true(fixture.devices[1].healthy && fixture.devices[2].healthy);
    assert_int_equal(fixture.devices[0].memory_bytes / MIB, 24576);
}

static void its_plugin_is_alive_while_there_are_cores(void **state)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    struct node node =
        vendor_fixture_parse(&fixture, NODE(AMOUNTS("100", "96"), AMOUNTS("100", "96")));

    (void)state;
    assert_true(vendor_is_alive(instance, &node));
    assert_string_equal(vendor_prepare_bind(instance, &node)->key, "cambricon.com/dsmlu.lock");
    assert_false(vendor_prepare_bind(instance, &node)->names_pod);

    node = vendor_fixture_parse(&fixture, NODE(AMOUNTS("100", "96"), AMOUNTS("0", "0")));
    assert_false(vendor_is_alive(instance, &node));
    node = vendor_fixture_parse(&fixture, NODE("", ""));
    assert_null(vendor_prepare_bind(instance, &node));
}

static void amounts_that_make_no_sense_give_no_device(void **state)
{
    static const struct {
        const char *node;
        int outcome;
        size_t count;
    } rows[] = {
        {NODE(AMOUNTS("0", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("-100", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("1500m", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("100", "999999999999"), ""), -EINVAL, 0},
        {NODE(AMOUNTS("1", "16777216"), ""), -EINVAL, 0},
        {NODE(AMOUNTS("9223372036854775807", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("999999999999", "96"), ""), CODEC_MENDED, PLACE_MAX_DEVICES},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct vendor_instance *instance = &fixture.vendors.instances[0];
        const struct node node = vendor_fixture_parse(&fixture, rows[i].node);
        struct error err = ERROR_INIT;
        size_t count = 0;

        assert_int_equal(instance->vendor->read_node(instance, &node, fixture.arena,
                                                     fixture.devices, PLACE_MAX_DEVICES, &count,
                                                     &err),
                         rows[i].outcome);
        assert_int_equal(count, rows[i].count);
    }
}

static void a_section_without_what_cards_are_counted_by_is_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"resourceCountName", "a/b"}, {"resourceCoreName", "a/b"}, {"resourceMemoryName", "a/b"}};
    char config[4096];

    (void)state;
    assert_true(cambricon_vendor.config_size <= sizeof(config));
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        const struct section_name name = {wrong[i][0], {1, 1}};
        const struct section item = {.kind = SECTION_TEXT, .text = wrong[i][1]};
        const struct section section = {
            .kind = SECTION_KEYS, .count = 1, .items = &item, .names = &name};
        const struct section_reading reading = {.file = "d"};

        cambricon_vendor.set_missing(config);
        assert_int_equal(cambricon_vendor.check_section(&reading, config), 0);
        assert_int_equal(cambricon_vendor.read_section(&reading, &section, config), 0);
        assert_int_equal(cambricon_vendor.check_section(&reading, config), -EINVAL);
    }
}

#define CONTAINER(limits) "{\"name\":\"c\",\"resources\":{\"limits\":{" limits "}}}"
#define WARNING(container, resource, why)                                                          \
    "spec." container ".resources.limits[cambricon.com/" resource "]: " why                        \
    "; Cambricon's agent will not start the pod"

static const struct {
    const char *name, *spec, *warning;
} warnings[] = {
    {"a part of a card", "\"containers\":[" CONTAINER(ASKED("30", "64")) "]", NULL},
    {"and a container without any", "\"containers\":[{}," CONTAINER(ASKED("30", "64")) "]", NULL},
    {"a card alone", "\"containers\":[" CONTAINER("\"cambricon.com/vmlu\":1") "]",
     WARNING("containers[0]", "mlu.smlu.vcore", "is missing")},
    {"no memory",
     "\"containers\":[{}," CONTAINER(
         "\"cambricon.com/vmlu\":1,\"cambricon.com/mlu.smlu.vcore\":30") "]",
     WARNING("containers[1]", "mlu.smlu.vmemory", "is missing")},
    {"memory of nothing", "\"containers\":[" CONTAINER(ASKED("30", "0")) "]",
     WARNING("containers[0]", "mlu.smlu.vmemory", "is missing")},
    {"two cards", "\"containers\":[" CONTAINER("\"cambricon.com/vmlu\":2," AMOUNTS("30", "64")) "]",
     WARNING("containers[0]", "vmlu", "a pod can have only one card")},
    {"two containers",
     "\"initContainers\":[" CONTAINER(ASKED("30", "64")) "],\"containers\":[" CONTAINER(
         ASKED("30", "64")) "]",
     WARNING("containers[0]", "vmlu", "only one container of a pod can have a card")},
};

static void its_agent_cannot_serve_every_pod(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(warnings); i++) {
        const char *text = arena_printf(fixture.arena, "{\"spec\":{%s}}", warnings[i].spec);
        const char *warning = NULL;
        yyjson_val *root;
        struct pod pod;

        print_message("%s\n", warnings[i].name);
        assert_int_equal(json_parse(text, strlen(text), fixture.arena, &root, NULL), 0);
        assert_int_equal(pod_read(root, &fixture.vendors.kept, fixture.arena, &pod, NULL), 0);
        assert_int_equal(
            cambricon_vendor.warn(&fixture.vendors.instances[0], &pod, fixture.arena, &warning),
            warnings[i].warning != NULL);
        if (warnings[i].warning)
            assert_string_equal(warning, warnings[i].warning);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_profile_is_of_the_first_container_with_a_card),
        cmocka_unit_test(a_first_container_without_a_card_is_passed_over),
        cmocka_unit_test(of_cards_that_kubelet_has_lost_as_many_are_sick),
        cmocka_unit_test(its_plugin_is_alive_while_there_are_cores),
        cmocka_unit_test(amounts_that_make_no_sense_give_no_device),
        cmocka_unit_test(a_section_without_what_cards_are_counted_by_is_refused),
        cmocka_unit_test(its_agent_cannot_serve_every_pod),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
