/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a node of gcushare's newer agent registers: cards, and the profiles of instances that it can
 * make of each. */

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum {
    DRS_CARDS_MAX = 64,
    DRS_PROFILES_MAX = 16,
    DRS_NAME_SIZE = 24,
};

/* "3g.21gb": of so many slices of a card, with so much memory. */
struct drs_profile {
    char name[DRS_NAME_SIZE], id[DRS_NAME_SIZE];
    uint32_t slices, gib;
};

struct drs_card {
    char index[DRS_NAME_SIZE], minor[DRS_NAME_SIZE];
    uint32_t slices;
};

struct drs_capacity {
    size_t card_count, profile_count; /* both above 0 */
    struct drs_card cards[DRS_CARDS_MAX];
    struct drs_profile profiles[DRS_PROFILES_MAX]; /* by their slices, then by their memory */
    uint32_t max_slices, max_gib;                  /* of a profile; both above 0 */
};

/*
 * Reads {"devices":[{"index":"0","minor":"0","capacity":6}],"profiles":{"1g.7gb":"0"}}, the numbers
 * as such or as texts. CODEC_EXACT; CODEC_MENDED when a profile has no form that is known or a card
 * is listed twice: they are left out, and err says so. -EINVAL for any other text, -E2BIG, -ENOMEM.
 */
int drs_capacity_parse(const char *text, struct arena *arena, struct drs_capacity *ret_capacity,
                       struct error *err);
