/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The judge of cluster_random_test. It recounts from the objects that the cluster was shown, with a
 * reader and rules of its own, and aborts with what is wrong. It uses nothing but the world.
 */

#include <stdbool.h>

#include "cluster/random_world.h"

/* What the cluster under test is shown: world.shown, world.shown_quotas have it. */
void judge_begin(void); /* a new world */
void judge_sees_node(unsigned node);
void judge_sees_quotas(void);
/* The cluster looked after the agents now. */
void judge_looks_at_agents(void);

/* The pod's filter chose its decided_node now. */
void judge_decided(unsigned pod);
/* Its bind begins, with what it was given: pods that have or are getting devices together must not
 * have more than there is, nor a namespace more than its quotas left. */
void judge_granted(unsigned pod);

/* As it is judged while nothing else can come in between: what asked to be alone on its devices is.
 */
void judge_is_alone(unsigned pod);

/* Everything is shown, and nothing is on its way: what the cluster counts is what the pods have. */
void judge_counts(void);
/* Then, whether a pod of one container can't be refused: some node from the first on surely has
 * room, and its namespace's quotas do. */
bool judge_has_room(const struct api_pod *pod, unsigned first);

/* Whether its bind has to wait for its node's turn. */
void judge_needs_turn(unsigned pod, bool needs);
/* A pod is bound in its node's turn, begun now. */
void judge_turn(unsigned node, unsigned pod);
/* The node's lock is written for this pod, or removed; it is still as it was. */
void judge_lock_written(unsigned node, const char *space, const char *name);
void judge_lock_removed(unsigned node);
