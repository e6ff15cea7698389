/* SPDX-License-Identifier: Apache-2.0 */

/* Pods, and the devices that they hold. */

#include <assert.h>
#include <errno.h>
#include <utlist.h>

#include "base/parse.h"
#include "cluster/quota.h"
#include "cluster/scarcity.h"
#include "model/keys.h"

struct cluster_pod *pod_find(const struct cluster *cluster, const char *uid)
{
    struct cluster_pod *pod;

    HASH_FIND_STR(cluster->pods, uid, pod);
    return pod;
}

struct cluster_pod *pod_get(struct cluster *cluster, const char *uid, const char *namespace,
                            const char *name)
{
    size_t uid_size = strlen(uid) + 1, namespace_size = strlen(namespace) + 1;
    struct cluster_pod *pod = pod_find(cluster, uid);
    size_t name_size = strlen(name) + 1;
    char *text;

    if (pod)
        return pod;
    pod = calloc(1, sizeof(*pod) + uid_size + namespace_size + name_size);
    if (!pod)
        return NULL;
    text = (char *)(pod + 1);
    pod->uid = memcpy(text, uid, uid_size);
    pod->namespace = memcpy(text + uid_size, namespace, namespace_size);
    pod->name = memcpy(text + uid_size + namespace_size, name, name_size);
    pod->space = namespace_ref(cluster, namespace);
    if (!pod->space) {
        free(pod);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh, cluster->pods, pod->uid, uid_size - 1, pod);
    return pod;
}

bool pod_holds(const struct cluster_pod *pod)
{
    return pod->state != POD_IDLE && pod->state != POD_PLAIN && pod->state != POD_EXPIRED;
}

static void give_back(struct cluster *cluster, struct cluster_pod *pod, const struct grant *grant)
{
    struct cluster_node *node = pod->node;

    (void)place_usage_discharge(node->place->devices, node->place->device_count, &grant->usage);
    namespace_charge(cluster, pod->space, &grant->usage, -1);
    DL_DELETE(node->pods, pod);
    node_update(cluster, node);
    if (cluster->scarcity)
        occupants_remove(cluster, pod->uid, true);
    cluster->freed++;
}

void pod_take(struct cluster *cluster, struct cluster_pod *pod, struct cluster_node *node,
              struct grant *grant, enum pod_state state)
{
    assert(!pod_holds(pod) && (!pod->grant || pod->grant == grant));
    pod->grant = grant;
    pod->node = node;
    pod->state = state;
    (void)place_usage_charge(node->place->devices, node->place->device_count, &grant->usage);
    namespace_charge(cluster, pod->space, &grant->usage, 1);
    DL_APPEND(node->pods, pod);
    if (cluster->scarcity)
        (void)occupants_put(cluster, pod->uid, node, &pod->amounts, false);
    node_update(cluster, node);
}

void pod_time(struct cluster *cluster, struct cluster_pod *pod, int64_t until_ns)
{
    assert(!pod->until_ns);
    pod->until_ns = until_ns;
    DL_APPEND2(cluster->timed, pod, prev_timed, next_timed);
}

void pod_untime(struct cluster *cluster, struct cluster_pod *pod)
{
    if (!pod->until_ns)
        return;
    DL_DELETE2(cluster->timed, pod, prev_timed, next_timed);
    pod->until_ns = 0;
}

void pod_release(struct cluster *cluster, struct cluster_pod *pod)
{
    struct cluster_node *node = pod->node;

    pod_untime(cluster, pod);
    if (pod_holds(pod))
        give_back(cluster, pod, pod->grant);
    grant_free(pod->grant);
    pod->grant = NULL;
    pod->node = NULL;
    pod->state = POD_IDLE;
    if (node)
        node_forget_if_unused(cluster, node);
}

void pod_expire(struct cluster *cluster, struct cluster_pod *pod)
{
    struct cluster_node *node = pod->node;

    pod_untime(cluster, pod);
    give_back(cluster, pod, pod->grant);
    pod->node = NULL;
    pod->state = POD_EXPIRED;
    node_forget_if_unused(cluster, node);
}

void pod_free(struct cluster *cluster, struct cluster_pod *pod)
{
    pod_release(cluster, pod);
    HASH_DEL(cluster->pods, pod);
    namespace_unref(cluster, pod->space);
    free(pod);
}

struct grant *pod_take_back(struct cluster *cluster, struct cluster_pod *pod)
{
    struct grant *grant = TAKE(pod->grant);

    if (pod_holds(pod))
        give_back(cluster, pod, grant);
    pod->state = POD_IDLE;
    pod_free(cluster, pod);
    return grant;
}

