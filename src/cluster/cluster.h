/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The scheduler's state: the cluster's nodes and pods, and its decisions. This is the one owner of
 * it.
 *
 * API objects, requests and the time go in as events; decisions come out. A decision and its
 * reservation are one step, so nothing is granted twice. Grants in force come from API objects
 * alone (a node's registration, a pod's annotations) and can be rebuilt from them at any time to
 * the same value. Beside them stand reservations, which last seconds: from the filter to the bind,
 * and from the bind until the watch shows the bound pod.
 *
 * No clock, no log, no I/O. Times are any monotonic clock's nanoseconds. One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "cluster/lock.h"
#include "model/node.h"
#include "model/pod.h"
#include "model/quota.h"
#include "model/text.h"
#include "place/place.h"
#include "vendor/handshake.h"
#include "vendor/vendor.h"

struct cluster;

/* A filter's reservation waits so long for its bind; then other pods may get the devices. */
#define CLUSTER_RESERVATION_NS (INT64_C(60) * 1000000000)

/*
 * If devices came free and kube-scheduler has not asked about a refused pod for so long since, the
 * pod is to be requeued. A bit less than the second between two calls of cluster_requeue(), so that
 * the second call returns it.
 */
#define CLUSTER_REQUEUE_NS (INT64_C(900) * 1000000)

/* kube-scheduler tries every pod again after 5 min, looking every 30 s: a refused pod that it does
 * not ask about in this time is gone. */
#define CLUSTER_REFUSED_KEPT_NS (INT64_C(360) * 1000000000)

/* A bound pod that the watch has not shown for so long may have come and gone unseen: the API
 * server is to be asked about it. */
#define CLUSTER_UNSEEN_NS (INT64_C(30) * 1000000000)

struct cluster_options {
    const struct vendor_set *vendors; /* the caller's, outlives the cluster */
    struct place_options defaults;    /* for pods that state no policy */
    int64_t reservation_ns;           /* 0: CLUSTER_RESERVATION_NS */
    int64_t node_lock_ns;             /* after which hami.io/mutex.lock is broken; 0: five min */
    bool learns;                      /* what the policy scarcity needs, whatever the defaults */
    bool evicts;                      /* where devices alone are short: cluster_evictions() */
    bool has_quotas;                  /* CLUSTER_QUOTAS are listed, too: ready waits for them */
};

/* NULL: no memory. */
struct cluster *cluster_new(const struct cluster_options *options);
void cluster_free(struct cluster *cluster);
DEFINE_CLEANUP(struct cluster *, cluster_free);

/*
 * API objects, as a watch brings them. 0: taken. 1: taken, with mended numbers; err says which.
 * -EINVAL: the object's registration or annotation can't be read, err says why; the object is taken
 * without it. -ENOMEM: not taken.
 */
int cluster_set_node(struct cluster *cluster, const struct node *node, struct error *err);
void cluster_delete_node(struct cluster *cluster, const char *name);

/*
 * Whether locks may be written on nodes, for agents that wait for one; at first they may. While
 * not, such nodes have no devices. Holds for nodes that are set from now on.
 */
void cluster_allow_locks(struct cluster *cluster, bool allowed);

/* The locks that the node's agents wait for; those of them that the pod's agents wait for, on the
 * node where it holds devices. */
struct lock_set cluster_node_locks(const struct cluster *cluster, const char *name);
struct lock_set cluster_pod_locks(const struct cluster *cluster, const char *uid);

/*
 * Looks after agents that have a handshake: one that fell silent loses its devices of the node.
 * Fills in at most max annotations that are to be written on nodes, by the scheduler that decides;
 * each again after a while, until a watch shows it. To be called every second. Names are good until
 * the next event.
 */
struct cluster_handshake {
    const char *node, *key;
    char value[HANDSHAKE_TEXT_SIZE];
};
size_t cluster_handshakes(struct cluster *cluster, int64_t now_ns, int64_t wall_ns,
                          struct cluster_handshake *ret_writes, size_t max);

/* Pods that have ended are to be deleted here; those being deleted hold their devices until then.
 */
int cluster_set_pod(struct cluster *cluster, const struct pod *pod, struct error *err);
void cluster_delete_pod(struct cluster *cluster, const char *uid);

/* ResourceQuotas, which bound what the pods of a namespace may have together. 1: taken, but for a
 * bound that is no whole number, err says which; -ENOMEM. */
int cluster_set_quota(struct cluster *cluster, const struct quota *quota, struct error *err);
void cluster_delete_quota(struct cluster *cluster, const char *namespace, const char *name);

/*
 * A list is read anew: objects that are not set between begin and complete do not exist any more.
 * Reservations of pods that no list has shown yet stay.
 */
