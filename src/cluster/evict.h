/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Evictions of our own, where devices alone are short: kube-scheduler does not count them, so its
 * trial of an eviction finds nobody in the way and it evicts nobody.
 *
 * A refused pod that is more important than pods with devices gets a node: the one where the least
 * important pods would go. From then on it is looked at again and again, each time with the pod as
 * the API server has it: which victims are in the way is worked out anew from the view, at most one
 * of them is asked to go at a time, and what the pod will take is kept from less important pods
 * (POD_HELD), beside what the victims still hold. Nothing of this is written down anywhere: after a
 * restart pods that are being deleted count as gone, so nobody is evicted a second time for the
 * same room.
 */

#include "cluster/state.h"

enum {
    EVICT_VICTIMS_MAX = 16,    /* for one pod */
    EVICT_PREEMPTORS_MAX = 64, /* that are remembered */
    EVICT_NODES_MAX = 8,       /* where room is made at a time */
    EVICT_SEARCHED_MAX = 4096, /* nodes at a time */
};

/* A victim of whose eviction the API server was asked. */
struct asked_victim {
    char uid[EVICT_UID_SIZE];
    bool tried;    /* it may be evicted, as a trial says */
    bool accepted; /* it is going, or gone */
    bool doubtful; /* it may be going */
};

/* A pod for which others are evicted, or may be. Strings are behind the struct. */
struct preemptor {
    UT_hash_handle hh; /* by uid */
    const char *uid, *namespace, *name;
    int32_t priority;
    char *node;        /* where room is made; NULL: nowhere */
    int64_t look_ns;   /* with a node: when the pod is to be looked at again */
    int64_t until_ns;  /* with a node: the room is given up then; else no search begins before */
    int64_t noted_ns;  /* its last refusal */
    int64_t doubt_ns;  /* how long an eviction's end may stay unknown; 0: all are known */
    unsigned failures; /* one after the other */
    size_t searched;   /* candidates, in vain */
    bool cordoned;     /* the node, when it was chosen: the pod tolerates it */
    bool busy;         /* the API server is being asked */
    bool free;         /* the room is there */
    bool requeue;      /* without a node: kube-scheduler is to ask again, at until_ns */
    struct asked_victim victims[EVICT_VICTIMS_MAX];
    size_t victim_count;
};

/* preemptors.c: the pods that are remembered. */
struct preemptor *preemptor_find(const struct cluster *cluster, const char *uid);
/* NULL: no memory. */
struct preemptor *preemptor_get(struct cluster *cluster, const struct pod *pod);
/* The most important that has the node, but for the pod of this uid. */
struct preemptor *preemptor_find_other(const struct cluster *cluster, const char *node,
                                       const char *uid);
void preemptor_free(struct cluster *cluster, struct preemptor *preemptor);
size_t preemptors_count_nodes(const struct cluster *cluster);
/* Whether others went for it, or may have. */
bool preemptor_has_evicted(const struct preemptor *preemptor);
/* No room is made for it, for a while. */
void preemptor_fail(struct cluster *cluster, struct preemptor *preemptor, int64_t now_ns);
struct asked_victim *preemptor_find_asked(const struct preemptor *preemptor, const char *uid);
/* The pod is nobody's victim until then, and if it is being deleted it is not waited for. */
void preemptor_guard(struct cluster *cluster, const char *uid, int64_t until_ns);

/* kube-scheduler finds victims of its own for this pod. */
void evict_leave_to_kube(struct cluster *cluster, const char *uid);
/* The pod is placed on this node, or nowhere. Whether it is where room was made for it. */
bool evict_end(struct cluster *cluster, const char *uid, const char *node);
void evict_end_all(struct cluster *cluster);

/* victims.c: who would go. */

/* A question: what of a node's pods have to go for this one. */
struct evicting {
    struct cluster *cluster;
    const struct pod *pod;
    const struct preemptor *preemptor; /* NULL: nobody was asked to go yet */
    const struct demand *demand;
    struct place_options options;
    struct arena *arena;
};

/* The answer. */
struct room {
    const struct cluster_node *node;
    int32_t highest; /* of the victims' priorities */
    uint64_t sum;    /* of them, counted from the lowest that there is */
    size_t count;
    struct cluster_pod *victims[EVICT_VICTIMS_MAX];
    struct placement placement;
};

/* PLACE_FITS; PLACE_NO_FIT: nobody's going helps, or too many would have to go; -E2BIG, -ENOMEM.
 * The placement is the arena's. */
int victims_find(const struct evicting *evicting, struct cluster_node *node, struct room *ret_room);
/* The best of the last filter's candidates, but for its placement: where the most important victim
 * is least important, then the sum of all. Looks at EVICT_SEARCHED_MAX nodes at a time, or fewer
 * for a pod of many requests, from where the last search ended. */
int victims_search(const struct evicting *evicting, struct room *ret_best, size_t *ret_searched);

/* evict.c: the candidates of the last filter refuse the pod. Chooses a node where others may go for
 * it; if there is no memory, or it is not the time, none. */
void evict_note(struct cluster *cluster, const struct pod *pod, const struct demand *demand,
                int64_t now_ns, struct arena *arena);
