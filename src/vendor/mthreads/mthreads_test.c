/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor mthreads_vendor;

/* The rest is in the vectors. */

static const char *const keys[][2] = {{"resourceCountName", "mthreads.com/vgpu"},
                                      {"resourceMemoryName", "mthreads.com/sgpu-memory"},
                                      {"resourceCoreName", "mthreads.com/sgpu-core"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &mthreads_vendor, keys, ARRAY_SIZE(keys));
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
    "\"mthreads.com/sgpu-core\":\"" cores "\",\"mthreads.com/sgpu-memory\":\"" memory "\""
#define ASKED(count, cores, memory) "\"mthreads.com/vgpu\":\"" count "\"," AMOUNTS(cores, memory)

static void what_no_card_can_give_is_denied_by_its_name(void **state)
{
    static const struct {
        const char *limits, *why;
    } rows[] = {
        {"\"mthreads.com/vgpu\":\"0\"", "[mthreads.com/vgpu]: \"0\" is not above 0"},
        {ASKED("1", "4", "3"), "[mthreads.com/sgpu-memory]: \"3\" is none of"},
        {"\"mthreads.com/vgpu\":\"-1\"", "negative"},
        {"\"mthreads.com/vgpu\":\"2147483648\"", "more than can be counted"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;

        assert_int_equal(vendor_fixture_admit(&fixture, 0, "", rows[i].limits, &mutations, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, rows[i].why));
    }
}

static void several_cards_are_whole_and_their_number_is_told(void **state)
{
    struct error err = ERROR_INIT;
    struct mutations mutations;

    (void)state;
    assert_int_equal(vendor_fixture_admit(&fixture, 0, "", ASKED("3", "1", "2"), &mutations, &err),
                     1);
    assert_int_equal(mutations.count, 3);
    assert_string_equal(mutations.items[0].value, "48");
    assert_string_equal(mutations.items[1].value, "288");
    assert_int_equal(mutations.items[2].kind, MUTATION_ANNOTATION);
    assert_string_equal(mutations.items[2].value, "3");
}

static enum place_reason take(const struct pod_devices *given, size_t device)
{
    const struct place_step step = {.given = given};
    struct device_usage taken = {0};

    return fixture.vendors.instances[0].id.rules->take(&step, &fixture.devices[device], &taken);
}

static void all_containers_of_a_pod_have_one_card(void **state)
{
    struct container_device devices[] = {{"n-mthreads-1", "Mthreads", 512, 1},
                                         {"n-mthreads-0", "Mthreads", 512, 1}};
    struct container_devices containers[] = {{0}, {1, devices}};
    const struct pod_devices given = {2, containers};

    (void)state;
    vendor_fixture_set_node(&fixture, NODE(AMOUNTS("32", "192"), AMOUNTS("32", "192")));
    assert_int_equal(fixture.node.device_count, 2);
    assert_int_equal(take(NULL, 0), PLACE_REASON_COUNT);
    assert_int_equal(take(&given, 0), PLACE_CARD_CUSTOM_RULE);
    assert_int_equal(take(&given, 1), PLACE_REASON_COUNT);
    containers[1].count = 2;
    assert_int_equal(take(&given, 1), PLACE_CARD_CUSTOM_RULE);
}

static void its_agent_needs_no_lock_but_turns(void **state)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    const struct node node =
        vendor_fixture_parse(&fixture, NODE(AMOUNTS("32", "192"), AMOUNTS("16", "96")));

    (void)state;
    assert_true(vendor_is_alive(instance, &node));
    assert_ptr_equal(vendor_prepare_bind(instance, &node), &vendor_turn_lock);
}

static void amounts_that_make_no_sense_give_no_device(void **state)
{
    static const struct {
        const char *node;
        int outcome;
        size_t count;
    } rows[] = {
        {NODE(AMOUNTS("0", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("-16", "96"), ""), -ENOENT, 0},
        {NODE(AMOUNTS("16", "999999999999"), ""), -EINVAL, 0},
        {NODE(AMOUNTS("1", "16777216"), ""), -EINVAL, 0},
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

    assert_true(mthreads_vendor.config_size <= sizeof(config));
    mthreads_vendor.set_missing(config);
    assert_int_equal(mthreads_vendor.check_section(&reading, config), 0);
    r = mthreads_vendor.read_section(&reading, &section, config);
    return r < 0 ? r : mthreads_vendor.check_section(&reading, config);
}

static void a_section_has_all_names_or_none(void **state)
{
    static const char *const rows[][2] = {{"resourceCountName", "mthreads.resourceMemoryName"},
                                          {"resourceMemoryName", "mthreads.resourceCountName"},
                                          {"resourceCoreName", "mthreads.resourceCountName"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;

        assert_int_equal(check_with(rows[i][0], "a/b", &err), -EINVAL);
        assert_non_null(strstr(err.text, rows[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_card_can_give_is_denied_by_its_name),
        cmocka_unit_test(several_cards_are_whole_and_their_number_is_told),
        cmocka_unit_test(all_containers_of_a_pod_have_one_card),
        cmocka_unit_test(its_agent_needs_no_lock_but_turns),
        cmocka_unit_test(a_section_has_all_names_or_none),
        cmocka_unit_test(amounts_that_make_no_sense_give_no_device),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
