/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "model/codec.h"
#include "vectors.h"
#include "vendor/nvidia/mig.h"

/* Nodes. */

static const char *text_or_empty(const char *text)
{
    return text ? text : "(no memory)";
}

static void compare_registered(struct vector *vector, const struct registered_device *ours,
                               yyjson_val *theirs)
{
    vector_equal(vector, "id", ours->id, vector_text(theirs, "id"));
    vector_equal(vector, "type", ours->type, vector_text(theirs, "type"));
    vector_equal(vector, "mode", ours->mode, vector_text(theirs, "mode"));
    vector_equal_number(vector, "index", (int64_t)ours->index,
                        (int64_t)yyjson_get_uint(yyjson_obj_get(theirs, "index")));
    vector_equal_number(vector, "count", ours->count,
                        yyjson_get_sint(yyjson_obj_get(theirs, "count")));
    vector_equal_number(vector, "devmem", ours->devmem,
                        yyjson_get_sint(yyjson_obj_get(theirs, "devmem")));
    vector_equal_number(vector, "devcore", ours->devcore,
                        yyjson_get_sint(yyjson_obj_get(theirs, "devcore")));
    vector_equal_number(vector, "numa", ours->numa,
                        yyjson_get_sint(yyjson_obj_get(theirs, "numa")));
    vector_equal_number(vector, "health", ours->health,
                        yyjson_get_bool(yyjson_obj_get(theirs, "health")));
}

static void compare_encoded(struct vector *vector, const struct registered_devices *devices,
                            const char *text, const char *json)
{
    vector_equal(vector, "text", text_or_empty(node_devices_encode_text(devices, vector->arena)),
                 text);
    vector_equal(vector, "json", text_or_empty(node_devices_encode_json(devices, vector->arena)),
                 json);
}

static void check_decode(struct vector *vector, bool json)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *out = yyjson_obj_get(vector->line, "out");
    yyjson_val *theirs = yyjson_obj_get(out, "devices"), *device;
    struct registered_devices ours;
    struct error err = ERROR_INIT;
    size_t at, max;
    int r;

    r = (json ? node_devices_decode_json : node_devices_decode_text)(
        yyjson_get_str(in), yyjson_get_len(in), vector->arena, &ours, &err);
    if (!theirs) {
        if (r >= 0)
            vector_fail(vector, "read, not refused (%s)", vector_text(out, "error"));
        return;
    }
    if (r < 0) {
        vector_fail(vector, "refused: %s", err.text);
        return;
    }
    if (!vector_equal_number(vector, "devices", (int64_t)ours.count,
                             (int64_t)yyjson_arr_size(theirs)))
        return;
    yyjson_arr_foreach(theirs, at, max, device)
    {
        compare_registered(vector, &ours.items[at], device);
    }
    compare_encoded(vector, &ours, vector_text(out, "reencoded"), vector_text(out, "marshalled"));
}

static void read_registered(yyjson_val *value, struct registered_device *device)
{
    *device = (struct registered_device){
        .id = vector_text(value, "id"),
        .type = vector_text(value, "type"),
        .mode = vector_text(value, "mode"),
        .index = yyjson_get_uint(yyjson_obj_get(value, "index")),
        .count = (int32_t)yyjson_get_sint(yyjson_obj_get(value, "count")),
        .devmem = (int32_t)yyjson_get_sint(yyjson_obj_get(value, "devmem")),
        .devcore = (int32_t)yyjson_get_sint(yyjson_obj_get(value, "devcore")),
        .numa = yyjson_get_sint(yyjson_obj_get(value, "numa")),
        .health = yyjson_get_bool(yyjson_obj_get(value, "health")),
    };
}

static void check_encode(struct vector *vector)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *out = yyjson_obj_get(vector->line, "out");
    struct registered_devices devices = {.count = yyjson_arr_size(in)};
    yyjson_val *value;
    size_t at, max;

    devices.items = ARENA_ARRAY(vector->arena, struct registered_device, devices.count);
    yyjson_arr_foreach(in, at, max, value)
    {
        read_registered(value, &devices.items[at]);
    }
    compare_encoded(vector, &devices, vector_text(out, "text"), vector_text(out, "json"));
}

