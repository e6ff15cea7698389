/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether agents with a handshake are there (vendor/handshake.h). That an agent lives is seen
 * without writing: its value changes each half minute. It is asked only after its value has been
 * the same for a minute.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/state.h"

/* Agents that live write in half this time. */
#define QUIET_NS (60 * NS_PER_S)
/* A write that the watch does not show in this time is done again. */
#define AGAIN_NS (15 * NS_PER_S)

/* One agent's, of one node. */
struct handshake {
    const struct vendor_instance *instance;
    uint64_t hash;      /* of the value */
    bool known;         /* a value, or that there is none, was seen */
    bool reported;      /* the value is the agent's own */
    bool deleted;       /* it says Deleted */
    bool counted;       /* kubelet has devices allocatable */
    bool gone;          /* its devices are not given out */
    bool changed;       /* since the last look */
    int64_t asked_ns;   /* since 1970, as the value says; 0: it can't be read, or none does */
    int64_t since_ns;   /* by our clock, when the value was seen first */
    int64_t written_ns; /* when we wrote last; 0: never since the value changed */
};

struct handshakes {
    size_t count;
    struct handshake items[];
};

static bool is_counted(const struct vendor_instance *instance, const struct node *node)
{
    const struct resource *resource = resource_find(&node->allocatable, instance->count_resource);

    return resource && resource->quantity.value > 0;
}

static bool has_agent(const struct vendor_instance *instance, const struct node *node)
{
    return instance->handshake_key && instance->register_key &&
           text_pairs_get(&node->annotations, instance->register_key);
}

static struct handshake *find(struct handshakes *all, const struct vendor_instance *instance)
{
    for (size_t i = 0; all && i < all->count; i++) {
        if (all->items[i].instance == instance)
            return &all->items[i];
    }
    return NULL;
}

/* Asked, and kubelet has devices of it: it is there, whatever was seen of it before, since a
 * scheduler that starts now knows no more than that. */
static void come_back(struct handshake *handshake)
{
    if (handshake->counted && !handshake->deleted)
        handshake->gone = false;
}

/* The state without a clock: how long it was asked ago is for the next look. */
static void see(struct handshake *handshake, const struct node *node)
{
    const char *value = text_pairs_get(&node->annotations, handshake->instance->handshake_key);
    const uint64_t hash = value ? hash_bytes(value, strlen(value)) : 0;
    enum handshake_state state;

    handshake->counted = is_counted(handshake->instance, node);
    if (handshake->known && hash == handshake->hash) {
        come_back(handshake);
        return;
    }
    state = handshake_read(value, 0, &handshake->asked_ns);
    handshake->known = true;
    handshake->hash = hash;
    handshake->changed = true;
    handshake->written_ns = 0;
    handshake->reported = state == HANDSHAKE_REPORTED;
    handshake->deleted = state == HANDSHAKE_DELETED;
    if (handshake->reported)
        handshake->gone = false;
    else if (handshake->deleted)
        handshake->gone = true;
    come_back(handshake);
}

int handshakes_see(struct cluster *cluster, struct cluster_node *node, const struct node *from)
{
    const struct vendor_set *set = cluster->options.vendors;
    struct handshakes *all;
    size_t count = 0;

    for (size_t i = 0; i < set->count; i++)
        count += has_agent(&set->instances[i], from);
    if (!count && !node->handshakes)
        return 0;
    all = calloc(1, sizeof(*all) + count * sizeof(all->items[0]));
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < set->count; i++) {
        const struct handshake *old = find(node->handshakes, &set->instances[i]);
        struct handshake *handshake = &all->items[all->count];

        if (!has_agent(&set->instances[i], from))
            continue;
        if (old)
            *handshake = *old;
        handshake->instance = &set->instances[i];
        see(handshake, from);
        all->count++;
    }
    free(node->handshakes);
    node->handshakes = all;
    if (count)
        return 0;
    free(all);
    node->handshakes = NULL;
    return 0;
}

bool handshakes_gone(const struct cluster_node *node, const struct vendor_instance *instance)
{
    const struct handshake *handshake = find(node->handshakes, instance);

    return handshake && handshake->gone;
}

static enum handshake_state state_of(const struct handshake *handshake, int64_t now_ns,
                                     int64_t wall_ns)
{
    if (handshake->reported)
        return HANDSHAKE_REPORTED;
    if (handshake->deleted)
        return HANDSHAKE_DELETED;
    /* Whatever time it says, of whatever zone: by our own clock it is silent, too. */
    if (!handshake->asked_ns || wall_ns - handshake->asked_ns >= HANDSHAKE_SILENT_NS ||
        now_ns - handshake->since_ns >= HANDSHAKE_SILENT_NS)
        return HANDSHAKE_SILENT;
    return HANDSHAKE_ASKED;
}

/* What is to be written: a word, or NULL. */
static const char *look(struct cluster *cluster, struct cluster_node *node,
                        struct handshake *handshake, int64_t now_ns, int64_t wall_ns)
{
    enum handshake_verdict verdict;

    if (handshake->changed)
        handshake->since_ns = now_ns;
    handshake->changed = false;
    verdict = handshake_judge(state_of(handshake, now_ns, wall_ns), handshake->counted,
                              HANDSHAKE_RULE_HERE);
    if (verdict == HANDSHAKE_ASK)
        return now_ns - handshake->since_ns >= QUIET_NS ? HANDSHAKE_REQUESTING : NULL;
    if (verdict != HANDSHAKE_GONE)
        return NULL;
    if (!handshake->gone && node_drop_vendor(cluster, node, &handshake->instance->id) < 0)
        return NULL; /* no memory: at the next look */
    handshake->gone = true;
    return handshake->instance->vendor->leaves_handshake ? NULL : HANDSHAKE_DELETED_WORD;
}

size_t cluster_handshakes(struct cluster *cluster, int64_t now_ns, int64_t wall_ns,
                          struct cluster_handshake *ret_writes, size_t max)
{
    size_t count = 0;

    for (struct cluster_node *node = cluster->nodes; node; node = node->hh.next) {
        for (size_t i = 0; node->handshakes && i < node->handshakes->count; i++) {
            struct handshake *handshake = &node->handshakes->items[i];
            const char *word = look(cluster, node, handshake, now_ns, wall_ns);

            if (!word || count == max ||
                (handshake->written_ns && now_ns - handshake->written_ns < AGAIN_NS))
                continue;
            handshake->written_ns = now_ns;
            ret_writes[count].node = node->place->name;
            ret_writes[count].key = handshake->instance->handshake_key;
            (void)handshake_write(word, wall_ns, ret_writes[count++].value);
        }
    }
    return count;
}
