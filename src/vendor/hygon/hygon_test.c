/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "vendor/vendor.h"

extern const struct vendor hygon_vendor;

/* The rest is in the vectors. */

static const struct section_name names[] = {{"resourceCountName", {1, 1}},
                                            {"memoryFactor", {1, 1}}};

static struct section text(const char *value)
{
    return (struct section){.kind = SECTION_TEXT, .text = value};
}

static int load(const char *count, void *config, struct vendor_set *ret_set)
{
    const struct section items[] = {text(count), text("2")};
    const struct section section = {
        .kind = SECTION_KEYS, .count = 2, .items = items, .names = names};
    const struct section_reading reading = {.file = "d"};

    *ret_set = (struct vendor_set){0};
    hygon_vendor.set_missing(config);
    assert_int_equal(hygon_vendor.read_section(&reading, &section, config), 0);
    assert_int_equal(hygon_vendor.check_section(&reading, config), 0);
    return hygon_vendor.add_instances(ret_set, config);
}

static void without_a_counted_resource_there_is_no_instance(void **state)
{
    static char config[8192];
    struct vendor_set set;

    (void)state;
    assert_true(hygon_vendor.config_size <= sizeof(config));
    assert_int_equal(load("", config, &set), 0);
    assert_int_equal(set.count, 0);
    assert_int_equal(load("hygon.com/dcunum", config, &set), 0);
    assert_int_equal(set.count, 1);
    assert_string_equal(set.kept.annotations[0], "hygon.com/");
}

static void its_agent_waits_for_the_nodes_lock(void **state)
{
    static char config[8192];
    const struct text_pair pair = {"hami.io/node-dcu-register", "D,1,2,100,DCU,0,true:"};
    struct node node = {.annotations = {&pair, 1}};
    struct vendor_set set;

    (void)state;
    assert_int_equal(load("hygon.com/dcunum", config, &set), 0);
    assert_string_equal(vendor_prepare_bind(&set.instances[0], &node)->key, "hami.io/mutex.lock");
    node.annotations.count = 0;
    assert_null(vendor_prepare_bind(&set.instances[0], &node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_counted_resource_there_is_no_instance),
        cmocka_unit_test(its_agent_waits_for_the_nodes_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
