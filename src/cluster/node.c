/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes and their devices. */

#include <errno.h>
#include <stdalign.h>
#include <utlist.h>

#include "cluster/scarcity.h"

enum {
    RANKED_EACH = 8, /* nodes that came at once; of more, all are sorted anew */
};

struct cluster_node *node_find(const struct cluster *cluster, const char *name)
{
    struct cluster_node *node;

    HASH_FIND_STR(cluster->nodes, name, node);
    return node;
}

size_t node_pods(const struct cluster_node *node)
{
    const struct cluster_pod *pod;
    size_t count = 0;

    DL_COUNT(node->pods, pod, count);
    return count;
}

struct cluster_node *node_get(struct cluster *cluster, const char *name)
{
    struct cluster_node *node = node_find(cluster, name);

    if (node)
        return node;
    node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->place = slab_take(&cluster->slabs);
    if (node->place)
        node->place->name = strdup(name);
    if (!node->place || !node->place->name) {
        if (node->place)
            slab_give(cluster->slabs, node->place);
        free(node);
        return NULL;
    }
    node->absent = "the node is not known";
    node_update(cluster, node);
    HASH_ADD_KEYPTR(hh, cluster->nodes, node->place->name, strlen(node->place->name), node);
    return node;
}

/* Anybody's pods may name nodes that there are not, and as many as they like: only a node that
 * there is costs the decisions something. */
static void begin_to_exist(struct cluster *cluster, struct cluster_node *node)
{
    if (node->exists)
        return;
    node->exists = true;
    if (!node->ranked && cluster->unranked < SIZE_MAX)
        cluster->unranked++;
    cluster->generation++;
}

void node_update(struct cluster *cluster, struct cluster_node *node)
{
    place_node_update(node->place);
    if (cluster->scarcity)
        scarcity_touch(cluster, node);
}

void node_free(struct cluster *cluster, struct cluster_node *node)
{
    HASH_DEL(cluster->nodes, node);
    scarcity_drop_node(cluster, node);
    if (node->mark == cluster->gathers)
        cluster->generation++; /* the last filter's candidates may have it */
    kinds_give(cluster->kinds, node->place->devices, node->place->device_count);
    free(node->place->devices);
    free((char *)node->place->name);
    free(node->registered);
    free(node->locks);
    free(node->handshakes);
    slab_give(cluster->slabs, node->place);
    free(node);
}

void node_forget_if_unused(struct cluster *cluster, struct cluster_node *node)
{
    if (!node->exists && !node->pods && !node->occupants)
        node_free(cluster, node);
}

/* Sets a node's devices, which are unused, and charges the usage of its pods anew. */
static void replace_devices(struct cluster *cluster, struct cluster_node *node,
                            struct device *devices, size_t count, const char *absent)
{
    struct cluster_pod *pod;

    kinds_give(cluster->kinds, node->place->devices, node->place->device_count);
    free(node->place->devices);
    kinds_take(cluster->kinds, devices, count);
    scarcity_add_types(cluster, devices, count);
    node->place->devices = devices;
    node->place->device_count = (uint32_t)count;
    cluster->generation += !node->absent != !absent;
    cluster->freed += count > 0;
    node->absent = absent;
    DL_FOREACH(node->pods, pod)
    {
        (void)place_usage_charge(devices, count, &pod->grant->usage);
    }
    node_update(cluster, node);
}

/* Whether the vendor's agent of the node is there. */
static bool is_alive(const struct cluster_node *known, const struct vendor_instance *instance,
                     const struct node *node)
{
    return vendor_is_alive(instance, node) && !handshakes_gone(known, instance);
}

struct registration {
    struct device devices[PLACE_MAX_DEVICES];
    size_t count;
    const char *absent;
    int outcome; /* as cluster_set_node()'s */
    bool locked; /* some device's agent waits for a lock */
    struct lock_set locks;
};

/* Whether pods may be bound to devices whose agent waits for this lock, or for none. */
static bool may_bind(const struct cluster *cluster, const struct vendor_lock *lock,
                     struct lock_set *locks)
{
    return !lock || ((cluster->may_lock || !lock->key) && lock_set_add(locks, lock));
}

/* Why kubelet counts none of these devices: it does not count sick ones, either. */
static const char *why_not_alive(const struct device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (devices[i].healthy)
            return "the node's device plugin is away";
    }
    return count ? "none of the node's devices is healthy" : "the node's device plugin is away";
}

