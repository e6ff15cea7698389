/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a vendor may say of how its devices are given out. The algorithm is place's and the same for
 * all; each row of this table may be missing, and then the general rule holds. All of it is pure:
 * no clock, log or state.
 *
 * In the order in which a request meets them: want() says what a request takes of a device; the
 * general rules follow (healthy, type, uuid, tasks, memory, cores, ...), but for those that the
 * vendor waives; then take() has the last word on devices that are `special`. Of the devices that
 * passed, choose() makes a set. score_node() is added to a node's score. Grants that annotations
 * tell of are charged by count() and is_misuse().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "model/codec.h"
#include "model/device.h"
#include "model/request.h"
#include "model/text.h"
#include "place/place.h"

/* A request on its way. */
struct place_step {
    const struct request *request;
    const struct place_policy *policy;
    const struct pod_devices
        *given;       /* of this vendor, to the pod's containers before; NULL: none */
    size_t container; /* whose turn it is, in given */
};

/* All devices of a vendor on a node, for place_rules.choose(). */
struct place_set {
    const struct device *devices; /* the node's */
    size_t count;
    const size_t
        *order; /* positions of the vendor's, the most preferred last, whether they fit or not */
    const bool *fits; /* by position */
};

/* A pod that fits on a node, for place_rules.score_node(). */
struct place_fitted {
    const struct device_vendor *vendor;
    const struct device *devices; /* the node's, with their usage before the pod */
    size_t device_count;
    const struct pod_devices *given; /* of this vendor */
    enum place_order node_order;     /* PLACE_SPREAD or PLACE_BINPACK */
};

struct place_rules {
    /*
     * What the request would take of this device. ret_wanted comes with the general figures: one
     * task, the cores as asked for, at most 100, and memory as asked for, or as a percentage of the
     * device's. A node's kept numbers rule nothing out for a vendor with such a rule.
     */
    void (*want)(const struct place_step *step, const struct device *device,
                 struct device_usage *ret_wanted);

    /* For special devices: the vendor's own rule of which devices are of the kind that is asked
     * for, right after that of types. PLACE_REASON_COUNT: this one is. */
    enum place_reason (*suits)(const struct place_step *step, const struct device *device);

    /* General rules that don't hold for this vendor, as bits 1 << enum place_reason. Of the rules
     * of tasks, cores and memory, too: take() then has to hold them. */
    unsigned waived;

    /*
     * For special devices: the vendor's own rule, and what is really taken; taken comes with what
     * is wanted. PLACE_REASON_COUNT: it will do.
     */
    enum place_reason (*take)(const struct place_step *step, const struct device *device,
                              struct device_usage *taken);

    /* A usage's cores are a mask of its parts; a quota counts the parts. */
    bool cores_are_parts;

    /* A request may be given several parts of one special device: it goes on with a device for as
     * long as take() finds more. */
    bool repeats;

    /* How well a device is connected to another of its node: the more the better. NULL: nothing is
     * known of it. */
    int32_t (*link)(const struct device *from, const struct device *to);

    /* For special devices: false when no request at all could have it, as it is. */
    bool (*is_usable)(const struct device *device);

    /*
     * Chooses request->count devices among those that fit, of which there are enough. ret_chosen
     * gets their positions, in the order in which they are given. False: there is no such set;
     * failure gets its reasons. NULL: the most preferred.
     */
    bool (*choose)(const struct place_step *step, const struct place_set *set, size_t *ret_chosen,
                   struct place_failure *failure);

    /* What is said of a request that finds no room, in place of the reasons that were counted.
     * NULL: those. Not called where there are too few devices at all. */
    void (*tell)(const struct place_step *step, struct place_failure *failure);

    /* What a node's score is more, for these devices. It lies between score_least and score_most
     * times the number of the pod's requests for them; both 0: that is not known, and all nodes are
     * tried. */
    float (*score_node)(const struct place_fitted *fitted);
    float score_least, score_most;

    /* What a grant holds; usage comes with a task, and cores and memory as they are written. Of
     * what was named and written after take() it makes the same usage. */
    void (*count)(const struct container_device *granted, struct device_usage *usage);

    /* Whether a grant, by its name and usage, is of a kind that this device can't be given out in:
     * while there is one, the device takes nothing new. */
    bool (*is_misuse)(const struct device *device, const char *name,
                      const struct device_usage *usage);

    /*
     * The name of what was taken, for the annotation: the device's uuid, or with a suffix in
     * brackets a part of it. NULL: the arena is full.
     */
    const char *(*name)(const struct device *device, const struct device_usage *taken,
                        struct arena *arena);
};
