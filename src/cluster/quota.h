/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What namespaces may have, by their ResourceQuotas, and what they have. Inside cluster only.
 *
 * A quota's keys `limits.NAME` and `requests.NAME` bound the sum over a namespace's pods, where
 * NAME is a vendor's resource of memory or cores; of several quotas each must hold. Pods count from
 * their reservation on, with the most that their containers take at any time. For the bounds units
 * of the resource are converted to MiB.
 */

#include "cluster/state.h"

/* The record of a namespace, made if need be; each is given back once. NULL: no memory. */
struct cluster_namespace *namespace_ref(struct cluster *cluster, const char *name);
void namespace_unref(struct cluster *cluster, struct cluster_namespace *space);

/* A pod of the namespace takes its devices, or gives them back if by is -1. */
void namespace_charge(const struct cluster *cluster, struct cluster_namespace *space,
                      const struct place_usage *usage, int by);

/* What is left of each bound, for place_options.budgets. -ENOMEM. */
int namespace_budgets(const struct cluster *cluster, const char *name, struct arena *arena,
                      struct place_options *options);

/* Whether a usage is within the bounds of the namespace, which doesn't have it yet. */
bool namespace_has_room(const struct cluster *cluster, const struct cluster_namespace *space,
                        const struct place_usage *usage);

/*
 * Why a demand is beyond the bounds on whichever devices, with the figures in the resource's unit:
 * "nvidia.com/gpumem in namespace a: 4096 asked + 12288 used > 16000". NULL: it may fit, or there
 * is no memory, of which failed tells.
 */
const char *namespace_refuses(const struct cluster *cluster, const char *name,
                              const struct demand *demand, struct arena *arena, bool *ret_failed);

void quotas_sweep(struct cluster *cluster);
void quotas_free(struct cluster *cluster);
void quota_keep(struct cluster *cluster, const char *key); /* "NAMESPACE/NAME" */
