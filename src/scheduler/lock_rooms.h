/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rooms of locks.h: queues and watches (locks.c), their requests, handshakes, rights. Inside
 * these files only. */

#include <time.h>
#include <uv.h>
#include <yyjson.h>

#include "base/clock.h"
#include "base/hash.h"
#include "scheduler/locks.h"

enum {
    LOCK_REQUEST_MS = 5000,
    LOCK_PATCH_MAX = 4096, /* bytes */
};

struct locked_node {
    UT_hash_handle hh; /* by name */
    struct locks *locks;
    char *name;
    bool listed;                           /* in this term: see node_lock.listed */
    struct text_pair found[LOCK_KEYS_MAX]; /* the locks on it, as the watch showed them last */
    size_t found_count;

    struct node_lock *lock; /* NULL: nothing goes on */
    struct lock_wait *queue;
    struct kube_request *running;
    struct locked_node *prev_active, *next_active;
};

struct locks {
    struct scheduler *scheduler;
    struct locked_node *nodes, *active;
    uv_timer_t timer;
    bool known, allowed, asking;
    bool assumed; /* nobody has said yet that they may not */
    int64_t asked_ns;
};

static inline int64_t wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

static inline struct scheduler *scheduler_of(const struct locked_node *node)
{
    return node->locks->scheduler;
}

/* locks.c: does what is to be done next for the node. */
void locks_advance(struct locked_node *node);

/* lock_requests.c: one step of node_lock_step(); when it is answered, locks_advance() is called. */
void lock_request(struct locked_node *node, enum lock_step step);
/* The answer's object; NULL: it is none. */
yyjson_doc *lock_read_answer(const struct kube_answer *answer);
/* The server says that this will not be done, whenever it is asked. */
bool lock_is_refused(const struct kube_answer *answer);
/* NULL: the name is too long. */
const char *lock_node_path(const char *name, const char *before, const char *behind,
                           char to[static KUBE_PATH_SIZE]);

/* handshakes.c: each second. */
void handshakes_tick(struct locks *locks);

/* rights.c: the server allowed, or refused. */
void rights_note(struct locks *locks, bool allowed, const char *why);