/* A whole node: what the vendor makes of it. */
static void check_node(struct vector *vector)
{
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    yyjson_val *theirs = yyjson_obj_get(out, "devices"), *device;
    struct error err = ERROR_INIT;
    struct device devices[64];
    size_t count = 0, at, max;
    struct node node;
    int r;

    r = node_read(yyjson_obj_get(vector->line, "node"), &vector->vendors->kept, vector->arena,
                  &node, &err);
    if (r == 0)
        r = instance->vendor->read_node(instance, &node, vector->arena, devices, 64, &count, &err);
    if (!theirs) {
        if (r >= 0 && count)
            vector_fail(vector, "read, not refused (%s)", vector_text(out, "error"));
        return;
    }
    if (r < 0) {
        vector_fail(vector, "refused: %s", err.text);
        return;
    }
    if (!vector_equal_number(vector, "devices", (int64_t)count, (int64_t)yyjson_arr_size(theirs)))
        return;
    yyjson_arr_foreach(theirs, at, max, device)
    {
        const struct device *ours = &devices[at];

        vector_equal(vector, "id", ours->uuid, vector_text(device, "id"));
        vector_equal(vector, "type", ours->model, vector_text(device, "type"));
        vector_equal(vector, "mode", ours->mode, vector_text(device, "mode"));
        vector_equal_number(vector, "count", ours->max_tasks,
                            yyjson_get_sint(yyjson_obj_get(device, "count")));
        vector_equal_number(vector, "devmem", (int64_t)(ours->memory_bytes >> 20),
                            yyjson_get_sint(yyjson_obj_get(device, "devmem")));
        vector_equal_number(vector, "devcore", ours->cores,
                            yyjson_get_sint(yyjson_obj_get(device, "devcore")));
        vector_equal_number(vector, "numa", ours->numa_node,
                            yyjson_get_sint(yyjson_obj_get(device, "numa")));
        vector_equal_number(vector, "health", ours->healthy,
                            yyjson_get_bool(yyjson_obj_get(device, "health")));
    }
}

static void check_codec_node(struct vector *vector)
{
    const char *op = vector_text(vector->line, "op");

    if (strcmp(op, "encode") == 0)
        check_encode(vector);
    else if (strcmp(op, "node-devices") == 0)
        check_node(vector);
    else
        check_decode(vector, strcmp(op, "decode-json") == 0);
}

static const char *left_out_of_codec_node(const struct vector *vector)
{
    if (strcmp(vector->id, "codec-node-0303") == 0)
        return "a NUL in an id is refused";
    if (strcmp(vector->id, "codec-node-0508") == 0 || strcmp(vector->id, "codec-node-0509") == 0)
        return "either form is read for any vendor";
    return NULL;
}

const struct family codec_node_family = {
    .name = "codec-node",
    .check = check_codec_node,
    .left_out = left_out_of_codec_node,
};

/* Pods. */

static void compare_container(struct vector *vector, const struct container_devices *ours,
                              yyjson_val *theirs)
{
    yyjson_val *value;
    size_t at, max;

    if (!vector_equal_number(vector, "devices", (int64_t)ours->count,
                             (int64_t)yyjson_arr_size(theirs)))
        return;
    yyjson_arr_foreach(theirs, at, max, value)
    {
        const struct container_device *device = &ours->items[at];

        vector_equal(vector, "uuid", device->uuid, vector_text(value, "uuid"));
        vector_equal(vector, "type", device->type, vector_text(value, "type"));
        vector_equal_number(vector, "mem", device->memory_mib,
                            yyjson_get_sint(yyjson_obj_get(value, "mem")));
        vector_equal_number(vector, "cores", device->cores,
                            yyjson_get_sint(yyjson_obj_get(value, "cores")));
    }
}

static void check_decode_container(struct vector *vector)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *out = yyjson_obj_get(vector->line, "out");
    struct container_devices ours;
    struct error err = ERROR_INIT;
    int r;

    r = container_devices_decode(yyjson_get_str(in), yyjson_get_len(in), vector->arena, &ours,
                                 &err);
    if (!yyjson_obj_get(out, "devices")) {
        if (r >= 0)
            vector_fail(vector, "read, not refused (%s)", vector_text(out, "error"));
        return;
    }
    if (r < 0) {
        vector_fail(vector, "refused: %s", err.text);
        return;
    }
    compare_container(vector, &ours, yyjson_obj_get(out, "devices"));
    vector_equal(vector, "text", text_or_empty(container_devices_encode(&ours, vector->arena)),
                 vector_text(out, "reencoded"));
}

/* HAMi 2.8 forgets containers without devices; we keep their places, as 2.10 does. */
static void compare_pod(struct vector *vector, const struct pod_devices *ours, yyjson_val *theirs)
{
    size_t at = 0;

    for (size_t i = 0; i < ours->count; i++) {
        if (ours->containers[i].count)
            compare_container(vector, &ours->containers[i], yyjson_arr_get(theirs, at++));
    }
    vector_equal_number(vector, "containers", (int64_t)at, (int64_t)yyjson_arr_size(theirs));
}

