/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/vendor_fixture.h"

extern const struct vendor awsneuron_vendor;

/* The rest is in the vectors. */

static const char *const keys[][2] = {{"resourceCountName", "aws.amazon.com/neuron"},
                                      {"resourceCoreName", "aws.amazon.com/neuroncore"}};

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    vendor_fixture_init(&fixture, &awsneuron_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

#define NODE(type, devices, cores)                                                                 \
    "{\"metadata\":{\"name\":\"n\",\"labels\":{\"node.kubernetes.io/instance-type\":\"" type       \
    "\"}},\"status\":{\"capacity\":{\"aws.amazon.com/neuron\":\"" devices                          \
    "\",\"aws.amazon.com/neuroncore\":\"" cores "\"}}}"
#define DEVICES(count) "\"aws.amazon.com/neuron\":\"" #count "\""
#define CORES(count) "\"aws.amazon.com/neuroncore\":\"" #count "\""
#define IDS "AWS_NEURON_IDS"

static void devices_stand_in_a_row(void **state)
{
    static const struct {
        const char *node, *avoided, *limits, *ids;
    } rows[] = {
        {NODE("inf2.48xlarge", "12", "24"), "", DEVICES(3), "0,1,2"},
        {NODE("inf2.48xlarge", "12", "24"), "n-AWSNeuron-1", DEVICES(3), "2,3,4"},
        {NODE("trn1.32xlarge", "16", "32"), "", DEVICES(4), "0,1,2,3"},
        {NODE("trn1.32xlarge", "16", "32"), "n-AWSNeuron-1", DEVICES(4), "4,5,6,7"},
        {NODE("trn1.32xlarge", "16", "32"), "n-AWSNeuron-1,n-AWSNeuron-9", DEVICES(8), ""},
        {NODE("trn1.32xlarge", "16", "32"), "", DEVICES(2), ""},
        {NODE("trn1.32xlarge", "16", "32"), "", CORES(8), "0,1,2,3,4,5,6,7"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, rows[i].node);
        assert_string_equal(
            vendor_fixture_give(&fixture,
                                arena_printf(fixture.arena,
                                             "\"aws.amazon.com/nouse-neuron-uuid\":\"%s\"",
                                             rows[i].avoided),
                                rows[i].limits, IDS),
            rows[i].ids);
    }
    vendor_fixture_set_node(&fixture, NODE("trn1.32xlarge", "16", "32"));
    assert_string_equal(vendor_fixture_refuse(&fixture, "", DEVICES(2)), "1/16 NumaNotFit");
    assert_true(fixture.failure.for_good);
}

/* Every core once, whatever their number: eight of a device of Trainium 2. */
static void a_core_is_given_to_one_container(void **state)
{
    static const char *const expected[] = {"0", "1", "2", "3", "4", "5", "6", "7"};

    (void)state;
    vendor_fixture_set_node(&fixture, NODE("trn2.3xlarge", "1", "8"));
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        assert_string_equal(vendor_fixture_give(&fixture, "", CORES(1), IDS), expected[i]);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", CORES(1)),
                        "1/1 CardTimeSlicingExhausted");
    vendor_fixture_set_node(&fixture, NODE("trn1.2xlarge", "1", "2"));
    assert_string_equal(vendor_fixture_give(&fixture, "", CORES(1), IDS), "0");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", CORES(2)), "1/1 CardInsufficientCore");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", DEVICES(1)),
                        "1/1 CardInsufficientCore");
    assert_string_equal(vendor_fixture_give(&fixture, "", CORES(1), IDS), "1");
}

/* A grant that is read back holds the same cores. */
static void a_grant_holds_the_cores_that_it_names(void **state)
{
    const struct vendor_instance *neuron = &fixture.vendors.instances[0];
    struct place_usage usage = {0};
    struct pod_devices devices;

    (void)state;
    vendor_fixture_set_node(&fixture, NODE("trn1.2xlarge", "1", "2"));
    assert_int_equal(vendor_read_grant(neuron, "n-AWSNeuron-0,AWSNeuron,0,2:;", &fixture.written,
                                       fixture.arena, &devices, NULL),
                     CODEC_EXACT);
    assert_int_equal(place_usage_add_pod(&usage, &neuron->id, &devices, "", fixture.arena), 0);
    assert_int_equal(place_usage_charge(fixture.devices, 1, &usage), 0);
    assert_string_equal(vendor_fixture_give(&fixture, "", CORES(1), IDS), "0");
    assert_string_equal(text_pairs_get(&fixture.written, "NEURON_RESOURCE_TYPE"),
                        "aws.amazon.com/neuroncore");
}

static void cores_are_one_or_pairs(void **state)
{
    static const struct {
        const char *limits;
        int outcome;
    } rows[] = {
        {CORES(1), 1},         {CORES(2), 1},        {CORES(3), -EINVAL},
        {CORES(0), 1},         {CORES(-2), -EINVAL}, {DEVICES(1) "," CORES(3), 1},
        {CORES(1.5), -EINVAL}, {"\"cpu\":\"1\"", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct mutations mutations;

        assert_int_equal(vendor_fixture_admit(&fixture, 0, "", rows[i].limits, &mutations, &err),
                         rows[i].outcome);
        if (rows[i].outcome < 0)
            assert_non_null(strstr(err.text, "limits[aws.amazon.com/neuroncore]"));
    }
}

static void its_agent_waits_for_no_lock_but_has_turns(void **state)
{
    const struct node node = vendor_fixture_parse(&fixture, NODE("trn1.2xlarge", "1", "2"));

    (void)state;
    assert_ptr_equal(vendor_prepare_bind(&fixture.vendors.instances[0], &node), &vendor_turn_lock);
    assert_null(fixture.vendors.instances[0].handshake_key);
}

static void nothing_can_be_had_of_garbage(void **state)
{
    static const char *const rows[] = {
        NODE("inf1", "2", "-4"),
        NODE("inf1", "2", "1"),
        NODE("inf1", "0", "4"),
        NODE("inf1", "2", "0"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        vendor_fixture_set_node(&fixture, rows[i]);
        assert_int_equal(vendor_fixture_place(&fixture, "", DEVICES(1)), PLACE_NO_FIT);
        assert_int_equal(vendor_fixture_place(&fixture, "", CORES(1)), PLACE_NO_FIT);
    }
    /* As many cores as a mask can name. */
    vendor_fixture_set_node(&fixture, NODE("inf1", "1", "100"));
    assert_int_equal(vendor_fixture_place(&fixture, "", DEVICES(1)), PLACE_FITS);
    assert_int_equal(vendor_fixture_place(&fixture, "", CORES(1)), PLACE_NO_FIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(devices_stand_in_a_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_core_is_given_to_one_container, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_grant_holds_the_cores_that_it_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cores_are_one_or_pairs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_agent_waits_for_no_lock_but_has_turns, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_had_of_garbage, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
