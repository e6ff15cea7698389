/* SPDX-License-Identifier: Apache-2.0 */

/* Preemption: the victims that kube-scheduler found, checked against devices. */

#include <errno.h>
#include <utlist.h>

#include "cluster/evict.h"
#include "cluster/quota.h"
#include "cluster/state.h"

struct preempting {
    struct cluster *cluster;
    const struct pod *pod; /* that asks for room */
    const struct demand *demand;
    struct place_options options;
    struct arena *arena;
};

static bool has_uid(const struct cluster_victims *victims, const char *uid)
{
    for (size_t i = 0; i < victims->count; i++) {
        if (strcmp(victims->uids[i], uid) == 0)
            return true;
    }
    return false;
}

/* A pod can be evicted only if it is bound for certain and known to be less important. */
static enum place_victim_state state_of(const struct preempting *preempting,
                                        const struct cluster_victims *victims,
                                        const struct cluster_pod *other)
{
    const struct pod *pod = preempting->pod;

    if (has_uid(victims, other->uid) || strcmp(other->uid, pod->uid) == 0)
        return VICTIM_EVICTED;
    if (other->state == POD_PLACED && other->has_priority && pod->has_priority &&
        other->priority < pod->priority)
        return VICTIM_POTENTIAL;
    return VICTIM_REPRIEVED;
}

/* The uids that kube-scheduler found, and after them those that we add. */
static int add_victims(const struct preempting *preempting, const struct cluster_node *node,
                       const struct place_victim *potential, size_t count,
                       struct cluster_victims *victims)
{
    const char **uids = ARENA_ARRAY(preempting->arena, const char *, victims->count + count);
    const struct cluster_pod *other;
    size_t added = victims->count, i = 0;

    if (!uids)
        return -ENOMEM;
    if (victims->count)
        memcpy(uids, victims->uids, victims->count * sizeof(*uids));
    DL_FOREACH(node->pods, other)
    {
        if (potential[i++].state == VICTIM_EVICTED && !has_uid(victims, other->uid) &&
            strcmp(other->uid, preempting->pod->uid) != 0)
            uids[added++] = other->uid;
    }
    victims->uids = uids;
    victims->count = added;
    return 0;
}

static int check_node(const struct preempting *preempting, struct cluster_victims *victims)
{
    const struct cluster_node *node = node_find(preempting->cluster, victims->node);
    struct place_victim *potential;
    const struct cluster_pod *other;
    size_t count, i = 0;
    int r;

    if (!node || node->absent)
        return PLACE_NO_FIT;
    count = node_pods(node);
    potential = ARENA_ARRAY(preempting->arena, struct place_victim, count);
    if (!potential)
        return -ENOMEM;
    DL_FOREACH(node->pods, other)
    {
        potential[i++] = (struct place_victim){
            .usage = &other->grant->usage,
            .priority = other->priority,
            .state = state_of(preempting, victims, other),
        };
    }
    r = place_preempt(node->place, preempting->demand, &preempting->options, potential, count,
                      preempting->arena, NULL);
    if (r != PLACE_FITS)
        return r;
    r = add_victims(preempting, node, potential, count, victims);
    return r < 0 ? r : PLACE_FITS;
}

int cluster_preempt(struct cluster *cluster, const struct pod *pod, struct cluster_victims *victims,
                    size_t *count, struct arena *arena, struct error *err)
{
    struct preempting preempting = {.cluster = cluster, .pod = pod, .arena = arena};
    struct demand demand;
    size_t kept = 0, looks = 0;
    bool failed;
    int r;

    r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);
    if (r < 0)
        return error_set(err, r, "the pod's lists of devices and types are too long to be read");
    if (r == 0)
        return 0;
    if (!cluster_is_ready(cluster))
        return error_set(err, -EAGAIN, "nodes, pods and resource quotas are not all read yet");
    preempting.demand = &demand;
    place_options_read(&pod->annotations, &cluster->options.defaults, &preempting.options);
    /* Nobody is evicted for a pod that its namespace's quotas refuse afterwards. */
    if (namespace_refuses(cluster, pod->namespace, &demand, arena, &failed))
        *count = 0;
    if (failed || namespace_budgets(cluster, pod->namespace, arena, &preempting.options) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < *count && looks < NARROW_LOOKS_MAX; i++) {
        const struct cluster_node *node = node_find(cluster, victims[i].node);

        looks += node ? narrow_victim_looks(&demand, node) : 0;
        r = check_node(&preempting, &victims[i]);
        if (r < 0)
            return error_set(err, r, "out of memory, or too many devices on node %s",
                             victims[i].node);
        if (r == PLACE_FITS)
            victims[kept++] = victims[i];
    }
    *count = kept;
    if (kept)
        evict_leave_to_kube(cluster, pod->uid);
    return 0;
}