/* A pod's annotations, read. text serves to detect changes. */
struct reading {
    const char *node;
    const struct text_pairs *annotations;
    struct text_pairs texts; /* a vendor's common word, its annotation */
    const char *roles;
    const char *text;
};

/* The pod's node. Where only metadata are read, the pod is bound and its Binding wrote the
 * annotation. */
static const char *node_of(const struct pod *pod)
{
    return pod->has_spec ? pod->node_name : text_pairs_get(&pod->annotations, KEY_NODE);
}

/* Whether the pod's spec asks for devices. 1: it does, or there is no spec at hand. */
static int asks_for_devices(const struct cluster *cluster, const struct pod *pod)
{
    struct demand demand;

    if (!pod->has_spec)
        return 1;
    return vendor_read_demand(cluster->options.vendors, pod, cluster->scratch, &demand);
}

static int read_annotations(const struct cluster *cluster, const struct pod *pod,
                            struct reading *read)
{
    const struct vendor_set *set = cluster->options.vendors;
    struct arena *arena = cluster->scratch;
    struct text_pair *texts = ARENA_ARRAY(arena, struct text_pair, set->count);
    struct strbuf made = STRBUF_IN(arena, GRANT_TEXT_MAX);

    if (!texts)
        return -ENOMEM;
    read->node = node_of(pod);
    read->annotations = &pod->annotations;
    read->roles = pod->has_spec ? pod_init_roles(pod, arena)
                                : text_pairs_get(&pod->annotations, POD_INIT_ROLES);
    read->texts = (struct text_pairs){texts, 0};
    if (!read->node || !read->node[0])
        return 0;
    if (!read->roles)
        read->roles = "";
    grant_add_text(&made, KEY_NODE, read->node);
    if (read->roles[0])
        grant_add_text(&made, POD_INIT_ROLES, read->roles);

    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        const char *text = text_pairs_get(&pod->annotations, instance->allocated_key);

        if (!text || !text[0])
            continue;
        texts[read->texts.count++] = (struct text_pair){instance->id.word, text};
        grant_add_text(&made, instance->allocated_key, text);
        grant_add_recalled(&made, instance, &pod->annotations);
    }
    read->text = made.failed ? NULL : strbuf_text(&made);
    return read->text ? 0 : -ENOMEM;
}

/* 1: numbers were mended, err says which. */
static int read_usage(const struct cluster *cluster, const struct reading *read,
                      struct place_usage *usage, struct error *err)
{
    bool mended = false;

    for (size_t i = 0; i < read->texts.count; i++) {
        const struct vendor_instance *instance =
            vendor_find(cluster->options.vendors, read->texts.items[i].key);
        struct pod_devices devices;
        int r;

        r = vendor_read_grant(instance, read->texts.items[i].value, read->annotations,
                              cluster->scratch, &devices, err);
        if (r < 0)
            return error_wrap(err, r == -ENOMEM ? r : -EINVAL, "the pod's %s devices",
                              read->texts.items[i].key);
        mended |= r == CODEC_MENDED;
        r = place_usage_add_pod(usage, &instance->id, &devices, read->roles, cluster->scratch);
        if (r < 0)
            return r;
    }
    return mended;
}

/* Puts the annotations in force, whatever was reserved before. */
static int place_as_written(struct cluster *cluster, struct cluster_pod *pod,
                            const struct reading *read, enum pod_state state, struct error *err)
{
    const struct text_pairs none = {0};
    const uint64_t freed = cluster->freed;
    struct place_usage usage = {0};
    struct cluster_node *node;
    struct grant *grant = NULL;
    bool promised;
    int r;

    r = read_usage(cluster, read, &usage, err);
    if (r >= 0)
        grant = grant_new(&usage, &none, read->text);
    promised = grant && pod_holds(pod) && strcmp(pod->node->place->name, read->node) == 0 &&
               grant_is_same(pod->grant, grant);
    pod_release(cluster, pod);
    if (promised)
        cluster->freed = freed;
    node = grant ? node_get(cluster, read->node) : NULL;
    if (!node) {
        grant_free(grant);
        return r < 0 ? r : -ENOMEM;
    }
    pod_take(cluster, pod, node, grant, state);
    pod->kept = promised;
    return r;
}

/* Whatever the pod's owner writes into the annotations later, its containers keep their devices. */
static int keep_placed(const struct cluster *cluster, struct cluster_pod *pod,
                       const struct reading *read, struct error *err)
{
    pod->seen = cluster->list[CLUSTER_PODS];
    if (read->text && strcmp(pod->grant->text, read->text) == 0)
        return 0;
    return error_set(err, 1, "what it was given was written over; what it had stays in force");
}

