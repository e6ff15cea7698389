/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/vendor_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"

enum {
    KEYS_MAX = 16,
};

void vendor_fixture_load(struct vendor_fixture *fixture, const struct vendor *vendor,
                         const struct section *section)
{
    const struct section_reading reading = {.file = "d"};

    *fixture = (struct vendor_fixture){.arena = arena_new(16 << 20)};
    fixture->config = calloc(1, vendor->config_size);
    assert_non_null(fixture->config);
    vendor->set_missing(fixture->config);
    assert_int_equal(vendor->read_section(&reading, section, fixture->config), 0);
    if (vendor->check_section)
        assert_int_equal(vendor->check_section(&reading, fixture->config), 0);
    assert_int_equal(vendor->add_instances(&fixture->vendors, fixture->config), 0);
}

void vendor_fixture_init(struct vendor_fixture *fixture, const struct vendor *vendor,
                         const char *const (*keys)[2], size_t count)
{
    struct section_name names[KEYS_MAX];
    struct section items[KEYS_MAX];
    const struct section section = {
        .kind = SECTION_KEYS, .count = count, .items = items, .names = names};

    assert_true(count <= KEYS_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = (struct section_name){keys[i][0], {1, 1}};
        items[i] = (struct section){.kind = SECTION_TEXT, .text = keys[i][1]};
    }
    vendor_fixture_load(fixture, vendor, &section);
}

void vendor_fixture_deinit(struct vendor_fixture *fixture)
{
    arena_free(fixture->arena);
    free(fixture->config);
}

static yyjson_val *parse(struct vendor_fixture *fixture, const char *text)
{
    yyjson_val *value;

    if (json_parse(text, strlen(text), fixture->arena, &value, NULL) < 0)
        fail_msg("no JSON: %s", text);
    return value;
}

struct node vendor_fixture_parse(struct vendor_fixture *fixture, const char *text)
{
    struct node node;

    assert_int_equal(
        node_read(parse(fixture, text), &fixture->vendors.kept, fixture->arena, &node, NULL), 0);
    return node;
}

void vendor_fixture_set_node(struct vendor_fixture *fixture, const char *text)
{
    const struct node node = vendor_fixture_parse(fixture, text);
    size_t count = 0;

    for (size_t i = 0; i < fixture->vendors.count; i++) {
        const struct vendor_instance *instance = &fixture->vendors.instances[i];
        size_t added = 0;

        if (instance->vendor->read_node(instance, &node, fixture->arena, fixture->devices + count,
                                        PLACE_MAX_DEVICES - count, &added, NULL) > 0)
            count += added;
    }
    fixture->node = (struct place_node){
        .name = node.name, .devices = fixture->devices, .device_count = (uint32_t)count};
    place_node_update(&fixture->node);
}

struct pod vendor_fixture_pod(struct vendor_fixture *fixture, const char *annotations,
                              const char *limits)
{
    const char *text =
        arena_printf(fixture->arena,
                     "{\"metadata\":{\"name\":\"p\",\"annotations\":{%s}},\"spec\":{\"containers\":"
                     "[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]}}",
                     annotations, limits);
    struct pod pod;

    assert_int_equal(
        pod_read(parse(fixture, text), &fixture->vendors.kept, fixture->arena, &pod, NULL), 0);
    return pod;
}

static void write_annotations(struct vendor_fixture *fixture, const struct pod *pod,
                              const struct placement *placement)
{
    const struct vendor_grant grant = {
        .pod = pod,
        .node = fixture->node.name,
        .devices = fixture->devices,
        .device_count = fixture->node.device_count,
        .given = &placement->vendors[0].devices,
    };
    int r = vendor_write_annotations(vendor_of(placement->vendors[0].vendor), &grant,
                                     fixture->arena, fixture->pairs);

    assert_true(r > 0);
    fixture->written = (struct text_pairs){fixture->pairs, (size_t)r};
}

int vendor_fixture_place(struct vendor_fixture *fixture, const char *annotations,
                         const char *limits)
{
    const struct pod pod = vendor_fixture_pod(fixture, annotations, limits);
    struct place_options options;
    struct placement placement;
    struct demand demand;
    int r;

    fixture->written.count = 0;
    place_options_read(&pod.annotations, &(struct place_options){PLACE_BINPACK}, &options);
    assert_int_equal(vendor_read_demand(&fixture->vendors, &pod, fixture->arena, &demand), 1);
    r = place_pod(&fixture->node, &demand, &options, fixture->arena, &placement, &fixture->failure);
    if (r != PLACE_FITS)
        return r;
    write_annotations(fixture, &pod, &placement);
    assert_int_equal(
        place_usage_charge(fixture->devices, fixture->node.device_count, &placement.usage), 0);
    place_node_update(&fixture->node);
    return r;
}

const char *vendor_fixture_give(struct vendor_fixture *fixture, const char *annotations,
                                const char *limits, const char *key)
{
    const char *text;

    if (vendor_fixture_place(fixture, annotations, limits) != PLACE_FITS)
        return "";
    text = text_pairs_get(&fixture->written, key);
    return text ? text : "";
}

const char *vendor_fixture_refuse(struct vendor_fixture *fixture, const char *annotations,
                                  const char *limits)
{
    static char text[PLACE_REASON_TEXT_SIZE];

    if (vendor_fixture_place(fixture, annotations, limits) != PLACE_NO_FIT)
        return "";
    place_reasons_format(&fixture->failure, text);
    return text;
}

int vendor_fixture_admit(struct vendor_fixture *fixture, size_t instance, const char *annotations,
                         const char *limits, struct mutations *mutations, struct error *err)
{
    const struct vendor_instance *asked = &fixture->vendors.instances[instance];
    const struct pod pod = vendor_fixture_pod(fixture, annotations, limits);

    *mutations = (struct mutations){
        .arena = fixture->arena,
        .items = ARENA_ARRAY(fixture->arena, struct mutation, MUTATIONS_MAX),
    };
    return asked->vendor->mutate(asked, &pod, 0, mutations, err);
}
