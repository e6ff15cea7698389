/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What happens in the world of cluster_random_test, step by step. A step does nothing where there
 * is no pod that it could happen to.
 */

#include <stdbool.h>

#include "cluster/cluster.h"
#include "cluster/random_world.h"

/* random_pods_test.c */
void step_create(void);
void step_delete(void);

/* random_filter_test.c */
void step_filter(void);
void step_filter_bound(void);
void step_requeue(void);

/* The pod is asked for among the nodes from the first on. */
void filter_among(struct api_pod *from, unsigned first);
/* kube-scheduler's view may be older than the bind. */
void filter_bound(const struct api_pod *pod);
/* The last refusal's summary. */
const char *filter_why(void);

/* random_bind_test.c */
void step_bind(void);
void step_bind_answer(void);
void step_late_answer(void);
void step_late_bind(void);
void step_read(void);
void step_unseen(void);
void step_term(void);

/* Whether its bind began. */
bool bind_begin(struct api_pod *pod);
void bind_end(struct api_pod *pod, enum cluster_bind_end end);
/* The pod is read after a bind without an answer, if it had one. */
void bind_read(struct api_pod *pod);

/* random_evict_test.c */
void step_evict(void);
/* Nobody waits for room any more. */
void evictions_end(void);

/* random_nodes_test.c */
void step_node(void);
void step_agent(void);
void step_quota(void);
void step_time(void);
void nodes_change(unsigned number);
