/* SPDX-License-Identifier: Apache-2.0 */

/* From a reservation to a bound pod. */

#include <errno.h>
#include <utlist.h>

#include "cluster/evict.h"
#include "cluster/quota.h"
#include "cluster/state.h"
#include "model/keys.h"

/* Renews a reservation whose time was over, if its devices are still free. */
static int bind_renew(struct cluster *cluster, struct cluster_pod *pod, const char *name,
                      struct error *err)
{
    struct cluster_node *node = node_find(cluster, name);

    if (!node || !namespace_has_room(cluster, pod->space, &pod->grant->usage) ||
        !place_usage_fits(node->place->devices, node->place->device_count, &pod->grant->usage)) {
        error_set(err, 0,
                  "the reservation on node %s was over and its devices, or the quota, are not free",
                  name);
        pod_free(cluster, pod);
        return -ENOSPC;
    }
    pod_untime(cluster, pod);
    pod_take(cluster, pod, node, pod->grant, POD_BINDING);
    return 0;
}

static int bind_begin(struct cluster *cluster, struct cluster_pod *pod,
                      const struct cluster_bind *bind, struct error *err)
{
    const char *node = NULL;

    if (pod && pod->state == POD_PLAIN)
        return 0;
    if (pod && pod->grant && pod->state != POD_HELD)
        node = text_pairs_get(&pod->grant->annotations, KEY_NODE);
    if (!node || strcmp(node, bind->node) != 0)
        return error_set(err, -ENOENT, "nothing is reserved for pod %s/%s on node %s",
                         bind->namespace, bind->name, bind->node);
    if (pod->state == POD_EXPIRED)
        return bind_renew(cluster, pod, node, err);
    if (pod->state != POD_RESERVED)
        return error_set(err, -EBUSY, "a bind of pod %s/%s is under way", bind->namespace,
                         bind->name);
    pod_untime(cluster, pod);
    pod->state = POD_BINDING;
    return 0;
}

/* The times that the vendors of the grant want written; from pod to pod they rise. -ENOMEM. */
static int add_times(struct cluster *cluster, const struct grant *grant, int64_t wall_ns,
                     struct arena *arena, struct text_pair *pairs, size_t *count)
{
    const struct vendor_set *set = cluster->options.vendors;

    cluster->written_ns = MAX(wall_ns, cluster->written_ns + 1);
    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        const struct vendor_time *time = instance->vendor->times;

        if (!time || !text_pairs_get(&grant->annotations, instance->allocated_key))
            continue;
        for (; time->key; time++) {
            int64_t value = time->in_ns ? cluster->written_ns : wall_ns / NS_PER_S;
            const char *text = arena_printf(arena, "%lld", (long long)value);

            if (!text)
                return -ENOMEM;
            pairs[(*count)++] = (struct text_pair){time->key, text};
        }
    }
    return 0;
}

static size_t count_times(const struct vendor_set *set)
{
    size_t count = 0;

    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_time *time = set->instances[i].vendor->times;

        for (; time && time->key; time++)
            count++;
    }
    return count;
}

static int write_annotations(struct cluster *cluster, const struct grant *grant, int64_t wall_ns,
                             struct arena *arena, struct text_pairs *ret_annotations)
{
    size_t count = grant->annotations.count;
    struct text_pair *pairs =
        ARENA_ARRAY(arena, struct text_pair, count + 3 + count_times(cluster->options.vendors));
    const char *time = arena_printf(arena, "%lld", (long long)(wall_ns / NS_PER_S));

    if (!pairs || !time)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct text_pair *pair = &grant->annotations.items[i];

        pairs[i].key = arena_strdup(arena, pair->key);
        pairs[i].value = arena_strdup(arena, pair->value);
        if (!pairs[i].key || !pairs[i].value)
            return -ENOMEM;
    }
    pairs[count++] = (struct text_pair){KEY_TIME, time};
    pairs[count++] = (struct text_pair){KEY_BIND_TIME, time};
    pairs[count++] = (struct text_pair){KEY_BIND_PHASE, BIND_PHASE_ALLOCATING};
    if (add_times(cluster, grant, wall_ns, arena, pairs, &count) < 0)
        return -ENOMEM;
    *ret_annotations = (struct text_pairs){pairs, count};
    return 0;
}

int cluster_bind(struct cluster *cluster, const struct cluster_bind *bind, int64_t now_ns,
                 int64_t wall_ns, struct arena *arena, struct text_pairs *ret_annotations,
                 struct error *err)
{
    struct cluster_pod *pod;
    int r;

    cluster_expire(cluster, now_ns);
    pod = pod_find(cluster, bind->uid);
    r = bind_begin(cluster, pod, bind, err);
    if (r < 0)
        return r;
    if (pod->state == POD_PLAIN) {
        *ret_annotations = (struct text_pairs){0};
        return 0;
    }
    r = write_annotations(cluster, pod->grant, wall_ns, arena, ret_annotations);
    if (r < 0) {
        pod_free(cluster, pod);
        return error_set(err, r, "out of memory");
    }
    return 0;
}

/* If the watch was faster, the pod is placed or gone by now, and there is nothing to do. */
void cluster_bound(struct cluster *cluster, const char *uid, enum cluster_bind_end end,
                   int64_t now_ns)
{
    struct cluster_pod *pod = pod_find(cluster, uid);

    if (!pod || pod->state != POD_BINDING)
        return;
    if (end == CLUSTER_NOT_BOUND) {
        pod_free(cluster, pod);
    } else if (end == CLUSTER_BOUND) {
        pod->state = POD_BOUND;
        pod->seen = cluster->list[CLUSTER_PODS];
        pod_time(cluster, pod, now_ns + CLUSTER_UNSEEN_NS);
    }
}

size_t cluster_unseen(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                      struct cluster_pod_name *ret_pods, size_t max)
{
    struct cluster_pod *pod, *next;
    size_t count = 0;

    DL_FOREACH_SAFE2(cluster->timed, pod, next, next_timed)
    {
        struct cluster_pod_name *unseen = &ret_pods[count];

        if (count == max)
            break;
        if (pod->state != POD_BOUND || pod->until_ns > now_ns)
            continue;
        pod_untime(cluster, pod);
        pod_time(cluster, pod, now_ns + CLUSTER_UNSEEN_NS);
        unseen->namespace = arena_strdup(arena, pod->namespace);
        unseen->name = arena_strdup(arena, pod->name);
        unseen->uid = arena_strdup(arena, pod->uid);
        if (unseen->namespace && unseen->name && unseen->uid)
            count++;
    }
    return count;
}

void cluster_gone(struct cluster *cluster, const char *uid)
{
    struct cluster_pod *pod = pod_find(cluster, uid);

    if (pod && pod->state == POD_BOUND)
        pod_free(cluster, pod);
}

void cluster_begin_term(struct cluster *cluster)
{
    struct cluster_pod *pod, *next;

    evict_end_all(cluster);
    HASH_ITER(hh, cluster->pods, pod, next)
    {
        if (pod->state == POD_RESERVED || pod->state == POD_EXPIRED) {
            pod_free(cluster, pod);
        } else if (pod->state == POD_BINDING) {
            pod->state = POD_BOUND;
            pod->seen = cluster->list[CLUSTER_PODS];
        }
    }
}
