/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of a node: as NVML finds them, and as the configuration offers them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/codec.h"
#include "model/device.h"
#include "nvml/nvml.h"
#include "vendor/nvidia/nvidia.h"

enum {
    CARDS_MAX = 64,
};

struct card {
    char uuid[DEVICE_UUID_SIZE];
    char type[DEVICE_MODEL_SIZE + 8]; /* "NVIDIA-" in front where the model does not begin so */
    unsigned index, minor;
    bool has_minor;
    int numa_node;       /* -1: unknown */
    unsigned memory_mib; /* offered: scaled */
    unsigned cores;      /* offered: percent, scaled */
    unsigned max_tasks;  /* that may share it */
    bool healthy;
};

struct cards {
    size_t present; /* cards that the node has, those that are filtered out included */
    size_t count;
    struct card items[CARDS_MAX];
};

/* Cards that are not offered. */
struct card_filter {
    size_t uuid_count, index_count;
    char uuids[CARDS_MAX][DEVICE_UUID_SIZE];
    unsigned indices[CARDS_MAX];
};

/*
 * Asks NVML, which may block for a while with a real driver. known are the cards of the former
 * call, or NULL: a card that does not answer keeps its data from there and is not healthy. -EIO
 * when NVML fails as a whole; then all known cards count as unhealthy.
 */
int cards_find(struct nvml *nvml, const struct nvidia_config *config,
               const struct card_filter *filter, const struct cards *known, struct cards *ret_cards,
               struct error *err);

bool cards_equal(const struct cards *left, const struct cards *right);

/* Whether any card is healthy. */
bool cards_any_healthy(const struct cards *cards);

const struct card *cards_get(const struct cards *cards, const char *uuid);

/* The value of the node's annotation. NULL: the arena is full. mode is HAMi's "hami-core". */
const char *cards_encode(const struct cards *cards, const char *mode, struct arena *arena);
