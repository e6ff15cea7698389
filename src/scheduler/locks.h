/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Binds to nodes whose agents wait for a lock: a queue for each node, and the requests that
 * cluster/lock.h asks for. Only while this scheduler decides.
 */

#include <stdbool.h>

#include "cluster/lock.h"
#include "kube/client.h"

struct locks;
struct scheduler;

/* A bind in a node's queue. Its owner's storage. */
struct lock_wait {
    struct lock_wait *prev, *next;
    struct locked_node *node; /* NULL: in no queue */
    bool has_turn;
    struct lock_pod pod;
    struct lock_set locks;
    /* One of them is called, once, from the loop; refused: the lock can't be written. */
    void (*on_turn)(struct lock_wait *wait);
    void (*on_refused)(struct lock_wait *wait, const char *why);
};

/* NULL: no memory. */
struct locks *locks_new(struct scheduler *scheduler);
void locks_free(struct locks *locks); /* the memory goes once the loop has run its closing */

/*
 * Asks whether nodes may be patched (deploy/other-agents.yaml). The first time it runs the loop
 * until the API server has answered; later, each half minute while nodes may not be patched,
 * without waiting.
 */
void locks_ask_rights(struct locks *locks);

/* Queues a bind. -ENOMEM. */
int locks_wait(struct locks *locks, struct lock_wait *wait, const char *node);
/* The bind ended, or gave up in the queue. bound: the pod may have a node now. */
void locks_leave(struct lock_wait *wait, bool bound);
/* Who has the node's turn, for a person: "pod a/b". */
const char *locks_holder(const struct lock_wait *wait, char *to, size_t size);

/* What the watches show; pods only while locks_busy(). */
bool locks_busy(const struct locks *locks);
void locks_see_node(struct locks *locks, const struct node *node);
void locks_see_pod(struct locks *locks, const struct pod *pod, bool deleted);

void locks_tick(struct locks *locks); /* each second */

/* The term is over: nothing goes on. No bind may be in a queue. Accepts NULL. */
void locks_reset(struct locks *locks);
