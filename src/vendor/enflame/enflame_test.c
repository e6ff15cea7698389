/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/enflame/enflame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

/* Whole cards and shares by percentage are in the vectors; here are instances. */

static const char *const drs_keys[][2] = {{"resourceNameGCU", "enflame.com/gcu"},
                                          {"resourceNameDRSGCU", "enflame.com/drs-gcu"},
                                          {"resourceNameGCUMemory", "enflame.com/gcu-memory"},
                                          {"resourceNameGCUCore", "enflame.com/gcu-core"},
                                          {"resourceNameVGCU", "enflame.com/vgcu"}};
static const char *const shared_keys[][2] = {
    {"resourceNameVGCU", "enflame.com/vgcu"},
    {"resourceNameVGCUPercentage", "enflame.com/vgcu-percentage"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &enflame_vendor, drs_keys, ARRAY_SIZE(drs_keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define DRS(text)                                                                                  \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"enflame.com/gcu-drs-capacity\":\"" text      \
    "\"}}}"
#define CARD(index, minor)                                                                         \
    "{\\\"index\\\":\\\"" index "\\\",\\\"minor\\\":\\\"" minor "\\\",\\\"capacity\\\":6}"
#define PROFILES                                                                                   \
    "\\\"profiles\\\":{\\\"1g.7gb\\\":\\\"0\\\",\\\"3g.21gb\\\":\\\"1\\\",\\\"6g.42gb\\\":"        \
    "\\\"2\\\"}"
#define TWO_CARDS DRS("{\\\"devices\\\":[" CARD("0", "4") "," CARD("1", "5") "]," PROFILES "}")
#define ONE_CARD DRS("{\\\"devices\\\":[" CARD("0", "4") "]," PROFILES "}")

static const char *const allocated = "hami.io/enflame-vgpu-devices-allocated";

static void the_smallest_profile_that_is_enough_is_taken(void **state)
{
    static const struct {
        const char *limits, *given;
    } rows[] = {
        {"\"enflame.com/drs-gcu\":\"3\"", "n-enflame-drs-0,Enflame,21504,50:;"},
        {"\"enflame.com/drs-gcu\":\"2\"", ""},
        {"\"enflame.com/gcu-memory\":\"7\"", "n-enflame-drs-0,Enflame,7168,16:;"},
        {"\"enflame.com/gcu-memory\":\"8\"", "n-enflame-drs-0,Enflame,21504,50:;"},
        {"\"enflame.com/gcu-memory\":\"8000\"", "n-enflame-drs-0,Enflame,21504,50:;"},
        {"\"enflame.com/gcu-core\":\"17\"", "n-enflame-drs-0,Enflame,7168,16:;"},
        {"\"enflame.com/gcu-core\":\"18\"", "n-enflame-drs-0,Enflame,21504,50:;"},
        {"\"enflame.com/gcu-memory\":\"43\"", ""},
        {"\"enflame.com/gcu-memory\":\"7\",\"enflame.com/gcu-core\":\"51\"",
         "n-enflame-drs-0,Enflame,43008,100:;"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, ONE_CARD);
        assert_string_equal(vendor_fixture_give(&fixture, "", rows[i].limits, allocated),
                            rows[i].given);
    }
}

static void its_agent_is_told_the_card_and_the_profile(void **state)
{
    static const char *const written[][2] = {
        {"enflame.com/gcu-assigned", "false"},
        {"enflame.com/gcu-assigned-id", "1"},
        {"enflame.com/gcu-assigned-index", "1"},
        {"enflame.com/gcu-assigned-minor", "5"},
        {"enflame.com/gcu-request-size", "3"},
        {"assigned-containers",
         "{\"c\":{\"allocated\":false,\"request\":3,\"profileID\":\"1\",\"profileName\":"
         "\"3g.21gb\"}}"},
    };

    (void)state;
    vendor_fixture_set_node(&fixture, TWO_CARDS);
    assert_string_equal(
        vendor_fixture_give(&fixture, "", "\"enflame.com/drs-gcu\":\"3\"", allocated),
        "n-enflame-drs-1,Enflame,21504,50:;");
    for (size_t i = 0; i < ARRAY_SIZE(written); i++)
        assert_string_equal(text_pairs_get(&fixture.written, written[i][0]), written[i][1]);
}

/* HAMi gives five. */
static void a_card_of_six_slices_gives_six(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, ONE_CARD);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(vendor_fixture_place(&fixture, "", "\"enflame.com/drs-gcu\":\"1\""),
                         PLACE_FITS);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", "\"enflame.com/drs-gcu\":\"1\""),
                        "1/1 CardTimeSlicingExhausted");
    vendor_fixture_set_node(&fixture, ONE_CARD);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(vendor_fixture_place(&fixture, "", "\"enflame.com/drs-gcu\":\"3\""),
                         PLACE_FITS);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", "\"enflame.com/drs-gcu\":\"1\""),
                        "1/1 CardInsufficientMemory");
}

