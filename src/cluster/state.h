/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cluster's records. Inside cluster only; see cluster.h. */

#include "base/hash.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/refusal.h"
#include "vendor/handshake.h"

struct cluster_node {
    UT_hash_handle hh;                /* by place->name */
    struct place_node *place;         /* its devices are NULL while there are none */
    char *registered;                 /* sources_text() that the devices were made of; NULL: none */
    const char *absent;               /* why it has no devices, for a person; NULL: it has some */
    bool exists;                      /* false: only pods name it */
    bool cordoned;                    /* no pods come that do not tolerate it */
    bool ranked;                      /* place->rank is in the order of the names */
    unsigned seen;                    /* the list that showed it last */
    unsigned mark;                    /* the filter that named it last */
    struct cluster_pod *pods;         /* that hold its devices */
    const struct vendor_lock **locks; /* of each vendor instance, which its agent waits for; NULL:
                                         none does */
    struct handshakes *handshakes;    /* of its agents that have one; NULL: none has */

    /* With the policy scarcity: */
    unsigned occupants;       /* pods that request processors or memory of it */
    struct amounts has, used; /* what is allocatable, 0: not known; what they request */
};

enum {
    EVICT_UID_SIZE = 64,   /* nobody evicts a pod of a longer uid */
    EVICT_GUARDS_MAX = 64, /* the oldest is forgotten first */
};

enum pod_state {
    POD_IDLE = 0, /* holds nothing */
    POD_PLAIN,    /* asks for no devices; for some time its bind is passed on, to any node */
    POD_RESERVED, /* devices are reserved by a filter, until until_ns */
    POD_EXPIRED,  /* the reservation's time is over: holds nothing, but may be bound if its devices
                     are still free */
    POD_HELD,     /* devices are kept for it that other pods give back: see evict.c */
    POD_BINDING,  /* a bind is under way, or its end is unknown */
    POD_BOUND,    /* the API said so; the watch has not shown it yet */
    POD_PLACED,   /* its grant is in force by its annotations */
};

struct cluster_pod {
    UT_hash_handle hh;                  /* by uid */
    const char *uid, *namespace, *name; /* behind the struct */
    struct cluster_namespace *space;
    enum pod_state state : 8;
    bool kept : 1;    /* POD_PLACED, POD_BOUND: it holds the devices that we reserved */
    unsigned seen;    /* POD_PLACED, POD_BOUND: the list that showed it, or was last, then */
    int64_t until_ns; /* POD_RESERVED, POD_EXPIRED: when its time is over; POD_BOUND: when it is to
                         be asked about; 0: it has none */

    bool has_priority; /* spec.priority is known: */
    bool deleting;     /* POD_PLACED: its containers are ending */
    bool guarded;      /* its eviction was refused, or it does not end: struct guard */
    int32_t priority;
    struct amounts amounts;                      /* that a reservation requests of the node */
    struct grant *grant;                         /* NULL when idle */
    struct cluster_node *node;                   /* whose devices it holds */
    struct cluster_pod *prev, *next;             /* of the node's, while it holds something */
    struct cluster_pod *prev_timed, *next_timed; /* of those with a time, in its order */
};

/* A pod's grant: its devices, in one piece of memory. */
struct grant {
    char *text; /* the annotations that it was made of, members of a JSON object; compared to detect
                   changes. Of a reservation: those that are not to be written */
    struct place_usage usage;
    struct text_pairs annotations; /* that a bind is to write; none when read from the API */
};

/* A pod whose last filter refused it; strings are behind the struct. */
struct refused_pod {
    UT_hash_handle hh; /* by uid, in the order of the refusals */
    const char *uid, *namespace, *name;
    int64_t at_ns;
    uint64_t freed; /* the cluster's, then */
    bool behind;    /* devices came free since; noticed at: */
    int64_t behind_ns;
};

/* A pod that is left alone for a while: its eviction was refused, or it does not end. */
struct guard {
    char uid[EVICT_UID_SIZE];
    int64_t until_ns;
};

