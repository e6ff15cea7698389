/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Binds to a node whose agents are not ours.
 *
 * kubelet does not say which pod an allocation is for, so such an agent takes the pod that an
 * annotation of its node names, the lock, or a pending pod of its node. Only one pod of such a node
 * may wait for its allocations at a time: it has the node's turn. Its bind goes like this:
 *
 *   want -> list the node's pending pods, once a term -> read the node -> write the lock,
 *   guarded by the node's resource version -> Binding -> look at the pod until its allocations
 *   are over -> remove the lock if the agent left it
 *
 * The turn ends when the pod's agents took all its devices, kubelet started its containers, its
 * allocation failed, or it is gone or over: not when the lock is gone, because some agents remove
 * it after the first container of several. A lock that is found, whoever wrote it, is a turn of
 * the pod that it names. It is removed when that pod's turn is over, and when it is too old.
 *
 * Where agents wait for no lock, but take the oldest pod, there are turns without a lock: nothing
 * of the node is read or written.
 *
 * struct node_lock is one node's state. It has no clock and does no I/O: node_lock_step() says what
 * is to be done, and its owner reports what came of it. Times are a monotonic clock's nanoseconds,
 * wall_ns are nanoseconds since 1970.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "model/node.h"
#include "model/pod.h"
#include "vendor/vendor.h"

enum {
    LOCK_KEYS_MAX = 2,    /* that one node's agents wait for: HAMi's, Cambricon's */
    LOCK_TIME_SIZE = 24,  /* of RFC 3339 in UTC */
    LOCK_NAME_SIZE = 256, /* of a namespace, a name, a uid, a resource version */
    /* a lock's value: a time, two names, commas: what was read can be written */
    LOCK_VALUE_SIZE = LOCK_TIME_SIZE + 2 * LOCK_NAME_SIZE,
};

/* So long an agent may take to remove the lock of a pod whose allocations are over. */
#define LOCK_GRACE_NS (3 * NS_PER_S)
/* So long a lock may name a pod that has no node: another scheduler may be about to bind it. */
#define LOCK_UNBOUND_NS (30 * NS_PER_S)
/* Between two looks at a pod, or at a node whose lock names none. */
#define LOCK_LOOK_FIRST_NS (250 * NS_PER_MS)
#define LOCK_LOOK_MAX_NS (4 * NS_PER_S)

struct lock_set {
    const struct vendor_lock *items[LOCK_KEYS_MAX];
    size_t count;
};

/* Whether anything is written on the node; else the set is a turn alone, or empty. */
bool lock_set_is_written(const struct lock_set *set);
/* Adds the lock unless it is there. False: there are too many. */
bool lock_set_add(struct lock_set *set, const struct vendor_lock *lock);

struct lock_pod {
    char namespace[LOCK_NAME_SIZE], name[LOCK_NAME_SIZE];
    char uid[LOCK_NAME_SIZE]; /* "": any of this name */
};

/* A lock's value: "TIME,NAMESPACE,NAME", or the time alone; RFC 3339. */
struct lock_value {
    bool readable;          /* it has a time */
    int64_t written_ns;     /* since 1970 */
    struct lock_pod holder; /* without a uid; "" and "" when it names none */
    char text[LOCK_VALUE_SIZE];
};
void lock_value_read(const char *text, struct lock_value *ret_value);
void lock_value_write(const struct vendor_lock *lock, const struct lock_pod *pod, int64_t wall_ns,
                      struct strbuf *buf);
bool lock_value_names(const struct lock_value *value, const struct lock_pod *pod);

/* How far a pod's allocations are. */
enum lock_progress {
    LOCK_UNKNOWN = 1, /* it could not be read */
    LOCK_UNBOUND,     /* it has no node */
    LOCK_ALLOCATING,
    LOCK_OVER, /* they are over, well or not: the agent removes the lock, or has done so */
    LOCK_GONE, /* no agent will: the pod ended, does not exist, or is on another node */
};

/* Of a pod as read, or as a watch of metadata shows it; NULL: there is none. */
enum lock_progress lock_pod_progress(const struct vendor_set *vendors, const struct pod *pod,
                                     const struct lock_pod *wanted, const char *node);

/* Whether an agent that finds no lock may take the pod for the one that it is asked about; how long
 * ago it was bound. */