static void all_containers_of_a_pod_have_one_card(void **state)
{
    struct container_device given_one = {"n-enflame-drs-1", "Enflame", 7168, 16};
    struct container_devices containers[] = {{1, &given_one}};
    const struct pod_devices given = {1, containers};
    const struct vendor_instance *drs = &fixture.vendors.instances[1];
    struct pod pod;
    struct request request;
    struct device_usage taken = {0};

    (void)state;
    vendor_fixture_set_node(&fixture, TWO_CARDS);
    pod = vendor_fixture_pod(&fixture, "", "\"enflame.com/drs-gcu\":\"1\"");
    assert_int_equal(drs->vendor->read_request(drs, &pod, 0, fixture.arena, &request), 1);
    for (size_t i = 0; i < 2; i++) {
        const struct place_step step = {.request = &request, .given = &given};

        assert_int_equal(drs->id.rules->take(&step, &fixture.devices[i], &taken),
                         i == 1 ? PLACE_REASON_COUNT : PLACE_CARD_CUSTOM_RULE);
    }
}

static void what_no_card_can_give_is_denied_by_its_name(void **state)
{
    static const struct {
        const char *limits, *why;
    } rows[] = {
        {"\"enflame.com/drs-gcu\":\"0\"", "[enflame.com/drs-gcu]: \"0\" is not above 0"},
        {"\"enflame.com/gcu-memory\":\"0\"", "[enflame.com/gcu-memory]: \"0\" is not above 0"},
        {"\"enflame.com/gcu-core\":\"101\"", "[enflame.com/gcu-core]: \"101\" is not from 1"},
        {"\"enflame.com/gcu-core\":\"-1\"", "negative"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;

        assert_int_equal(vendor_fixture_admit(&fixture, 1, "", rows[i].limits, &mutations, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, rows[i].why));
    }
}

static void limits_are_mirrored(void **state)
{
    struct error err = ERROR_INIT;
    struct mutations mutations;

    (void)state;
    assert_int_equal(vendor_fixture_admit(&fixture, 1, "",
                                          "\"enflame.com/gcu-memory\":\"8\",\"enflame.com/"
                                          "gcu-core\":\"20\"",
                                          &mutations, &err),
                     1);
    assert_int_equal(mutations.count, 2);
    assert_int_equal(mutations.items[0].kind, MUTATION_REQUEST);
    assert_string_equal(mutations.items[0].value, "8");
    assert_string_equal(mutations.items[1].value, "20");
    assert_int_equal(vendor_fixture_admit(&fixture, 1, "", "", &mutations, &err), 0);
}

static void a_registration_that_is_none_gives_no_device(void **state)
{
    static const struct {
        const char *node;
        int outcome;
    } rows[] = {
        {"{\"metadata\":{\"name\":\"n\"}}", -ENOENT},
        {DRS("bad"), -EINVAL},
        {DRS("[null]"), -EINVAL},
        {DRS("{}"), -EINVAL},
        {DRS("{\\\"devices\\\":[" CARD("0", "0") "]}"), -EINVAL},
        {DRS("{\\\"devices\\\":[" CARD("0;", "0") "]," PROFILES "}"), -EINVAL},
        {DRS("{\\\"devices\\\":[{\\\"index\\\":\\\"0\\\",\\\"capacity\\\":-1}]," PROFILES "}"),
         -EINVAL},
        {DRS("{\\\"devices\\\":[" CARD("0", "0") "," CARD("0", "1") "]," PROFILES "}"),
         CODEC_MENDED},
    };
    const struct vendor_instance *drs = &fixture.vendors.instances[1];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct node node = vendor_fixture_parse(&fixture, rows[i].node);
        struct error err = ERROR_INIT;
        size_t count = 0;

        assert_int_equal(drs->vendor->read_node(drs, &node, fixture.arena, fixture.devices,
                                                PLACE_MAX_DEVICES, &count, &err),
                         rows[i].outcome);
        assert_int_equal(count, rows[i].outcome > 0);
        assert_true(err.text[0]);
    }
}

static void parts_are_of_one_agent_or_the_other(void **state)
{
    struct vendor_fixture shared;

    (void)state;
    assert_ptr_equal(fixture.vendors.instances[1].vendor, &enflame_drs_vendor);
    assert_int_equal(fixture.vendors.count, 2);
    vendor_fixture_init(&shared, &enflame_vendor, shared_keys, ARRAY_SIZE(shared_keys));
    assert_int_equal(shared.vendors.count, 1);
    assert_ptr_equal(shared.vendors.instances[0].vendor, &enflame_shared_vendor);
    vendor_fixture_deinit(&shared);
}

