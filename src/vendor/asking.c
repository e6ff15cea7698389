/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/asking.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static bool read_up_to(const struct container *container, const char *name, int64_t max,
                       int64_t *ret_value)
{
    const struct resource *resource = container_resource(container, name);

    if (!resource || resource->quantity.form != QUANTITY_WHOLE || resource->quantity.value < 0)
        return false;
    *ret_value = MIN(resource->quantity.value, max);
    return true;
}

bool asking_amount(const struct container *container, const char *name, int64_t *ret_value)
{
    return read_up_to(container, name, INT32_MAX, ret_value);
}

bool asking_mib(const struct container *container, const char *name, int64_t unit_mib,
                int64_t *ret_mib)
{
    const int64_t unit = MAX(unit_mib, (int64_t)1);
    int64_t units;

    if (!read_up_to(container, name, ASKING_MAX_MIB / unit, &units))
        return false;
    *ret_mib = units * unit;
    return true;
}

bool asking_read_share(const struct container *container, const struct asking_share *share,
                       struct request *request)
{
    int64_t count = 0, mib = 0, cores = share->missing_cores;

    if (!asking_amount(container, share->count, &count) || !count)
        return false;
    (void)asking_mib(container, share->memory, share->memory_factor, &mib);
    (void)asking_amount(container, share->cores, &cores);
    request->count = (unsigned)count;
    request->memory_bytes = (uint64_t)mib * MIB;
    request->memory_percent = mib ? 0 : 100;
    request->cores = (unsigned)cores;
    return true;
}

int asking_uuids(const struct pod *pod, const char *use_key, const char *avoid_key,
                 struct arena *arena, struct request *request)
{
    int r = asking_list(pod, use_key, arena, &request->use_uuids);

    if (r == 0)
        r = asking_list(pod, avoid_key, arena, &request->avoid_uuids);
    if (request->use_uuids.count)
        request->avoid_uuids.count = 0;
    return r;
}

int asking_change(struct mutations *mutations, const struct mutation *change)
{
    if (mutations->count == MUTATIONS_MAX || !change->value)
        return -ENOMEM;
    mutations->items[mutations->count++] = *change;
    return 0;
}

int asking_set_amount(const struct container *asking, size_t container, const char *name,
                      int64_t value, struct mutations *mutations)
{
    struct mutation change = {
        .kind = MUTATION_LIMIT,
        .container = container,
        .name = name,
        .value = arena_printf(mutations->arena, "%" PRId64, value),
    };
    int r = asking_change(mutations, &change);

    if (r < 0 || !resource_find(&asking->requests, name))
        return r;
    change.kind = MUTATION_REQUEST;
    return asking_change(mutations, &change);
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

int asking_refuse_amount(const struct pod *pod, size_t container, const char *list,
                         const struct resource *resource, const char *why, struct error *err)
{
    const struct container_place place = pod_container_place(pod, container);

    return error_set(err, -EINVAL, "spec.%s[%zu].resources.%s[%s]: \"%.64s\" is %s", place.list,
                     place.position, list, resource->name, resource->text, why);
}

static int check_amount(const struct pod *pod, size_t container, const char *list,
                        const struct resource *resource, int64_t max, struct error *err)
{
    if (resource->quantity.value < 0)
        return asking_refuse_amount(pod, container, list, resource, "negative", err);
    if (resource->quantity.form == QUANTITY_FRACTION)
        return asking_refuse_amount(pod, container, list, resource, "not a whole number", err);
    if (resource->quantity.form != QUANTITY_WHOLE || resource->quantity.value > max)
        return asking_refuse_amount(pod, container, list, resource, "more than can be counted",
                                    err);
    return 0;
}

static int check_list(const struct pod *pod, size_t container, const char *list,
                      const struct resource_list *resources, const char *const *names, size_t count,
                      struct error *err)
{
    for (size_t i = 0; i < count && names[i]; i++) {
        const struct resource *resource = resource_find(resources, names[i]);
        int r = 0;

        if (resource)
            r = check_amount(pod, container, list, resource, i ? INT64_MAX : INT32_MAX, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int asking_check_amounts(const struct pod *pod, size_t container, const char *const *names,
                         size_t count, struct error *err)
{
    const struct container *asking = &pod->containers[container];
    int r = check_list(pod, container, "limits", &asking->limits, names, count, err);

    return r < 0 ? r : check_list(pod, container, "requests", &asking->requests, names, count, err);
}
