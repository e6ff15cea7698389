/* SPDX-License-Identifier: Apache-2.0 */

/* The state as Kubernetes objects, of which a cluster that decides the same can be built. */

#include <inttypes.h>

#include "cluster/quota.h"
#include "cluster/state.h"
#include "model/keys.h"

static void begin_object(struct strbuf *buf, bool *any, const char *version, const char *kind)
{
    strbuf_addf(buf, "%s{\"apiVersion\":\"%s\",\"kind\":\"%s\",\"metadata\":{", *any ? ",\n" : "",
                version, kind);
    *any = true;
}

static uint64_t left_of(uint64_t has, uint64_t used)
{
    return has > used ? has - used : 1; /* none at all would mean that it is not known */
}

/* What the pods leave, since their objects do not say what they request. */
static void write_amounts(struct strbuf *buf, const struct cluster_node *node)
{
    const char *comma = buf->len && buf->text[buf->len - 1] != '{' ? "," : "";

    if (node->has.cpu_milli) {
        strbuf_addf(buf, "%s\"cpu\":\"%" PRIu64 "m\"", comma,
                    left_of(node->has.cpu_milli, node->used.cpu_milli));
        comma = ",";
    }
    if (node->has.memory_mib)
        strbuf_addf(buf, "%s\"memory\":\"%" PRIu64 "Mi\"", comma,
                    left_of(node->has.memory_mib, node->used.memory_mib));
}

static void write_node(struct strbuf *buf, const struct cluster_node *node, bool *any)
{
    begin_object(buf, any, "v1", "Node");
    strbuf_add(buf, "\"name\":");
    strbuf_add_json(buf, node->place->name);
    strbuf_add(buf, ",");
    strbuf_add(buf, sources_shown(node->registered));
    write_amounts(buf, node);
    strbuf_add(buf, "}}}");
}

static void write_pod(struct strbuf *buf, const struct cluster_pod *pod, bool *any)
{
    const struct text_pairs *annotations = &pod->grant->annotations;

    begin_object(buf, any, "v1", "Pod");
    strbuf_add(buf, "\"namespace\":");
    strbuf_add_json(buf, pod->namespace);
    strbuf_add(buf, ",\"name\":");
    strbuf_add_json(buf, pod->name);
    strbuf_add(buf, ",\"uid\":");
    strbuf_add_json(buf, pod->uid);
    strbuf_add(buf, ",\"annotations\":{");
    for (size_t i = 0; i < annotations->count; i++) {
        strbuf_add(buf, i ? "," : "");
        strbuf_add_json(buf, annotations->items[i].key);
        strbuf_add(buf, ":");
        strbuf_add_json(buf, annotations->items[i].value);
    }
    strbuf_add(buf, annotations->count && pod->grant->text[0] ? "," : "");
    strbuf_add(buf, pod->grant->text);
    strbuf_add(buf, "}}}");
}

static int compare_nodes(const void *a, const void *b)
{
    const struct cluster_node *const *left = a, *const *right = b;

    return strcmp((*left)->place->name, (*right)->place->name);
}

static int compare_pods(const void *a, const void *b)
{
    const struct cluster_pod *const *left = a, *const *right = b;

    return strcmp((*left)->uid, (*right)->uid);
}

static void write_nodes(const struct cluster *cluster, struct strbuf *buf, bool *any)
{
    AUTOFREE const struct cluster_node **nodes =
        calloc(HASH_COUNT(cluster->nodes) + 1, sizeof(struct cluster_node *));
    size_t count = 0;

    if (!nodes) {
        buf->failed = true;
        return;
    }
    for (const struct cluster_node *node = cluster->nodes; node; node = node->hh.next) {
        if (node->exists && node->registered)
            nodes[count++] = node;
    }
    qsort(nodes, count, sizeof(nodes[0]), compare_nodes);
    for (size_t i = 0; i < count; i++)
        write_node(buf, nodes[i], any);
}

static void write_pods(const struct cluster *cluster, struct strbuf *buf, bool *any)
{
    AUTOFREE const struct cluster_pod **pods =
        calloc(HASH_COUNT(cluster->pods) + 1, sizeof(struct cluster_pod *));
    size_t count = 0;

    if (!pods) {
        buf->failed = true;
        return;
    }
    for (const struct cluster_pod *pod = cluster->pods; pod; pod = pod->hh.next) {
        if (pod_holds(pod))
            pods[count++] = pod;
    }
    qsort(pods, count, sizeof(pods[0]), compare_pods);
    for (size_t i = 0; i < count; i++)
        write_pod(buf, pods[i], any);
}

/* A namespace's quotas as one, with the least bounds of them. */
static void write_quotas(const struct cluster *cluster, struct strbuf *buf, bool *any)
{
    struct cluster_quota_view *rows;
    size_t count;

    arena_reset(cluster->scratch);
    if (cluster_list_quotas(cluster, cluster->scratch, &rows, &count) < 0) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const bool first = !i || strcmp(rows[i].namespace, rows[i - 1].namespace) != 0;
        const bool last = i + 1 == count || strcmp(rows[i].namespace, rows[i + 1].namespace) != 0;

        if (first) {
            begin_object(buf, any, "v1", "ResourceQuota");
            strbuf_add(buf, "\"name\":\"all\",\"namespace\":");
            strbuf_add_json(buf, rows[i].namespace);
            strbuf_add(buf, "},\"spec\":{\"hard\":{");
        }
        strbuf_addf(buf, "%s\"limits.%s\":\"%" PRId64 "%s\"", first ? "" : ",", rows[i].resource,
                    rows[i].bound, rows[i].in_mib ? "Mi" : "");
        strbuf_add(buf, last ? "}}}" : "");
    }
}

void cluster_objects(const struct cluster *cluster, struct strbuf *buf)
{
    bool any = false;

    strbuf_add(buf, "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n");
    write_nodes(cluster, buf, &any);
    write_pods(cluster, buf, &any);
    write_quotas(cluster, buf, &any);
    strbuf_add(buf, "]}\n");
}
