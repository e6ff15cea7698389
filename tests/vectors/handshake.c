/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether an agent is there. `check` is one value of a handshake, against the rule of 2.8.
 * `check-steps` is NVIDIA's, which follows what kubelet counts. `register` is whole passes of a
 * scheduler, against the cluster: the devices that it knows of, and whether it gives an agent up.
 */

#include "vendor/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "cluster/cluster.h"
#include "vectors.h"

#define WALL (INT64_C(1795374000) * NS_PER_S) /* 2026-11-22T19:00:00Z */

enum {
    WRITES_MAX = 16,
};

/* "a{now-5}b" with the time in UTC; local: in the zone of the case. */
static const char *fill_in_time(struct vector *vector, const char *text)
{
    const char *from = strchr(text, '{'), *to = strchr(text, '}');
    int64_t zone = yyjson_get_sint(yyjson_obj_get(vector->line, "tz_offset_s"));
    long long seconds;
    char word[8], time[HANDSHAKE_TEXT_SIZE];

    if (!from || !to || sscanf(from, "{%5[a-z]%lld}", word, &seconds) != 2) // NOLINT
        return text;
    seconds += strcmp(word, "local") == 0 ? zone : 0;
    (void)handshake_write("", WALL + seconds * NS_PER_S, time);
    return arena_printf(vector->arena, "%.*s%s%s", (int)(from - text), text, time + 1, to + 1);
}

/* HAMi writes its own zone's time and reads it as UTC; "Requesting" without a time crashes it. Here
 * such requests are silent, as any that can't be read; only HAMi 2.8's own requests are concerned.
 */
static bool is_other_on_purpose(const struct vector *vector)
{
    return yyjson_obj_get(yyjson_obj_get(vector->line, "out"), "panic") != NULL;
}

static void check_value(struct vector *vector)
{
    const char *value = yyjson_get_str(yyjson_obj_get(vector->line, "value"));
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    yyjson_val *out = yyjson_obj_get(vector->line, "out");
    enum handshake_verdict verdict;
    enum handshake_state state;
    int64_t asked_ns;

    state = handshake_read(value ? fill_in_time(vector, value) : NULL, WALL, &asked_ns);
    verdict = handshake_judge(state, false, HANDSHAKE_RULE_2_8);
    if (is_other_on_purpose(vector)) {
        vector_equal_number(vector, "silent", state == HANDSHAKE_SILENT, true);
        return;
    }
    vector_equal_number(vector, "healthy", verdict != HANDSHAKE_GONE,
                        yyjson_get_bool(yyjson_obj_get(out, "healthy")));
    vector_equal_number(vector, "need_update", verdict == HANDSHAKE_ASK,
                        yyjson_get_bool(yyjson_obj_get(out, "need_update")));
    vector_equal_number(vector, "asks", verdict == HANDSHAKE_ASK,
                        yyjson_get_bool(yyjson_obj_get(out, "asks")));
    if (instance)
        vector_equal_number(vector, "cleans", !instance->vendor->leaves_handshake,
                            yyjson_get_bool(yyjson_obj_get(out, "cleans")));
}

/* HAMi says of some agents without a handshake that they are always there. Here kubelet must count
 * a device. */
static void check_without(struct vector *vector)
{
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    const bool healthy =
        yyjson_get_bool(yyjson_obj_get(yyjson_obj_get(vector->line, "out"), "healthy"));
    struct device devices[8];
    struct node node;
    size_t count = 0;

    if (node_read(yyjson_obj_get(vector->line, "node"), &vector->vendors->kept, vector->arena,
                  &node, NULL) < 0) {
        vector_fail(vector, "the node can't be read");
        return;
    }
    if (instance->handshake_key)
        vector_fail(vector, "has a handshake");
    if (!healthy && vendor_is_alive(instance, &node) &&
        instance->vendor->read_node(instance, &node, vector->arena, devices, ARRAY_SIZE(devices),
                                    &count, NULL) >= 0 &&
        count)
        vector_fail(vector, "has devices");
}

/* HAMi says healthy of a node of which nothing changed, whatever it had. */
static void check_steps(struct vector *vector)
{
    const struct vendor_instance *instance =
        vendor_find(vector->vendors, vector_text(vector->line, "vendor"));
    bool was[2] = {false, false};
    yyjson_val *step;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(vector->line, "steps"), at, max, step)
    {
        const bool healthy = yyjson_get_bool(yyjson_obj_get(step, "healthy"));
        const bool updates = yyjson_get_bool(yyjson_obj_get(step, "need_update"));
        struct node node;
        bool *known;

        if (node_read(yyjson_obj_get(step, "node"), &vector->vendors->kept, vector->arena, &node,
                      NULL) < 0) {
            vector_fail(vector, "the node can't be read");
            return;
        }
        known = &was[strcmp(node.name, "n2") == 0];
        *known = healthy && (updates || *known);
        vector_equal_number(vector, "there", vendor_is_alive(instance, &node), *known);
    }
}

static bool knows(yyjson_val *known, const char *node, const char *word, const char *id)
{
    yyjson_val *ids = yyjson_obj_get(yyjson_obj_get(known, node), word), *item;
    size_t at, max;

    yyjson_arr_foreach(ids, at, max, item)
    {
        if (yyjson_equals_str(item, id))
            return true;
    }
    return false;
}

