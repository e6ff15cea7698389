/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/cdi.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "node/nvidia/edits.h"

static const char toolkit[] =
    "cdiVersion: 0.5.0\n"
    "kind: nvidia.com/gpu\n"
    "containerEdits:\n"
    "  env: [NVIDIA_VISIBLE_DEVICES=void, A=b]\n"
    "  deviceNodes: [{path: /dev/nvidiactl}]\n"
    "  mounts:\n"
    "  - {hostPath: /l/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1,"
    " options: [ro, bind]}\n"
    "  - {hostPath: /l/x, containerPath: /usr/local/vgpu/limits}\n"
    "  hooks: [{hookName: createContainer, path: /bin/h, args: [h, x]}]\n"
    "devices:\n"
    "- name: \"0\"\n"
    "  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}\n"
    "- name: GPU-a\n"
    "  containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: "
    "/r/dev/nvidia0, fileMode: 0666}]}\n"
    "- name: gpu1\n"
    "  containerEdits:\n"
    "    deviceNodes: [{path: /dev/nvidia1}, {path: /dev/nvidiactl}]\n"
    "    additionalGids: [44, 44]\n"
    "- name: all\n"
    "  containerEdits: {deviceNodes: [{path: /dev/every}]}\n";

static struct cdi_spec parse(struct arena *arena, const char *text)
{
    struct error err = ERROR_INIT;
    struct cdi_spec spec;

    if (cdi_spec_parse("nvidia.yaml", text, strlen(text), arena, &spec, &err) < 0)
        fail_msg("%s", err.text);
    return spec;
}

/* Our specification with the edits for these cards. */
static const char *lay_in(struct arena *arena, const struct cdi_spec *specs, size_t count,
                          const struct cdi_card *cards, size_t card_count, bool every)
{
    static struct nvidia_config config;
    const struct node_host host = {.hook_path = "/h"};
    const struct guest guest = {.host = &host, .library = "/h/lib"};
    const struct edits_source source = {.config = &config, .guest = &guest, .dev_root = ""};
    const struct container_grant grant = {
        .pod_uid = "u", .container = "c", .device_count = 1, .devices = {{.uuid = "GPU-a"}}};
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    struct strbuf text = STRBUF_IN(arena, 1 << 20);
    struct error err = ERROR_INIT;
    struct cdi_choice choice;

    nvidia_config_defaults(&config);
    if (cdi_choose(specs, count, cards, card_count, every, &choice, &err) < 0)
        return arena_strdup(arena, err.text);
    edits_add(&source, &grant, &choice, "/h/containers/u_c", "r.cache", &edits);
    assert_int_equal(spec_format("u", "c", "a0123456789abcdef", &edits, &text), 0);
    return strbuf_text(&text);
}

#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        if (!strstr(text, part))                                                                   \
            fail_msg("%s is not in %s", part, text);                                               \
    } while (0)
#define CHECK_LACKS(text, part)                                                                    \
    do {                                                                                           \
        if (strstr(text, part))                                                                    \
            fail_msg("%s is in %s", part, text);                                                   \
    } while (0)

