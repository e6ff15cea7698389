/* SPDX-License-Identifier: Apache-2.0 */

/* What the watches of nodes, pods and quotas show goes to the cluster, and to the locks. */

#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

static void log_unread(int r, const char *kind, const char *name, const struct error *err)
{
    if (r < 0)
        log_warn("%s %s can't be read: %s", kind, name, err->text[0] ? err->text : strerror(-r));
    else if (r > 0)
        log_warn("%s %s: %s", kind, name, err->text);
}

static void say_if_ready(struct scheduler *scheduler)
{
    struct cluster_counts counts;

    if (scheduler->ready || !cluster_is_ready(scheduler->cluster))
        return;
    scheduler->ready = true;
    counts = cluster_count(scheduler->cluster);
    log_info("ready: %zu nodes with devices, %zu pods that hold some", counts.nodes, counts.pods);
}

static void begin_nodes(void *data)
{
    cluster_begin(((struct scheduler *)data)->cluster, CLUSTER_NODES);
}

static void complete_nodes(void *data)
{
    cluster_complete(((struct scheduler *)data)->cluster, CLUSTER_NODES);
    say_if_ready(data);
    leader_listed_others(data);
}

/* A deletion needs no more than a name. A node that can't be read keeps its former state. */
static void take_node(void *data, enum kube_event event, yyjson_val *object)
{
    struct scheduler *scheduler = data;
    const char *name = wire_text(wire_get(object, "metadata"), "name");
    struct error err = ERROR_INIT;
    struct node node;
    int r;

    if (event == KUBE_DELETED) {
        cluster_delete_node(scheduler->cluster, name);
        return;
    }
    arena_reset(scheduler->object_arena);
    r = node_read(object, &scheduler->vendors.kept, scheduler->object_arena, &node, &err);
    if (r < 0)
        cluster_keep(scheduler->cluster, CLUSTER_NODES, name);
    else
        r = cluster_set_node(scheduler->cluster, &node, &err);
    log_unread(r, "node", name, &err);
    if (r >= 0)
        locks_see_node(scheduler->locks, &node);
}

static void begin_pods(void *data)
{
    cluster_begin(((struct scheduler *)data)->cluster, CLUSTER_PODS);
}

static void complete_pods(void *data)
{
    cluster_complete(((struct scheduler *)data)->cluster, CLUSTER_PODS);
    say_if_ready(data);
    leader_listed_pods(data);
}

static void take_pod(void *data, enum kube_event event, yyjson_val *object)
{
    struct scheduler *scheduler = data;
    yyjson_val *metadata = wire_get(object, "metadata");
    const char *uid = wire_text(metadata, "uid");
    struct error err = ERROR_INIT;
    struct pod pod;
    int r;

    if (event == KUBE_DELETED)
        cluster_delete_pod(scheduler->cluster, uid);
    if (event == KUBE_DELETED && !locks_busy(scheduler->locks))
        return;
    arena_reset(scheduler->object_arena);
    r = pod_read(object, &scheduler->vendors.kept, scheduler->object_arena, &pod, &err);
    if (r == 0 && locks_busy(scheduler->locks))
        locks_see_pod(scheduler->locks, &pod, event == KUBE_DELETED);
    if (event == KUBE_DELETED)
        return;
    if (r < 0)
        cluster_keep(scheduler->cluster, CLUSTER_PODS, uid);
    else
        r = cluster_set_pod(scheduler->cluster, &pod, &err);
    log_unread(r, "pod", wire_text(metadata, "name"), &err);
}

static void begin_quotas(void *data)
{
    cluster_begin(((struct scheduler *)data)->cluster, CLUSTER_QUOTAS);
}

static void complete_quotas(void *data)
{
    cluster_complete(((struct scheduler *)data)->cluster, CLUSTER_QUOTAS);
    say_if_ready(data);
    leader_listed_others(data);
}

static void take_quota(void *data, enum kube_event event, yyjson_val *object)
{
    struct scheduler *scheduler = data;
    yyjson_val *metadata = wire_get(object, "metadata");
    const char *namespace = wire_text(metadata, "namespace"), *name = wire_text(metadata, "name");
    struct error err = ERROR_INIT;
    struct quota quota;
    const char *key;
    int r;

    if (event == KUBE_DELETED) {
        cluster_delete_quota(scheduler->cluster, namespace, name);
        return;
    }
    arena_reset(scheduler->object_arena);
    r = quota_read(object, scheduler->object_arena, &quota, &err);
    if (r < 0) {
        key = arena_printf(scheduler->object_arena, "%s/%s", namespace, name);
        cluster_keep(scheduler->cluster, CLUSTER_QUOTAS, key ? key : "");
    } else {
        r = cluster_set_quota(scheduler->cluster, &quota, &err);
    }
    log_unread(r, "resource quota", name, &err);
}

static const struct kube_watch_ops quota_ops = {
    .begin = begin_quotas,
    .object = take_quota,
    .complete = complete_quotas,
};

static const struct kube_watch_ops node_ops = {
    .begin = begin_nodes,
    .object = take_node,
    .complete = complete_nodes,
};

static const struct kube_watch_ops pod_ops = {
    .begin = begin_pods,
    .object = take_pod,
    .complete = complete_pods,
};

double watches_age(const struct scheduler *scheduler)
{
    const struct kube_watch *const watches[] = {scheduler->nodes, scheduler->pods,
                                                scheduler->quotas};
    double oldest = 0;

    for (size_t i = 0; i < ARRAY_SIZE(watches); i++) {
        double age = watches[i] ? kube_watch_age(watches[i]) : 0;

        oldest = MAX(oldest, age);
    }
    return oldest;
}

int watches_start(struct scheduler *scheduler, struct error *err)
{
    const struct kube_watch_spec nodes = {
        .path = "/api/v1/nodes",
        .label_selector = scheduler->options.node_selector,
        .paged = true,
    };
    const struct kube_watch_spec quotas = {.path = "/api/v1/resourcequotas", .paged = true};
    /* Bound and not over: such a pod's annotations come from its Binding, and where only we may
     * write them, its metadata are enough; but for what pods request, which is in their specs. */
    struct kube_watch_spec pods = {
        .path = "/api/v1/pods",
        .field_selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
        .paged = true,
    };
    int r;

    locks_ask_rights(scheduler->locks);
    if (scheduler->stopping)
        return 0;
    r = kube_watch_new(scheduler->kube, &nodes, &node_ops, scheduler, &scheduler->nodes, err);
    if (r < 0)
        return r;
    r = kube_watch_new(scheduler->kube, &quotas, &quota_ops, scheduler, &scheduler->quotas, err);
    if (r < 0)
        return r;
    /* The nodes come while this waits for its answers. */
    pods.metadata_only = policies_in_force(scheduler) && !work_has_view(scheduler);
    if (scheduler->stopping)
        return 0;
    return kube_watch_new(scheduler->kube, &pods, &pod_ops, scheduler, &scheduler->pods, err);
}
