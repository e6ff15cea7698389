/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/edits.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"
#include "node/nvidia/card.h"

static struct nvidia_config config;

static struct node_host make_host(void)
{
    nvidia_config_defaults(&config);
    return (struct node_host){
        .hook_path = "/h", .library = "/h/libvgpu.so.1", .config = &config, .dev_root = "/root"};
}

static const struct container_grant grant = {
    .pod_uid = "u-1",
    .container = "main",
    .region = "r.cache",
    .priority = 0,
    .device_count = 2,
    .devices = {{.uuid = "GPU-a", .memory_bytes = 100 * MIB, .cores = 30, .has_minor = true},
                {.uuid = "GPU-b", .memory_bytes = 200 * MIB, .cores = 100}},
};

static void a_name_is_the_same_in_any_order(void **state)
{
    const char *one[] = {"GPU-a-1", "GPU-b-2"}, *other[] = {"GPU-b-2", "GPU-a-1"};
    const char *joined[] = {"GPU-a-1GPU-b-2"};
    char first[EDITS_NAME_SIZE], second[EDITS_NAME_SIZE], third[EDITS_NAME_SIZE];

    (void)state;
    edits_device_name(one, 2, first);
    edits_device_name(other, 2, second);
    edits_device_name(joined, 1, third);
    assert_string_equal(first, second);
    assert_string_not_equal(first, third);
    /* Containers that run were given names by earlier versions: they may not change. */
    assert_string_equal(first, "a5cddf6fdefd04fad");
}

static void limits_are_written_for_each_device(void **state)
{
    struct node_host host = make_host();
    struct limits limits = LIMITS_INIT;
    char text[LIMITS_FILE_MAX];

    (void)state;
    assert_true(edits_limits(&host, &grant, text, sizeof(text)) > 0);
    assert_int_equal(limits_parse(&limits, text, NULL), 0);
    assert_int_equal(limits.device_count, 2);
    assert_string_equal(limits.devices[1].uuid, "GPU-b");
    assert_int_equal(limits.devices[0].memory_bytes, 100 * MIB);
    assert_int_equal(limits.devices[0].cores, 30);
    assert_int_equal(limits.devices[1].cores, 0);
    assert_int_equal(limits.priority, 0);
    assert_false(limits.only_granted);
    assert_string_equal(limits.region_path, "/usr/local/vgpu/r.cache");

    config.disable_core_limit = true;
    assert_true(edits_limits(&host, &grant, text, sizeof(text)) > 0);
    assert_null(strstr(text, "CUDA_DEVICE_SM_LIMIT"));
    config.disable_core_limit = false;
    COPY_TEXT(config.core_policy, "disable");
    assert_true(edits_limits(&host, &grant, text, sizeof(text)) > 0);
    assert_null(strstr(text, "CUDA_DEVICE_SM_LIMIT"));
    COPY_TEXT(config.core_policy, "force");
    assert_true(edits_limits(&host, &grant, text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "CUDA_DEVICE_SM_LIMIT_0=30"));
    assert_int_equal(edits_limits(&host, &grant, text, 10), -ENOBUFS);
}

static void a_specification_is_read_back(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(65536);
    const struct cdi_choice none = {.count = 0};
    struct node_host host = make_host();
    struct spec_owner owner;

    (void)state;
    host.pass_device_specs = true;
    config.memory_scaling = 1.5;
    assert_int_equal(edits_spec(&host, &grant, &none, "a0123456789abcdef", &spec), 0);
    assert_int_equal(edits_read_spec(spec.text, spec.len, &owner), 0);
    assert_string_equal(owner.name, "a0123456789abcdef");
    assert_string_equal(owner.pod_uid, "u-1");
    assert_string_equal(owner.container, "main");
    assert_non_null(strstr(spec.text, "\"CUDA_DEVICE_MEMORY_LIMIT_1=200m\""));
    assert_non_null(strstr(spec.text, "\"CUDA_OVERSUBSCRIBE=true\""));
    assert_non_null(strstr(spec.text, "\"hostPath\":\"/root/dev/nvidia0\""));
    for (size_t len = 0; len + 2 < spec.len; len++)
        assert_int_equal(edits_read_spec(spec.text, len, &owner), -EINVAL);
}

static void cards_are_compared_and_encoded(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    struct cards cards = {
        .count = 1,
        .items = {{.uuid = "GPU-a",
                   .type = "NVIDIA A",
                   .numa_node = -1,
                   .memory_mib = 1000,
                   .cores = 100,
                   .max_tasks = 10,
                   .healthy = true}},
    };
    struct cards other = cards;

    (void)state;
    assert_true(cards_equal(&cards, &other));
    other.items[0].healthy = false;
    assert_false(cards_equal(&cards, &other));
    assert_ptr_equal(cards_get(&cards, "GPU-a"), &cards.items[0]);
    assert_null(cards_get(&cards, "GPU-b"));
    assert_string_equal(cards_encode(&cards, "hami-core", arena),
                        "[{\"id\":\"GPU-a\",\"count\":10,\"devmem\":1000,\"devcore\":100,"
                        "\"type\":\"NVIDIA A\",\"mode\":\"hami-core\",\"health\":true,"
                        "\"custominfo\":{\"lock\":\"none\"},\"devicepairscore\":{}}]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_the_same_in_any_order),
        cmocka_unit_test(limits_are_written_for_each_device),
        cmocka_unit_test(a_specification_is_read_back),
        cmocka_unit_test(cards_are_compared_and_encoded),
    };

    return cmocka_run_group_tests_name("node", tests, NULL, NULL);
}
