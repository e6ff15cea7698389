/* SPDX-License-Identifier: Apache-2.0 */

/* Pages: bytes that several answers share. */

#include <assert.h>
#include <stdlib.h>

#include "http/internal.h"

struct http_page *http_page_new(char *bytes, size_t len)
{
    struct http_page *page = malloc(sizeof(*page));

    if (!page) {
        free(bytes);
        return NULL;
    }
    *page = (struct http_page){.refs = 1, .bytes = bytes, .len = len};
    return page;
}

struct http_page *http_page_ref(struct http_page *page)
{
    page->refs++;
    return page;
}

void http_page_unref(struct http_page *page)
{
    if (!page || --page->refs)
        return;
    free(page->bytes);
    free(page);
}

static bool is_read(const struct http_page *page)
{
    return page && page->refs > 1;
}

static void drop_unread(struct http_page **page)
{
    if (is_read(*page))
        return;
    http_page_unref(*page);
    *page = NULL;
}

void http_pages_drop_unread(struct http_pages *pages)
{
    drop_unread(&pages->current);
    drop_unread(&pages->before);
}

struct http_page *http_pages_get(struct http_pages *pages)
{
    http_pages_drop_unread(pages);
    return pages->current && pages->before ? pages->current : NULL;
}

void http_pages_put(struct http_pages *pages, struct http_page *page)
{
    http_pages_drop_unread(pages);
    if (pages->current) {
        assert(!pages->before);
        pages->before = pages->current;
    }
    pages->current = page;
}

void http_pages_deinit(struct http_pages *pages)
{
    http_page_unref(pages->current);
    http_page_unref(pages->before);
    *pages = (struct http_pages){0};
}
