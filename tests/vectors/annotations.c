/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/util.h"
#include "model/keys.h"
#include "place/place.h"
#include "vectors.h"

/* codec-pod, op patch-annotations: devices that a pod was given, and what is written of them. */

static struct container_devices read_container(struct vector *vector, yyjson_val *value)
{
    const size_t count = yyjson_arr_size(value);
    struct container_device *items = ARENA_ARRAY(vector->arena, struct container_device, count);
    yyjson_val *device;
    size_t at, max;

    yyjson_arr_foreach(value, at, max, device)
    {
        items[at] = (struct container_device){
            .uuid = vector_text(device, "uuid"),
            .type = vector_text(device, "type"),
            .memory_mib = (int32_t)yyjson_get_sint(yyjson_obj_get(device, "mem")),
            .cores = (int32_t)yyjson_get_sint(yyjson_obj_get(device, "cores")),
        };
    }
    return (struct container_devices){.count = count, .items = items};
}

static struct pod_devices read_given(struct vector *vector)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *container;
    const size_t count = yyjson_arr_size(in);
    struct pod_devices given = {
        .count = count,
        .containers = ARENA_ARRAY(vector->arena, struct container_devices, count),
    };
    size_t at, max;

    yyjson_arr_foreach(in, at, max, container)
    {
        given.containers[at] = read_container(vector, container);
    }
    return given;
}

/* Those of the bind's own times are masked, and others write them. */
static bool is_ours(yyjson_val *key, yyjson_val *value)
{
    return !yyjson_equals_str(key, KEY_NODE) && yyjson_get_str(value)[0] != '@';
}

bool vector_is_ours_alone(const char *key)
{
    return strcmp(key, "CAMBRICON_DSMLU_ASSIGHED") == 0;
}

static size_t count_theirs(const struct text_pairs *ours)
{
    size_t count = 0;

    for (size_t i = 0; i < ours->count; i++)
        count += !vector_is_ours_alone(ours->items[i].key);
    return count;
}

static void compare(struct vector *vector, const struct text_pairs *ours)
{
    yyjson_val *theirs = yyjson_obj_get(yyjson_obj_get(vector->line, "out"), "annotations");
    yyjson_val *key, *value;
    size_t at, max, expected = 0;

    yyjson_obj_foreach(theirs, at, max, key, value)
    {
        const char *text;

        if (!is_ours(key, value))
            continue;
        expected++;
        text = text_pairs_get(ours, yyjson_get_str(key));
        vector_equal(vector, yyjson_get_str(key), text ? text : "(missing)", yyjson_get_str(value));
    }
    vector_equal_number(vector, "annotations", (int64_t)count_theirs(ours), (int64_t)expected);
}

void check_patch_annotations(struct vector *vector)
{
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];
    const struct pod_devices given = read_given(vector);
    struct device devices[64];
    struct vendor_grant grant = {.devices = devices, .given = &given};
    struct node node;
    struct pod pod;
    int r;

    if (!instance ||
        node_read(yyjson_obj_get(vector->line, "node"), &vector->vendors->kept, vector->arena,
                  &node, NULL) < 0 ||
        pod_read(yyjson_obj_get(vector->line, "pod"), &vector->vendors->kept, vector->arena, &pod,
                 NULL) < 0) {
        vector_fail(vector, "no such vendor, or no node or pod");
        return;
    }
    (void)instance->vendor->read_node(instance, &node, vector->arena, devices, ARRAY_SIZE(devices),
                                      &grant.device_count, NULL);
    grant.pod = &pod;
    grant.node = node.name;
    r = vendor_write_annotations(instance, &grant, vector->arena, pairs);
    if (r < 0)
        vector_fail(vector, "error %d", r);
    else
        compare(vector, &(struct text_pairs){pairs, (size_t)r});
}
