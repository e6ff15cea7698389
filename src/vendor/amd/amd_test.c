/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor amd_vendor;

/* Whole cards are in the vectors; here are those that their agent registers. */

static const char *const keys[][2] = {{"resourceCountName", "amd.com/gpu"},
                                      {"resourceMemoryName", "amd.com/gpumem"},
                                      {"resourceCoreName", "amd.com/gpucores"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &amd_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(devices)                                                                              \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{\"hami.io/node-amd-register\":\"" devices      \
    "\"}}}"
#define REGISTERED                                                                                 \
    NODE("[{\\\"id\\\":\\\"3eff\\\",\\\"count\\\":10,\\\"devmem\\\":196592,\\\"devcore\\\":304,"   \
         "\\\"type\\\":\\\"AMD Instinct MI300X\\\",\\\"numa\\\":1,\\\"health\\\":true,"            \
         "\\\"devicevendor\\\":\\\"amd\\\",\\\"custominfo\\\":{\\\"pciBDF\\\":\\\"0\\\"}}]")
#define COUNTED                                                                                    \
    "{\"metadata\":{\"name\":\"n\"},\"status\":{\"capacity\":{\"amd.com/gpu\":\"3\"},"             \
    "\"allocatable\":{\"amd.com/gpu\":\"2\"}}}"

static void a_share_is_a_part_of_the_compute_units(void **state)
{
    static const struct {
        const char *limits, *given;
    } rows[] = {
        {"\"amd.com/gpu\":\"1\",\"amd.com/gpumem\":\"4096\",\"amd.com/gpucores\":\"50\"",
         "3eff,AMD Instinct MI300X,4096,152:;"},
        {"\"amd.com/gpu\":\"1\",\"amd.com/gpucores\":\"1\"", "3eff,AMD Instinct MI300X,196592,3:;"},
        {"\"amd.com/gpu\":\"1\"", "3eff,AMD Instinct MI300X,196592,304:;"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, REGISTERED);
        assert_string_equal(
            vendor_fixture_give(&fixture, "", rows[i].limits, "hami.io/amd-devices-allocated"),
            rows[i].given);
        assert_string_equal(text_pairs_get(&fixture.written, "hami.io/amd-devices-to-allocate"),
                            rows[i].given);
    }
}

/* No card gives out more compute units, or memory, than it has. */
static void shares_end_where_the_card_does(void **state)
{
    static const struct {
        const char *limits, *why;
        unsigned fit;
    } rows[] = {
        {"\"amd.com/gpu\":\"1\",\"amd.com/gpumem\":\"1024\",\"amd.com/gpucores\":\"33\"",
         "1/1 CardInsufficientCore", 3},
        {"\"amd.com/gpu\":\"1\",\"amd.com/gpumem\":\"65536\",\"amd.com/gpucores\":\"1\"",
         "1/1 CardInsufficientMemory", 2},
        {"\"amd.com/gpu\":\"1\",\"amd.com/gpumem\":\"1\",\"amd.com/gpucores\":\"1\"",
         "1/1 CardTimeSlicingExhausted", 10},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, REGISTERED);
        for (unsigned fit = 0; fit < rows[i].fit; fit++)
            assert_int_equal(vendor_fixture_place(&fixture, "", rows[i].limits), PLACE_FITS);
        assert_string_equal(vendor_fixture_refuse(&fixture, "", rows[i].limits), rows[i].why);
    }
}

static void a_product_can_be_asked_for(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, REGISTERED);
    assert_string_equal(vendor_fixture_refuse(&fixture, "\"amd.com/use-gputype\":\"MI210\"",
                                              "\"amd.com/gpu\":\"1\""),
                        "1/1 CardTypeMismatch");
    assert_int_equal(vendor_fixture_place(&fixture, "\"amd.com/use-gputype\":\"mi300x\"",
                                          "\"amd.com/gpu\":\"1\""),
                     PLACE_FITS);
}

static void only_its_own_agent_waits_for_the_lock(void **state)
{
    const struct vendor_instance *amd = &fixture.vendors.instances[0];
    const struct node registered = vendor_fixture_parse(&fixture, REGISTERED);
    const struct node counted = vendor_fixture_parse(&fixture, COUNTED);

    (void)state;
    assert_string_equal(vendor_prepare_bind(amd, &registered)->key, "hami.io/mutex.lock");
    assert_null(vendor_prepare_bind(amd, &counted));
}

static void a_sick_card_that_is_only_counted_is_not_given_out(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, COUNTED);
    assert_int_equal(fixture.node.device_count, 3);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", "\"amd.com/gpu\":\"3\""),
                        "1/3 CardNotHealth, 2/3 AllocatedCardsInsufficientRequest");
    assert_int_equal(vendor_fixture_place(&fixture, "", "\"amd.com/gpu\":\"2\""), PLACE_FITS);
    assert_null(text_pairs_get(&fixture.written, "hami.io/amd-devices-to-allocate"));
}

static void a_percentage_is_one(void **state)
{
    static const char *const wrong[] = {"0", "101", "-1", "1500m"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;

        assert_int_equal(
            vendor_fixture_admit(&fixture, 0, "",
                                 arena_printf(fixture.arena,
                                              "\"amd.com/gpu\":\"1\",\"amd.com/gpucores\":\"%s\"",
                                              wrong[i]),
                                 &mutations, &err),
            -EINVAL);
        assert_non_null(strstr(err.text, "spec.containers[0].resources.limits[amd.com/gpucores]"));
    }
}

static void nothing_can_be_had_of_garbage(void **state)
{
    static const char *const rows[] = {
        NODE("[null]"),
        NODE("{"),
        NODE("[]"),
        NODE(","),
        NODE("[{\\\"id\\\":\\\"a,b\\\",\\\"devcore\\\":-5,\\\"health\\\":true}]"),
        NODE("[{\\\"id\\\":\\\"a\\\",\\\"devcore\\\":-5,\\\"devmem\\\":-1,\\\"count\\\":9,"
             "\\\"health\\\":true}]")};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, rows[i]);
        assert_int_equal(vendor_fixture_place(&fixture, "", "\"amd.com/gpu\":\"1\""), PLACE_NO_FIT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_share_is_a_part_of_the_compute_units, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shares_end_where_the_card_does, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_product_can_be_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_its_own_agent_waits_for_the_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sick_card_that_is_only_counted_is_not_given_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_percentage_is_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_had_of_garbage, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
