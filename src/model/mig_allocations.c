/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mig_allocations.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"

static int read_text(yyjson_val *object, const char *key, char *to, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    if (!text || !*text || strlen(text) >= size)
        return -EINVAL;
    copy_text(to, size, text);
    return 0;
}

static int read_number(yyjson_val *object, const char *key, unsigned max, unsigned *ret_number)
{
    yyjson_val *value = yyjson_obj_get(object, key);

    /* What HAMi leaves out is zero. */
    if (value && (!yyjson_is_uint(value) || yyjson_get_uint(value) > max))
        return -EINVAL;
    *ret_number = (unsigned)yyjson_get_uint(value);
    return 0;
}

static int read_place(yyjson_val *place, struct mig_allocation *allocation)
{
    int r;

    r = read_number(place, "start", MIG_SLICES - 1, &allocation->start);
    if (r == 0)
        r = read_number(place, "size", MIG_SLICES - allocation->start, &allocation->size);
    return r == 0 && !allocation->size ? -EINVAL : r;
}

static int read_made(yyjson_val *object, struct mig_allocation *allocation)
{
    const unsigned fields = (yyjson_obj_get(object, "migUUID") != NULL) +
                            (yyjson_obj_get(object, "gpuInstanceID") != NULL) +
                            (yyjson_obj_get(object, "computeInstanceID") != NULL);
    int r;

    if (!fields)
        return 0;
    allocation->made = true;
    r = fields == 3 ? 0 : -EINVAL;
    if (r == 0)
        r = read_text(object, "migUUID", allocation->mig_uuid, sizeof(allocation->mig_uuid));
    if (r == 0)
        r = read_number(object, "gpuInstanceID", INT32_MAX, &allocation->gpu_instance);
    if (r == 0)
        r = read_number(object, "computeInstanceID", INT32_MAX, &allocation->compute_instance);
    return r;
}

static int read_allocation(yyjson_val *object, struct mig_allocation *allocation)
{
    int r;

    *allocation = (struct mig_allocation){.container = 0};
    r = read_number(object, "containerIndex", MIG_ALLOCATIONS_CONTAINERS_MAX,
                    &allocation->container);
    if (r == 0)
        r = read_number(object, "deviceIndex", MIG_ALLOCATIONS_CONTAINERS_MAX, &allocation->device);
    if (r == 0)
        r = read_text(object, "gpuUUID", allocation->gpu_uuid, sizeof(allocation->gpu_uuid));
    if (r == 0)
        r = read_text(object, "profile", allocation->profile, sizeof(allocation->profile));
    if (r == 0)
        r = read_place(yyjson_obj_get(object, "placement"), allocation);
    return r < 0 ? r : read_made(object, allocation);
}

static bool is_twice(const struct mig_allocation *allocations, size_t count,
                     const struct mig_allocation *allocation)
{
    for (size_t i = 0; i < count; i++) {
        if (allocations[i].container == allocation->container &&
            allocations[i].device == allocation->device)
            return true;
    }
    return false;
}

int mig_allocations_decode(const char *text, size_t len, struct mig_allocation *ret_allocations,
                           size_t max)
{
    yyjson_doc *doc = len <= MIG_ALLOCATIONS_TEXT_MAX ? yyjson_read(text, len, 0) : NULL;
    yyjson_val *list = yyjson_doc_get_root(doc), *object;
    int r = yyjson_is_arr(list) ? 0 : -EINVAL;
    size_t index, count, found = 0;

    yyjson_arr_foreach(list, index, count, object)
    {
        struct mig_allocation allocation;

        if (r == 0)
            r = read_allocation(object, &allocation);
        if (r == 0 && is_twice(ret_allocations, found, &allocation))
            r = -EINVAL;
        if (r == 0 && found < max)
            ret_allocations[found++] = allocation;
    }
    yyjson_doc_free(doc);
    return r < 0 ? r : (int)found;
}

void mig_allocations_add(struct strbuf *text, const struct mig_allocation *allocation)
{
    strbuf_add(text, text->len ? "," : "[");
    strbuf_addf(text,
                "{\"containerIndex\":%u,\"deviceIndex\":%u,\"gpuUUID\":", allocation->container,
                allocation->device);
    strbuf_add_json(text, allocation->gpu_uuid);
    strbuf_add(text, ",\"profile\":");
    strbuf_add_json(text, allocation->profile);
    strbuf_addf(text, ",\"placement\":{\"start\":%u,\"size\":%u}", allocation->start,
                allocation->size);
    if (allocation->made) {
        strbuf_add(text, ",\"migUUID\":");
        strbuf_add_json(text, allocation->mig_uuid);
        strbuf_addf(text, ",\"gpuInstanceID\":%u,\"computeInstanceID\":%u",
                    allocation->gpu_instance, allocation->compute_instance);
    }
    strbuf_add(text, "}");
}
