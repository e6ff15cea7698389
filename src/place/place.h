/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which node and which of its devices a pod gets.
 *
 * Devices with their usage and a request go in, a decision with its reasons comes out. Pure: no
 * clock, no log, no state, and no allocation outside the arena passed in. Amounts are compared in
 * whole MiB, as HAMi does, and scores are its 32-bit floats, so that the answers are HAMi's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/codec.h"
#include "model/device.h"
#include "model/request.h"
#include "model/text.h"
#include "place/scarcity.h"

enum {
    PLACE_MAX_DEVICES = 256, /* of one machine */
    PLACE_MAX_PICKS = 256,   /* of one request */
    PLACE_MAX_VENDORS = 8,   /* in one pod */
    PLACE_REASON_TEXT_SIZE = 2048,
};

enum place_outcome {
    PLACE_FITS = 1,
    PLACE_NO_FIT,
};

/* Which device, or node, is preferred among those that fit. */
enum place_order {
    PLACE_SPREAD = 0, /* the least used */
    PLACE_BINPACK,    /* the most used */
    PLACE_SCARCITY, /* of nodes: where a pod takes the least of what is scarce, scarcity.h; without
                       a view of the cluster, as PLACE_BINPACK */
};

/* What devices are sorted by, in a policy that lists it. */
enum place_key {
    PLACE_KEY_NONE = 0,
    PLACE_KEY_BINPACK, /* the most used are preferred */
    PLACE_KEY_SPREAD,  /* the least used */
    PLACE_KEY_NUMA,    /* those of the highest NUMA node */
};

enum {
    PLACE_MAX_KEYS = 4,
    PLACE_WEIGHT_MAX = 1000000,
};

/* How much of each kind in use counts for a device's score. All 0: each once. */
struct place_weights {
    uint32_t tasks, cores, memory;
};

struct place_policy {
    enum place_order order;
    enum place_key keys[PLACE_MAX_KEYS]; /* in HAMi 2.10's chains: sorted by these instead, and then
                                            by index; ends with PLACE_KEY_NONE */
    bool mutex;                          /* take only devices that no pod uses */
    bool connected; /* HAMi's topology-aware: of the devices that fit, those that are connected
                       best, and of single ones the worst */
    unsigned *looks_left; /* into sets of connected devices, before the most preferred devices are
                             taken as they come; place_pod()'s own. NULL: each search has its own */
    struct place_weights weights;
};

/* Why a device was passed over. The texts are in place_reason_name(). */
enum place_reason {
    PLACE_CARD_NOT_HEALTHY,
    PLACE_CARD_TYPE_MISMATCH,
    PLACE_CARD_UUID_MISMATCH,
    PLACE_CARD_TASKS_EXHAUSTED,
    PLACE_CARD_EXCLUSIVE,
    PLACE_CARD_INSUFFICIENT_MEMORY,
    PLACE_CARD_INSUFFICIENT_CORE,
    PLACE_CARD_CORES_EXHAUSTED,
    PLACE_CARD_CORDONED,
    PLACE_CARD_APP_CLASS_MISMATCH, /* pods of another class are on it */
    PLACE_CARD_QOS_MISMATCH,       /* it is shared by another policy */
    PLACE_MODE_NOT_FIT,            /* it is not given out in this way */
    PLACE_NUMA_NOT_FIT,            /* fits, and too few others of its NUMA node do */
    PLACE_QUOTA,                   /* beyond what the pod's namespace may have */
    PLACE_CARD_CUSTOM_RULE, /* the vendor's own: a MIG card without a free instance large enough */
    PLACE_CARD_PART_BARRED, /* a free part would do, which the configuration does not allow */
    PLACE_TOO_FEW_PICKED,   /* counts the devices that did fit */
    PLACE_REASON_COUNT,
};

struct place_pick {
    size_t device; /* position in the list that was given */
    struct device_usage taken;
};

/* Why a request finds no room. */
struct place_failure {
    unsigned candidates;
    unsigned reasons[PLACE_REASON_COUNT]; /* devices */
    bool too_few_devices; /* more were asked for than there are, or there are none of this type;
                             then reasons are not counted */
    bool for_good;        /* not even if no pod used the devices */
};

