/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The world of cluster_random_test: a pretended API server, whose watches deliver late and whose
 * lists come in pieces, and the nodes' agents. Of what the cluster under test has been shown it
 * keeps a copy, for the judge.
 */

#include <stdbool.h>
#include <stdint.h>

struct cluster;
struct arena;
struct vendor_set;

enum {
    NODES = 7,
    DEVICES = 4, /* of one vendor, on one node */
    PODS = 60,
    QUOTAS = 6,
    SPACES = 3,
    HARD = 3, /* keys of one quota */
    QUEUE = 1024,
    TEXT = 768,
    LOCK_TEXT = 128,
    ALLOCATIONS_TEXT = 4096,

    CARD_MIB = 24000, /* NVIDIA's; see api_node.small */
    DCU_MIB = 16000,
    DCU_UNIT_MIB = 2,
    DEVICE_TASKS = 4, /* of NVIDIA and Hygon */
    CHIP_CORES = 2,   /* of a Neuron device, on which as many tasks may be */
};

#define SECOND_NS INT64_C(1000000000)
/* 2026-11-22T19:00:00Z is the beginning of the world's clock. */
#define WALL_NS (INT64_C(1795374000) * SECOND_NS)

enum maker {
    NVIDIA,
    HYGON,
    NEURON,
    MAKERS,
};

enum amount {
    MEMORY, /* MiB */
    CORES,
    AMOUNT_KINDS,
};

/* The API's objects. */

struct api_card {
    bool sick;
    bool cordoned; /* NVIDIA's */
    bool mig;      /* NVIDIA's: in MIG mode */
};

/* How a node's handshake stands: it is Hygon's agent that has one. */
enum word {
    WORD_NONE,
    WORD_OWN,
    WORD_ASKED,
    WORD_DELETED,
};

struct api_node {
    char name[32];
    bool exists;
    unsigned version;
    bool garbage[MAKERS], away[MAKERS]; /* its registration can't be read; kubelet counts none */
    struct api_card cards[MAKERS][DEVICES];
    bool small;      /* its NVIDIA cards but for the first two have half the memory */
    unsigned scored; /* how its cards are connected; 0: not told */
    bool badly_scored;
    bool foreign;  /* NVIDIA's agent is HAMi's own, which waits for the lock */
    bool profiles; /* it registers profiles: a foreign one's cards in MIG mode are cut by them */
    enum word word;
    int64_t word_ns; /* when it was written, by the world's clock; WORD_ASKED: INT64_MIN, it can't
                        be read when */
    bool locked;
    char lock[LOCK_TEXT];
    int64_t lock_ns, lock_since_ns; /* the time that it says, or was written; when it was written */
};

/* What is asked for. */
struct ask {
    int count, memory, percent; /* 0: not given */
    int cores;                  /* below 0: not given. Neuron's: if there is no count */
};

/* Which NVIDIA cards a pod names: the second of each node, or node-1's. */
enum list {
    LIST_NONE,
    LIST_USE,
    LIST_AVOID,
    LIST_TYPE,
    LIST_NOT_TYPE,
    LISTS,
};

enum policy {
    POLICY_NONE,
    POLICY_BINPACK,
    POLICY_MUTEX,
    POLICY_CONNECTED,
    POLICIES,
};

/* The containers of a pod. */
enum shape {
    SHAPE_APP,
    SHAPE_INIT,    /* before an app */
    SHAPE_SIDECAR, /* the same */
    SHAPE_BOTH,    /* a sidecar, an init container, an app */
    SHAPE_APPS,    /* two */
    SHAPES,
};

/* A pod's grant as it is written. */
struct written {
    char devices[MAKERS][TEXT];
    char allocations[ALLOCATIONS_TEXT]; /* hami.io/vgpu-mig-allocations */
    char roles[16];
    int64_t wall_ns; /* bind-time, to the second */
};

struct api_pod {
    char uid[32], name[32], space[16];
    bool exists, garbage;
    enum shape shape;
    bool first_only;         /* only its first container asks */
    struct ask asks[MAKERS]; /* of each container */
    bool one_numa;
    enum policy policy;
    enum list list;
    int priority;

    bool going;    /* it was evicted, and ends */
    char node[32]; /* "": not bound */
    struct written has;
    bool allocated, failed; /* by the node's agents */
    bool turn;              /* it was bound in its node's turn */

    bool binding; /* the cluster has handed out a bind that is not answered yet */
    bool waits;   /* it waits for its node's turn */
    bool told;    /* it has the turn */
    bool tried;   /* the API server has carried it out, or refused; its answer is on its way */
    bool unknown; /* its answer was lost: */
    int64_t unknown_ns;
    char bind_node[32];
    struct written binds;
    bool decided; /* a filter chose a node */
    char decided_node[32];
    int64_t decided_ns;
    bool refused; /* by the last filter, among these nodes; it was not said to be requeued */
    unsigned refused_among;
    int64_t refused_ns;
};

