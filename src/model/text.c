/* SPDX-License-Identifier: Apache-2.0 */
#include "model/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int compare_to_item(const void *text, const void *item)
{
    return strcmp(text, *(const char *const *)item);
}

bool text_list_has(const struct text_list *list, const char *text)
{
    if (list->sorted)
        return bsearch(text, list->items, list->count, sizeof(*list->items), compare_to_item);
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], text) == 0)
            return true;
    }
    return false;
}

static bool is_one_of(const char *text, size_t len, const char *const *words)
{
    for (; *words; words++) {
        if (strlen(*words) == len && memcmp(*words, text, len) == 0)
            return true;
    }
    return false;
}

bool text_is_made_of(const char *text, const char *const *words)
{
    text += strspn(text, ", ");
    if (!*text)
        return false;
    while (*text) {
        size_t len = strcspn(text, ", ");

        if (!is_one_of(text, len, words))
            return false;
        text += len;
        text += strspn(text, ", ");
    }
    return true;
}

const char *text_pairs_get(const struct text_pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].key, key) == 0)
            return pairs->items[i].value;
    }
    return NULL;
}

bool text_contains(const char *text, const char *part)
{
    size_t len = strlen(part);

    for (; *text; text++) {
        if (strncasecmp(text, part, len) == 0)
            return true;
    }
    return len == 0;
}