/* Its agent reads the card from there. */
static void a_first_container_without_a_part_is_passed_over(void **state)
{
    struct container_device device = {"n-enflame-1", "Enflame", 25, 0};
    struct container_devices containers[] = {{0}, {1, &device}};
    const struct pod_devices given = {2, containers};
    struct vendor_fixture shared;
    struct vendor_grant grant = {.given = &given};
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];
    int count;

    (void)state;
    vendor_fixture_init(&shared, &enflame_vendor, shared_keys, ARRAY_SIZE(shared_keys));
    vendor_fixture_set_node(&shared, "{\"metadata\":{\"name\":\"n\"},\"status\":{\"capacity\":{"
                                     "\"enflame.com/gcu-count\":\"2\",\"enflame.com/shared-gcu\":"
                                     "\"12\"}}}");
    grant.devices = shared.devices;
    grant.device_count = shared.node.device_count;
    count = vendor_write_annotations(&shared.vendors.instances[0], &grant, shared.arena, pairs);
    assert_int_equal(count, 3);
    assert_string_equal(
        text_pairs_get(&(struct text_pairs){pairs, 3}, "enflame.com/gcu-assigned-id"), "1");
    vendor_fixture_deinit(&shared);
}

/* kubelet would hand them out, and no card would be charged for them. */
static void slices_beside_a_percentage_that_is_none_are_denied(void **state)
{
    static const struct {
        const char *percent, *slices;
        int outcome;
    } rows[] = {
        {"0", "6", -EINVAL}, {"101", "1", -EINVAL}, {"50", "6", 1}, {"100", "1", 1}, {"0", "", 1},
    };
    struct vendor_fixture shared;

    (void)state;
    vendor_fixture_init(&shared, &enflame_vendor, shared_keys, ARRAY_SIZE(shared_keys));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;
        char limits[256];

        (void)snprintf(limits, sizeof(limits),
                       "\"enflame.com/vgcu\":\"1\",\"enflame.com/vgcu-percentage\":\"%s\"%s%s%s",
                       rows[i].percent, *rows[i].slices ? ",\"enflame.com/shared-gcu\":\"" : "",
                       rows[i].slices, *rows[i].slices ? "\"" : "");
        assert_int_equal(vendor_fixture_admit(&shared, 0, "", limits, &mutations, &err),
                         rows[i].outcome);
        if (rows[i].outcome < 0)
            assert_non_null(strstr(err.text, "limits[enflame.com/shared-gcu]: "));
    }
    vendor_fixture_deinit(&shared);
}

/* What a section with one key is told. */
static int check_with(const char *key, const char *value, struct error *err)
{
    const struct section_name name = {key, {1, 1}};
    const struct section item = {.kind = SECTION_TEXT, .text = value};
    const struct section section = {
        .kind = SECTION_KEYS, .count = 1, .items = &item, .names = &name};
    const struct section_reading reading = {.file = "d", .err = err};
    char config[4096];
    int r;

    assert_true(enflame_vendor.config_size <= sizeof(config));
    enflame_vendor.set_missing(config);
    assert_int_equal(enflame_vendor.check_section(&reading, config), 0);
    r = enflame_vendor.read_section(&reading, &section, config);
    return r < 0 ? r : enflame_vendor.check_section(&reading, config);
}

static void a_size_is_asked_for_beside_a_part(void **state)
{
    static const char *const rows[][3] = {
        {"resourceNameVGCUPercentage", "a/b", "enflame.resourceNameVGCU: not given"},
        {"resourceNameGCUMemory", "a/b", "enflame.resourceNameDRSGCU: not given"},
        {"resourceNameGCUCore", "a/b", "enflame.resourceNameDRSGCU: not given"},
        {"slicesPerCard", "0", "enflame.slicesPerCard: out of range, 1 to 100"},
        {"slicesPerCard", "101", "enflame.slicesPerCard: out of range, 1 to 100"},
        {"slices", "6", "no such key"},
    };
    struct error fine = ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;

        assert_int_equal(check_with(rows[i][0], rows[i][1], &err), -EINVAL);
        assert_non_null(strstr(err.text, rows[i][2]));
    }
    assert_int_equal(check_with("resourceNameVGCU", "a/b", &fine), 0);
    assert_int_equal(check_with("slicesPerCard", "100", &fine), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_profile_that_is_enough_is_taken),
        cmocka_unit_test(its_agent_is_told_the_card_and_the_profile),
        cmocka_unit_test(a_card_of_six_slices_gives_six),
        cmocka_unit_test(all_containers_of_a_pod_have_one_card),
        cmocka_unit_test(what_no_card_can_give_is_denied_by_its_name),
        cmocka_unit_test(limits_are_mirrored),
        cmocka_unit_test(a_registration_that_is_none_gives_no_device),
        cmocka_unit_test(a_size_is_asked_for_beside_a_part),
        cmocka_unit_test(parts_are_of_one_agent_or_the_other),
        cmocka_unit_test(a_first_container_without_a_part_is_passed_over),
        cmocka_unit_test(slices_beside_a_percentage_that_is_none_are_denied),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
