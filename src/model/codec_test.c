/* SPDX-License-Identifier: Apache-2.0 */
#include "model/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static struct arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(64 << 20);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static void a_pods_containers_keep_their_places(void **state)
{
    static const char text[] = ";GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,3000,30:;;";
    struct error err = ERROR_INIT;
    struct pod_devices devices;

    (void)state;
    assert_int_equal(pod_devices_decode(text, arena, &devices, &err), CODEC_EXACT);
    assert_int_equal(devices.count, 3);
    assert_int_equal(devices.containers[0].count, 0);
    assert_int_equal(devices.containers[1].count, 2);
    assert_int_equal(devices.containers[2].count, 0);
    assert_string_equal(devices.containers[1].items[1].uuid, "GPU-b");
    assert_int_equal(devices.containers[1].items[1].memory_mib, 3000);
    assert_string_equal(pod_devices_encode(&devices, arena), text);
}

/* Garbage in a pod's annotation: the devices that are read, and the error. */
static const struct {
    const char *text;
    int r;
    const char *error;
} pods[] = {
    {"a,NVIDIA,x,1:;", CODEC_MENDED, "device \"a\": memory is not a number: \"x\""},
    {"a,NVIDIA,1,99999999999:;", CODEC_MENDED,
     "device \"a\": cores is not a number: \"99999999999\""},
    {";a,NVIDIA,1:;", -EINVAL, "container 1: device \"a,NVIDIA,1\": fewer than 4 fields"},
    {"a,b", -EINVAL, "container 0: device \"a,b\": fewer than 4 fields"},
    {"garbage", CODEC_EXACT, ""},
};

static void garbage_in_a_pod_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pods); i++) {
        struct error err = ERROR_INIT;
        struct pod_devices devices;

        assert_int_equal(pod_devices_decode(pods[i].text, arena, &devices, &err), pods[i].r);
        assert_string_equal(err.text, pods[i].error);
    }
}

static const struct {
    const char *text;
    int r;
    const char *error;
} nodes[] = {
    {"[{\"id\":\"GPU-a\",\"count\":\"x\"}]", -EINVAL, "device 0: count: not a whole number"},
    {"[{},{\"devmem\":2147483648}]", -EINVAL, "device 1: devmem: out of range"},
    {"[{\"index\":-1}]", -EINVAL, "device 0: index: out of range"},
    {"[{\"health\":1}]", -EINVAL, "device 0: health: neither true nor false"},
    {"[{\"id\":\"a\\u0000b\"}]", -EINVAL, "device 0: id: holds a NUL"},
    {"[null]", -EINVAL, "device 0: not an object"},
    {"{\"id\":\"GPU-a\"}", -EINVAL, "not a list of devices"},
    {"a,1,2,3,t,0:", -EINVAL, "device \"a,1,2,3,t,0\": neither 7 nor 9 fields"},
    {"a,x,2,3,t,0,true:", CODEC_MENDED, "count is not a number that fits: \"x\""},
    {"a,1,2,3,t,0,yes:", CODEC_MENDED, "health is neither true nor false: \"yes\""},
    {"a,1,2,3,t,0,true,-1,mig:", CODEC_MENDED, "index is not a number that fits: \"-1\""},
    {"a,1,2,3,t,0,true:", CODEC_EXACT, ""},
    {" [ ]", CODEC_EXACT, ""},
    {"null", CODEC_EXACT, ""},
};

static void garbage_in_a_node_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        struct registered_devices devices;
        struct error err = ERROR_INIT;

        print_message("%s\n", nodes[i].text);
        assert_int_equal(node_devices_decode(nodes[i].text, arena, &devices, &err), nodes[i].r);
        assert_string_equal(err.text, nodes[i].error);
    }
}

static void devices_are_read_back_from_either_form(void **state)
{
    struct registered_device items[] = {
        {.id = "GPU-a",
         .type = "NVIDIA \"A100\" <&>",
         .mode = "hami-core",
         .index = 1,
         .count = 10,
         .devmem = 40960,
         .devcore = 100,
         .numa = 1,
         .health = true},
        {.id = "GPU-b", .type = "NVIDIA T4", .mode = "", .health = false},
    };
    const struct registered_devices devices = {items, ARRAY_SIZE(items)};
    const char *texts[2];

    (void)state;
    texts[0] = node_devices_encode_json(&devices, arena);
    texts[1] = node_devices_encode_text(&devices, arena);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct registered_devices back;

        assert_int_equal(node_devices_decode(texts[i], arena, &back, NULL), CODEC_EXACT);
        assert_int_equal(back.count, devices.count);
        assert_string_equal(back.items[0].type, items[0].type);
        assert_int_equal(back.items[0].devmem, items[0].devmem);
        assert_true(back.items[0].health);
        assert_string_equal(back.items[1].id, items[1].id);
        assert_string_equal(node_devices_encode_json(&back, arena), texts[0]);
        assert_string_equal(node_devices_encode_text(&back, arena), texts[1]);
    }
}

static char *repeated(const char *text, size_t count)
{
    size_t len = strlen(text);
    char *all = arena_alloc(arena, count * len + 1);

    for (size_t i = 0; i < count; i++)
        memcpy(all + i * len, text, len);
    return all;
}

static void texts_with_too_much_are_refused(void **state)
{
    struct registered_devices node;
    struct error err = ERROR_INIT;
    struct pod_devices pod;

    (void)state;
    assert_int_equal(pod_devices_decode(repeated("a,b,1,1:", 5000), arena, &pod, &err), -E2BIG);
    assert_string_equal(err.text, "more than 4096 devices");
    assert_int_equal(pod_devices_decode(repeated(";", 600), arena, &pod, &err), -E2BIG);
    assert_string_equal(err.text, "more than 512 containers");
    assert_int_equal(pod_devices_decode(repeated("x", 2 << 20), arena, &pod, &err), -E2BIG);
    assert_int_equal(node_devices_decode(repeated("a,1,1,1,t,0,1:", 5000), arena, &node, &err),
                     -E2BIG);
    assert_int_equal(node_devices_decode(repeated("[", 2 << 20), arena, &node, &err), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pods_containers_keep_their_places),
        cmocka_unit_test(garbage_in_a_pod_is_named),
        cmocka_unit_test(garbage_in_a_node_is_named),
        cmocka_unit_test(devices_are_read_back_from_either_form),
        cmocka_unit_test(texts_with_too_much_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