bool lock_pod_waits(const struct vendor_set *vendors, const struct pod *pod, const char *node,
                    int64_t wall_ns, int64_t *ret_age_ns);

enum lock_step {
    LOCK_REST = 0,  /* until the time, or until something is reported */
    LOCK_LIST_PODS, /* that are pending on the node: then node_lock_listed() */
    LOCK_GET_NODE,  /* then node_lock_read() */
    LOCK_GET_POD,   /* the turn's: then node_lock_looked() */
    LOCK_PATCH,     /* node_lock_write_patch(): then node_lock_patched() */
    LOCK_BIND,      /* the Binding of the turn's pod may be sent: then node_lock_bound() */
};

struct node_lock {
    bool listed;  /* no allocation of an earlier term goes on */
    bool running; /* a step is being done */
    bool is_read; /* the node was read, and nothing was written since: its resource version: */
    char version[LOCK_NAME_SIZE];

    bool wanted; /* a bind waits for its turn */
    struct lock_pod want;
    struct lock_set want_locks;
    struct lock_pod wrote; /* the pod for which a lock was written last */
    struct lock_set wrote_locks;
    char wrote_time[LOCK_TIME_SIZE]; /* and when: the whole value of a lock that names no pod */

    bool taken; /* a pod has the turn */
    struct lock_pod turn;
    struct lock_set turn_locks;
    bool binding;    /* its bind is under way here; not looked at */
    bool told;       /* LOCK_BIND was said */
    bool over, gone; /* its allocations are */
    bool breaks;     /* its lock is to be removed now */
    bool there;      /* its lock may be on the node */
    int64_t
        begun_ns; /* its bind ended; of a lock that was found: since when it has been the same */
    int64_t over_ns, look_ns, until_ns;
    unsigned looks;

    /* The foreign lock in the way, while it is seen, and since when it has been the same by our
     * clock. */
    bool has_found;
    char found[LOCK_VALUE_SIZE];
    int64_t found_ns;
    int64_t pause_ns; /* nothing is tried before it */
    unsigned failures;
};

/* What is to be done next. LOCK_REST: nothing until *ret_until_ns; 0: until something happens. */
enum lock_step node_lock_step(struct node_lock *lock, int64_t now_ns, int64_t *ret_until_ns);

/* A bind waits. Only while none does. Its locks are not empty. */
void node_lock_want(struct node_lock *lock, const struct lock_pod *pod,
                    const struct lock_set *locks, int64_t now_ns);
/* It gave up before its turn. */
void node_lock_give_up(struct node_lock *lock, int64_t now_ns);

/* What came of a step. */

/* done: the pods could be listed. found: one whose allocations go on, or NULL; bound age_ns ago.
 * locks: the node's; it may have lost them since a bind wanted one. */
void node_lock_listed(struct node_lock *lock, bool done, const struct lock_pod *found,
                      int64_t age_ns, const struct lock_set *locks, int64_t now_ns);
/* node NULL: it could not be read. */
void node_lock_read(struct node_lock *lock, const struct node *node, int64_t now_ns,
                    int64_t wall_ns);
void node_lock_looked(struct node_lock *lock, enum lock_progress progress, int64_t now_ns);
/* done: the server said so; else, after a conflict or an answer that is not certain, the node is
 * read again. */
void node_lock_patched(struct node_lock *lock, bool done, int64_t now_ns);
/* The bind ended: the pod has this node, or not for certain. */
void node_lock_bound(struct node_lock *lock, bool bound, int64_t now_ns);

/* The merge patch of LOCK_PATCH: sets the lock, or removes it. */
void node_lock_write_patch(struct node_lock *lock, int64_t wall_ns, struct strbuf *buf);

/* What watches show, at any time. */
void node_lock_see_pod(struct node_lock *lock, const struct vendor_set *vendors,
                       const struct pod *pod, const char *node, int64_t now_ns);
void node_lock_see_deleted(struct node_lock *lock, const char *uid);
/* The node, in which a lock may be found that nobody here wrote, or the turn's is gone. */
void node_lock_see_node(struct node_lock *lock, const struct node *node,
                        const struct lock_set *locks, int64_t now_ns, int64_t wall_ns);

/* Nothing goes on, and nothing has to be remembered but that the pods were listed. */
bool node_lock_is_idle(const struct node_lock *lock);
