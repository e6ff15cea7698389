/* SPDX-License-Identifier: Apache-2.0 */
#include "node/spec.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"

static void a_name_is_the_same_in_any_order(void **state)
{
    const char *one[] = {"GPU-a-1", "GPU-b-2"}, *other[] = {"GPU-b-2", "GPU-a-1"};
    const char *joined[] = {"GPU-a-1GPU-b-2"};
    char first[SPEC_NAME_SIZE], second[SPEC_NAME_SIZE], third[SPEC_NAME_SIZE];

    (void)state;
    spec_device_name(one, 2, first);
    spec_device_name(other, 2, second);
    spec_device_name(joined, 1, third);
    assert_string_equal(first, second);
    assert_string_not_equal(first, third);
    /* Containers that run were given names by earlier versions: they may not change. */
    assert_string_equal(first, "a5cddf6fdefd04fad");
}

static void a_specification_is_read_back(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(65536);
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    struct spec_owner owner;

    (void)state;
    spec_add_env(&edits, "A=%d", 1);
    spec_add_env(&edits, "B=\"");
    spec_add_mount(&edits, "/h/x", "/x", true);
    spec_add_node(&edits, "/dev/made-up0", "/root/dev/made-up0");
    assert_int_equal(spec_format("u-1", "main", "a0123456789abcdef", &edits, &spec), 0);
    assert_string_equal(
        spec.text,
        "{\"cdiVersion\":\"0.5.0\",\"kind\":\"hami.io/alloc\",\"devices\":[{\"name\":"
        "\"a0123456789abcdef\",\"containerEdits\":{\"env\":[\"HAMI_POD_UID=u-1\","
        "\"HAMI_CONTAINER=main\",\"A=1\",\"B=\\\"\"],\"mounts\":[{\"hostPath\":\"/h/x\","
        "\"containerPath\":\"/x\",\"options\":[\"rw\",\"nosuid\",\"nodev\",\"bind\"]}],"
        "\"deviceNodes\":[{\"path\":\"/dev/made-up0\",\"hostPath\":\"/root/dev/made-up0\","
        "\"permissions\":\"rw\"}]}}]}\n");
    assert_int_equal(spec_read(spec.text, spec.len, &owner), 0);
    assert_string_equal(owner.name, "a0123456789abcdef");
    assert_string_equal(owner.pod_uid, "u-1");
    assert_string_equal(owner.container, "main");
    for (size_t len = 0; len + 2 < spec.len; len++)
        assert_int_equal(spec_read(spec.text, len, &owner), -EINVAL);
}

/* Each becomes a path: it stays within its folder, and is as long as a name may be. */
static void owners_that_are_no_names_are_not_read(void **state)
{
    static const struct {
        const char *pod_uid, *container, *name;
        int r;
    } cases[] = {
        {"u", "c", "n", 0},         {"", "c", "n", -EINVAL},     {"u", "", "n", -EINVAL},
        {"u", "c", "", -EINVAL},    {"../u", "c", "n", -EINVAL}, {"u", "../c", "n", -EINVAL},
        {"u", "c", "a/n", -EINVAL},
    };
    static char too_long[1000];
    struct spec_owner owner;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(65536);
        CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;

        assert_int_equal(
            spec_format(cases[i].pod_uid, cases[i].container, cases[i].name, &edits, &spec), 0);
        assert_int_equal(spec_read(spec.text, spec.len, &owner), cases[i].r);
    }
    memset(too_long, 'x', sizeof(too_long) - 1);
    for (size_t i = 0; i < 3; i++) {
        CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(65536);
        CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;

        assert_int_equal(spec_format(i == 0 ? too_long : "u", i == 1 ? too_long : "c",
                                     i == 2 ? too_long : "n", &edits, &spec),
                         0);
        assert_int_equal(spec_read(spec.text, spec.len, &owner), -EINVAL);
    }
}

/* additionalGids are of CDI 0.7; what is too long for a variable is not cut. */
static void what_does_not_fit_is_refused(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf spec = STRBUF_INIT(1 << 20), again = STRBUF_INIT(1 << 20);
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    static char text[20000];

    (void)state;
    strbuf_add(&edits.gids, "44");
    assert_int_equal(spec_format("u", "c", "n", &edits, &spec), 0);
    assert_non_null(strstr(spec.text, "\"cdiVersion\":\"0.7.0\""));
    assert_non_null(strstr(spec.text, "\"additionalGids\":[44]"));
    memset(text, 'x', sizeof(text) - 1);
    spec_add_env(&edits, "A=%s", text);
    assert_int_equal(spec_format("u", "c", "n", &edits, &again), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_the_same_in_any_order),
        cmocka_unit_test(a_specification_is_read_back),
        cmocka_unit_test(owners_that_are_no_names_are_not_read),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests_name("node/spec", tests, NULL, NULL);
}