/*
 * The candidates of the last filter. kube-scheduler names the same nodes again and again, in an
 * order of its own. If the hashes of the names add up to the same sums, the nodes are the same and
 * need not be looked up.
 */
struct candidates {
    uint64_t generation; /* the cluster's, then */
    uint64_t sums[2];    /* over the names, whatever their order */
    size_t name_count;
    const struct place_node **nodes;    /* those with devices, each once */
    const struct cluster_node **absent; /* the others that are known, each once */
    size_t count, absent_count, size;
};

/* Nodes lie together in memory, since decisions walk over all of them. */
enum {
    SLAB_NODES = 256,
};

struct slab {
    struct slab *next;
    uint32_t seat;                   /* of its first node */
    uint64_t taken[SLAB_NODES / 64]; /* bits */
    struct place_node nodes[SLAB_NODES];
};

struct cluster {
    struct cluster_options options;
    struct cluster_node *nodes;
    struct slab *slabs;
    struct kinds *kinds;
    struct refusals *refusals;
    struct scarcity *scarcity;   /* NULL: no pod's policy is scarcity unless it says so itself */
    struct occupants *occupants; /* NULL: there are none */
    struct cluster_pod *pods;
    struct cluster_pod *timed; /* those with a time */
    struct cluster_namespace *namespaces;
    struct cluster_quota *quotas;
    bool complete[CLUSTER_KINDS];
    unsigned list[CLUSTER_KINDS]; /* number of the list being read, or read last */
    struct candidates candidates;
    uint64_t generation; /* goes up when a node begins or ceases to exist, or to have devices */
    unsigned gathers;
    uint64_t freed; /* goes up when devices may have come free, or come at all */
    struct refused_pod *refused;
    struct preemptor *preemptors;
    struct guard guards[EVICT_GUARDS_MAX];
    size_t guard_next;             /* of guards, the next to be written over */
    int64_t search_ns;             /* no search for victims begins before */
    size_t search_from;            /* the candidate at which it begins */
    int32_t lowest_priority;       /* of all pods that held devices since the start */
    size_t unranked;               /* nodes that came since the ranks were given */
    int64_t written_ns;            /* the last time that was written on a pod for a vendor */
    const char *held;              /* why no decisions may be made; NULL: they may */
    bool may_lock;                 /* nodes' locks may be written */
    struct vendor_lock mutex_lock; /* vendor_mutex_lock, with the time that is configured */
    struct arena *scratch;
};

struct scarcity;
struct occupants;

/* kind.c */
struct kinds *kinds_new(void); /* NULL: no memory */
void kinds_free(struct kinds *kinds);
/* Sets the devices' kinds. kinds_give() returns the numbers; call it before a device is freed or
 * its model or mode changes. */
void kinds_take(struct kinds *kinds, struct device *devices, size_t count);
void kinds_give(struct kinds *kinds, const struct device *devices, size_t count);

/* slab.c */
struct place_node *slab_take(struct slab **slabs); /* zeroed; NULL: no memory */
void slab_give(struct slab *slabs, struct place_node *place);
void slab_free(struct slab *slabs);

/* node.c */
struct cluster_node *node_get(struct cluster *cluster, const char *name); /* made if need be */
struct cluster_node *node_find(const struct cluster *cluster, const char *name);
size_t node_pods(const struct cluster_node *node); /* how many */
void node_forget_if_unused(struct cluster *cluster, struct cluster_node *node);
/* Its devices, or what is used of them, changed. */
void node_update(struct cluster *cluster, struct cluster_node *node);
void node_free(struct cluster *cluster, struct cluster_node *node);
void nodes_sweep(struct cluster *cluster);
/* Takes the vendor's devices out; the node's next event reads them anew. -ENOMEM. */
int node_drop_vendor(struct cluster *cluster, struct cluster_node *node,
                     const struct device_vendor *vendor);
void nodes_rank(struct cluster *cluster);

/* sources.c */
/* The text that a node's devices are made of, in the scratch arena: while it stays the same, so do
 * they. NULL: no memory. */
