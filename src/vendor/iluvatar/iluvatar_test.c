/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "vendor/vendor.h"

extern const struct vendor iluvatar_vendor;

/* The rest is in the vectors. */

static const struct section_name names[] = {{"commonWord", {1, 1}}, {"resourceCountName", {1, 1}}};

static int load(void *config, struct vendor_set *ret_set)
{
    const struct section words[] = {{.kind = SECTION_TEXT, .text = "BI-V150"},
                                    {.kind = SECTION_TEXT, .text = "iluvatar.ai/BI-V150-vgpu"}};
    const struct section chip = {.kind = SECTION_KEYS, .count = 2, .items = words, .names = names};
    const struct section list = {.kind = SECTION_LIST, .count = 1, .items = &chip};
    const struct section_reading reading = {.file = "d"};

    *ret_set = (struct vendor_set){0};
    iluvatar_vendor.set_missing(config);
    assert_int_equal(iluvatar_vendor.read_section(&reading, &list, config), 0);
    return iluvatar_vendor.add_instances(ret_set, config);
}

static void each_chip_is_an_instance_with_keys_of_its_own(void **state)
{
    static char config[64 << 10];
    struct vendor_set set;

    (void)state;
    assert_true(iluvatar_vendor.config_size <= sizeof(config));
    assert_int_equal(load(config, &set), 0);
    assert_int_equal(set.count, 1);
    assert_string_equal(set.instances[0].register_key, "hami.io/node-BI-V150-register");
    assert_string_equal(set.instances[0].handshake_key, "hami.io/node-handshake-BI-V150");
    assert_string_equal(set.instances[0].allocated_key, "hami.io/BI-V150-devices-allocated");
}

static void its_agent_waits_for_the_nodes_lock(void **state)
{
    static char config[64 << 10];
    const struct text_pair pair = {"hami.io/node-BI-V150-register", "D,1,2,100,BI-V150,0,true:"};
    struct node node = {.annotations = {&pair, 1}};
    struct vendor_set set;

    (void)state;
    assert_int_equal(load(config, &set), 0);
    assert_string_equal(vendor_prepare_bind(&set.instances[0], &node)->key, "hami.io/mutex.lock");
    node.annotations.count = 0;
    assert_null(vendor_prepare_bind(&set.instances[0], &node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chip_is_an_instance_with_keys_of_its_own),
        cmocka_unit_test(its_agent_waits_for_the_nodes_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
