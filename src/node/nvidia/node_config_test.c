/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/node_config.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"

static struct nvidia_config config;
static struct card_filter filter;
static char mode[DEVICE_MODE_SIZE];

static int parse(const char *text)
{
    nvidia_config_defaults(&config);
    filter = (struct card_filter){0};
    strcpy(mode, "hami-core");
    return node_config_parse("c", text, strlen(text), "n", &config, &filter, mode, NULL);
}

/* The last entry of the node's name rules, key by key; what is empty says nothing. */
static void the_last_entry_rules(void **state)
{
    (void)state;
    assert_int_equal(
        parse("{\"nodeconfig\":[{\"name\":\"n\",\"devicesplitcount\":5,\"libcudaloglevel\":\"3\","
              "\"contextsize\":420,"
              "\"filterdevices\":{\"uuid\":[\"GPU-a\"],\"index\":[2,3]}},"
              "{\"name\":\"other\",\"devicesplitcount\":7},"
              "{\"name\":\"n\",\"devicesplitcount\":0,\"devicememoryscaling\":1.5,"
              "\"contextsize\":0,\"libcudaloglevel\":\"\",\"filterdevices\":{\"uuid\":[],\"index\":"
              "[]}}]}"),
        0);
    assert_int_equal(config.split_count, 5);
    assert_int_equal(config.context_mib, 420);
    assert_true(config.memory_scaling == 1.5);
    assert_string_equal(config.log_level, "3");
    assert_int_equal(filter.uuid_count, 1);
    assert_string_equal(filter.uuids[0], "GPU-a");
    assert_int_equal(filter.index_count, 2);
    assert_int_equal(filter.indices[1], 3);
    assert_string_equal(mode, "hami-core");

    assert_int_equal(parse("{\"nodeconfig\":[{\"name\":\"n\",\"filterdevices\":{\"index\":[2]}},"
                           "{\"name\":\"n\",\"filterdevices\":{\"uuid\":[\"GPU-b\"]}}]}"),
                     0);
    assert_int_equal(filter.index_count, 0);
    assert_string_equal(filter.uuids[0], "GPU-b");
}

static void a_zero_leaves_what_an_earlier_entry_said(void **state)
{
    static const char entries[] =
        "{\"nodeconfig\":[{\"name\":\"n\",\"devicesplitcount\":7,\"devicememoryscaling\":0.5,"
        "\"devicecorescaling\":1.5,\"preconfigureddevicememory\":64,\"contextsize\":420},"
        "{\"name\":\"n\",\"devicesplitcount\":0,\"devicememoryscaling\":0,"
        "\"devicecorescaling\":0,\"preconfigureddevicememory\":0,\"contextsize\":0}]}";

    (void)state;
    assert_int_equal(parse(entries), 0);
    assert_int_equal(config.split_count, 7);
    assert_true(config.memory_scaling == 0.5);
    assert_true(config.cores_scaling == 1.5);
    assert_int_equal(config.preconfigured_memory_mib, 64);
    assert_int_equal(config.context_mib, 420);
}

static void what_cannot_be_read_is_refused(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"filterdevices\":[]}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"filterdevices\":{\"index\":[-1]}}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"devicesplitcount\":1001}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"devicememoryscaling\":\"2\"}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"operatingmode\":7}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"contextsize\":65537}]}",
        "{\"nodeconfig\":[{\"name\":\"n\",\"contextsize\":\"420Mi\"}]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (parse(texts[i]) != -EINVAL)
            fail_msg("%s", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_entry_rules),
        cmocka_unit_test(a_zero_leaves_what_an_earlier_entry_said),
        cmocka_unit_test(what_cannot_be_read_is_refused),
    };

    return cmocka_run_group_tests_name("node/nvidia/node_config", tests, NULL, NULL);
}