const char *sources_text(const struct cluster *cluster, const struct cluster_node *known,
                         const struct node *node);
/* The part of it that devices were made of: a Node's JSON from its annotations on, left open behind
 * the last of what is allocatable. */
const char *sources_shown(const char *text);
/* Without this registration; no node has the same text then. */
void sources_drop(char *text, const char *register_key);

/* handshake.c */
/* What a node's event says of its agents. -ENOMEM. */
int handshakes_see(struct cluster *cluster, struct cluster_node *node, const struct node *from);
/* The agent fell silent. */
bool handshakes_gone(const struct cluster_node *node, const struct vendor_instance *instance);

/* pod.c: a pod takes the devices of its grant, or gives them back. */
struct cluster_pod *pod_get(struct cluster *cluster, const char *uid, const char *namespace,
                            const char *name); /* made if need be; NULL: no memory */
struct cluster_pod *pod_find(const struct cluster *cluster, const char *uid);
bool pod_holds(const struct cluster_pod *pod);
void pod_set_priority(struct cluster *cluster, struct cluster_pod *pod, int32_t priority);
/* The pod holds nothing yet; the grant becomes its own. */
void pod_take(struct cluster *cluster, struct cluster_pod *pod, struct cluster_node *node,
              struct grant *grant, enum pod_state state);
void pod_release(struct cluster *cluster, struct cluster_pod *pod); /* to POD_IDLE */
void pod_expire(struct cluster *cluster, struct cluster_pod *pod);
/* The pod has no time yet. */
void pod_time(struct cluster *cluster, struct cluster_pod *pod, int64_t until_ns);
void pod_untime(struct cluster *cluster, struct cluster_pod *pod);
void pod_free(struct cluster *cluster, struct cluster_pod *pod);
/* Frees it but for its grant, which is the caller's. */
struct grant *pod_take_back(struct cluster *cluster, struct cluster_pod *pod);
void pods_sweep(struct cluster *cluster);

/* filter.c: makes the placement the pod's, which holds nothing; without a time. -ENOMEM. */
int filter_take(struct cluster *cluster, const struct pod *from, struct cluster_node *node,
                const struct placement *placement, enum pod_state state, struct arena *arena);

/* narrow.c */
enum {
    NARROW_LOOKS_MAX = 100000, /* at devices, by one question: some 50 ms */
};

/* To find out which pods of the node have to go for the demand, which is fitted anew with each; 0:
 * few. */
size_t narrow_victim_looks(const struct demand *demand, const struct cluster_node *node);
/* Whether looking into all candidates would take too long for the others. */
bool narrow_is_large(const struct demand *demand, const struct candidates *candidates);
/* Of these positions keeps those that are looked into this time, in that order. refusal may be
 * NULL. -ENOMEM. */
int narrow(const struct demand *demand, const struct candidates *candidates,
           const struct refusal *refusal, struct arena *arena, uint32_t *positions, size_t *count);

/* refused.c */
/* A pod was refused. Whether it was refused before, and nothing came free since. */
bool requeue_note(struct cluster *cluster, const struct pod *pod, int64_t now_ns);
void requeue_forget(struct cluster *cluster, const char *uid);
void requeue_forget_all(struct cluster *cluster);

/* grant.c */
enum {
    GRANT_TEXT_MAX = 2 << 20, /* Kubernetes bounds all annotations of an object to 256 KiB */
};
/* For its text. */
void grant_add_text(struct strbuf *text, const char *key, const char *value);
/* The annotations that the vendor's recall() reads. */
void grant_add_recalled(struct strbuf *text, const struct vendor_instance *instance,
                        const struct text_pairs *annotations);
struct grant *grant_new(const struct place_usage *usage, const struct text_pairs *annotations,
                        const char *text);
/* The same shares of the same devices, in any order: a decision has the vendors in the order of the
 * containers, and annotations are read in that of the configuration. */
bool grant_is_same(const struct grant *a, const struct grant *b);
void grant_free(struct grant *grant);
DEFINE_CLEANUP(struct grant *, grant_free);