/* One vendor's devices. Returns false when they can't be read. */
static bool check_vendor_pod(struct vector *vector, const struct vendor_instance *instance)
{
    yyjson_val *annotations = yyjson_obj_get(vector->line, "annotations");
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    yyjson_val *theirs = yyjson_obj_get(yyjson_obj_get(out, "devices"), instance->id.word);
    yyjson_val *text = yyjson_obj_get(annotations, instance->allocated_key);
    struct error err = ERROR_INIT;
    struct pod_devices ours;

    if (!text && theirs)
        vector_fail(vector, "devices without an annotation");
    if (!text)
        return true;
    if (pod_devices_decode(yyjson_get_str(text), vector->arena, &ours, &err) < 0) {
        if (theirs)
            vector_fail(vector, "refused: %s", err.text);
        return false;
    }
    if (theirs)
        compare_pod(vector, &ours, theirs);
    return true;
}

/* Of a pod with one annotation that can't be read HAMi reads none; nor do we, src/cluster/pod.c. */
static void check_decode_pod(struct vector *vector)
{
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    yyjson_val *annotations = yyjson_obj_get(vector->line, "annotations");
    size_t known = 0;
    bool readable = true;

    for (size_t i = 0; i < vector->vendors->count; i++) {
        const struct vendor_instance *instance = &vector->vendors->instances[i];

        readable &= check_vendor_pod(vector, instance);
        known += yyjson_obj_get(annotations, instance->allocated_key) != NULL;
    }
    vector_equal_number(vector, "vendors", readable ? (int64_t)known : 0,
                        (int64_t)yyjson_obj_size(yyjson_obj_get(out, "devices")));
}

static void fill_container(struct vector *vector, yyjson_val *list,
                           struct container_devices *ret_devices)
{
    yyjson_val *value;
    size_t at, max;

    ret_devices->count = yyjson_arr_size(list);
    ret_devices->items = ARENA_ARRAY(vector->arena, struct container_device, ret_devices->count);
    yyjson_arr_foreach(list, at, max, value)
    {
        ret_devices->items[at] = (struct container_device){
            .uuid = vector_text(value, "uuid"),
            .type = vector_text(value, "type"),
            .memory_mib = (int32_t)yyjson_get_sint(yyjson_obj_get(value, "mem")),
            .cores = (int32_t)yyjson_get_sint(yyjson_obj_get(value, "cores")),
        };
    }
}

static void check_encode_pod(struct vector *vector)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *list;
    struct pod_devices devices = {.count = yyjson_arr_size(in)};
    size_t at, max;

    devices.containers = ARENA_ARRAY(vector->arena, struct container_devices, devices.count);
    yyjson_arr_foreach(in, at, max, list)
    {
        fill_container(vector, list, &devices.containers[at]);
    }
    vector_equal(vector, "text", text_or_empty(pod_devices_encode(&devices, vector->arena)),
                 vector_text(vector->line, "out"));
}

static void check_mig_instance(struct vector *vector)
{
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    int group = -1, instance = -1, r;

    r = mig_instance_parse(vector_text(vector->line, "in"), &group, &instance);
    if ((r < 0) != (yyjson_obj_get(out, "error") != NULL))
        vector_fail(vector, "%s", r < 0 ? "refused" : "read, not refused");
    vector_equal_number(vector, "group", group, yyjson_get_sint(yyjson_obj_get(out, "group")));
    vector_equal_number(vector, "instance", instance,
                        yyjson_get_sint(yyjson_obj_get(out, "instance")));
}

static void check_codec_pod(struct vector *vector)
{
    static const struct {
        const char *op;
        void (*check)(struct vector *vector);
    } ops[] = {
        {"decode-container", check_decode_container},
        {"decode-pod", check_decode_pod},
        {"encode-pod", check_encode_pod},
        {"mig-instance", check_mig_instance},
        {"patch-annotations", check_patch_annotations},
    };

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].op, vector_text(vector->line, "op")) == 0) {
            ops[i].check(vector);
            return;
        }
    }
    vector_fail(vector, "no such op");
}

static const char *left_out_of_codec_pod(const struct vector *vector)
{
    return strcmp(vector->id, "codec-pod-0312") == 0 ? "the agent is not told the card" : NULL;
}

const struct family codec_pod_family = {
    .name = "codec-pod",
    .check = check_codec_pod,
    .left_out = left_out_of_codec_pod,
};
