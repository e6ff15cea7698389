/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kunlunxin's cards: whole ones ("kunlun"), whose number is all that kubelet knows, and parts of
 * them ("XPU"), which their agent registers. Both are given out by how the cards are connected.
 */

#include "vendor/vendor.h"

enum {
    KUNLUN_CARD_MIB = 98304,
};

/* Section `kunlun` of the device configuration. Names are "" where there is none. */
struct kunlun_config {
    char count_name[SECTION_NAME_SIZE];   /* whole cards */
    char vcount_name[SECTION_NAME_SIZE];  /* parts */
    char vmemory_name[SECTION_NAME_SIZE]; /* MiB of each part */
};

extern const struct vendor kunlun_vendor, kunlun_vxpu_vendor;

/* The instance of parts. */
struct vendor_instance kunlun_vxpu_instance(const struct kunlun_config *config);

/* The cards that a pod names or avoids, by HAMi's two pairs of annotations. -E2BIG, -ENOMEM. */
int kunlun_read_uuids(const struct pod *pod, struct arena *arena, struct request *request);

/* place_rules.choose() and place_rules.tell() of both. */
bool kunlun_choose(const struct place_step *step, const struct place_set *set, size_t *ret_chosen,
                   struct place_failure *failure);
void kunlun_tell(const struct place_step *step, struct place_failure *failure);
