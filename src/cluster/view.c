/* SPDX-License-Identifier: Apache-2.0 */

/* The state as JSON, and for metrics. */

#include <errno.h>
#include <inttypes.h>

#include "cluster/state.h"

static struct cluster_pod_view view_of(const struct cluster_pod *pod)
{
    return (struct cluster_pod_view){
        .namespace = pod->namespace,
        .name = pod->name,
        .uid = pod->uid,
        .node = pod->node->place->name,
        .reserved = pod->state != POD_PLACED,
        .usage = &pod->grant->usage,
        .text = pod->grant->text,
    };
}

int cluster_list(const struct cluster *cluster, struct arena *arena, struct text_list *ret_nodes,
                 struct text_list *ret_pods)
{
    const char **names = ARENA_ARRAY(arena, const char *, HASH_COUNT(cluster->nodes));
    const char **uids = ARENA_ARRAY(arena, const char *, HASH_COUNT(cluster->pods));
    size_t nodes = 0, pods = 0;

    if (!names || !uids)
        return -ENOMEM;
    for (const struct cluster_node *node = cluster->nodes; node; node = node->hh.next) {
        if (!node->place->device_count)
            continue;
        names[nodes] = arena_strdup(arena, node->place->name);
        if (!names[nodes++])
            return -ENOMEM;
    }
    for (const struct cluster_pod *pod = cluster->pods; pod; pod = pod->hh.next) {
        if (!pod_holds(pod))
            continue;
        uids[pods] = arena_strdup(arena, pod->uid);
        if (!uids[pods++])
            return -ENOMEM;
    }
    *ret_nodes = (struct text_list){names, nodes};
    *ret_pods = (struct text_list){uids, pods};
    return 0;
}

const struct place_node *cluster_find_node(const struct cluster *cluster, const char *name)
{
    const struct cluster_node *node = node_find(cluster, name);

    return node && node->place->device_count ? node->place : NULL;
}

bool cluster_find_pod(const struct cluster *cluster, const char *uid,
                      struct cluster_pod_view *ret_pod)
{
    const struct cluster_pod *pod = pod_find(cluster, uid);

    if (!pod || !pod_holds(pod))
        return false;
    *ret_pod = view_of(pod);
    return true;
}

static void write_usage(struct strbuf *buf, const struct device_usage *usage)
{
    strbuf_addf(buf, "\"slots\":%u,\"cores\":%u,\"memory_mib\":%" PRIu64, usage->tasks,
                usage->cores, usage->memory_bytes / MIB);
}

static void write_device(struct strbuf *buf, const struct device *device)
{
    strbuf_add(buf, "{\"uuid\":");
    strbuf_add_json(buf, device->uuid);
    strbuf_add(buf, ",\"model\":");
    strbuf_add_json(buf, device->model);
    strbuf_addf(buf, ",\"healthy\":%s,\"cordoned\":%s,\"numa\":%d,",
                device->healthy ? "true" : "false", device->cordoned ? "true" : "false",
                device->numa_node);
    strbuf_addf(buf, "\"slots\":%u,\"cores\":%u,\"memory_mib\":%" PRIu64 ",\"used\":{",
                device->max_tasks, device->cores, device->memory_bytes / MIB);
    write_usage(buf, &device->used);
    strbuf_add(buf, "}}");
}

static void write_node(struct strbuf *buf, const struct cluster_node *node)
{
    strbuf_add(buf, "{\"name\":");
    strbuf_add_json(buf, node->place->name);
    if (node->absent) {
        strbuf_add(buf, ",\"absent\":");
        strbuf_add_json(buf, node->absent);
    }
    if (node->occupants)
        strbuf_addf(buf, ",\"requested\":{\"cpu_milli\":%" PRIu64 ",\"memory_mib\":%" PRIu64 "}",
                    node->used.cpu_milli, node->used.memory_mib);
    strbuf_add(buf, ",\"devices\":[");
    for (uint32_t i = 0; i < node->place->device_count; i++) {
        strbuf_add(buf, i ? "," : "");
        write_device(buf, &node->place->devices[i]);
    }
    strbuf_add(buf, "]}");
}

