/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of a node, as its vendor found them and offers them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/device.h"

enum {
    CARDS_WHOLE_MAX = 64,
    CARDS_MAX = 128, /* with their instances, each of which is one by itself */
    CARD_WHY_SIZE = 128,
};

struct card {
    char uuid[DEVICE_UUID_SIZE];
    char type[DEVICE_MODEL_SIZE + 8]; /* "NVIDIA-" in front where the model does not begin so */
    unsigned index;
    unsigned minor; /* of its device node, if has_minor */
    bool has_minor;
    bool
        has_parts; /* it is given out in parts alone, which annotations name "uuid[group-number]" */
    bool is_instance; /* a part of the card of that index and minor number, by itself */
    unsigned gpu_instance, compute_instance; /* the driver's numbers, if is_instance */
    unsigned resource;   /* of the node's resources (node_vendor.h), by its place among them */
    int numa_node;       /* -1: unknown */
    unsigned memory_mib; /* offered: scaled */
    unsigned cores;      /* offered: percent, scaled */
    unsigned max_tasks;  /* that may share it */
    bool healthy;
    char why[CARD_WHY_SIZE];  /* it is not; "" if it is */
    int16_t links[CARDS_MAX]; /* how well it is connected with each other card, by that one's place
                                 in the list, in the vendor's points; 0: not known */
};

struct cards {
    size_t present; /* cards that the node has, those that are filtered out included */
    size_t count;
    struct card items[CARDS_MAX];
};

bool cards_equal(const struct cards *left, const struct cards *right);

/* Whether any card of this resource is healthy. */
bool cards_any_healthy(const struct cards *cards, unsigned resource);

/* None is healthy from now on; those that were are not because of why. */
void cards_set_unhealthy(struct cards *cards, const char *why);

/* Whether an instance of the card of this index is among them. */
bool cards_have_instance(const struct cards *cards, unsigned index);

/* By its uuid, or by the name of a part of it. */
const struct card *cards_get(const struct cards *cards, const char *uuid);
