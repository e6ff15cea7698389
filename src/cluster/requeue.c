/* SPDX-License-Identifier: Apache-2.0 */

/* Pods that were refused, and which of them kube-scheduler must be made to try again. */

#include "cluster/state.h"

enum {
    REFUSED_PODS_MAX = 10000, /* the pod that was refused longest ago is forgotten first */
    NAMES_MAX = 1024,         /* bytes of one pod's names; Kubernetes' are shorter */
};

static void refused_free(struct cluster *cluster, struct refused_pod *refused)
{
    HASH_DEL(cluster->refused, refused);
    free(refused);
}

static struct refused_pod *refused_find(const struct cluster *cluster, const char *uid)
{
    struct refused_pod *refused;

    HASH_FIND_STR(cluster->refused, uid, refused);
    return refused;
}

void requeue_forget(struct cluster *cluster, const char *uid)
{
    struct refused_pod *refused = refused_find(cluster, uid);

    if (refused)
        refused_free(cluster, refused);
}

void requeue_forget_all(struct cluster *cluster)
{
    struct refused_pod *refused, *next;

    HASH_ITER(hh, cluster->refused, refused, next)
    {
        refused_free(cluster, refused);
    }
}

/* If there is no memory for it, the pod is not requeued; kube-scheduler tries it after 5 min. */
static void refused_add(struct cluster *cluster, const struct pod *pod, int64_t now_ns)
{
    size_t uid_size = strlen(pod->uid) + 1, namespace_size = strlen(pod->namespace) + 1;
    size_t name_size = strlen(pod->name) + 1;
    struct refused_pod *refused;
    char *text;

    if (uid_size + namespace_size + name_size > NAMES_MAX)
        return;
    if (HASH_COUNT(cluster->refused) >= REFUSED_PODS_MAX)
        refused_free(cluster, cluster->refused);
    refused = calloc(1, sizeof(*refused) + uid_size + namespace_size + name_size);
    if (!refused)
        return;
    refused->at_ns = now_ns;
    refused->freed = cluster->freed;
    text = (char *)(refused + 1);
    refused->uid = memcpy(text, pod->uid, uid_size);
    refused->namespace = memcpy(text + uid_size, pod->namespace, namespace_size);
    refused->name = memcpy(text + uid_size + namespace_size, pod->name, name_size);
    HASH_ADD_KEYPTR(hh, cluster->refused, refused->uid, uid_size - 1, refused);
}

bool requeue_note(struct cluster *cluster, const struct pod *pod, int64_t now_ns)
{
    struct refused_pod *before = refused_find(cluster, pod->uid);
    bool again = before && before->freed == cluster->freed;

    if (before)
        refused_free(cluster, before);
    refused_add(cluster, pod, now_ns);
    return again;
}

/* The table is in the order of the refusals, so pods that were refused before devices came free
 * stand first. */
size_t cluster_requeue(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                       struct cluster_pod_name *ret_pods, size_t max)
{
    struct refused_pod *refused, *next;
    size_t count = 0;

    HASH_ITER(hh, cluster->refused, refused, next)
    {
        struct cluster_pod_name *pod = &ret_pods[count];

        if (now_ns - refused->at_ns > CLUSTER_REFUSED_KEPT_NS) {
            refused_free(cluster, refused);
            continue;
        }
        if (refused->freed == cluster->freed || count == max)
            break;
        if (!refused->behind) {
            refused->behind = true;
            refused->behind_ns = now_ns;
        }
        if (now_ns - refused->behind_ns < CLUSTER_REQUEUE_NS)
            continue;
        pod->namespace = arena_strdup(arena, refused->namespace);
        pod->name = arena_strdup(arena, refused->name);
        pod->uid = arena_strdup(arena, refused->uid);
        if (!pod->namespace || !pod->name || !pod->uid)
            break;
        refused_free(cluster, refused);
        count++;
    }
    return count;
}
