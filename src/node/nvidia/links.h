/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How well a node's cards are connected, in HAMi's points (its pkg/device/nvidia/links.go): by what
 * two cards have in common on PCIe 10 (nothing but the machine) to 60 (the board), and 100 for each
 * NVLink from one to the other, or, where both lead to switches, for as many as the one has that
 * has fewer.
 */

#include "base/arena.h"
#include "node/card.h"
#include "nvml/nvml.h"

/* What NVML says of a card. */
struct card_links {
    char bus_id[NVML_BUS_ID_SIZE];
    size_t count;
    struct nvml_link links[NVML_LINKS_MAX];
};

/* Pure. level: nvml_read_ancestor()'s. NVLinks that only one side knows of make the pair score 0.
 */
int16_t links_score(const struct card_links *from, const struct card_links *to, int level);

/* Sets the links of the cards; asks NVML, unless known are the same cards. */
void links_find(struct nvml *nvml, const struct cards *known, struct cards *cards);

/*
 * HAMi's annotation hami.io/node-nvidia-score: [{"uuid":"GPU-a","score":{"GPU-b":120}}]. NULL where
 * no card is connected to another as far as is known, or the arena is full.
 */
const char *links_encode(const struct cards *cards, struct arena *arena);
