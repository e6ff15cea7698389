/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <string.h>

#include "base/arena.h"
#include "base/check.h"

static void text_grows_up_to_its_bound(void **state)
{
    struct strbuf buf = STRBUF_INIT(10);

    (void)state;
    assert_string_equal(strbuf_text(&buf), "");
    strbuf_addf(&buf, "%s-%d", "four", 5);
    strbuf_add(&buf, "abcd");
    assert_false(buf.failed);
    assert_string_equal(strbuf_text(&buf), "four-5abcd");
    strbuf_add(&buf, "x");
    assert_true(buf.failed);
    assert_string_equal(strbuf_text(&buf), "four-5abcd");
    strbuf_deinit(&buf);
    assert_string_equal(strbuf_text(&buf), "");
}

static void what_is_extended_is_the_callers_to_write(void **state)
{
    struct strbuf buf = STRBUF_INIT(6);
    char *to;

    (void)state;
    strbuf_add(&buf, "ab");
    to = strbuf_extend(&buf, 3);
    assert_non_null(to);
    memcpy(to, "cde", 3);
    strbuf_add(&buf, "f");
    assert_string_equal(strbuf_text(&buf), "abcdef");
    assert_null(strbuf_extend(&buf, 1));
    assert_true(buf.failed);
    strbuf_deinit(&buf);
}

static void json_strings_are_safe_whatever_the_bytes(void **state)
{
    struct strbuf buf = STRBUF_INIT(1000);

    (void)state;
    strbuf_add_json(&buf, "a\"b\\c\n\x01 \xc3\xa9 \xff \xc0\x80 \xed\xa0\x80");
    assert_string_equal(strbuf_text(&buf),
                        "\"a\\\"b\\\\c\\n\\u0001 \xc3\xa9 \\ufffd \\ufffd\\ufffd "
                        "\\ufffd\\ufffd\\ufffd\"");
    strbuf_deinit(&buf);
}

static void json_strings_are_gos(void **state)
{
    struct strbuf buf = STRBUF_INIT(1000);

    (void)state;
    strbuf_add_json(&buf, "\t\r<a&b>\x7f\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa");
    assert_string_equal(strbuf_text(&buf), "\"\\t\\r\\u003ca\\u0026b\\u003e\\u007f\\u2028\\u2029"
                                           "\xe2\x80\xaa\"");
    strbuf_deinit(&buf);
}

static void text_in_an_arena_outlives_the_buffer(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1000);
    struct strbuf buf = STRBUF_IN(arena, 1000);
    const char *text;

    (void)state;
    for (int i = 0; i < 40; i++)
        strbuf_addf(&buf, "%d,", i);
    assert_false(buf.failed);
    text = strbuf_text(&buf);
    strbuf_deinit(&buf);
    assert_int_equal(strlen(text), 110);
    strbuf_addf(&buf, "%1000d", 1);
    assert_true(buf.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_up_to_its_bound),
        cmocka_unit_test(what_is_extended_is_the_callers_to_write),
        cmocka_unit_test(json_strings_are_safe_whatever_the_bytes),
        cmocka_unit_test(json_strings_are_gos),
        cmocka_unit_test(text_in_an_arena_outlives_the_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