static void write_pod(struct strbuf *buf, const struct cluster_pod_view *pod)
{
    strbuf_add(buf, "{\"namespace\":");
    strbuf_add_json(buf, pod->namespace);
    strbuf_add(buf, ",\"name\":");
    strbuf_add_json(buf, pod->name);
    strbuf_add(buf, ",\"uid\":");
    strbuf_add_json(buf, pod->uid);
    strbuf_add(buf, ",\"node\":");
    strbuf_add_json(buf, pod->node);
    strbuf_add(buf, ",\"devices\":[");
    for (size_t i = 0; i < pod->usage->count; i++) {
        strbuf_add(buf, i ? ",{\"uuid\":" : "{\"uuid\":");
        strbuf_add_json(buf, pod->usage->shares[i].uuid);
        strbuf_add(buf, ",");
        write_usage(buf, &pod->usage->shares[i].usage);
        strbuf_add(buf, "}");
    }
    strbuf_add(buf, "]}");
}

static int compare_nodes(const void *a, const void *b)
{
    const struct cluster_node *const *left = a, *const *right = b;

    return strcmp((*left)->place->name, (*right)->place->name);
}

static int compare_pods(const void *a, const void *b)
{
    const struct cluster_pod_view *left = a, *right = b;
    int order = strcmp(left->namespace, right->namespace);

    if (!order)
        order = strcmp(left->name, right->name);
    return order ? order : strcmp(left->uid, right->uid);
}

static void write_nodes(const struct cluster *cluster, struct strbuf *buf)
{
    size_t count = HASH_COUNT(cluster->nodes), at = 0;
    AUTOFREE const struct cluster_node **nodes = calloc(count + 1, sizeof(struct cluster_node *));

    if (!nodes) {
        buf->failed = true;
        return;
    }
    for (const struct cluster_node *node = cluster->nodes; node; node = node->hh.next)
        nodes[at++] = node;
    qsort(nodes, count, sizeof(nodes[0]), compare_nodes);
    for (size_t i = 0; i < count; i++) {
        strbuf_add(buf, i ? ",\n" : "");
        write_node(buf, nodes[i]);
    }
}

static void write_pods(const struct cluster_pod_view *pods, size_t count, bool reserved,
                       struct strbuf *buf)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        if (pods[i].reserved != reserved)
            continue;
        strbuf_add(buf, any ? ",\n" : "");
        write_pod(buf, &pods[i]);
        any = true;
    }
}

/* Nothing where no quota bounds devices. */
static void write_quotas(const struct cluster *cluster, struct strbuf *buf)
{
    struct cluster_quota_view *rows;
    size_t count;

    arena_reset(cluster->scratch);
    if (cluster_list_quotas(cluster, cluster->scratch, &rows, &count) < 0) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        strbuf_add(buf, i ? ",\n{\"namespace\":" : ",\n\"quotas\":[\n{\"namespace\":");
        strbuf_add_json(buf, rows[i].namespace);
        strbuf_add(buf, ",\"resource\":");
        strbuf_add_json(buf, rows[i].resource);
        strbuf_addf(buf, ",\"limit\":%" PRId64 ",\"used\":%" PRId64 "}", rows[i].bound,
                    rows[i].used / rows[i].unit_mib);
    }
    strbuf_add(buf, count ? "]" : "");
}

void cluster_view(const struct cluster *cluster, struct strbuf *buf)
{
    AUTOFREE struct cluster_pod_view *pods =
        calloc(HASH_COUNT(cluster->pods) + 1, sizeof(struct cluster_pod_view));
    size_t count = 0;

    if (!pods) {
        buf->failed = true;
        return;
    }
    for (const struct cluster_pod *pod = cluster->pods; pod; pod = pod->hh.next) {
        if (pod_holds(pod))
            pods[count++] = view_of(pod);
    }
    qsort(pods, count, sizeof(pods[0]), compare_pods);

    strbuf_add(buf, "{\"nodes\":[\n");
    write_nodes(cluster, buf);
    strbuf_add(buf, "],\n\"pods\":[\n");
    write_pods(pods, count, false, buf);
    strbuf_add(buf, "],\n\"reserved\":[\n");
    write_pods(pods, count, true, buf);
    strbuf_add(buf, "]");
    write_quotas(cluster, buf);
    strbuf_add(buf, "}\n");
}