struct api_quota {
    bool exists;
    char space[16], name[16];
    unsigned count;
    struct {
        bool requests; /* else limits */
        enum maker maker;
        enum amount amount;
        long value;    /* in the resource's unit */
        bool fraction; /* bounds nothing */
    } hard[HARD];
};

enum kind {
    KIND_NODE,
    KIND_POD,
    KIND_QUOTA,
    KINDS,
};

/* An object as it was when the event happened. */
struct event {
    bool gone;
    union {
        struct api_node node;
        struct api_pod pod;
        struct api_quota quota;
    };
};

/* A list that is being read: what there was when it began. */
struct listing {
    bool runs;
    unsigned next;
};

struct api_objects {
    struct api_node nodes[NODES];
    struct api_pod pods[PODS];
    struct api_quota quotas[QUOTAS];
};

/* What a run came by; none of it may be 0 (cluster_random_test.c). */
struct covered {
    uint64_t placed[MAKERS], two_vendors, refused, bound, conflicts, requeued, late, gone, terms;
    uint64_t instances, groups[3], one_numa, connected, renewed, no_renewal;
    uint64_t quota_refusals, quotas_full, quotas_lowered;
    uint64_t turns, waited, locks_found, locks_broken, locks_left, gave_up, failed;
    uint64_t asked, silent, back, changed, misused;
    uint64_t evicted, not_evicted, held, rooms;
    uint64_t probes_placed, probes_refused;
};

extern struct world {
    struct api_objects api;
    struct api_objects listed[KINDS]; /* of listings */
    struct listing listings[KINDS];
    struct api_node shown[NODES]; /* to the cluster under test, last */
    struct api_quota shown_quotas[QUOTAS];
    struct event queue[KINDS][QUEUE]; /* each kind comes in its order */
    unsigned head[KINDS], tail[KINDS];
    bool silent[NODES]; /* Hygon's agent; the time of its last own word: */
    int64_t beat_ns[NODES];
    int64_t now_ns;
    unsigned next_uid;
    uint64_t random;
    struct cluster *cluster;
    struct arena *arena;
    const struct vendor_set *vendors;
    bool scarcity; /* the policy of nodes, but for pods that state another */
    bool evicts;   /* pods have priorities, and go for others */
    struct covered covered;
} world;

extern const char *const space_names[SPACES + 1]; /* the last has no quotas: others' garbage */

/* How many devices of a vendor the node has, as it stands in the world's plan. */
unsigned world_device_count(unsigned node, enum maker maker);
const char *world_device_name(unsigned node, enum maker maker, unsigned device, char to[64]);
unsigned world_numa_node(unsigned node, unsigned device); /* of an NVIDIA card */
bool world_has_agent(unsigned node);                      /* Hygon's */
bool world_counts_dcus(unsigned node);                    /* kubelet tells how many */

/* A random number from 0 to below - 1. */
unsigned world_draw(unsigned below);

void world_set_up(const struct vendor_set *vendors, uint64_t seed, bool scarcity, bool evicts);
void world_tear_down(void);
/* What the pod requests of its node, told by its uid. */
struct amounts world_amounts(const struct api_pod *pod);

struct cluster *world_new_cluster(void);
const struct vendor_set *world_load_vendors(void);

/* The object changed, or is gone: an event for the watch. */
void world_node_changed(unsigned node);
void world_pod_changed(unsigned pod);
void world_quota_changed(unsigned quota);

/* Up to so many events, or objects of a list that is being read. */
void world_move_on(enum kind kind, unsigned count);
void world_deliver_all(enum kind kind);

/* A list in pieces, while pods are filtered and bound; the watch brings the changes meanwhile after
 * it. */
void world_begin_list(enum kind kind);

/* A list at once, of the present objects: events that the watch has not delivered are in it. */
void world_list(struct cluster *cluster);

/* The same of world.cluster; gives up lists that are being read. */
void world_relist(void);

/* A bound pod, read from the API server after a bind without an answer. */
void world_read_pod(const struct api_pod *from);

/* Time passes: agents that live write. */
void world_pass(int64_t ns);
/* The scheduler looks after the agents, as it does each second. */
void world_look_at_agents(bool loses_writes);

/* Of the cluster under test, for the judge. */
struct device_state {
    bool there, healthy;
    long tasks, cores, mib;
    uint64_t parts;
};
struct device_state world_device_state(unsigned node, const char *uuid);
/* False: no quota bounds it. */
bool world_quota_state(const char *space, enum maker maker, enum amount amount, long *ret_bound,
                       long *ret_used);

/* Locks: random_locks_test.c. */
void locks_enter(unsigned pod);             /* its bind waits for its node's turn */
void locks_leave(unsigned pod, bool bound); /* the bind ended, or gave up */
void locks_step(unsigned node);
void locks_reset(void); /* a new term, or a new world */
void locks_see_node(unsigned node);
void locks_see_pod(const struct api_pod *pod, bool deleted);
void locks_disturb(unsigned node);  /* others write locks, and remove them */
void locks_allocate(unsigned node); /* an agent does its work */
bool locks_are_needed(unsigned pod);
