/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the instances of a group lie on a card. The scheduler names an instance by its group and
 * its number in it; NVML wants a profile and a place. All instances of a group have theirs from the
 * beginning, so that each can be made when it is wanted, in any order. Pure.
 */

#include "nvml/instances.h"
#include "vendor/nvidia/mig.h"

struct layout_place {
    unsigned profile; /* its number in the list of profiles */
    unsigned start;
};

/*
 * The profile of a name; else the one of as many slices, or of any where there is no name, whose
 * memory is nearest: configurations have round numbers, and names of other cards (HAMi's
 * "7g.79gb"). Its number in the list, or -1.
 */
int layout_find_profile(const char *name, uint64_t memory_mib, const struct nvml_profile *profiles,
                        size_t count);

/*
 * The places of a group's instances, by number; their count. -ENOENT: the card has no profile like
 * one of them; -ENOSPC: they do not fit on it together.
 */
int layout_group(const struct mig_group *group, const struct nvml_profile *profiles, size_t count,
                 struct layout_place ret_places[MIG_MAX_INSTANCES], struct error *err);
