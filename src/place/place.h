/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which devices of which machine a request, or a pod, gets.
 *
 * Devices with their usage and a request go in, a decision with its reasons comes out. Pure: no
 * clock, no log, no state, and no allocation outside the arena passed in. Amounts are compared in
 * whole MiB, as HAMi does, and scores are its 32-bit floats, so that the answers are HAMi's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "model/codec.h"
#include "model/device.h"
#include "model/request.h"
#include "model/text.h"

enum {
    PLACE_MAX_DEVICES = 256, /* of one machine */
    PLACE_MAX_PICKS = 256,   /* of one request */
    PLACE_MAX_VENDORS = 8,   /* in one pod */
    PLACE_REASON_TEXT_SIZE = 1024,
};

enum place_outcome {
    PLACE_FITS = 1,
    PLACE_NO_FIT,
};

/* Which device, or node, is preferred among those that fit. */
enum place_order {
    PLACE_SPREAD = 0, /* the least used */
    PLACE_BINPACK,    /* the most used */
};

struct place_policy {
    enum place_order order;
    bool mutex; /* take only devices that nobody uses */
};

/* Why a device was passed over. The texts are in place_reason_name(). */
enum place_reason {
    PLACE_CARD_NOT_HEALTHY,
    PLACE_CARD_TYPE_MISMATCH,
    PLACE_CARD_UUID_MISMATCH,
    PLACE_CARD_SLOTS_EXHAUSTED,
    PLACE_CARD_EXCLUSIVE,
    PLACE_CARD_INSUFFICIENT_MEMORY,
    PLACE_CARD_INSUFFICIENT_CORE,
    PLACE_CARD_CORES_EXHAUSTED,
    PLACE_CARD_CORDONED,
    PLACE_CARD_NO_INSTANCE, /* in MIG mode, with no free instance that is large enough */
    PLACE_TOO_FEW_PICKED,   /* counts the devices that did fit */
    PLACE_REASON_COUNT,
};

struct place_pick {
    size_t device;       /* position in the list that was given */
    int group, instance; /* of a card in MIG mode, whose amounts these are; -1: the card itself */
    uint64_t memory_bytes;
    unsigned cores;
};

/* Why a request finds no room. */
struct place_failure {
    unsigned candidates;
    unsigned reasons[PLACE_REASON_COUNT]; /* devices */
    bool too_few_devices; /* more were asked for than there are, or there are none of this type;
                             nothing else is told then */
    bool for_good;        /* not even if nobody used the devices */
};

struct place_decision {
    /* PLACE_FITS: in the order in which they were taken. */
    size_t pick_count;
    struct place_pick picks[PLACE_MAX_PICKS];

    struct place_failure failure; /* PLACE_NO_FIT */
};

/*
 * One device's score: its usage together with all that the container requests, whichever vendor's
 * it is, as a part of its slots, cores and memory. Infinite or not a number when it has none of one
 * of them: such devices are never preferred for sure, and never break the sort.
 */
float place_score(const struct device *device, const struct request *requests, size_t count);

/*
 * Sorts positions, ascending, the most preferred device last; scores are indexed by position.
 * Stable: of equal devices the last one of the list stays last.
 */
void place_sort(const struct device *devices, const float *scores, enum place_order order,
                size_t *positions, size_t count);

/*
 * Finds devices for one request. PLACE_FITS and PLACE_NO_FIT fill the decision; -E2BIG when there
 * are more devices than the bound above.
 */
int place_fit(const struct device *devices, size_t count, const struct request *request,
              const struct place_policy *policy, struct place_decision *ret_decision);

/* Adds what was picked to the devices' usage. */
void place_charge(struct device *devices, const struct place_decision *decision);

/* HAMi's word for a reason, "CardInsufficientMemory". */
const char *place_reason_name(enum place_reason reason);

/* All reasons of a PLACE_NO_FIT: "2/8 CardInsufficientMemory, 6/8 CardTypeMismatch". */
void place_reasons_format(const struct place_failure *failure,
                          char ret_text[PLACE_REASON_TEXT_SIZE]);

/* One pod on one node. */

/* What a pod asks of places: which node, and which devices there. */
struct place_options {
    enum place_order node_order;
    struct place_policy policy;
};

/*
 * The options of a pod with these annotations: its own policies (KEY_NODE_POLICY,
 * KEY_DEVICE_POLICY) where it names any, else the defaults.
 */
void place_options_read(const struct text_pairs *annotations, const struct place_options *defaults,
                        struct place_options *ret_options);

/* What a pod takes of one device at most, whichever of its containers run. */
struct place_share {
    const char *uuid;
    struct device_usage usage;
};

struct place_usage {
    bool alone; /* on devices that nobody else uses, by its policy; known of a placement, not of
                   what annotations say */
    size_t count;
    struct place_share *shares; /* each uuid once, in the order of their first use */
};

/* A pod's devices on a node that was found for it. Strings are the arena's. */
struct placement {
    size_t vendor_count;
    struct {
        const char *word;
        struct pod_devices devices;
    } vendors[PLACE_MAX_VENDORS];

