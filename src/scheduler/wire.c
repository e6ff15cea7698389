/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/parse.h"
#include "base/util.h"
#include "model/keys.h"

/* In nanoseconds these bounds, and sums of a few, fit into 64 bits. */
#define TIME_MAX_S INT64_C(4000000000)
#define LEASE_MAX_S INT64_C(1000000)

yyjson_val *wire_get(yyjson_val *object, const char *key)
{
    yyjson_val *found = yyjson_obj_get(object, key), *name;
    yyjson_obj_iter iter;

    if (found || !yyjson_is_obj(object))
        return found;
    iter = yyjson_obj_iter_with(object);
    while ((name = yyjson_obj_iter_next(&iter))) {
        if (strcasecmp(yyjson_get_str(name), key) == 0)
            return yyjson_obj_iter_get_val(name);
    }
    return NULL;
}

const char *wire_text(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(wire_get(object, key));

    return text ? text : "";
}

static int read_names(yyjson_val *list, struct arena *arena, struct filter_args *args,
                      struct error *err)
{
    yyjson_val *name;
    yyjson_arr_iter iter;

    args->names = ARENA_ARRAY(arena, const char *, yyjson_arr_size(list));
    if (!args->names)
        return error_set(err, -ENOMEM, "NodeNames: too many");
    iter = yyjson_arr_iter_with(list);
    while ((name = yyjson_arr_iter_next(&iter))) {
        if (!yyjson_is_str(name))
            return error_set(err, -EINVAL, "NodeNames: not a list of names");
        args->names[args->count++] = yyjson_get_str(name);
    }
    return 0;
}

static int read_nodes(yyjson_val *list, const struct kept_names *kept, struct arena *arena,
                      struct filter_args *args, struct error *err)
{
    const size_t count = yyjson_arr_size(list);
    yyjson_val *item;
    size_t at, max;
    int r;

    args->names = ARENA_ARRAY(arena, const char *, count);
    args->nodes = ARENA_ARRAY(arena, struct node, count);
    args->wholes = ARENA_ARRAY(arena, yyjson_val *, count);
    if (!args->names || !args->nodes || !args->wholes)
        return error_set(err, -ENOMEM, "Nodes: too many");
    yyjson_arr_foreach(list, at, max, item)
    {
        r = node_read(item, kept, arena, &args->nodes[at], err);
        if (r < 0)
            return error_wrap(err, r, "Nodes.items[%zu]", at);
        args->names[at] = args->nodes[at].name;
        args->wholes[at] = item;
        args->count++;
    }
    return 0;
}

int wire_read_filter(yyjson_val *root, const struct kept_names *kept, struct arena *arena,
                     struct filter_args *ret_args, struct error *err)
{
    yyjson_val *pod = wire_get(root, "Pod"), *names = wire_get(root, "NodeNames");
    struct filter_args args = {.count = 0};
    int r;

    if (!yyjson_is_obj(pod))
        return error_set(err, -EINVAL, "extender args missing pod");
    r = pod_read(pod, kept, arena, &args.pod, err);
    if (r < 0)
        return error_wrap(err, r, "Pod");
    if (yyjson_is_arr(names)) {
        r = read_names(names, arena, &args, err);
        if (r < 0)
            return r;
    } else if (yyjson_is_obj(wire_get(root, "Nodes"))) {
        r = read_nodes(wire_get(wire_get(root, "Nodes"), "items"), kept, arena, &args, err);
        if (r < 0)
            return r;
    }
    *ret_args = args;
    return 0;
}

static int read_uids(yyjson_val *pods, struct arena *arena, struct cluster_victims *victims,
                     struct error *err)
{
    const char **uids = ARENA_ARRAY(arena, const char *, yyjson_arr_size(pods));
    yyjson_val *pod;
    size_t at, max;

