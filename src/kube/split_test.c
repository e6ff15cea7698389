/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/split.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/strbuf.h"
#include "base/util.h"

/* All objects of a text that comes in pieces of so many bytes, each in <>, the envelope in (). */
static int cut(const char *text, bool is_list, size_t piece, struct strbuf *to)
{
    struct split split = {0};
    size_t left = strlen(text);
    int r = SPLIT_MORE;

    split_begin(&split, is_list);
    while (left && r > 0) {
        size_t len = MIN(left, piece), object_len, taken = len;
        const char *bytes = text;
        char *object;

        while (len && r > 0) {
            r = split_next(&split, &bytes, &len, &object, &object_len);
            if (r == SPLIT_OBJECT)
                strbuf_addf(to, "<%.*s>", (int)object_len, object);
            if (r == SPLIT_ENVELOPE)
                strbuf_addf(to, "(%.*s)", (int)object_len, object);
            if (r == SPLIT_OBJECT || r == SPLIT_ENVELOPE)
                assert_int_equal(object[object_len], 0);
        }
        text += taken;
        left -= taken;
    }
    split_deinit(&split);
    return r;
}

static const struct {
    const char *name, *text;
    bool is_list;
    const char *expected; /* NULL: -EPROTO */
} cases[] = {
    {"a watch", "{\"a\":1}\n{\"b\":[{}]}\n", false, "<{\"a\":1}><{\"b\":[{}]}>"},
    {"without line ends", "{}{}", false, "<{}><{}>"},
    {"braces in strings", "{\"a\":\"}{\\\"]\\\\\"} {}", false, "<{\"a\":\"}{\\\"]\\\\\"}><{}>"},
    {"a list", "{\"metadata\":{\"x\":\"1\"},\"items\":[{\"a\":1},{\"b\":[2]}]}", true,
     "<{\"a\":1}><{\"b\":[2]}>({\"metadata\":{\"x\":\"1\"},\"items\":[]})"},
    {"metadata last", "{\"items\" : [ {} ,\n{} ] , \"metadata\":{}}", true,
     "<{}><{}>({\"items\" : [] , \"metadata\":{}})"},
    {"an empty list", "{\"items\":[]}", true, "({\"items\":[]})"},
    {"items that are null", "{\"items\":null}", true, "({\"items\":null})"},
    {"items elsewhere", "{\"x\":{\"items\":[{}]},\"y\":[{}]}", true,
     "({\"x\":{\"items\":[{}]},\"y\":[{}]})"},
    {"a key that ends like it", "{\"a\\\"items\":[{}]}", true, "({\"a\\\"items\":[{}]})"},
    {"a value that reads like it", "{\"a\":\"items\",\"b\":[1]}", true,
     "({\"a\":\"items\",\"b\":[1]})"},
    {"text", "hello", false, NULL},
    {"an array", "[{}]", false, NULL},
    {"numbers for items", "{\"items\":[1]}", true, NULL},
    {"one brace too many", "{}}", false, NULL},
};

static void objects_are_cut_out_whatever_the_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t piece = 1; piece <= strlen(cases[i].text); piece++) {
            CLEANUP(strbuf_deinit) struct strbuf got = STRBUF_INIT(1024);
            int r = cut(cases[i].text, cases[i].is_list, piece, &got);

            if (!cases[i].expected && r == -EPROTO)
                continue;
            if (r >= 0 && cases[i].expected && strcmp(strbuf_text(&got), cases[i].expected) == 0)
                continue;
            fail_msg("%s, in pieces of %zu: %d %s", cases[i].name, piece, r, strbuf_text(&got));
        }
    }
}

static void an_endless_object_is_refused(void **state)
{
    struct split split = {0};
    char bytes[4096];
    const char *p = "{\"";
    size_t len = 2, object_len, total = 0;
    char *object;
    int r;

    (void)state;
    memset(bytes, 'x', sizeof(bytes));
    split_begin(&split, false);
    r = split_next(&split, &p, &len, &object, &object_len);
    while (r == SPLIT_MORE && total < 2 * (size_t)SPLIT_OBJECT_MAX) {
        p = bytes;
        len = sizeof(bytes);
        total += len;
        r = split_next(&split, &p, &len, &object, &object_len);
    }
    assert_int_equal(r, -EFBIG);
    split_deinit(&split);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_cut_out_whatever_the_pieces),
        cmocka_unit_test(an_endless_object_is_refused),
    };

    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
