/* SPDX-License-Identifier: Apache-2.0 */

/* The pods for which others are evicted, and when each is looked at. */

#include "base/backoff.h"
#include "cluster/evict.h"

enum {
    FAILED_FIRST_MS = 5000,
    FAILED_MAX_MS = 300000,
    FAILURES_IN_VAIN = 6, /* as many failures as one after which pods went */
};

struct preemptor *preemptor_find(const struct cluster *cluster, const char *uid)
{
    struct preemptor *preemptor;

    HASH_FIND_STR(cluster->preemptors, uid, preemptor);
    return preemptor;
}

static void release_hold(struct cluster *cluster, const char *uid)
{
    struct cluster_pod *pod = pod_find(cluster, uid);

    if (pod && pod->state == POD_HELD)
        pod_free(cluster, pod);
}

void preemptor_free(struct cluster *cluster, struct preemptor *preemptor)
{
    release_hold(cluster, preemptor->uid);
    HASH_DEL(cluster->preemptors, preemptor);
    free(preemptor->node);
    free(preemptor);
}

struct preemptor *preemptor_get(struct cluster *cluster, const struct pod *pod)
{
    size_t uid_size = strlen(pod->uid) + 1, namespace_size = strlen(pod->namespace) + 1;
    struct preemptor *preemptor = preemptor_find(cluster, pod->uid), *oldest;
    size_t name_size = strlen(pod->name) + 1;
    char *text;

    if (preemptor)
        return preemptor;
    oldest = cluster->preemptors;
    while (oldest && oldest->node)
        oldest = oldest->hh.next;
    if (HASH_COUNT(cluster->preemptors) >= EVICT_PREEMPTORS_MAX && oldest)
        preemptor_free(cluster, oldest);
    preemptor = calloc(1, sizeof(*preemptor) + uid_size + namespace_size + name_size);
    if (!preemptor)
        return NULL;
    text = (char *)(preemptor + 1);
    preemptor->uid = memcpy(text, pod->uid, uid_size);
    preemptor->namespace = memcpy(text + uid_size, pod->namespace, namespace_size);
    preemptor->name = memcpy(text + uid_size + namespace_size, pod->name, name_size);
    HASH_ADD_KEYPTR(hh, cluster->preemptors, preemptor->uid, uid_size - 1, preemptor);
    return preemptor;
}

struct preemptor *preemptor_find_other(const struct cluster *cluster, const char *node,
                                       const char *uid)
{
    struct preemptor *found = NULL;

    for (struct preemptor *one = cluster->preemptors; one; one = one->hh.next) {
        if (one->node && strcmp(one->node, node) == 0 && strcmp(one->uid, uid) != 0 &&
            (!found || one->priority > found->priority))
            found = one;
    }
    return found;
}

size_t preemptors_count_nodes(const struct cluster *cluster)
{
    size_t count = 0;

    for (const struct preemptor *one = cluster->preemptors; one; one = one->hh.next)
        count += one->node != NULL;
    return count;
}

bool preemptor_has_evicted(const struct preemptor *preemptor)
{
    for (size_t i = 0; i < preemptor->victim_count; i++) {
        if (preemptor->victims[i].accepted || preemptor->victims[i].doubtful)
            return true;
    }
    return false;
}

void preemptor_fail(struct cluster *cluster, struct preemptor *preemptor, int64_t now_ns)
{
    const unsigned before = preemptor->failures;

    preemptor->failures += preemptor_has_evicted(preemptor) ? FAILURES_IN_VAIN : 1;
    release_hold(cluster, preemptor->uid);
    free(TAKE(preemptor->node));
    preemptor->until_ns =
        now_ns + backoff_ms(preemptor_has_evicted(preemptor) ? preemptor->failures : before,
                            FAILED_FIRST_MS, FAILED_MAX_MS) *
                     NS_PER_MS;
    preemptor->victim_count = 0;
    preemptor->doubt_ns = 0;
    preemptor->busy = preemptor->free = false;
    preemptor->requeue = true;
}

void evict_leave_to_kube(struct cluster *cluster, const char *uid)
{
    struct preemptor *preemptor = preemptor_find(cluster, uid);

    if (preemptor && !preemptor_has_evicted(preemptor))
        preemptor_free(cluster, preemptor);
}

bool evict_end(struct cluster *cluster, const char *uid, const char *node)
{
    struct preemptor *preemptor = preemptor_find(cluster, uid);
    bool there;

    if (!preemptor)
        return false;
    there = node && preemptor->node && strcmp(preemptor->node, node) == 0;
    preemptor_free(cluster, preemptor);
    return there;
}

void evict_end_all(struct cluster *cluster)
{
    struct preemptor *preemptor, *next;

    HASH_ITER(hh, cluster->preemptors, preemptor, next)
    {
        preemptor_free(cluster, preemptor);
    }
}

struct asked_victim *preemptor_find_asked(const struct preemptor *preemptor, const char *uid)
{
    for (size_t i = 0; preemptor && i < preemptor->victim_count; i++) {
        if (strcmp(preemptor->victims[i].uid, uid) == 0)
            return (struct asked_victim *)&preemptor->victims[i];
    }
    return NULL;
}

static void expire_guards(struct cluster *cluster, int64_t now_ns)
{
    for (size_t i = 0; i < EVICT_GUARDS_MAX; i++) {
        struct guard *guard = &cluster->guards[i];
        struct cluster_pod *pod;

        if (!guard->uid[0] || guard->until_ns > now_ns)
            continue;
        pod = pod_find(cluster, guard->uid);
        if (pod)
            pod->guarded = false;
        guard->uid[0] = '\0';
    }
}

void preemptor_guard(struct cluster *cluster, const char *uid, int64_t until_ns)
{
    struct cluster_pod *pod = pod_find(cluster, uid);
    struct guard *one = &cluster->guards[cluster->guard_next];

    if (!pod)
        return;
    one->until_ns = 0;
    expire_guards(cluster, 0);
    pod->guarded = true;
    COPY_TEXT(one->uid, uid);
    one->until_ns = until_ns;
    cluster->guard_next = (cluster->guard_next + 1) % EVICT_GUARDS_MAX;
}

static bool is_due(struct preemptor *preemptor, int64_t now_ns, bool *ret_requeue)
{
    if (preemptor->node) {
        *ret_requeue = false;
        return !preemptor->busy && now_ns >= preemptor->look_ns;
    }
    *ret_requeue = true;
    return preemptor->requeue && now_ns >= preemptor->until_ns;
}

size_t cluster_evictions(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                         struct cluster_eviction_due *ret_due, size_t max)
{
    struct preemptor *preemptor, *next;
    size_t count = 0;

    expire_guards(cluster, now_ns);
    HASH_ITER(hh, cluster->preemptors, preemptor, next)
    {
        struct cluster_eviction_due due;

        if (!preemptor->node && now_ns - preemptor->noted_ns > CLUSTER_REFUSED_KEPT_NS) {
            preemptor_free(cluster, preemptor);
            continue;
        }
        if (count == max || !is_due(preemptor, now_ns, &due.requeue))
            continue;
        due.pod.namespace = arena_strdup(arena, preemptor->namespace);
        due.pod.name = arena_strdup(arena, preemptor->name);
        due.pod.uid = arena_strdup(arena, preemptor->uid);
        if (!due.pod.namespace || !due.pod.name || !due.pod.uid)
            break;
        preemptor->busy = !due.requeue;
        preemptor->requeue = false;
        ret_due[count++] = due;
    }
    return count;
}