enum cluster_kind {
    CLUSTER_NODES = 0,
    CLUSTER_PODS,
    CLUSTER_QUOTAS,
    CLUSTER_KINDS,
};
void cluster_begin(struct cluster *cluster, enum cluster_kind kind);
void cluster_complete(struct cluster *cluster, enum cluster_kind kind);

/* The node of this name, the pod of this uid, or the quota "NAMESPACE/NAME" is in the list but
 * can't be read: keeps what is known of it. */
void cluster_keep(struct cluster *cluster, enum cluster_kind kind, const char *key);

/* All lists were complete once: before that nothing is decided. */
bool cluster_is_ready(const struct cluster *cluster);

/* NULL: decisions may be made. Else the reason why not, which cluster_filter() returns; the text is
 * the caller's. */
void cluster_hold(struct cluster *cluster, const char *why);

/* Ends the reservations whose time is over. Cheap when there are none. */
void cluster_expire(struct cluster *cluster, int64_t now_ns);

enum cluster_outcome {
    CLUSTER_NOT_OURS = 1, /* the pod asks for no device of ours; its bind will be passed on */
    CLUSTER_PLACED,       /* a node is chosen, its devices are reserved */
    CLUSTER_REFUSED,
};

struct cluster_failed_node {
    const char *name;
    const char *reason; /* "3/8 CardInsufficientMemory" */
    bool for_good;      /* no eviction would make room */
};

/* A filter's answer. Strings are the arena's, the request's, or the cluster's until the next
 * event. */
struct cluster_answer {
    const char *node;    /* CLUSTER_PLACED */
    size_t kept_count;   /* CLUSTER_NOT_OURS with the policy scarcity: the nodes on */
    const char **kept;   /* which the pod costs least; NULL: all that were named */
    size_t failed_count; /* CLUSTER_REFUSED: all candidates */
    struct cluster_failed_node *failed; /* each once, in any order */
    const char *summary;                /* of all nodes together, for the pod's event */
    uint64_t reasons; /* kinds of reasons, as bits: changes when the summary's words do */
    bool partly;      /* CLUSTER_REFUSED: some nodes were not looked into yet, see narrow.c */
    bool again;       /* the pod was refused before, and nothing came free since */
    bool room_made;   /* CLUSTER_PLACED where others were evicted for it */
};

/*
 * Chooses among the named nodes and reserves. A pod's earlier reservation is given back first. An
 * outcome, or -EBUSY while a bind of this pod is under way, -EAGAIN before cluster_is_ready() and
 * while cluster_hold() says so,
 * -EINVAL, -E2BIG for what the pod asks for, -ENOMEM; err says why.
 */
int cluster_filter(struct cluster *cluster, const struct pod *pod, const char *const *names,
                   size_t count, int64_t now_ns, struct arena *arena,
                   struct cluster_answer *ret_answer, struct error *err);

/*
 * Between decisions: brings the costs up to date that the policy scarcity decides by, in steps of a
 * few ten microseconds each (one node, or its share of new prices). False: nothing is left to do.
 * Decisions are right without it, but slow, and by old prices.
 */
bool cluster_work(struct cluster *cluster, unsigned steps);

/*
 * The same, of nodes that the question carries and that need not exist, as cluster-autoscaler
 * simulates them: nothing is reserved. Nodes that are known are taken with what is used of them,
 * others with what they tell of themselves, all of it free.
 */
int cluster_try(const struct cluster *cluster, const struct pod *pod, const struct node *nodes,
                size_t count, struct arena *arena, struct cluster_answer *ret_answer,
                struct error *err);
bool cluster_knows_node(const struct cluster *cluster, const char *name);

/* Which pod, so that the API server can be asked about it. */
struct cluster_pod_name {
    const char *namespace, *name, *uid;
};

/*
 * Pods to requeue: refused, and devices came free since. kube-scheduler tries a refused pod again
 * when it sees a pod go or a node change. It does not when a reservation ends, which only we know
 * of, nor when it saw a pod go before our watch did and we refused once more from the older view.
 * Returns each pod once after its refusal, in the order of the refusals, at most max. To be called
 * every second. Strings are the arena's.
 */
size_t cluster_requeue(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                       struct cluster_pod_name *ret_pods, size_t max);

/*
 * kube-scheduler would evict these victims on each node to make room for a pod, but it can't count
 * devices. Where devices need more evictions, adds as few pods as possible, all of lower priority;
 * leaves out the nodes where not even that makes room. For a pod that asks for no device nothing
 * changes. 0, or -EAGAIN before cluster_is_ready(), -E2BIG, -ENOMEM with err. Added uids are good
 * until the next event.
 */
struct cluster_victims {
    const char *node;
    const char *const *uids;
    size_t count;
    int64_t pdb_violations; /* as kube-scheduler counted them */
};
int cluster_preempt(struct cluster *cluster, const struct pod *pod, struct cluster_victims *victims,
                    size_t *count, struct arena *arena, struct error *err);