struct place_decision {
    /* PLACE_FITS: in the order in which they were taken. */
    size_t pick_count;
    struct place_pick picks[PLACE_MAX_PICKS];

    struct place_failure failure; /* PLACE_NO_FIT */
};

/*
 * One device's score: its usage together with all requests of the container, of every vendor, as a
 * part of its tasks, cores and memory, each times its weight. Infinite or not a number for a device
 * that has none of one of them; the sort takes that, and puts such a device anywhere.
 */
float place_score(const struct device *device, const struct request *requests, size_t count,
                  const struct place_weights *weights);

/*
 * Sorts positions, ascending, the most preferred device last; scores are indexed by position.
 * Stable: of equal devices the last one of the list stays last.
 */
void place_sort(const struct device *devices, const float *scores,
                const struct place_policy *policy, size_t *positions, size_t count);

/* How much of a vendor's devices the pod's namespace may still have: all pods' together, the most
 * that each takes at any time. Negative where it has more already. */
struct place_budget {
    const struct device_vendor *vendor;
    int64_t memory_mib, cores; /* INT64_MAX: as much as there is */
};

/* One request, and what it stands beside. */
struct place_ask {
    const struct request *request;
    const struct place_budget *budget; /* what is left of it for this container; NULL: no bound */

    /* All requests of the container, whichever vendor's: a device's score counts them. NULL: this
     * one alone. */
    const struct request *requests;
    size_t request_count;

    const struct pod_devices *given; /* of its vendor, to the pod's containers before; NULL: none */
    size_t container;                /* whose turn it is, in given */

    const float *costs; /* of the devices, by position: the least are preferred, in place of the
                           policy's order; NULL: none */
};

/*
 * Finds devices for one request. PLACE_FITS and PLACE_NO_FIT fill the decision; -E2BIG when there
 * are more devices than the bound above.
 */
int place_fit(const struct device *devices, size_t count, const struct place_ask *ask,
              const struct place_policy *policy, struct place_decision *ret_decision);

/* Adds the picks to the devices' usage. */
void place_charge(struct device *devices, const struct place_decision *decision);

/* HAMi's name of a reason, "CardInsufficientMemory". */
const char *place_reason_name(enum place_reason reason);

/* All reasons of a PLACE_NO_FIT: "2/8 CardInsufficientMemory, 6/8 CardTypeMismatch". */
void place_reasons_format(const struct place_failure *failure,
                          char ret_text[PLACE_REASON_TEXT_SIZE]);

/* One pod on one node. */

/* What PLACE_SCARCITY knows of the cluster, for the demand of one pod. */
struct place_scarcity {
    const struct scarcity_types *types;
    const struct scarcity_prices *prices;
    const struct scarcity_room *rooms; /* by the node's seat */
    struct scarcity_demand demand;
    const float *costs; /* by the node's seat */
    bool exact;         /* all costs are the demand's; else they are those of one of its class, or
                           INFINITY where none is known */
};

/* A pod's preferences: which node, and which of its devices. */
struct place_options {
    enum place_order node_order;
    struct place_policy policy;
    const struct place_scarcity *scarcity; /* of PLACE_SCARCITY; NULL: there is no view. Of the
                                              policy, mutex and connected hold with it; its order
                                              holds for devices of a pod with several requests */

    /* At most one for each vendor. Of preferences of a pod, place_options_read() fills in none. */
    const struct place_budget *budgets;
    size_t budget_count;
};

/* A policy of nodes: binpack, spread or scarcity. False: another word. */
bool place_node_order_read(const char *text, enum place_order *ret_order);
#define PLACE_NODE_ORDERS "binpack, spread, scarcity"

/*
 * A policy of devices: binpack, spread, mutex, topology-aware, or several of these and numa with
 * commas between. Words that don't exist are passed over, as in HAMi; place_policy_check() refuses
 * them. Of the policy, the weights stay as they are.
 */
void place_policy_read(const char *text, struct place_policy *policy);
bool place_policy_check(const char *text);

/* "slot=1,core=0,memory=2", in any order. -EINVAL, with what is wrong with it in err. */
int place_weights_read(const char *text, struct place_weights *ret_weights, struct error *err);

/*
 * The options of a pod with these annotations: its own policies (KEY_NODE_POLICY,
 * KEY_DEVICE_POLICY) and weights (KEY_DEVICE_WEIGHTS) where it names any, else the defaults.
 * Weights that can't be read are none; admission has denied them.
 */
