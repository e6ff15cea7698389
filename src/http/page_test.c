/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/internal.h"

static struct http_page *new_page(const char *text)
{
    struct http_page *page = http_page_new(strdup(text), strlen(text));

    assert_non_null(page);
    return page;
}

/* Makes one where it is due, as a handler does; the reader's reference is the caller's. */
static struct http_page *read_page(struct http_pages *pages, const char *text)
{
    struct http_page *page = http_pages_get(pages);

    if (!page) {
        page = new_page(text);
        http_pages_put(pages, page);
    }
    return http_page_ref(page);
}

static void a_page_that_nobody_reads_is_made_anew(void **state)
{
    struct http_pages pages = {0};
    struct http_page *page = read_page(&pages, "one");

    (void)state;
    assert_string_equal(page->bytes, "one");
    assert_int_equal(page->len, 3);
    http_page_unref(page);
    http_pages_drop_unread(&pages);
    assert_null(pages.current);
    assert_null(pages.before);
    assert_null(http_pages_get(&pages));
    http_pages_deinit(&pages);
}

static void two_are_kept_while_they_are_read(void **state)
{
    struct http_pages pages = {0};
    struct http_page *one = read_page(&pages, "one"), *two = read_page(&pages, "two");
    struct http_page *again;

    (void)state;
    assert_ptr_not_equal(one, two);
    again = read_page(&pages, "three");
    assert_ptr_equal(again, two);
    http_page_unref(again);

    /* Only the later one is read on: it makes room for another. */
    http_page_unref(one);
    one = read_page(&pages, "three");
    assert_string_equal(one->bytes, "three");
    assert_ptr_equal(pages.current, one);
    assert_ptr_equal(pages.before, two);
    http_page_unref(one);
    http_page_unref(two);
    http_pages_deinit(&pages);
}

static void an_old_page_may_be_read_longer_than_the_newer(void **state)
{
    struct http_pages pages = {0};
    struct http_page *one = read_page(&pages, "one"), *two = read_page(&pages, "two");

    (void)state;
    http_page_unref(two);
    two = read_page(&pages, "three");
    assert_string_equal(two->bytes, "three");
    assert_ptr_equal(pages.before, one);
    assert_string_equal(one->bytes, "one");
    http_page_unref(one);
    http_page_unref(two);
    http_pages_deinit(&pages);
}

static void pages_outlive_those_who_kept_them(void **state)
{
    struct http_pages pages = {0};
    struct http_page *one = read_page(&pages, "one");

    (void)state;
    http_pages_deinit(&pages);
    assert_null(pages.current);
    assert_string_equal(one->bytes, "one");
    http_page_unref(one);
    http_page_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_that_nobody_reads_is_made_anew),
        cmocka_unit_test(two_are_kept_while_they_are_read),
        cmocka_unit_test(an_old_page_may_be_read_longer_than_the_newer),
        cmocka_unit_test(pages_outlive_those_who_kept_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