/*
 * Where devices alone are short, kube-scheduler evicts nobody and does not ask. With
 * cluster_options.evicts a filter that refuses a pod looks for less important pods whose going
 * makes room for it, and remembers the node; at most one such search a second.
 *
 * cluster_evictions(), to be called every second and after each of these calls, returns whom to
 * look after: the pod is to be requeued (cluster_requeue()), or else to be read from the API server
 * and given to cluster_evict(), or to cluster_evict_over() if it is gone or bound, or to
 * cluster_evict_unknown() where there is no answer. Strings are the arena's.
 */
struct cluster_eviction_due {
    bool requeue;
    struct cluster_pod_name pod;
};
size_t cluster_evictions(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                         struct cluster_eviction_due *ret_due, size_t max);

/*
 * The next step to make room for a pod that waits. Before any is taken, what it will take is kept
 * from pods that are not more important, at most for ten minutes while victims go and for one from
 * then on. -ENOMEM, -E2BIG, -EBUSY: nothing is to be done now.
 */
enum cluster_evict_step {
    CLUSTER_EVICT_OVER = 1, /* nobody is to go for it, or nobody any more */
    CLUSTER_EVICT_WAIT,     /* pods are going */
    CLUSTER_EVICT_TRY,      /* ask whether this victim might be evicted: several have to go */
    CLUSTER_EVICT,          /* evict it */
    CLUSTER_EVICT_FREE,     /* the room is there: the pod is to be requeued */
};
/* Strings are good until the next event. */
struct cluster_eviction {
    const char *node;
    size_t count; /* of victims that have not been asked to go yet */
    struct cluster_pod_name victim;
    int32_t victim_priority;
};
int cluster_evict(struct cluster *cluster, const struct pod *pod, int64_t now_ns,
                  struct arena *arena, struct cluster_eviction *ret_eviction);
void cluster_evict_over(struct cluster *cluster, const char *uid);
void cluster_evict_unknown(struct cluster *cluster, const char *uid, int64_t now_ns);

/* What the API server said of the victim that cluster_evict() named. After a refusal the victim is
 * left alone for a while; after a doubtful answer nobody else is asked until the view shows it. */
enum cluster_evicted_end {
    CLUSTER_EVICTION_DONE = 1, /* it goes, or is gone; of a trial: it might be evicted */
    CLUSTER_EVICTION_REFUSED,
    CLUSTER_EVICTION_DOUBTFUL,
};
void cluster_evicted(struct cluster *cluster, const char *uid, const char *victim,
                     enum cluster_evicted_end end, bool trial, int64_t now_ns);

struct cluster_bind {
    const char *namespace, *name, *uid, *node;
};

/*
 * Begins a bind. Fills in, in the arena, the annotations that are to be written with the Binding;
 * none for a pod that asks for no device. wall_ns: the time of day in nanoseconds since 1970. 0,
 * after which cluster_bound() must be called; -ENOENT: nothing is reserved for this pod on this
 * node (kube-scheduler is to ask the filter again); -ENOSPC: the reservation's time was over and
 * other pods have the devices; -EBUSY: a bind of this pod is under way.
 */
int cluster_bind(struct cluster *cluster, const struct cluster_bind *bind, int64_t now_ns,
                 int64_t wall_ns, struct arena *arena, struct text_pairs *ret_annotations,
                 struct error *err);

/* How a bind ended. */
enum cluster_bind_end {
    CLUSTER_BOUND = 1, /* the devices are the pod's; the watch will show it */
    CLUSTER_NOT_BOUND, /* for certain: the devices are given back */
    CLUSTER_UNKNOWN,   /* no answer: they stay reserved until the pod is seen, or known not to be
                          bound */
};
void cluster_bound(struct cluster *cluster, const char *uid, enum cluster_bind_end end,
                   int64_t now_ns);

/*
 * A pod whose bind's end was unknown was read from the API server, and has a node. Its annotations
 * are in force, not our reservation; *ret_ours: both are the same. The watch will show the pod; if
 * it did already, nothing changes. Returns as cluster_set_pod() does.
 */
int cluster_found(struct cluster *cluster, const struct pod *pod, int64_t now_ns, bool *ret_ours,
                  struct error *err);

/*
 * Bound pods that the watch has not shown in CLUSTER_UNSEEN_NS: they came and went before the
 * bind's answer, or the watch is late. Returns at most max, and each again after as long, until the
 * watch shows it or cluster_gone() is called: the pod does not exist, is not bound, or is over. For
 * a pod that the watch has shown, cluster_gone() does nothing. Strings are the arena's.
 */