void place_options_read(const struct text_pairs *annotations, const struct place_options *defaults,
                        struct place_options *ret_options);

/* The most that a pod takes of one device, or of one part of it that has a name, whichever of its
 * containers run. */
struct place_share {
    const struct device_vendor *vendor; /* vendors may give devices of a node the same uuid */
    const char *uuid;
    struct device_usage usage;
};

/* The most that a pod takes of a vendor's devices together, at any time. */
struct place_total {
    const struct device_vendor *vendor;
    uint64_t memory_mib, cores;
};

struct place_usage {
    bool alone; /* by its policy, on devices that no other pod uses; known of a placement, not of
                   annotations */
    size_t count;
    struct place_share *shares; /* each uuid once, in the order of their first use */
    size_t total_count;
    struct place_total *totals; /* of each vendor once */
};

/* A pod's devices on a node that was found for it. Strings are the arena's. */
struct placement {
    size_t vendor_count;
    struct {
        const struct device_vendor *vendor;
        struct pod_devices devices;
    } vendors[PLACE_MAX_VENDORS];

    struct place_usage usage; /* of all vendors */
    float score;              /* what the vendors add to the node's */
};

/*
 * A node as decisions read it. The owner fills in name, rank and devices, and calls
 * place_node_update() whenever the devices or their usage changed; the rest is kept by that.
 */
enum {
    PLACE_STEPS = 4,
};

struct place_node {
    const char *name;
    struct device *devices;
    uint32_t device_count;

    /* Equal nodes are taken in this order, then by name. An owner that numbers them in the order of
     * the names saves the comparing of names; 0 for all is right, too. */
    uint32_t rank;
    uint32_t seat; /* its number in the owner's tables, see place_scarcity */

    uint32_t version;               /* another after each update */
    float score;                    /* how full it is: 0 to 30; vendors may add to it for a pod */
    uint32_t free_mib[PLACE_STEPS]; /* of the device that has most, second most, 4th, 8th most */
    uint16_t usable;                /* devices that could take anything at all */
    uint8_t free_cores;             /* of the device that has most, at most 255 */
    uint8_t free_percent;           /* of its memory, of the device that has most, rounded up */
    uint32_t vendors;               /* of these devices: place_vendor_bit() of each */
};

void place_node_update(struct place_node *node);

/* One bit of 32, which vendors may share: a node without it has no device of the vendor. */
uint32_t place_vendor_bit(const struct device_vendor *vendor);

/* For a node that is looked into soon: devices of nodes are far apart in memory, and reading them
 * is most of the work. */
static inline void place_node_prefetch(const struct place_node *node)
{
    for (uint32_t i = 0; i < node->device_count; i++)
        __builtin_prefetch(&node->devices[i]);
}

/* HAMi's score of a node: how much of its tasks, cores and memory is used, 10 for each. */
float place_node_score(const struct device *devices, size_t count);

/*
 * Finds devices for all containers of a pod. Containers that run together are charged together; an
 * init container sees only the sidecars started before it, and its devices are free for the
 * containers after it, as Kubernetes counts. PLACE_FITS fills the placement; PLACE_NO_FIT fills
 * ret_failure, unless it is NULL, with the failure of the first container that does not fit.
 * -E2BIG: more devices than PLACE_MAX_DEVICES, or more vendors than PLACE_MAX_VENDORS; -ENOMEM: the
 * arena is full.
 */
int place_pod(const struct place_node *node, const struct demand *demand,
              const struct place_options *options, struct arena *arena,
              struct placement *ret_placement, struct place_failure *ret_failure);

/* Why one device is not given to the request that found no room. */
struct place_verdict {
    bool is_candidate;        /* it is of the request's vendor */
    enum place_reason reason; /* the first rule that failed; PLACE_REASON_COUNT: it would do */
    struct device_usage wanted;
    struct device_usage used; /* with what the pod's containers before take */
};

/* Of the first request that finds no room: a verdict for each of the node's devices. */
struct place_explanation {
    bool fits; /* the whole pod; the rest is not filled in */
    size_t container;
    const struct request *request;
    struct place_failure failure;
    size_t count;
    struct place_verdict *verdicts;
};