void pod_set_priority(struct cluster *cluster, struct cluster_pod *pod, int32_t priority)
{
    pod->has_priority = true;
    pod->priority = priority;
    cluster->lowest_priority = MIN(cluster->lowest_priority, priority);
}

/* A priority that can't be read counts as unknown. */
static void read_priority(struct cluster *cluster, const struct pod *from, struct cluster_pod *pod)
{
    const char *text = text_pairs_get(&from->annotations, KEY_PRIORITY);
    bool negative = text && *text == '-';
    uint64_t value;

    if (from->has_priority)
        pod_set_priority(cluster, pod, from->priority);
    else if (text && parse_u64(text + negative, &value) == 0 && value <= INT32_MAX)
        pod_set_priority(cluster, pod, negative ? -(int32_t)value : (int32_t)value);
}

/* For the policy scarcity: what the pod requests of its node; and that it arrived, unless it was
 * asked about. */
static void count_pod(struct cluster *cluster, const struct pod *from)
{
    const char *name = node_of(from);
    struct cluster_node *node;
    struct demand demand;

    if (!cluster->scarcity || !name || !name[0])
        return;
    node = node_get(cluster, name);
    if (!node || !occupants_put(cluster, from->uid, node, &from->amounts, true))
        return;
    arena_reset(cluster->scratch);
    if (vendor_read_demand(cluster->options.vendors, from, cluster->scratch, &demand) > 0)
        scarcity_learn(cluster, from->uid, &demand, &from->amounts);
}

int cluster_set_pod(struct cluster *cluster, const struct pod *from, struct error *err)
{
    struct cluster_pod *pod = pod_find(cluster, from->uid);
    struct reading read = {0};
    int r;

    count_pod(cluster, from);
    arena_reset(cluster->scratch);
    r = read_annotations(cluster, from, &read);
    if (r < 0)
        return r;
    if (pod && pod->state == POD_PLACED) {
        pod->deleting = from->deleting;
        return keep_placed(cluster, pod, &read, err);
    }
    /* An object without our annotations was written before the reservation, and does not end it. */
    if (read.texts.count == 0)
        return 0;
    r = asks_for_devices(cluster, from);
    if (r <= 0)
        return r;

    if (!pod)
        pod = pod_get(cluster, from->uid, from->namespace, from->name);
    if (!pod)
        return -ENOMEM;
    pod->seen = cluster->list[CLUSTER_PODS];
    pod->amounts = from->amounts;
    read_priority(cluster, from, pod);
    pod->deleting = from->deleting;
    r = place_as_written(cluster, pod, &read, POD_PLACED, err);
    if (pod->state == POD_IDLE)
        pod_free(cluster, pod);
    return r;
}

int cluster_found(struct cluster *cluster, const struct pod *from, int64_t now_ns, bool *ret_ours,
                  struct error *err)
{
    struct cluster_pod *pod = pod_find(cluster, from->uid);
    struct reading read = {0};
    int r;

    *ret_ours = pod && (pod->kept || pod->state == POD_PLAIN);
    if (!pod || pod->state != POD_BINDING)
        return 0;
    arena_reset(cluster->scratch);
    r = read_annotations(cluster, from, &read);
    if (r == 0 && read.texts.count > 0)
        r = place_as_written(cluster, pod, &read, POD_BOUND, err);
    if (r == -ENOMEM)
        return r;
    if (pod->state != POD_BOUND) {
        pod_free(cluster, pod);
        return r;
    }
    *ret_ours = pod->kept;
    pod->seen = cluster->list[CLUSTER_PODS];
    pod_time(cluster, pod, now_ns + CLUSTER_UNSEEN_NS);
    return r;
}

void cluster_delete_pod(struct cluster *cluster, const char *uid)
{
    struct cluster_pod *pod = pod_find(cluster, uid);

    if (cluster->scarcity)
        occupants_remove(cluster, uid, false);
    if (pod)
        pod_free(cluster, pod);
}

/* A bound pod that a later list lacks was deleted in between. */
void pods_sweep(struct cluster *cluster)
{
    struct cluster_pod *pod, *next;

    HASH_ITER(hh, cluster->pods, pod, next)
    {
        if ((pod->state == POD_PLACED || pod->state == POD_BOUND) &&
            pod->seen != cluster->list[CLUSTER_PODS])
            pod_free(cluster, pod);
    }
    if (cluster->scarcity)
        occupants_sweep(cluster);
}