static void a_card_comes_with_its_driver(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec spec = parse(arena, toolkit);
    const struct cdi_card card = {"GPU-a", 0};
    const char *text = lay_in(arena, &spec, 1, &card, 1, false);

    (void)state;
    CHECK_HAS(text, "\"cdiVersion\":\"0.5.0\"");
    CHECK_HAS(text, "{\"path\":\"/dev/nvidiactl\"}");
    CHECK_HAS(text, "{\"path\":\"/dev/nvidia0\",\"hostPath\":\"/r/dev/nvidia0\",\"fileMode\":438}");
    CHECK_HAS(text, "{\"hostPath\":\"/l/libcuda.so.1\",\"containerPath\":\"/usr/lib/libcuda.so.1\","
                    "\"options\":[\"ro\",\"bind\"]}");
    CHECK_HAS(text,
              "{\"hookName\":\"createContainer\",\"path\":\"/bin/h\",\"args\":[\"h\",\"x\"]}");
    CHECK_HAS(text, "\"A=b\"");
    CHECK_LACKS(text, "/dev/nvidia1");
    CHECK_LACKS(text, "/dev/every");
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

/* What each of several cards' edits has comes once; what only begins alike is another. */
static void what_is_repeated_comes_once(void **state)
{
    static const char text[] =
        "kind: nvidia.com/gpu\n"
        "devices:\n"
        "- name: GPU-a\n"
        "  containerEdits: &edits\n"
        "    hooks:\n"
        "    - {hookName: createContainer, path: /bin/h, args: [h, one]}\n"
        "    - {hookName: createContainer, path: /bin/h, args: [h, two]}\n"
        "    - {hookName: createContainer, path: /bin/h, args: [h, two], env: [A=b]}\n"
        "- name: GPU-b\n"
        "  containerEdits: *edits\n";
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec spec = parse(arena, text);
    const struct cdi_card cards[] = {{"GPU-a", 0}, {"GPU-b", 1}};
    const char *made = lay_in(arena, &spec, 1, cards, 2, false);

    (void)state;
    assert_int_equal(count_of(made, "\"hookName\""), 3);
    assert_int_equal(count_of(made, "\"one\""), 1);
    assert_int_equal(count_of(made, "\"two\""), 2);
    assert_int_equal(count_of(made, "\"A=b\""), 1);
}

static void our_variables_and_mounts_stay_ours(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec spec = parse(arena, toolkit);
    const struct cdi_card card = {"GPU-a", 0};
    const char *text = lay_in(arena, &spec, 1, &card, 1, false);
    const char *visible = strstr(text, "NVIDIA_VISIBLE_DEVICES=");

    (void)state;
    CHECK_HAS(text, "\"NVIDIA_VISIBLE_DEVICES=void\"");
    assert_null(strstr(visible + 1, "NVIDIA_VISIBLE_DEVICES="));
    CHECK_HAS(text, "/h/containers/u_c/limits");
    CHECK_LACKS(text, "/l/x");
}

static void cards_are_named_in_several_ways(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec spec = parse(arena, toolkit);
    const struct cdi_card by_index = {"GPU-x", 0}, by_type = {"GPU-y", 1}, none = {"GPU-z", 7};
    const struct cdi_card both[] = {by_index, by_type};
    const char *text;

    (void)state;
    CHECK_HAS(lay_in(arena, &spec, 1, &by_index, 1, false), "{\"path\":\"/dev/nvidia0\"}");
    text = lay_in(arena, &spec, 1, both, 2, false);
    CHECK_HAS(text, "[{\"path\":\"/dev/nvidiactl\"},{\"path\":\"/dev/nvidia0\"},{\"path\":\"/dev/"
                    "nvidia1\"}]");
    CHECK_HAS(text, "\"cdiVersion\":\"0.7.0\"");
    CHECK_HAS(text, "\"additionalGids\":[44]");
    CHECK_HAS(lay_in(arena, &spec, 1, &none, 1, false), "has card GPU-z");
    CHECK_HAS(lay_in(arena, &spec, 1, &none, 1, true), "/dev/every");
}

/* One that was made after the toolkit wrote gets what all of its devices get, and no whole card. */
static void an_instance_is_named_by_its_uuid_alone(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec spec = parse(arena, toolkit);
    const struct cdi_card known = {"GPU-a", 1, true}, later = {"MIG-a", 0, true};
    const char *text;

    (void)state;
    CHECK_HAS(lay_in(arena, &spec, 1, &known, 1, false), "/r/dev/nvidia0");
    text = lay_in(arena, &spec, 1, &later, 1, false);
    CHECK_HAS(text, "{\"path\":\"/dev/nvidiactl\"}");
    CHECK_HAS(text, "/l/libcuda.so.1");
    CHECK_LACKS(text, "/dev/nvidia0");
    CHECK_LACKS(text, "/dev/every");
}

static void the_first_specification_rules(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct cdi_spec specs[] = {
        parse(arena, "kind: other.com/gpu\ndevices: [{name: GPU-a, containerEdits: {env: [O=1]}}]"),
        parse(arena, "{\"kind\": \"nvidia.com/gpu\", \"devices\": [{\"name\": \"GPU-a\", "
                     "\"containerEdits\": {\"env\": [\"FIRST=\\u003c1\"]}}]}"),
        parse(arena, toolkit),
    };
    const struct cdi_card cards[] = {{"GPU-a", 0}, {"GPU-b", 1}};
    const char *text = lay_in(arena, specs, ARRAY_SIZE(specs), cards, 2, false);

    (void)state;
    CHECK_HAS(text, "\"FIRST=\\u003c1\"");
    CHECK_LACKS(text, "O=1");
    CHECK_LACKS(text, "\"/dev/nvidia0\"");
    CHECK_HAS(text, "\"/dev/nvidia1\"");
}

static void errors_say_where(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "nvidia.yaml: it is empty"},
        {"[", "nvidia.yaml:"},
        {"a", "nvidia.yaml:1:1: specification: not an object"},
        {"devices: []", "nvidia.yaml:1:1: kind: not given"},
        {"kind: a\ndevices: x", "nvidia.yaml:2:10: devices: not a list"},
        {"kind: a\nkind: b", "nvidia.yaml:2:1: kind: given twice"},
        {"kind: a\ndevices: [{containerEdits: {}}]", "nvidia.yaml:2:11: name: not given"},
        {"kind: a\ncontainerEdits: {deviceNodes: [{path: dev}]}", "path: not an absolute path"},
        {"kind: a\ncontainerEdits: {deviceNodes: [{path: /d, major: -1}]}",
         "major: not a number of 32 bits"},
        {"kind: a\ncontainerEdits: {env: [\"=x\"]}", "env: not a variable, NAME=value"},
        {"kind: a\ncontainerEdits: {hooks: [{hookName: prestart, path: x}]}",
         "path: not an absolute path"},
        {"kind: a\ncontainerEdits: {mounts: [{hostPath: /a}]}", "containerPath: not given"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
        struct error err = ERROR_INIT;
        struct cdi_spec spec;

        assert_int_equal(
            cdi_spec_parse("nvidia.yaml", cases[i].text, strlen(cases[i].text), arena, &spec, &err),
            -EINVAL);
        CHECK_HAS(err.text, cases[i].why);
    }
}

static void its_size_is_bounded(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(4 << 20);
    struct error err = ERROR_INIT;
    struct cdi_spec spec;

    (void)state;
    strbuf_add(&text, "kind: a\ncontainerEdits: {env: [");
    for (int i = 0; i <= CDI_ITEMS_MAX; i++)
        strbuf_add(&text, "A=b, ");
    strbuf_add(&text, "]}\n");
    assert_int_equal(cdi_spec_parse("f", text.text, text.len, arena, &spec, &err), -EINVAL);
    CHECK_HAS(err.text, "env: too many entries");
    while (text.len <= CDI_FILE_MAX)
        strbuf_add(&text, "# a line of nothing\n");
    assert_int_equal(cdi_spec_parse("f", text.text, text.len, arena, &spec, &err), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_comes_with_its_driver),
        cmocka_unit_test(what_is_repeated_comes_once),
        cmocka_unit_test(our_variables_and_mounts_stay_ours),
        cmocka_unit_test(cards_are_named_in_several_ways),
        cmocka_unit_test(an_instance_is_named_by_its_uuid_alone),
        cmocka_unit_test(the_first_specification_rules),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(its_size_is_bounded),
    };

    return cmocka_run_group_tests_name("cdi", tests, NULL, NULL);
}
