/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "place/place.h"
#include "vectors.h"

enum {
    HAMI_NO_PERCENT = 101, /* HAMi's word for what we say with 0 */
    DEVICES_MAX = 64,
    REQUESTS_MAX = 16,
    COUNTED = 8, /* devices of a node of which the case says only what was given */
};

static int64_t number(yyjson_val *object, const char *key)
{
    return yyjson_get_sint(yyjson_obj_get(object, key));
}

/* To the bit; but a sum of nothing, which is not a number for HAMi 2.8, is 0. */
static void compare(struct vector *vector, float ours)
{
    yyjson_val *score = yyjson_obj_get(vector->line, "score");
    uint32_t bits, theirs_bits = (uint32_t)strtoul(vector_text(score, "bits"), NULL, 16);
    float theirs;

    memcpy(&bits, &ours, sizeof(bits));
    memcpy(&theirs, &theirs_bits, sizeof(theirs));
    if (bits == theirs_bits || (isnan(ours) && isnan(theirs)) || (isnan(theirs) && ours == 0.0f))
        return;
    vector_fail(vector, "score: %.9g (0x%08" PRIx32 "), not %s", (double)ours, bits,
                vector_text(score, "value"));
}

static void read_usage(yyjson_val *value, struct device *device)
{
    device->used = (struct device_usage){
        .tasks = (unsigned)number(value, "used"),
        .cores = (unsigned)number(value, "usedcores"),
        .memory_bytes = (uint64_t)number(value, "usedmem") * MIB,
    };
}

static struct device read_device(yyjson_val *value)
{
    struct device device = {
        .index = (unsigned)number(value, "index"),
        .numa_node = (int)number(value, "numa"),
        .max_tasks = (unsigned)number(value, "count"),
        .cores = (unsigned)number(value, "totalcore"),
        .memory_bytes = (uint64_t)number(value, "totalmem") * MIB,
        .healthy = true,
    };

    COPY_TEXT(device.uuid, vector_text(value, "id"));
    read_usage(value, &device);
    return device;
}

/* One device, and all requests of a container. */
static void check_device(struct vector *vector)
{
    const struct device device = read_device(yyjson_obj_get(vector->line, "device"));
    const struct place_weights weights = {0};
    struct request requests[REQUESTS_MAX];
    yyjson_val *name, *value;
    size_t at, max, count = 0;

    yyjson_obj_foreach(yyjson_obj_get(vector->line, "requests"), at, max, name, value)
    {
        const int64_t percent = number(value, "mempercentage");

        if (count == REQUESTS_MAX) {
            vector_fail(vector, "too many requests for the test");
            return;
        }
        requests[count++] = (struct request){
            .count = (unsigned)number(value, "nums"),
            .memory_bytes = (uint64_t)number(value, "memreq") * MIB,
            .memory_percent = percent == HAMI_NO_PERCENT ? 0 : (unsigned)percent,
            .cores = (unsigned)number(value, "coresreq"),
        };
    }
    compare(vector, place_score(&device, requests, count, &weights));
}

static size_t read_devices(struct vector *vector, const char *key, struct device *ret_devices)
{
    yyjson_val *list = yyjson_obj_get(vector->line, key), *value;
    size_t at, max;

    if (yyjson_arr_size(list) > DEVICES_MAX) {
        vector_fail(vector, "too many devices for the test");
        return 0;
    }
    yyjson_arr_foreach(list, at, max, value)
    {
        ret_devices[at] = read_device(value);
    }
    return yyjson_arr_size(list);
}

static void check_node(struct vector *vector)
{
    struct device devices[DEVICES_MAX];

    compare(vector, place_node_score(devices, read_devices(vector, "devices", devices)));
}

static bool is_order(yyjson_val *order, const struct device *devices, const size_t *positions,
                     size_t count)
{
    if (yyjson_arr_size(order) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!yyjson_equals_str(yyjson_arr_get(order, i), devices[positions[i]].uuid))
            return false;
    }
    return true;
}