static size_t count_known(const struct vector *vector, yyjson_val *known, const char *node)
{
    size_t count = 0;

    for (size_t i = 0; i < vector->vendors->count; i++)
        count += yyjson_arr_size(
            yyjson_obj_get(yyjson_obj_get(known, node), vector->vendors->instances[i].id.word));
    return count;
}

static void compare_node(struct vector *vector, const struct cluster *cluster, yyjson_val *known,
                         const char *name)
{
    const struct place_node *node = cluster_find_node(cluster, name);
    const size_t ours = node ? node->device_count : 0;

    vector_equal_number(vector, name, (int64_t)ours, (int64_t)count_known(vector, known, name));
    for (size_t i = 0; i < ours; i++) {
        const struct device *device = &node->devices[i];

        if (!device->vendor || !knows(known, name, device->vendor->word, device->uuid))
            vector_fail(vector, "%s: device %s is not known", name, device->uuid);
    }
}

static bool is_listed(yyjson_val *step, const char *name)
{
    yyjson_val *node;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(step, "nodes"), at, max, node)
    {
        if (strcmp(vector_text(yyjson_obj_get(node, "metadata"), "name"), name) == 0)
            return true;
    }
    return false;
}

/* HAMi gives an agent up, and so do we, also on a node that a pass does not list. What NVIDIA's
 * nodes are told nobody reads. */
static void compare_writes(struct vector *vector, const struct cluster_handshake *writes,
                           size_t count, yyjson_val *step)
{
    yyjson_val *theirs = yyjson_obj_get(step, "writes");
    size_t ours = 0;
    yyjson_val *name, *keys, *key, *word;
    size_t wanted = 0, at, max, i, n;

    yyjson_obj_foreach(theirs, at, max, name, keys)
    {
        yyjson_obj_foreach(keys, i, n, key, word)
        {
            wanted += yyjson_equals_str(word, HANDSHAKE_DELETED_WORD) &&
                      !yyjson_equals_str(key, "hami.io/node-handshake");
        }
    }
    for (size_t k = 0; k < count; k++) {
        ours += is_listed(step, writes[k].node);
        if (strncmp(writes[k].value, HANDSHAKE_DELETED_WORD, strlen(HANDSHAKE_DELETED_WORD)) != 0)
            vector_fail(vector, "writes \"%s\"", writes[k].value);
    }
    vector_equal_number(vector, "given up", (int64_t)ours, (int64_t)wanted);
}

static void run_step(struct vector *vector, struct cluster *cluster, yyjson_val *step, int64_t now)
{
    struct cluster_handshake writes[WRITES_MAX];
    yyjson_val *value, *known = yyjson_obj_get(step, "known");
    size_t at, max, count;

    yyjson_arr_foreach(yyjson_obj_get(step, "nodes"), at, max, value)
    {
        struct node node;

        if (node_read(value, &vector->vendors->kept, vector->arena, &node, NULL) < 0 ||
            cluster_set_node(cluster, &node, NULL) == -ENOMEM)
            vector_fail(vector, "a node can't be read");
    }
    count = cluster_handshakes(cluster, now, WALL + now, writes, WRITES_MAX);
    compare_writes(vector, writes, count, step);
    compare_node(vector, cluster, known, "g1");
    compare_node(vector, cluster, known, "v1");
}

/* A pass comes each quarter of a minute. */
static void check_register(struct vector *vector)
{
    const struct cluster_options options = {.vendors = vector->vendors};
    CLEANUP(cluster_freep) struct cluster *cluster = cluster_new(&options);
    yyjson_val *step;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(vector->line, "steps"), at, max, step)
    {
        if (!vector->failed)
            run_step(vector, cluster, step, (int64_t)at * 15 * NS_PER_S);
    }
}

static void check_handshake(struct vector *vector)
{
    const char *op = vector_text(vector->line, "op");

    if (strcmp(op, "register") == 0)
        check_register(vector);
    else if (strcmp(op, "check-steps") == 0)
        check_steps(vector);
    else if (vector_has_tag(vector, "no-handshake"))
        check_without(vector);
    else
        check_value(vector);
}

/* A vendor of the case that is not served. */
static bool is_foreign(const struct vector *vector)
{
    yyjson_val *step, *name, *vendors, *word, *ids;
    size_t i, n, at, max, k, m;

    yyjson_arr_foreach(yyjson_obj_get(vector->line, "steps"), i, n, step)
    {
        yyjson_obj_foreach(yyjson_obj_get(step, "known"), at, max, name, vendors)
        {
            yyjson_obj_foreach(vendors, k, m, word, ids)
            {
                if (!vendor_find(vector->vendors, yyjson_get_str(word)))
                    return true;
            }
        }
    }
    return false;
}

static const char *left_out(const struct vector *vector)
{
    if (vector_has_tag(vector, "no-handshake") &&
        !vendor_find(vector->vendors, vector_text(vector->line, "vendor")))
        return "other vendors";
    return is_foreign(vector) ? "other vendors" : NULL;
}

const struct family handshake_family = {
    .name = "handshake",
    .check = check_handshake,
    .left_out = left_out,
};
