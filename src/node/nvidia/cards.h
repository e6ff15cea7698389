/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVIDIA's cards: as NVML finds them, and as the configuration offers them. */

#include "base/arena.h"
#include "base/error.h"
#include "node/card.h"
#include "nvml/nvml.h"
#include "vendor/nvidia/nvidia.h"

struct made; /* made.h: it knows profiles; NULL where no instances are made */

/* Cards that are not offered. */
struct card_filter {
    size_t uuid_count, index_count;
    char uuids[CARDS_MAX][DEVICE_UUID_SIZE];
    unsigned indices[CARDS_MAX];
};

bool nvidia_card_is_filtered(const struct card_filter *filter, const struct device *device);

/* A device as the configuration offers it: shared by several tasks and scaled, or whole. */
void nvidia_card_offer(const struct device *device, const struct nvidia_config *config,
                       bool is_shared, struct card *ret_card);

/*
 * Asks NVML, which may block for a while with a real driver. known are the cards of the former
 * call, or NULL: a card that does not answer keeps its data from there and is not healthy. -EIO
 * when NVML fails as a whole.
 */
int nvidia_cards_find(struct nvml *nvml, const struct nvidia_config *config,
                      const struct card_filter *filter, const struct cards *known,
                      struct cards *ret_cards, struct error *err);

/* The value of the node's annotation: the cards of its first resource. NULL: the arena is full.
 * mode is HAMi's "hami-core". is_ordered: pods are to be bound one at a time. */
const char *nvidia_cards_encode(const struct cards *cards, const char *mode, bool is_ordered,
                                struct made *made, struct arena *arena);
