/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

bool asking_amount(const struct container *container, const char *name, int64_t *ret_value)
{
    const struct resource *resource = container_resource(container, name);

    if (!resource || resource->quantity.form != QUANTITY_WHOLE || resource->quantity.value < 0)
        return false;
    *ret_value = MIN(resource->quantity.value, (int64_t)INT32_MAX);
    return true;
}

bool asking_list_is_bounded(const char *text)
{
    size_t count = 1, len = 0;

    for (; text[len] && len <= ASKING_LIST_TEXT_MAX; len++)
        count += text[len] == ',';
    return len <= ASKING_LIST_TEXT_MAX && count <= ASKING_LIST_MAX;
}

static int compare_items(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int asking_list(const struct pod *pod, const char *key, struct arena *arena,
                struct text_list *ret_list)
{
    const char *text = text_pairs_get(&pod->annotations, key), *piece;
    const char **items;
    size_t count = 1;

    *ret_list = (struct text_list){0};
    if (!text)
        return 0;
    if (!asking_list_is_bounded(text))
        return -E2BIG;
    for (const char *p = text; *p; p++)
        count += *p == ',';
    items = ARENA_ARRAY(arena, const char *, count);
    if (!items)
        return -ENOMEM;
    piece = text;
    for (size_t i = 0; i < count; i++) {
        size_t len = strcspn(piece, ",");

        items[i] = arena_strndup(arena, piece, len);
        if (!items[i])
            return -ENOMEM;
        piece += len + 1;
    }
    qsort(items, count, sizeof(*items), compare_items);
    *ret_list = (struct text_list){.items = items, .count = count, .sorted = true};
    return 0;
}
