/* SPDX-License-Identifier: Apache-2.0 */
#include "config/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/strbuf.h"
#include "base/util.h"

static struct arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(16 << 20);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* Objects, one behind the other. */
static int take(void *data, yyjson_val *object, struct error *err)
{
    struct strbuf *buf = data;
    char *text = yyjson_val_write(object, 0, NULL);

    (void)err;
    strbuf_addf(buf, "%s;", text);
    free(text);
    return 0;
}

static const struct {
    const char *text, *objects, *error;
} rows[] = {
    {"", "", NULL},
    {"---\n", "", NULL},
    {"a: 1\nb: x\n", "{\"a\":1,\"b\":\"x\"};", NULL},
    {"a: 1\n---\nb: 2\n", "{\"a\":1};{\"b\":2};", NULL},
    {"a: [true, \"true\", ~, -1.5, 007, 1., .5, 1e3, 0x1, no]\n",
     "{\"a\":[true,\"true\",null,-1.5,\"007\",\"1.\",\".5\",\"1e3\",\"0x1\",\"no\"]};", NULL},
    {"a: &x {k: v}\nb: *x\n", "{\"a\":{\"k\":\"v\"},\"b\":{\"k\":\"v\"}};", NULL},
    {"kind: List\nitems: [{a: 1}, {a: 2}]\n", "{\"a\":1};{\"a\":2};", NULL},
    {" {\"items\":[{\"a\":1}]}", "{\"a\":1};", NULL},
    {"{\"a\":1", "", "f: "},
    {"a: [\n", "", "f:2:1: "},
    {"a: 1\na: 2\n", "", "f:2:1: a: given twice"},
    {"a: &x [*x]\n", "", "f:1: too deep, or too much of it"},
};

static void manifests_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct strbuf buf = STRBUF_INIT(1 << 16);
        struct error err = ERROR_INIT;
        int r = manifest_read("f", rows[i].text, strlen(rows[i].text), arena, take, &buf, &err);

        print_message("%s: %s\n", rows[i].text, err.text);
        assert_string_equal(strbuf_text(&buf), rows[i].objects);
        assert_int_equal(r < 0, rows[i].error != NULL);
        if (r < 0)
            assert_memory_equal(err.text, rows[i].error, strlen(rows[i].error));
        strbuf_deinit(&buf);
    }
}

/* Each list has the list before ten times; what is short as YAML is 10 GB of text. */
static void aliases_that_multiply_are_given_up(void **state)
{
    char text[4096] = "a: &a0 ";
    struct strbuf buf = STRBUF_INIT(1 << 16);
    struct error err = ERROR_INIT;
    size_t len = strlen(text);

    (void)state;
    memset(text + len, 'x', 1000);
    len += 1000;
    for (int i = 1; i < 8; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\nb%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "*a%d,", i - 1);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "]");
    }
    assert_int_equal(manifest_read("f", text, len, arena, take, &buf, &err), -ENOMEM);
    assert_string_equal(err.text, "f: out of memory");
    assert_string_equal(strbuf_text(&buf), "");
    strbuf_deinit(&buf);
}

/* The values alone: nothing of the file is as much as it says, and it takes long to find out. */
static void aliases_that_multiply_values_are_given_up_early(void **state)
{
    char text[4096] = "a: &a0 [1,1,1,1,1,1,1,1,1,1]";
    struct strbuf buf = STRBUF_INIT(1 << 16);
    struct error err = ERROR_INIT;
    size_t len = strlen(text);

    (void)state;
    for (int i = 1; i < 5; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "\nb%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            len += (size_t)snprintf(text + len, sizeof(text) - len, "*a%d,", i - 1);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "]");
    }
    assert_int_equal(manifest_read("f", text, len, arena, take, &buf, &err), -E2BIG);
    assert_non_null(strstr(err.text, "too much of it"));
    strbuf_deinit(&buf);
}

static void brackets_in_brackets_are_given_up_early(void **state)
{
    static char text[200000];
    struct strbuf buf = STRBUF_INIT(1 << 16);
    struct error err = ERROR_INIT;

    (void)state;
    memset(text, '[', sizeof(text));
    memcpy(text, "a: ", 3);
    assert_int_equal(manifest_read("f", text, sizeof(text), arena, take, &buf, &err), -EINVAL);
    assert_string_equal(err.text, "f:1: too deep");
    strbuf_deinit(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_are_read),
        cmocka_unit_test(aliases_that_multiply_are_given_up),
        cmocka_unit_test(brackets_in_brackets_are_given_up_early),
        cmocka_unit_test(aliases_that_multiply_values_are_given_up_early),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
