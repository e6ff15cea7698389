/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cache of refusals: why each candidate node has no room for a demand.
 *
 * kube-scheduler asks about a pending pod again and again, and many pending pods ask for the same.
 * A node that had no room for a demand has none until it changes, so only nodes that changed since
 * need to be looked into. Bounded; the least recently used refusal goes first. Inside cluster only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "cluster/cluster.h"
#include "model/request.h"
#include "place/place.h"

struct refusals;
struct refusal;

/* Of a node that was not judged: narrow.c. */
#define REFUSAL_LATER "not looked into yet: the pod has many requests"

struct refusals *refusals_new(void); /* NULL: no memory */
void refusals_free(struct refusals *refusals);

/* A question: which of these nodes has room for this demand. */
struct refusal_key {
    const char *text; /* demand and options */
    size_t len;
    uint64_t candidates[4]; /* the same for the same nodes */
};

/* Fills in the key's text: equal texts are equal demands and options. -ENOMEM. */
int refusal_write_demand(const struct demand *demand, const struct place_options *options,
                         struct arena *arena, struct refusal_key *ret_key);

/* NULL: none is kept. */
struct refusal *refusals_find(struct refusals *refusals, const struct refusal_key *key);

/*
 * Adds a refusal over so many nodes, all of which count as changed. It stays at least until the
 * next one is added. NULL: no memory.
 */
struct refusal *refusals_add(struct refusals *refusals, const struct refusal_key *key,
                             size_t count);
void refusals_drop(struct refusals *refusals, struct refusal *refusal);

/* The positions of those nodes that changed since they were judged last, ascending: how many. */
size_t refusal_find_stale(const struct refusal *refusal, const struct place_node *const *nodes,
                          uint32_t *ret_positions);

/* Whether the node at this position was judged, as it is or as it was. */
bool refusal_has(const struct refusal *refusal, size_t position);

/* The node at this position was judged, as it is now. -ENOMEM. */
int refusal_set(struct refusal *refusal, size_t position, const struct place_node *node,
                const struct place_failure *failure);

/* Why the nodes have no room, in their order; the texts are the refusal's. Returns how many of them
 * were not judged at all. */
size_t refusal_list(const struct refusal *refusal, const struct place_node *const *nodes,
                    struct cluster_failed_node *ret_failed);

void refusal_add_up(const struct refusal *refusal, struct place_totals *totals);
