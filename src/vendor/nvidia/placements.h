/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG instances by the profiles that a card's agent registers, as HAMi 2.10 places them. The place
 * of `size` slices of the card's memory from `start` on is the card's part
 * start * MIG_SLICES + size - 1; two instances can't have a slice in common. Which profile has
 * which place is written into MIG_ALLOCATIONS_KEY beside the grant, in which an instance has its
 * card's name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "model/mig_allocations.h"
#include "vendor/nvidia/mig.h"
#include "vendor/vendor.h"

enum {
    PLACEMENTS_PROFILES_MAX = 16, /* of a card; HAMi registers seven at most */
};

/*
 * A registered card's migProfiles (struct registered_device), the smallest first: their number. A
 * profile that makes no sense is left out. -ENOMEM.
 */
int placements_read_profiles(const char *profiles, struct arena *arena,
                             struct mig_profile ret_profiles[PLACEMENTS_PROFILES_MAX]);

/*
 * The smallest profile with the memory that is wanted and a free place, in HAMi's order of places;
 * taken gets its memory, cores and part. Where a percentage is asked for, all of the card's memory
 * is that of a profile that takes the card as a whole, which is less. False: there is none.
 */
bool placements_take(const struct nvidia_facts *facts, uint64_t used_parts, bool is_percentage,
                     struct device_usage *taken);

/* For vendor.recall, and for vendor.annotate beside the standard annotations. */
int placements_recall(const struct text_pairs *annotations, struct arena *arena,
                      struct pod_devices *devices);
int placements_annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                        struct vendor_annotations *annotations);
