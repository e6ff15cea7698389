/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Refusals that are kept: what a demand was told of each candidate node.
 *
 * A pending pod is asked about again and again, and many pending pods ask for the same. A node that
 * had no room for a demand has none until it changes, so only nodes that changed since need to be
 * looked into. Bounded; the refusal that was needed longest ago goes first. Within the cluster.
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

struct refusals *refusals_new(void); /* NULL: no memory */
void refusals_free(struct refusals *refusals);

/* Which demand, and among which nodes. */
struct refusal_key {
    const char *text; /* demand and options */
    size_t len;
    uint64_t candidates[4]; /* the same for the same nodes */
};

/* Writes a demand with its options, so that equal texts are equal questions. -ENOMEM. */
int refusal_write_demand(const struct demand *demand, const struct place_options *options,
                         struct arena *arena, struct refusal_key *ret_key);

/* NULL: none is kept. */
struct refusal *refusals_find(struct refusals *refusals, const struct refusal_key *key);

/*
 * A new one over so many nodes, all of which count as changed. It stays at least until the next is
 * made. NULL: no memory.
 */
struct refusal *refusals_add(struct refusals *refusals, const struct refusal_key *key,
                             size_t count);
void refusals_drop(struct refusals *refusals, struct refusal *refusal);

/* The positions of those nodes that changed since they were judged last, ascending: how many. */
size_t refusal_find_stale(const struct refusal *refusal, const struct place_node *const *nodes,
                          uint32_t *ret_positions);

/* The node at this position was judged, as it is now. -ENOMEM. */
int refusal_set(struct refusal *refusal, size_t position, const struct place_node *node,
                const struct place_failure *failure);

/* What was told of the nodes, in their order; the texts are the refusal's. */
void refusal_list(const struct refusal *refusal, const struct place_node *const *nodes,
                  struct cluster_failed_node *ret_failed);

void refusal_add_up(const struct refusal *refusal, struct place_totals *totals);
