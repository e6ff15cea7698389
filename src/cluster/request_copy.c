/* SPDX-License-Identifier: Apache-2.0 */

/* A request that outlives its arena, in one piece of memory. */

#include <stdalign.h>

#include "cluster/scarcity.h"

static size_t room_of(size_t size)
{
    return (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
}

static size_t list_size(const struct text_list *list)
{
    size_t size = list->count * sizeof(list->items[0]);

    for (size_t i = 0; i < list->count; i++)
        size += strlen(list->items[i]) + 1;
    return room_of(size);
}

static struct text_list put_list(char **at, const struct text_list *list)
{
    const char **items = (const char **)*at;
    char *text = *at + list->count * sizeof(items[0]);

    for (size_t i = 0; i < list->count; i++) {
        const size_t size = strlen(list->items[i]) + 1;

        items[i] = memcpy(text, list->items[i], size);
        text += size;
    }
    *at += list_size(list);
    return (struct text_list){items, list->count, list->sorted};
}

struct request *request_copy(const struct request *request)
{
    const size_t modes_size = request->modes ? strlen(request->modes) + 1 : 0;
    struct request *copy =
        malloc(room_of(sizeof(*copy)) + room_of(request->wishes_size) +
               list_size(&request->use_types) + list_size(&request->avoid_types) + modes_size);
    char *at;

    if (!copy)
        return NULL;
    *copy = *request;
    copy->memo = NULL;
    copy->use_uuids = copy->avoid_uuids = (struct text_list){0};
    at = (char *)copy + room_of(sizeof(*copy));
    if (request->wishes_size)
        copy->wishes = memcpy(at, request->wishes, request->wishes_size);
    at += room_of(request->wishes_size);
    copy->use_types = put_list(&at, &request->use_types);
    copy->avoid_types = put_list(&at, &request->avoid_types);
    if (request->modes)
        copy->modes = memcpy(at, request->modes, modes_size);
    return copy;
}
