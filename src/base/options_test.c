/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

struct values {
    const char *name, *root;
    bool flag, off;
    unsigned calls;
    char **words;
    size_t word_count;
};

static int count_call(char *text, void *member, struct error *err)
{
    (void)err;
    assert_null(text);
    (*(unsigned *)member)++;
    return 0;
}

static void take_words(void *options, char **words, size_t count)
{
    struct values *values = options;

    values->words = words;
    values->word_count = count;
}

static const struct option_row rows[] = {
    {.name = "name",
     .letter = 'n',
     .argument = "TEXT",
     .read = option_text,
     .offset = offsetof(struct values, name)},
    {.name = "alias", .flags = OPTION_OTHER_NAME},
    {.name = "root",
     .argument = "FOLDER",
     .read = option_root,
     .offset = offsetof(struct values, root)},
    {.name = "flag",
     .flags = OPTION_MAY_STAND_ALONE,
     .argument = "BOOL",
     .read = option_bool,
     .offset = offsetof(struct values, flag)},
    {.name = "on",
     .flags = OPTION_MAY_STAND_ALONE,
     .argument = "BOOL",
     .read = option_not,
     .offset = offsetof(struct values, off)},
    {.name = "call", .letter = 'c', .read = count_call, .offset = offsetof(struct values, calls)},
    {.name = "old", .flags = OPTION_NO_EFFECT | OPTION_UNLISTED},
};

static struct values read_words(bool in_order, char **argv)
{
    const struct option_table table = {
        .rows = rows,
        .count = ARRAY_SIZE(rows),
        .take_arguments = take_words,
        .in_order = in_order,
    };
    struct values values = {.name = "default"};
    int argc = 0;

    while (argv[argc])
        argc++;
    options_read(&table, argc, argv, &values);
    return values;
}

#define READ(in_order, ...)                                                                        \
    read_words(in_order, (char *[]){(char *)"program", __VA_ARGS__ __VA_OPT__(, ) NULL})

static void test_values_go_where_the_rows_say(void **state)
{
    struct values values = READ(false, (char *)"--root=/", (char *)"--flag", (char *)"-cc");

    (void)state;
    assert_string_equal(values.name, "default");
    assert_string_equal(values.root, "");
    assert_true(values.flag && !values.off);
    assert_int_equal(values.calls, 2);
    assert_int_equal(values.word_count, 0);
}

static void test_an_option_has_a_letter_and_other_names(void **state)
{
    (void)state;
    assert_string_equal(READ(false, (char *)"-na").name, "a");
    assert_string_equal(READ(false, (char *)"--name", (char *)"b").name, "b");
    assert_string_equal(READ(false, (char *)"--alias=c").name, "c");
}

static void test_booleans_are_gos(void **state)
{
    (void)state;
    assert_false(READ(false, (char *)"--flag", (char *)"--flag=F").flag);
    assert_false(READ(false, (char *)"--on").off);
    assert_true(READ(false, (char *)"--on=false").off);
}

static void test_options_without_effect_are_taken(void **state)
{
    (void)state;
    assert_string_equal(READ(false, (char *)"--old=5", (char *)"--old", (char *)"-na").name, "a");
}

static void test_words_after_the_first_are_left_alone_in_order(void **state)
{
    struct values values = READ(true, (char *)"-na", (char *)"word", (char *)"-nb");

    (void)state;
    assert_string_equal(values.name, "a");
    assert_int_equal(values.word_count, 2);
    assert_string_equal(values.words[1], "-nb");

    values = READ(false, (char *)"word", (char *)"-nb");
    assert_string_equal(values.name, "b");
    assert_int_equal(values.word_count, 1);
    assert_string_equal(values.words[0], "word");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_go_where_the_rows_say),
        cmocka_unit_test(test_an_option_has_a_letter_and_other_names),
        cmocka_unit_test(test_booleans_are_gos),
        cmocka_unit_test(test_options_without_effect_are_taken),
        cmocka_unit_test(test_words_after_the_first_are_left_alone_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
