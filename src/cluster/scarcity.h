/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The view of the cluster that the policy scarcity decides by; inside cluster only.
 *
 * It learns from the pods that are asked for, or seen for the first time, which classes arrive, the
 * late ones counting more. From that and from what is left on all nodes the prices are made anew,
 * together with the shares, once enough has arrived: piece by piece beside the prices in force,
 * which the new ones then replace at once. For a demand that comes again and again, a row keeps
 * what it costs on each node; a node that changed is looked at again in the rows, also in pieces. A
 * decision finds its row ready, or takes that of another demand of the same class and looks into
 * the best of it, or begins one and looks into the best of it as far as it got.
 *
 * It also adds up the processors and memory that all pods request of each node.
 */

#include "cluster/state.h"
#include "place/scarcity.h"

struct scarcity *scarcity_new(void); /* NULL: no memory */
void scarcity_free(struct scarcity *scarcity);

/* The node's devices or what is used of it changed; it is about to be freed. Without memory the
 * view misses the node, which then costs nothing. */
void scarcity_touch(struct cluster *cluster, struct cluster_node *node);
void scarcity_add_types(struct cluster *cluster, const struct device *devices, size_t count);
void scarcity_drop_node(struct cluster *cluster, const struct cluster_node *node);

/* A pod is asked about, or seen without having been asked about: it arrived, unless that was
 * counted before. */
void scarcity_learn(struct cluster *cluster, const char *uid, const struct demand *demand,
                    const struct amounts *amounts);

/* For a decision about one pod: fills in the view. demand may be NULL: no devices. The view is good
 * until the next event. -ENOMEM. */
int scarcity_view(struct cluster *cluster, const struct demand *demand,
                  const struct amounts *amounts, struct place_scarcity *ret_view);

/* A step of what is to be done between decisions. False: nothing is left to do. */
bool scarcity_step(struct cluster *cluster);

/* fillable.c, for a person: what the demand costs on a node, INFINITY if it does not fit, false if
 * that is not known; and as JSON its class with price, which is "known" if such pods arrived. */
bool scarcity_explain(const struct cluster *cluster, const struct cluster_node *node,
                      const struct demand *demand, const struct amounts *amounts, double *ret_cost);
void scarcity_write_class(const struct cluster *cluster, const struct demand *demand,
                          const struct amounts *amounts, struct strbuf *buf);

/* request_copy.c: without the uuids that it selects. NULL: no memory. The caller frees it. */
struct request *request_copy(const struct request *request);

/* occupants.c: what pods request of nodes, those without devices, too. */

/* A pod is on this node, as the watch shows it or by a reservation; takes the place of what was
 * known of it. True: it was not known. Without memory it does not count. */
bool occupants_put(struct cluster *cluster, const char *uid, struct cluster_node *node,
                   const struct amounts *amounts, bool watched);
/* A pod is gone, or its reservation: then it stays if the watch has shown it, and a node that is
 * of no use any more is the caller's to forget. */
void occupants_remove(struct cluster *cluster, const char *uid, bool reservation);
/* Those that a complete list does not show. */
void occupants_sweep(struct cluster *cluster);
void occupants_keep(struct cluster *cluster, const char *uid);
void occupants_free(struct occupants *occupants);