/* As place_pod(), for a person: fills the explanation with either outcome. */
int place_explain(const struct place_node *node, const struct demand *demand,
                  const struct place_options *options, struct arena *arena,
                  struct place_explanation *ret_explanation);

/*
 * Finds the best node for a pod, by score and then by rank and name, and its devices there. The
 * numbers that place_node_update() keeps rule out most nodes without a look at their devices.
 * Returns as place_pod(); PLACE_FITS fills the position in nodes and the placement. To learn why
 * nothing fits, call place_pod() for each node.
 */
int place_choose(const struct place_node *const *nodes, size_t count, const struct demand *demand,
                 const struct place_options *options, struct arena *arena, size_t *ret_position,
                 struct placement *ret_placement);

/*
 * Adds to usage what a pod with these devices of a vendor takes of each device at most; usage
 * begins as {0}, and a pod's vendors are added one after the other. roles has a letter for each
 * init container, as pod_init_roles() makes it; "" counts all containers together. Negative amounts
 * count as none. -ENOMEM: the arena is full.
 */
int place_usage_add_pod(struct place_usage *usage, const struct device_vendor *vendor,
                        const struct pod_devices *devices, const char *roles, struct arena *arena);

/* The least that a demand takes of a vendor's devices at any time, on whichever devices: without
 * what is asked for as a percentage, or of a vendor that has a say in what is wanted. Amounts that
 * no card has count as they are asked for; memory is at most INT64_MAX / 2. */
struct place_total place_demand_total(const struct demand *demand,
                                      const struct device_vendor *vendor);

/* A vendor's device of this uuid, or of which a part has this name; NULL: there is none. What is
 * nobody's is found for each. */
const struct device *place_find_device(const struct device *devices, size_t count,
                                       const struct device_vendor *vendor, const char *name);

/*
 * Adds a pod's usage to a node's devices, or subtracts exactly the same. Returns how many devices
 * of the usage the node does not have.
 */
size_t place_usage_charge(struct device *devices, size_t count, const struct place_usage *usage);
size_t place_usage_discharge(struct device *devices, size_t count, const struct place_usage *usage);

/*
 * Whether all of a usage could be charged now: its devices are there, healthy, and have room.
 * Stricter than place_pod(): it may refuse a pod that place_pod() would place, never the other way
 * round.
 */
bool place_usage_fits(struct device *devices, size_t count, const struct place_usage *usage);

/* Preemption: a pod that holds devices of a node, and what becomes of it. */
enum place_victim_state {
    VICTIM_REPRIEVED = 0,
    VICTIM_POTENTIAL, /* less important than the pod that asks */
    VICTIM_EVICTED,
};

struct place_victim {
    const struct place_usage *usage;
    int32_t priority;
    enum place_victim_state state;
};

/*
 * Which of a node's pods must go so that a demand fits, as kube-scheduler decides it: take off all
 * potential victims, put them back one by one, the most important first, and evict each that is in
 * the way. PLACE_FITS: no victim is left in VICTIM_POTENTIAL. PLACE_NO_FIT: the demand does not fit
 * even if all go; -E2BIG, -ENOMEM as place_pod(). The node itself is not changed. ret_placement is
 * what the demand takes when they have gone; it may be NULL.
 */
int place_preempt(const struct place_node *node, const struct demand *demand,
                  const struct place_options *options, struct place_victim *victims, size_t count,
                  struct arena *arena, struct placement *ret_placement);

/* Reasons of many nodes together. */
struct place_totals {
    unsigned nodes;      /* that were looked into */
    unsigned candidates; /* their devices of the wanted type */
    unsigned too_few;    /* nodes with fewer devices of the type than one container asks for */
    unsigned reasons[PLACE_REASON_COUNT];      /* devices */
    unsigned reason_nodes[PLACE_REASON_COUNT]; /* nodes with such a device */
};

/* Adds so many nodes that fail alike. */
void place_totals_add(struct place_totals *totals, const struct place_failure *failure,
                      unsigned nodes);

/* "24/40 CardInsufficientMemory, 16/40 CardTypeMismatch, 2/7 NodeInsufficientDevice". */
void place_totals_format(const struct place_totals *totals, char ret_text[PLACE_REASON_TEXT_SIZE]);