static int read_devices(const struct cluster *cluster, const struct cluster_node *known,
                        const struct node *node, struct registration *read, struct error *err)
{
    const struct vendor_set *set = cluster->options.vendors;

    read->absent = "the node has registered no devices";
    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        size_t added = 0;
        int r;

        r = instance->vendor->read_node(instance, node, cluster->scratch,
                                        read->devices + read->count,
                                        ARRAY_SIZE(read->devices) - read->count, &added, err);
        if (r == -ENOMEM)
            return r;
        if (r == -ENOENT)
            continue;
        if (r < 0) {
            read->outcome = -EINVAL;
            read->absent = "the node's registration can't be read";
            continue;
        }
        if (r == CODEC_MENDED && read->outcome == 0)
            read->outcome = 1;
        if (!is_alive(known, instance, node)) {
            read->absent = why_not_alive(read->devices + read->count, added);
            continue;
        }
        if (!may_bind(cluster, vendor_prepare_bind(instance, node), &read->locks)) {
            read->absent = "the node's device plugin waits for a lock, which the scheduler has no "
                           "right to write (deploy/other-agents.yaml)";
            continue;
        }
        read->count += added;
        read->locked |= vendor_prepare_bind(instance, node) != NULL;
    }
    return 0;
}

/* A vendor gives devices of a node the same facts, or each its own; of each piece a copy is kept.
 */
static bool has_new_facts(const struct device *devices, size_t position)
{
    return devices[position].facts_size &&
           (!position || devices[position - 1].facts != devices[position].facts);
}