    if (!uids)
        return error_set(err, -ENOMEM, "NodeNameToMetaVictims: too many");
    yyjson_arr_foreach(pods, at, max, pod)
    {
        uids[victims->count] = wire_text(pod, "UID");
        if (!uids[victims->count++][0])
            return error_set(err, -EINVAL, "NodeNameToMetaVictims[%.64s]: a pod without UID",
                             victims->node);
    }
    victims->uids = uids;
    return 0;
}

int wire_read_preempt(yyjson_val *root, const struct kept_names *kept, struct arena *arena,
                      struct preempt_args *ret_args, struct error *err)
{
    yyjson_val *pod = wire_get(root, "Pod"), *nodes = wire_get(root, "NodeNameToMetaVictims");
    struct preempt_args args = {.count = 0};
    yyjson_val *name, *value;
    size_t at, max;
    int r;

    if (!yyjson_is_obj(pod))
        return error_set(err, -EINVAL, "extender args missing pod");
    if (!yyjson_is_obj(nodes))
        return error_set(err, -EINVAL,
                         "no NodeNameToMetaVictims: set nodeCacheCapable: true for this extender");
    r = pod_read(pod, kept, arena, &args.pod, err);
    if (r < 0)
        return error_wrap(err, r, "Pod");
    args.victims = ARENA_ARRAY(arena, struct cluster_victims, yyjson_obj_size(nodes));
    if (!args.victims)
        return error_set(err, -ENOMEM, "NodeNameToMetaVictims: too many");
    yyjson_obj_foreach(nodes, at, max, name, value)
    {
        struct cluster_victims *victims = &args.victims[args.count++];

        *victims = (struct cluster_victims){
            .node = yyjson_get_str(name),
            .pdb_violations = yyjson_get_sint(wire_get(value, "NumPDBViolations")),
        };
        r = read_uids(wire_get(value, "Pods"), arena, victims, err);
        if (r < 0)
            return r;
    }
    *ret_args = args;
    return 0;
}

static int copy_name(yyjson_val *root, const char *key, char to[static WIRE_NAME_SIZE],
                     struct error *err)
{
    const char *text = wire_text(root, key);

    if (!text[0] || strlen(text) >= WIRE_NAME_SIZE)
        return error_set(err, -EINVAL, "%s: missing or too long", key);
    strcpy(to, text);
    return 0;
}

int wire_read_bind(yyjson_val *root, struct bind_args *ret_args, struct error *err)
{
    struct bind_args args;
    int r;

    r = copy_name(root, "PodNamespace", args.namespace, err);
    if (r == 0)
        r = copy_name(root, "PodName", args.name, err);
    if (r == 0)
        r = copy_name(root, "PodUID", args.uid, err);
    if (r == 0)
        r = copy_name(root, "Node", args.node, err);
    if (r == 0)
        *ret_args = args;
    return r;
}

/* "2026-01-31T12:00:00.123456Z", in ns since 1970; 0 for a text that is no such time. */
static int64_t read_time_ns(const char *text)
{
    struct tm utc = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    int64_t unit = INT64_C(1000000000), ns;
    time_t seconds = at ? timegm(&utc) : 0;

    if (seconds <= 0 || seconds > TIME_MAX_S)
        return 0;
    ns = (int64_t)seconds * unit;
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9'; at++) {
            unit /= 10;
            ns += (*at - '0') * unit;
        }
    }
    return strcmp(at, "Z") == 0 ? ns : 0;
}

