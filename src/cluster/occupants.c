/* SPDX-License-Identifier: Apache-2.0 */

/* Processors and memory that pods request, in a table by the hash of their uids: there are many
 * pods, and little is kept of each. */

#include <errno.h>

#include "cluster/scarcity.h"

enum {
    FIRST_SIZE = 1024, /* a power of two */
};

struct occupant {
    uint64_t key[2];           /* two hashes of the uid */
    struct cluster_node *node; /* NULL: the place is free */
    uint32_t cpu_milli, memory_mib;
    unsigned seen; /* the list that showed it last */
    bool watched;  /* else reserved */
};

struct occupants {
    size_t size, count;
    struct occupant items[];
};

void occupants_free(struct occupants *occupants)
{
    free(occupants);
}

static void make_key(const char *uid, uint64_t ret_key[static 2])
{
    const size_t len = strlen(uid);

    ret_key[0] = hash_bytes(uid, len);
    ret_key[1] = hash_mix(hash_bytes(uid, len / 2), hash_bytes(uid + len / 2, len - len / 2));
}

static size_t place_of(const struct occupants *occupants, const uint64_t key[static 2])
{
    return key[0] & (occupants->size - 1);
}

/* Its place, or the free one where it would go. */
static struct occupant *occupants_at(struct occupants *occupants, const uint64_t key[static 2])
{
    size_t at = place_of(occupants, key);

    while (occupants->items[at].node &&
           (occupants->items[at].key[0] != key[0] || occupants->items[at].key[1] != key[1]))
        at = (at + 1) & (occupants->size - 1);
    return &occupants->items[at];
}

static struct occupants *occupants_new(size_t size)
{
    struct occupants *occupants = calloc(1, sizeof(*occupants) + size * sizeof(struct occupant));

    if (occupants)
        occupants->size = size;
    return occupants;
}

/* At most half full, so that places are found at once. */
static int occupants_grow(struct cluster *cluster)
{
    struct occupants *old = cluster->occupants, *grown;

    if (old && 2 * (old->count + 1) <= old->size)
        return 0;
    grown = occupants_new(old ? 2 * old->size : FIRST_SIZE);
    if (!grown)
        return -ENOMEM;
    for (size_t i = 0; old && i < old->size; i++) {
        if (old->items[i].node)
            *occupants_at(grown, old->items[i].key) = old->items[i];
    }
    grown->count = old ? old->count : 0;
    free(old);
    cluster->occupants = grown;
    return 0;
}

static void count_on_node(struct cluster *cluster, const struct occupant *occupant, int by)
{
    struct cluster_node *node = occupant->node;

    node->used.cpu_milli += (uint64_t)((int64_t)occupant->cpu_milli * by);
    node->used.memory_mib += (uint64_t)((int64_t)occupant->memory_mib * by);
    node->occupants += (unsigned)by;
    scarcity_touch(cluster, node);
}

bool occupants_put(struct cluster *cluster, const char *uid, struct cluster_node *node,
                   const struct amounts *amounts, bool watched)
{
    struct occupant *occupant,
        made = {
            .node = node,
            .cpu_milli = (uint32_t)MIN(amounts->cpu_milli, (uint64_t)UINT32_MAX),
            .memory_mib = (uint32_t)MIN(amounts->memory_mib, (uint64_t)UINT32_MAX),
            .seen = cluster->list[CLUSTER_PODS],
            .watched = watched,
        };
    struct occupant before;

    if (occupants_grow(cluster) < 0)
        return false;
    make_key(uid, made.key);
    occupant = occupants_at(cluster->occupants, made.key);
    before = *occupant;
    made.watched |= before.node && before.watched;
    *occupant = made;
    if (before.node && before.node == node && before.cpu_milli == made.cpu_milli &&
        before.memory_mib == made.memory_mib)
        return false;
    count_on_node(cluster, &made, 1);
    if (!before.node) {
        cluster->occupants->count++;
        return true;
    }
    count_on_node(cluster, &before, -1);
    if (before.node != node)
        node_forget_if_unused(cluster, before.node);
    return false;
}

/* Moves those behind it up, so that each is still found from its place on. */
static void take_out(struct cluster *cluster, struct occupant *occupant)
{
    struct occupants *occupants = cluster->occupants;
    const struct occupant gone = *occupant;
    size_t hole = (size_t)(occupant - occupants->items), at = hole;

    for (;;) {
        at = (at + 1) & (occupants->size - 1);
        if (!occupants->items[at].node)
            break;
        if (((at - place_of(occupants, occupants->items[at].key)) & (occupants->size - 1)) <
            ((at - hole) & (occupants->size - 1)))
            continue;
        occupants->items[hole] = occupants->items[at];
        hole = at;
    }
    occupants->items[hole] = (struct occupant){0};
    occupants->count--;
    count_on_node(cluster, &gone, -1);
}

static struct occupant *find(const struct cluster *cluster, const char *uid)
{
    struct occupant *occupant;
    uint64_t key[2];

    if (!cluster->occupants)
        return NULL;
    make_key(uid, key);
    occupant = occupants_at(cluster->occupants, key);
    return occupant->node ? occupant : NULL;
}

void occupants_remove(struct cluster *cluster, const char *uid, bool reservation)
{
    struct occupant *occupant = find(cluster, uid);

    struct cluster_node *node = occupant ? occupant->node : NULL;

    if (!occupant || (reservation && occupant->watched))
        return;
    take_out(cluster, occupant);
    if (!reservation)
        node_forget_if_unused(cluster, node);
}

void occupants_keep(struct cluster *cluster, const char *uid)
{
    struct occupant *occupant = find(cluster, uid);

    if (occupant)
        occupant->seen = cluster->list[CLUSTER_PODS];
}

void occupants_sweep(struct cluster *cluster)
{
    struct occupants *occupants = cluster->occupants;

    /* A place may be filled from behind: it is looked at again. */
    for (size_t i = 0; occupants && i < occupants->size;) {
        struct occupant *occupant = &occupants->items[i];
        struct cluster_node *node = occupant->node;

        if (!node || !occupant->watched || occupant->seen == cluster->list[CLUSTER_PODS]) {
            i++;
            continue;
        }
        take_out(cluster, occupant);
        node_forget_if_unused(cluster, node);
    }
}
