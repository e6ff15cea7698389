/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instances of a card in MIG mode, in one of two ways.
 *
 * By the configuration's geometries, as HAMi 2.8: a card is cut in one way, its group, for as long
 * as any instance is in use; which group that is follows from the instances in use. Instance i of
 * group g is the card's part g * MIG_MAX_INSTANCES + i, and is named "GPU-uuid[g-i]".
 *
 * By the profiles that the card's agent registers, as HAMi 2.10 (placements.h): an instance lies
 * anywhere where its profile may and nothing else does. It has its card's name, and what it is
 * stands in an annotation.
 */

#include <stdint.h>

#include "place/rules.h"

enum {
    MIG_MAX_GROUPS = 8,    /* ways of cutting a card */
    MIG_MAX_KINDS = 8,     /* kinds of instances in one of them */
    MIG_MAX_INSTANCES = 8, /* of all kinds together */
    MIG_NAME_SIZE = 24,
};

#define MIG_MODE "mig"

/* A kind of instance that a card in MIG mode is cut into, and how many of it. */
struct mig_kind {
    uint32_t memory_mib, cores, count;
    char name[MIG_NAME_SIZE]; /* NVIDIA's of the profile, "1g.10gb"; "": not said */
};

/* One way of cutting a card: its instances, numbered in the order of the kinds. */
struct mig_group {
    size_t kind_count;
    struct mig_kind kinds[MIG_MAX_KINDS];
};

/* All ways in which a card of some model may be cut. */
struct mig_geometry {
    size_t group_count;
    struct mig_group groups[MIG_MAX_GROUPS];
};

/* A profile that a card may have instances of. */
struct mig_profile {
    uint64_t places; /* where one may lie, as parts: placements.h */
    uint32_t memory_mib, cores, slices;
    char name[MIG_NAME_SIZE];
};

/*
 * What the rules know of a card: how it may be cut, if it is in MIG mode, and how well it is
 * connected to its node's other cards. A card in MIG mode is special; without profiles and without
 * a geometry it takes nothing.
 */
struct nvidia_facts {
    const struct mig_geometry *geometry; /* the configuration's; NULL: not known, or not its way */
    uint64_t barred;                     /* of its instances, as parts: allowance.h */
    uint32_t number;                     /* the card's own, in the row of scores */
    uint32_t score_count;
    uint32_t profile_count;
    struct mig_profile profiles[]; /* the smallest first; the row of scores follows */
};

/* To each card of the node, by number. */
static inline int32_t *nvidia_scores(const struct nvidia_facts *facts)
{
    return (int32_t *)(uintptr_t)&facts->profiles[facts->profile_count];
}

/* With room for both lists, all zero; the device has them. NULL: the arena is full. */
struct nvidia_facts *nvidia_facts_give(struct device *device, size_t profile_count,
                                       size_t score_count, struct arena *arena);

extern const struct place_rules nvidia_rules;

/* "GPU-uuid[group-instance]". -EINVAL when the text has no such suffix. */
int mig_instance_parse(const char *uuid, int *ret_group, int *ret_instance);
