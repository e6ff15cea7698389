/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

#include <utlist.h>

#include "cluster/evict.h"
#include "cluster/quota.h"
#include "cluster/scarcity.h"

enum {
    SCRATCH_MAX = 16 << 20, /* for reading one object */
};

/* After its time, a reservation may be renewed for so many times its length, if its devices are
 * still free. */
#define EXPIRED_TIMES 10

struct cluster *cluster_new(const struct cluster_options *options)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));

    if (!cluster)
        return NULL;
    cluster->options = *options;
    if (!cluster->options.reservation_ns)
        cluster->options.reservation_ns = CLUSTER_RESERVATION_NS;
    cluster->generation = 1;
    cluster->lowest_priority = INT32_MAX;
    cluster->may_lock = true;
    cluster->mutex_lock = vendor_mutex_lock;
    if (options->node_lock_ns)
        cluster->mutex_lock.until_ns = options->node_lock_ns;
    cluster->scratch = arena_new(SCRATCH_MAX);
    cluster->kinds = kinds_new();
    cluster->refusals = refusals_new();
    cluster->options.learns |= options->defaults.node_order == PLACE_SCARCITY;
    if (cluster->options.learns)
        cluster->scarcity = scarcity_new();
    if (!cluster->scratch || !cluster->kinds || !cluster->refusals ||
        (cluster->options.learns && !cluster->scarcity)) {
        cluster_free(cluster);
        return NULL;
    }
    return cluster;
}

void cluster_free(struct cluster *cluster)
{
    struct cluster_node *node, *next_node;
    struct cluster_pod *pod, *next_pod;

    if (!cluster)
        return;
    evict_end_all(cluster);
    HASH_ITER(hh, cluster->pods, pod, next_pod)
    {
        pod_free(cluster, pod);
    }
    quotas_free(cluster);
    requeue_forget_all(cluster);
    HASH_ITER(hh, cluster->nodes, node, next_node)
    {
        node_free(cluster, node);
    }
    scarcity_free(cluster->scarcity);
    occupants_free(cluster->occupants);
    slab_free(cluster->slabs);
    kinds_free(cluster->kinds);
    refusals_free(cluster->refusals);
    free(cluster->candidates.nodes);
    free(cluster->candidates.absent);
    arena_free(cluster->scratch);
    free(cluster);
}

void cluster_begin(struct cluster *cluster, enum cluster_kind kind)
{
    cluster->list[kind]++;
}

void cluster_complete(struct cluster *cluster, enum cluster_kind kind)
{
    cluster->complete[kind] = true;
    if (kind == CLUSTER_NODES)
        nodes_sweep(cluster);
    else if (kind == CLUSTER_PODS)
        pods_sweep(cluster);
    else
        quotas_sweep(cluster);
}

void cluster_keep(struct cluster *cluster, enum cluster_kind kind, const char *key)
{
    struct cluster_node *node = kind == CLUSTER_NODES ? node_find(cluster, key) : NULL;
    struct cluster_pod *pod = kind == CLUSTER_PODS ? pod_find(cluster, key) : NULL;

    if (node)
        node->seen = cluster->list[kind];
    if (pod)
        pod->seen = cluster->list[kind];
    if (kind == CLUSTER_PODS && cluster->scarcity)
        occupants_keep(cluster, key);
    if (kind == CLUSTER_QUOTAS)
        quota_keep(cluster, key);
}

void cluster_hold(struct cluster *cluster, const char *why)
{
    cluster->held = why;
}

bool cluster_is_ready(const struct cluster *cluster)
{
    return cluster->complete[CLUSTER_NODES] && cluster->complete[CLUSTER_PODS] &&
           (cluster->complete[CLUSTER_QUOTAS] || !cluster->options.has_quotas);
}

void cluster_expire(struct cluster *cluster, int64_t now_ns)
{
    struct cluster_pod *pod, *next;

    DL_FOREACH_SAFE2(cluster->timed, pod, next, next_timed)
    {
        if (pod->until_ns > now_ns || pod->state == POD_BOUND)
            continue;
        if (pod->state == POD_EXPIRED || pod->state == POD_PLAIN) {
            pod_free(cluster, pod);
            continue;
        }
        pod_expire(cluster, pod);
        pod_time(cluster, pod, now_ns + EXPIRED_TIMES * cluster->options.reservation_ns);
    }
}

bool cluster_work(struct cluster *cluster, unsigned steps)
{
    while (steps-- > 0) {
        if (!scarcity_step(cluster))
            return false;
    }
    return true;
}

struct cluster_counts cluster_count(const struct cluster *cluster)
{
    struct cluster_counts counts = {0};

    for (const struct cluster_node *node = cluster->nodes; node; node = node->hh.next)
        counts.nodes += node->place->device_count > 0;
    for (const struct cluster_pod *pod = cluster->pods; pod; pod = pod->hh.next) {
        counts.pods += pod_holds(pod);
        counts.reserved += pod_holds(pod) && pod->state != POD_PLACED;
    }
    return counts;
}