void wire_read_lease(yyjson_val *root, struct lease *ret_lease)
{
    yyjson_val *spec = yyjson_obj_get(root, "spec");
    yyjson_val *annotations = yyjson_obj_get(yyjson_obj_get(root, "metadata"), "annotations");
    int64_t seconds = yyjson_get_sint(yyjson_obj_get(spec, "leaseDurationSeconds"));

    *ret_lease = (struct lease){
        .holder = wire_text(spec, "holderIdentity"),
        .transitions = yyjson_get_uint(yyjson_obj_get(spec, "leaseTransitions")),
        .acquired_wall_ns = read_time_ns(wire_text(spec, "acquireTime")),
        .renewed_wall_ns = read_time_ns(wire_text(spec, "renewTime")),
        .duration_ns = MIN(MAX(seconds, 0), LEASE_MAX_S) * INT64_C(1000000000),
    };
    ret_lease->handed_back =
        parse_u64(wire_text(annotations, KEY_HANDED_BACK), &ret_lease->handed_back_after) == 0;
}

void wire_write_names(struct strbuf *buf, const char *const *names, size_t count)
{
    strbuf_add(buf, "{\"Nodes\":null,\"NodeNames\":[");
    for (size_t i = 0; i < count; i++) {
        strbuf_add(buf, i ? "," : "");
        strbuf_add_json(buf, names[i]);
    }
    strbuf_add(buf, "],\"FailedNodes\":null,\"FailedAndUnresolvableNodes\":null,\"Error\":\"\"}\n");
}

/* For callers that sent whole nodes. */
void wire_write_nodes(struct strbuf *buf, yyjson_val *const *wholes, size_t count)
{
    strbuf_add(buf, "{\"Nodes\":{\"metadata\":{},\"items\":[");
    for (size_t i = 0; i < count; i++) {
        char *text = yyjson_val_write(wholes[i], 0, NULL);

        strbuf_add(buf, i ? "," : "");
        strbuf_add(buf, text ? text : "");
        buf->failed |= !text;
        free(text);
    }
    strbuf_add(buf,
               "]},\"NodeNames\":null,\"FailedNodes\":null,\"FailedAndUnresolvableNodes\":null,"
               "\"Error\":\"\"}\n");
}

static void write_failed(struct strbuf *buf, const struct cluster_answer *answer, bool for_good)
{
    bool first = true;

    for (size_t i = 0; i < answer->failed_count; i++) {
        if (answer->failed[i].for_good != for_good)
            continue;
        strbuf_add(buf, first ? "" : ",");
        strbuf_add_json(buf, answer->failed[i].name);
        strbuf_add(buf, ":");
        strbuf_add_json(buf, answer->failed[i].reason);
        first = false;
    }
}

/* On these nodes no eviction would help, so kube-scheduler need not look for victims. */
void wire_write_failed(struct strbuf *buf, const struct cluster_answer *answer)
{
    strbuf_add(buf, "{\"Nodes\":null,\"NodeNames\":null,\"FailedNodes\":{");
    write_failed(buf, answer, false);
    strbuf_add(buf, "},\"FailedAndUnresolvableNodes\":{");
    write_failed(buf, answer, true);
    strbuf_add(buf, "},\"Error\":\"\"}\n");
}

static void write_victims(struct strbuf *buf, const struct cluster_victims *victims)
{
    strbuf_add_json(buf, victims->node);
    strbuf_add(buf, ":{\"Pods\":[");
    for (size_t i = 0; i < victims->count; i++) {
        strbuf_add(buf, i ? ",{\"UID\":" : "{\"UID\":");
        strbuf_add_json(buf, victims->uids[i]);
        strbuf_add(buf, "}");
    }
    strbuf_addf(buf, "],\"NumPDBViolations\":%lld}", (long long)victims->pdb_violations);
}

void wire_write_victims(struct strbuf *buf, const struct preempt_args *args)
{
    strbuf_add(buf, "{\"NodeNameToMetaVictims\":{");
    for (size_t i = 0; i < args->count; i++) {
        strbuf_add(buf, i ? "," : "");
        write_victims(buf, &args->victims[i]);
    }
    strbuf_add(buf, "}}\n");
}

void wire_write_error(struct strbuf *buf, const char *text)
{
    strbuf_add(buf, "{\"Error\":");
    strbuf_add_json(buf, text);
    strbuf_add(buf, "}\n");
}