    struct place_usage usage; /* of all vendors */
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

    /* Equal nodes are taken in this order, then by name. Best kept in the order of the names, since
     * comparing numbers is cheaper; 0 for all is right, too. */
    uint32_t rank;

    uint32_t version;               /* another after each update */
    float score;                    /* how full it is: 0 to 30 */
    uint32_t free_mib[PLACE_STEPS]; /* of the device that has most, second most, 4th, 8th most */
    uint16_t usable;                /* devices that could take anything at all */
    uint8_t free_cores;             /* of the device that has most, at most 255 */
    uint8_t free_percent;           /* of its memory, of the device that has most, rounded up */
};

void place_node_update(struct place_node *node);

/* Of a node that is looked into soon: its devices are far apart in memory, and reading them is most
 * of the work. */
static inline void place_node_prefetch(const struct place_node *node)
{
    for (uint32_t i = 0; i < node->device_count; i++)
        __builtin_prefetch(&node->devices[i]);
}

/* HAMi's score of a node: how much of its slots, cores and memory is used, 10 for each. */
float place_node_score(const struct device *devices, size_t count);

/*
 * Finds devices for all containers of a pod. Those that run together are charged together; init
 * containers see only the sidecars started before them, and what they take is free for the others,
 * as Kubernetes counts them. PLACE_FITS fills the placement; PLACE_NO_FIT fills ret_failure, unless
 * it is NULL, with why the first container that finds no room finds none. -E2BIG: more devices
 * than PLACE_MAX_DEVICES, or more vendors than PLACE_MAX_VENDORS; -ENOMEM: the arena is full.
 */
int place_pod(const struct place_node *node, const struct demand *demand,
              const struct place_options *options, struct arena *arena,
              struct placement *ret_placement, struct place_failure *ret_failure);

/*
 * Finds the best node for a pod, by score and then by rank and name, and its devices there. Nodes
 * that can't fit are passed over by what place_node_update() keeps, so that most are not looked
 * into. Returns as place_pod(); PLACE_FITS fills the position in nodes and the placement. Why
 * nothing fits is asked of each node with place_pod().
 */
int place_choose(const struct place_node *const *nodes, size_t count, const struct demand *demand,
                 const struct place_options *options, struct arena *arena, size_t *ret_position,
                 struct placement *ret_placement);

/*
 * What a pod with these devices takes of each at most. roles has a letter for each init container,
 * as pod_init_roles() makes it; "" counts all containers together. Negative amounts count as none.
 * usage is added to, so that a pod's vendors can be counted one after the other; it begins as {0}.
 * -ENOMEM: the arena is full.
 */
int place_usage_add_pod(struct place_usage *usage, const struct pod_devices *devices,
                        const char *roles, struct arena *arena);

/*
 * Adds a pod's usage to a machine's devices, or takes it away again, exactly. Returns how many of
 * its devices are not there.
 */
size_t place_usage_charge(struct device *devices, size_t count, const struct place_usage *usage);
size_t place_usage_discharge(struct device *devices, size_t count, const struct place_usage *usage);

/*
 * Whether all of a usage could be charged now: its devices are there, healthy, and have room. May
 * refuse what place_pod() would find room for, never the other way round.
 */
bool place_usage_fits(struct device *devices, size_t count, const struct place_usage *usage);

/* A pod that holds devices of a node, while it is asked which have to go. */
enum place_tenant_state {
    TENANT_STAYS = 0,
    TENANT_MAY_GO, /* is less important than who asks */
    TENANT_GOES,
};

struct place_tenant {
    const struct place_usage *usage;
    int32_t priority;
    enum place_tenant_state state;
};

/*
 * Which of a node's pods must go so that a demand finds room: besides those that go anyway as few
 * of those that may go as kube-scheduler would take, who puts back the most important ones first
 * and lets go whoever is then in the way. PLACE_FITS: no tenant is left in TENANT_MAY_GO.
 * PLACE_NO_FIT: not even if all of them go; -E2BIG, -ENOMEM as place_pod(). The node itself stays
 * as it is.
 */
int place_make_room(const struct place_node *node, const struct demand *demand,
                    const struct place_options *options, struct place_tenant *tenants, size_t count,
                    struct arena *arena);

/* Reasons of many nodes together. */
struct place_totals {
    unsigned nodes;      /* that were looked into */
    unsigned candidates; /* their devices of the wanted type */
    unsigned too_few;    /* nodes with fewer devices of the type than one container asks for */
    unsigned reasons[PLACE_REASON_COUNT];      /* devices */
    unsigned reason_nodes[PLACE_REASON_COUNT]; /* nodes with such a device */
};

/* So many nodes that fail alike. */
void place_totals_add(struct place_totals *totals, const struct place_failure *failure,
                      unsigned nodes);

/* "24/40 CardInsufficientMemory, 16/40 CardTypeMismatch, 2/7 NodeInsufficientDevice". */
void place_totals_format(const struct place_totals *totals, char ret_text[PLACE_REASON_TEXT_SIZE]);