/* HAMi's order of many devices is not stable; then `order_stable` is there, too. */
static void check_order(struct vector *vector)
{
    yyjson_val *in = yyjson_obj_get(vector->line, "in"), *value;
    struct device devices[DEVICES_MAX];
    float scores[DEVICES_MAX];
    struct place_policy policy = {0};
    size_t positions[DEVICES_MAX];
    const size_t count = read_devices(vector, "in", devices);
    size_t at, max;

    yyjson_arr_foreach(in, at, max, value)
    {
        const uint32_t bits =
            (uint32_t)strtoul(vector_text(yyjson_obj_get(value, "score"), "bits"), NULL, 16);

        memcpy(&scores[at], &bits, sizeof(bits));
        positions[at] = at;
    }
    place_policy_read(vector_text(vector->line, "policy"), &policy);
    place_sort(devices, scores, &policy, positions, count);
    if (!is_order(yyjson_obj_get(vector->line, "order"), devices, positions, count) &&
        !is_order(yyjson_obj_get(vector->line, "order_stable"), devices, positions, count))
        vector_fail(vector, "another order");
}

/* What a vendor adds to a node's score. */

/* The custom information of a device, which stands with those given where the case lists no
 * others. */
static void add_member(struct strbuf *text, yyjson_val *value, const char *name, const char *as)
{
    yyjson_val *member = yyjson_obj_get(yyjson_obj_get(value, "custominfo"), name);

    if (yyjson_is_int(member))
        strbuf_addf(text, "\"%s\":%" PRId64, as, yyjson_get_sint(member));
}

static void add_registered(struct strbuf *text, const char *id, yyjson_val *value, bool sgpu)
{
    strbuf_addf(text, "%s{\"%s\":\"%s\",", text->len > 1 ? "," : "", sgpu ? "uuid" : "id", id);
    if (sgpu) {
        add_member(text, value, "LinkZone", "linkZone");
    } else {
        strbuf_add(text, "\"custominfo\":{");
        add_member(text, value, "NetworkID", "NetworkID");
        strbuf_add(text, "}");
    }
    strbuf_add(text, "}");
}

/* A registration as the vendor's agent would have written it. */
static const char *write_registration(struct vector *vector, bool sgpu)
{
    struct strbuf text = STRBUF_IN(vector->arena, 1 << 16);
    yyjson_val *before = yyjson_obj_get(vector->line, "before"), *container, *value;
    size_t at, max, i, n;

    strbuf_add(&text, "[");
    yyjson_arr_foreach(before, at, max, value)
    {
        add_registered(&text, vector_text(value, "id"), value, sgpu);
    }
    if (!yyjson_arr_size(before)) {
        yyjson_arr_foreach(yyjson_obj_get(vector->line, "granted"), at, max, container)
        {
            yyjson_arr_foreach(container, i, n, value)
            {
                add_registered(&text, vector_text(value, "uuid"), value, sgpu);
            }
        }
    }
    strbuf_add(&text, "]");
    return strbuf_text(&text);
}

/* The case's node, with what its agent and kubelet would say besides. */
static size_t read_vendor_node(struct vector *vector, const struct vendor_instance *instance,
                               struct device *ret_devices)
{
    const struct resource resource = {instance->count_resource, "8", {QUANTITY_WHOLE, COUNTED}};
    struct text_pair pair = {instance->register_key, NULL};
    yyjson_val *value;
    struct node node;
    size_t count = 0, at, max;