size_t cluster_unseen(struct cluster *cluster, int64_t now_ns, struct arena *arena,
                      struct cluster_pod_name *ret_pods, size_t max);
void cluster_gone(struct cluster *cluster, const char *uid);

/*
 * A new term begins. Another scheduler may have decided meanwhile; binds of an earlier term are
 * carried out by now, or never will be. So all reservations are given back, those of binds with
 * unknown end as soon as a list of pods that begins from now on is complete and does not show them.
 * No bind may be under way.
 */
void cluster_begin_term(struct cluster *cluster);

/*
 * The state as JSON without times, the same text for the same state: grants in force, by name, and
 * then reservations.
 */
void cluster_view(const struct cluster *cluster, struct strbuf *buf);

/*
 * The same as Kubernetes objects, a List as kubectl prints it: nodes with what their devices were
 * made of, pods that hold devices, the reserved ones alike, and of each namespace one quota. A
 * cluster that these are set in decides as this one does; but of processors and memory it has what
 * is left, and it has learned nothing for the policy scarcity.
 */
void cluster_objects(const struct cluster *cluster, struct strbuf *buf);

/*
 * Why a pod is placed nowhere, or where it fits, as JSON: for each node whether it fits, with its
 * score, or the first container that doesn't and for each device the first rule that failed, what
 * it has left and what it would take. Changes nothing. -EINVAL: the pod asks for no device; -E2BIG,
 * -ENOMEM.
 */
int cluster_why(const struct cluster *cluster, const struct pod *pod, struct arena *arena,
                struct strbuf *buf, struct error *err);

/*
 * For metrics, which are written a few nodes or pods at a time. cluster_list() fills in, in the
 * arena, the names of all nodes with devices and the uids of all pods that hold devices; -ENOMEM.
 * The other two return the present state of one of them; NULL and false: it is gone. Pointers are
 * good until the next event.
 */
struct cluster_pod_view {
    const char *namespace, *name, *uid, *node;
    bool reserved; /* promised, not yet in force */
    const struct place_usage *usage;
    const char *text; /* the annotations that its devices were read from, as members of a JSON
                         object */
};
int cluster_list(const struct cluster *cluster, struct arena *arena, struct text_list *ret_nodes,
                 struct text_list *ret_pods);
const struct place_node *cluster_find_node(const struct cluster *cluster, const char *name);
bool cluster_find_pod(const struct cluster *cluster, const char *uid,
                      struct cluster_pod_view *ret_pod);

/* What a namespace may have of a resource, in its unit, and what it has, in units of unit_mib; for
 * metrics. Strings are the arena's or the configuration's. -ENOMEM. */
struct cluster_quota_view {
    const char *namespace, *resource;
    int64_t bound, used, unit_mib;
    bool in_mib; /* a bound without unit would mean another amount */
};
int cluster_list_quotas(const struct cluster *cluster, struct arena *arena,
                        struct cluster_quota_view **ret_rows, size_t *ret_count);

/* The bounds of a namespace, whatever is used of them, in the arena. -ENOMEM. */
int cluster_quota_bounds(const struct cluster *cluster, const char *namespace, struct arena *arena,
                         const struct place_budget **ret_bounds, size_t *ret_count);

/*
 * Classes of pods, as the policy scarcity knew them when the prices were renewed last, those that
 * arrive most often first; at most max, 0 without the policy. cluster_unallocatable() returns which
 * part of all devices is free and can't be had by the pods that arrive, weighted by how often they
 * do: 0 to 1, less than 0 if it is not known. Both tell of the last count, which
 * cluster_count_classes() has made anew in the work that follows. cluster_renew_prices() renews
 * them at once, which may take seconds.
 */
enum {
    CLUSTER_CLASS_SIZE = 192,
};

struct cluster_class {
    /* "1x50% cpu=8 memory=16Gi of A100|H100", or, where no card is large enough or of the wanted
     * kind, "1x no such card cpu=8 memory=16Gi". */
    char text[CLUSTER_CLASS_SIZE];
    double share;      /* of the arrivals */
    uint64_t fillable; /* how many more of this class alone would fit */
    double price;
};
size_t cluster_classes(const struct cluster *cluster, struct cluster_class *ret_classes,
                       size_t max);
double cluster_unallocatable(const struct cluster *cluster);
void cluster_count_classes(struct cluster *cluster);
void cluster_renew_prices(struct cluster *cluster);

/* Whether so much of the node's processors and memory is left, as far as the policy scarcity knows
 * them. */
bool cluster_has_amounts(const struct cluster *cluster, const char *node,
                         const struct amounts *amounts);

struct cluster_counts {
    size_t nodes;    /* with devices */
    size_t pods;     /* that hold devices */
    size_t reserved; /* of them, promised only */
};
struct cluster_counts cluster_count(const struct cluster *cluster);