static size_t facts_room(size_t size)
{
    return (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
}

/* A copy, with the facts of the devices behind it; NULL: no memory. */
static struct device *devices_keep(const struct device *devices, size_t count)
{
    size_t size = facts_room(count * sizeof(*devices)), at = size;
    struct device *kept;
    char *facts = NULL;

    for (size_t i = 0; i < count; i++)
        size += has_new_facts(devices, i) ? facts_room(devices[i].facts_size) : 0;
    kept = malloc(size);
    if (!kept)
        return NULL;
    memcpy(kept, devices, count * sizeof(*devices));
    for (size_t i = 0; i < count; i++) {
        if (has_new_facts(devices, i)) {
            facts = memcpy((char *)kept + at, devices[i].facts, devices[i].facts_size);
            at += facts_room(devices[i].facts_size);
        }
        if (devices[i].facts_size)
            kept[i].facts = facts;
    }
    return kept;
}

/* HAMi's lock has the time that is configured. */
static const struct vendor_lock *own_lock(const struct cluster *cluster,
                                          const struct vendor_lock *lock)
{
    return lock == &vendor_mutex_lock ? &cluster->mutex_lock : lock;
}

/* The lock of each vendor, for a node where some agent waits for one; NULL: no memory. */
static const struct vendor_lock **locks_keep(const struct cluster *cluster, const struct node *node)
{
    const struct vendor_set *set = cluster->options.vendors;
    const struct vendor_lock **locks = calloc(set->count, sizeof(const struct vendor_lock *));

    for (size_t i = 0; locks && i < set->count; i++)
        locks[i] = own_lock(cluster, vendor_prepare_bind(&set->instances[i], node));
    return locks;
}

struct lock_set cluster_node_locks(const struct cluster *cluster, const char *name)
{
    const struct cluster_node *node = node_find(cluster, name);
    struct lock_set locks = {.count = 0};

    for (size_t i = 0; node && node->locks && i < cluster->options.vendors->count; i++) {
        if (node->locks[i])
            (void)lock_set_add(&locks, node->locks[i]);
    }
    return locks;
}

struct lock_set cluster_pod_locks(const struct cluster *cluster, const char *uid)
{
    const struct vendor_instance *instances = cluster->options.vendors->instances;
    const struct cluster_pod *pod = pod_find(cluster, uid);
    struct lock_set locks = {.count = 0};

    if (!pod || !pod_holds(pod) || !pod->node->locks)
        return locks;
    for (size_t i = 0; i < pod->grant->usage.count; i++) {
        const struct device_vendor *vendor = pod->grant->usage.shares[i].vendor;
        const struct vendor_lock *lock = pod->node->locks[vendor_of(vendor) - instances];

        if (lock)
            (void)lock_set_add(&locks, lock);
    }
    return locks;
}

void cluster_allow_locks(struct cluster *cluster, bool allowed)
{
    cluster->may_lock = allowed;
}

static int update_devices(struct cluster *cluster, struct cluster_node *node,
                          const struct node *from, struct error *err)
{
    const struct vendor_lock **locks = NULL;
    struct registration *read;
    struct device *devices = NULL;
    const char *text;
    char *kept;
    int r;

    arena_reset(cluster->scratch);
    if (handshakes_see(cluster, node, from) < 0)
        return -ENOMEM;
    text = sources_text(cluster, node, from);
    if (!text)
        return -ENOMEM;
    if (node->registered && strcmp(node->registered, text) == 0)
        return 0;

    read = ARENA_NEW(cluster->scratch, struct registration);
    if (!read)
        return -ENOMEM;
    r = read_devices(cluster, node, from, read, err);
    if (r < 0)
        return r;
    kept = strdup(text);
    if (read->count)
        devices = devices_keep(read->devices, read->count);
    if (read->locked)
        locks = locks_keep(cluster, from);
    if (!kept || (read->count && !devices) || (read->locked && !locks)) {
        free(kept);
        free(devices);
        free(locks);
        return -ENOMEM;
    }

    free(node->registered);
    node->registered = kept;
    free(node->locks);
    node->locks = locks;
    replace_devices(cluster, node, devices, read->count, read->count ? NULL : read->absent);
    return read->outcome;
}

static void clear_usage(struct device *device)
{
    device->used = (struct device_usage){0};
    device->misused = 0;
    memset(device->part_users, 0, sizeof(device->part_users));
}

int node_drop_vendor(struct cluster *cluster, struct cluster_node *node,
                     const struct device_vendor *vendor)
{
    struct place_node *place = node->place;
    struct device *left, *devices = NULL;
    size_t count = 0;

    arena_reset(cluster->scratch);
    left = ARENA_ARRAY(cluster->scratch, struct device, place->device_count);
    if (!left)
        return -ENOMEM;
    for (size_t i = 0; i < place->device_count; i++) {
        if (place->devices[i].vendor == vendor)
            continue;
        left[count] = place->devices[i];
        clear_usage(&left[count++]);
    }
    if (count)
        devices = devices_keep(left, count);
    if (count && !devices)
        return -ENOMEM;
    if (node->registered)
        sources_drop(node->registered, vendor_of(vendor)->register_key);
    replace_devices(cluster, node, devices, count,
                    count ? NULL : "the node's device plugin is away");
    return 0;
}

int cluster_set_node(struct cluster *cluster, const struct node *from, struct error *err)
{
    struct cluster_node *node = node_get(cluster, from->name);

    if (!node)
        return -ENOMEM;
    begin_to_exist(cluster, node);
    node->seen = cluster->list[CLUSTER_NODES];
    node->cordoned = from->unschedulable;
    if (cluster->scarcity && (node->has.cpu_milli != from->amounts.cpu_milli ||
                              node->has.memory_mib != from->amounts.memory_mib)) {
        node->has = from->amounts;
        scarcity_touch(cluster, node);
    }
    return update_devices(cluster, node, from, err);
}

static void forget_node(struct cluster *cluster, struct cluster_node *node)
{
    node->exists = false;
    free(node->registered);
    node->registered = NULL;
    free(node->locks);
    node->locks = NULL;
    free(node->handshakes);
    node->handshakes = NULL;
    replace_devices(cluster, node, NULL, 0, "the node is not known");
    node_forget_if_unused(cluster, node);
}

void cluster_delete_node(struct cluster *cluster, const char *name)
{
    struct cluster_node *node = node_find(cluster, name);

    if (node)
        forget_node(cluster, node);
}

void nodes_sweep(struct cluster *cluster)
{
    struct cluster_node *node, *next;

    HASH_ITER(hh, cluster->nodes, node, next)
    {
        if (node->exists && node->seen != cluster->list[CLUSTER_NODES])
            forget_node(cluster, node);
    }
}

/* Ranks have gaps, so that a node that comes finds one between its neighbours. */

static int compare_names(const void *a, const void *b)
{
    const struct cluster_node *const *left = a, *const *right = b;

    return strcmp((*left)->place->name, (*right)->place->name);
}

/* -ENOMEM: all ranks are 0, names are compared, and the next decision tries again. */
static int rank_all(struct cluster *cluster)
{
    const size_t count = HASH_COUNT(cluster->nodes);
    struct cluster_node **nodes = calloc(MAX(count, (size_t)1), sizeof(struct cluster_node *));
    struct cluster_node *node;
    size_t existing = 0;

    for (node = cluster->nodes; node; node = node->hh.next) {
        node->place->rank = 0;
        node->ranked = false;
        if (nodes && node->exists)
            nodes[existing++] = node;
    }
    if (!nodes)
        return -ENOMEM;
    if (existing)
        qsort(nodes, existing, sizeof(nodes[0]), compare_names);
    for (size_t i = 0; i < existing; i++) {
        nodes[i]->place->rank = (uint32_t)((i + 1) * (UINT32_MAX / (existing + 1)));
        nodes[i]->ranked = true;
    }
    free(nodes);
    return 0;
}

/* False: there is no gap. */
static bool rank_one(const struct cluster *cluster, struct cluster_node *node)
{
    uint32_t before = 0, after = UINT32_MAX;

    for (const struct cluster_node *other = cluster->nodes; other; other = other->hh.next) {
        if (!other->ranked)
            continue;
        if (strcmp(other->place->name, node->place->name) < 0)
            before = MAX(before, other->place->rank);
        else
            after = MIN(after, other->place->rank);
    }
    if (after - before < 2)
        return false;
    node->place->rank = before + (after - before) / 2;
    node->ranked = true;
    return true;
}

static bool rank_each(struct cluster *cluster)
{
    for (struct cluster_node *node = cluster->nodes; node; node = node->hh.next) {
        if (node->exists && !node->ranked && !rank_one(cluster, node))
            return false;
    }
    return true;
}

void nodes_rank(struct cluster *cluster)
{
    if (!cluster->unranked)
        return;
    if (cluster->unranked <= RANKED_EACH && rank_each(cluster))
        cluster->unranked = 0;
    else
        cluster->unranked = rank_all(cluster) < 0 ? SIZE_MAX : 0;
}