    if (node_read(yyjson_obj_get(vector->line, "node"), &vector->vendors->kept, vector->arena,
                  &node, NULL) < 0)
        return 0;
    node.capacity = (struct resource_list){&resource, 1};
    if (instance->register_key) {
        pair.value = write_registration(vector, strcmp(instance->id.word, "Metax-SGPU") == 0);
        node.annotations = (struct text_pairs){&pair, 1};
    }
    if (instance->vendor->read_node(instance, &node, vector->arena, ret_devices, DEVICES_MAX,
                                    &count, NULL) < 0)
        vector_fail(vector, "the node can't be read");
    yyjson_arr_foreach(yyjson_obj_get(vector->line, "before"), at, max, value)
    {
        if (at < count) {
            COPY_TEXT(ret_devices[at].uuid, vector_text(value, "id"));
            read_usage(value, &ret_devices[at]);
            if (strcmp(vector_text(value, "type"), "other") == 0)
                ret_devices[at].vendor = NULL;
        }
    }
    return count;
}

static void read_granted(struct vector *vector, const struct vendor_instance *instance,
                         struct pod_devices *ret_given)
{
    yyjson_val *granted = yyjson_obj_get(vector->line, "granted"), *container, *value, *key;
    struct text_pair pairs[DEVICES_MAX];
    size_t at, max, i, n, k, m, pair_count = 0;

    ret_given->count = yyjson_arr_size(granted);
    ret_given->containers = ARENA_ARRAY(vector->arena, struct container_devices, ret_given->count);
    yyjson_arr_foreach(granted, at, max, container)
    {
        struct container_device *items =
            ARENA_ARRAY(vector->arena, struct container_device, yyjson_arr_size(container));

        yyjson_arr_foreach(container, i, n, value)
        {
            yyjson_val *annotations =
                           yyjson_obj_get(yyjson_obj_get(value, "custominfo"), "Pod.Annotations"),
                       *text;

            items[i].uuid = vector_text(value, "uuid");
            items[i].type = vector_text(value, "type");
            items[i].cores = (int32_t)number(value, "cores");
            pair_count = 0;
            yyjson_obj_foreach(annotations, k, m, key, text)
            {
                if (pair_count < DEVICES_MAX)
                    pairs[pair_count++] =
                        (struct text_pair){yyjson_get_str(key), yyjson_get_str(text)};
            }
        }
        ret_given->containers[at] =
            (struct container_devices){.count = yyjson_arr_size(container), .items = items};
    }
    if (instance->vendor->recall)
        (void)instance->vendor->recall(instance, &(struct text_pairs){pairs, pair_count},
                                       vector->arena, ret_given);
}

static void check_vendor_node(struct vector *vector)
{
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    struct device devices[DEVICES_MAX];
    struct pod_devices given;
    struct place_fitted fitted = {.devices = devices, .given = &given};

    if (!instance || !instance->id.rules->score_node) {
        vector_fail(vector, "no such vendor, or no score of its own");
        return;
    }
    fitted.vendor = &instance->id;
    fitted.device_count = read_vendor_node(vector, instance, devices);
    fitted.node_order =
        strcmp(vector_text(vector->line, "policy"), "spread") == 0 ? PLACE_SPREAD : PLACE_BINPACK;
    read_granted(vector, instance, &given);
    compare(vector, instance->id.rules->score_node(&fitted) + 0.0f);
}

static void check_score(struct vector *vector)
{
    static const struct {
        const char *op;
        void (*check)(struct vector *vector);
    } ops[] = {
        {"device", check_device},
        {"node", check_node},
        {"device-order", check_order},
        {"vendor-node", check_vendor_node},
    };

    for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
        if (strcmp(ops[i].op, vector_text(vector->line, "op")) == 0) {
            ops[i].check(vector);
            return;
        }
    }
    vector_fail(vector, "no such op");
}

/* Admission denies the words that HAMi takes for neither order. */
static const char *left_out(const struct vector *vector)
{
    const char *policy = vector_text(vector->line, "policy");

    if (strcmp(vector_text(vector->line, "vendor"), "Metax-GPU") == 0 &&
        strcmp(policy, "binpack") != 0 && strcmp(policy, "spread") != 0)
        return "an order of nodes that doesn't exist";
    return NULL;
}

const struct family score_family = {
    .name = "score",
    .check = check_score,
    .left_out = left_out,
};
