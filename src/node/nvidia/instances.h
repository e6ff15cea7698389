/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG instances that somebody made and keeps: found, and served as cards of their own. With the
 * strategy single they are cards as any other, which may be shared; with mixed each is given out
 * whole by kubelet alone, under a resource named after its profile, as NVIDIA's plugin does.
 */

#include "node/node_vendor.h"
#include "node/nvidia/cards.h"

enum mig_strategy {
    MIG_STRATEGY_NONE = 0, /* cards in MIG mode are not given out */
    MIG_STRATEGY_SINGLE,
    MIG_STRATEGY_MIXED,
};

/* "none", "single", "mixed"; "" and NULL are none. -EINVAL. */
int mig_strategy_parse(const char *text, enum mig_strategy *ret_strategy);

/* Profiles that have a resource of their own, in the order in which they were first found: the
 * resource behind the node's first one. */
struct mig_profiles {
    size_t count;
    char names[NODE_RESOURCES_MAX - 1][24];
};

/*
 * Replaces each card in MIG mode by its instances, which are as healthy as the card. Those of a
 * card that does not answer are the known ones. New profiles are added to profiles.
 */
void instances_expand(struct nvml *nvml, const struct nvidia_config *config,
                      const struct card_filter *filter, enum mig_strategy strategy,
                      const struct cards *known, struct mig_profiles *profiles,
                      struct cards *cards);

/* Adds the profiles' resources to an offer of the node's own one. */
void instances_offer(const struct mig_profiles *profiles, struct node_offer *offer);
