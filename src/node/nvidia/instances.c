/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/instances.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/util.h"
#include "nvml/instances.h"

int mig_strategy_parse(const char *text, enum mig_strategy *ret_strategy)
{
    static const char *const names[] = {"none", "single", "mixed"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (text && *text && strcmp(text, names[i]) != 0)
            continue;
        *ret_strategy = (enum mig_strategy)i;
        return 0;
    }
    return -EINVAL;
}

/* What finding has so far. */
struct expansion {
    struct nvml *nvml;
    const struct nvidia_config *config;
    const struct card_filter *filter;
    enum mig_strategy strategy;
    const struct cards *known;
    struct mig_profiles *profiles;
    struct cards *cards;
    size_t left_out; /* for want of room */
};

static void add_card(struct expansion *expansion, const struct card *card)
{
    if (expansion->cards->count < CARDS_MAX)
        expansion->cards->items[expansion->cards->count++] = *card;
    else
        expansion->left_out++;
}

/* 0: there is no room for its resource. */
static unsigned resource_of(struct mig_profiles *profiles, const char *profile)
{
    for (size_t i = 0; i < profiles->count; i++) {
        if (strcmp(profiles->names[i], profile) == 0)
            return (unsigned)i + 1;
    }
    if (profiles->count == ARRAY_SIZE(profiles->names))
        return 0;
    COPY_TEXT(profiles->names[profiles->count], profile);
    return (unsigned)++profiles->count;
}

static void add_instance(struct expansion *expansion, const struct card *parent,
                         const struct nvml_mig_device *found)
{
    struct device device = {
        .index = parent->index,
        .numa_node = parent->numa_node,
        .memory_bytes = found->memory_bytes,
        .healthy = true,
    };
    bool mixed = expansion->strategy == MIG_STRATEGY_MIXED;
    struct card card;

    COPY_TEXT(device.uuid, found->uuid);
    COPY_TEXT(device.model, found->model);
    if (nvidia_card_is_filtered(expansion->filter, &device))
        return;
    nvidia_card_offer(&device, expansion->config, !mixed, &card);
    card.has_minor = parent->has_minor;
    card.minor = parent->minor;
    card.is_instance = true;
    card.gpu_instance = found->gpu_instance;
    card.compute_instance = found->compute_instance;
    if (!parent->healthy)
        COPY_TEXT(card.why, parent->why);
    card.healthy = card.healthy && parent->healthy;
    card.resource = mixed ? resource_of(expansion->profiles, found->profile) : 0;
    if (mixed && !card.resource)
        expansion->left_out++;
    else
        add_card(expansion, &card);
}

static void add_known(struct expansion *expansion, const struct card *parent)
{
    for (size_t i = 0; expansion->known && i < expansion->known->count; i++) {
        struct card card = expansion->known->items[i];

        if (!card.is_instance || card.index != parent->index)
            continue;
        card.healthy = false;
        COPY_TEXT(card.why, parent->why[0] ? parent->why : "NVML does not answer for its card");
        add_card(expansion, &card);
    }
}

static void expand_card(struct expansion *expansion, const struct card *parent)
{
    struct nvml_mig_device devices[NVML_INSTANCES_MAX];
    bool on = false, pending;
    int count;

    if (nvml_read_mig_mode(expansion->nvml, parent->index, &on, &pending, NULL) < 0 &&
        !parent->healthy && expansion->known &&
        cards_have_instance(expansion->known, parent->index)) {
        add_known(expansion, parent);
        return;
    }
    if (!on) {
        add_card(expansion, parent);
        return;
    }
    count =
        nvml_list_mig_devices(expansion->nvml, parent->index, devices, ARRAY_SIZE(devices), NULL);
    if (count < 0)
        add_known(expansion, parent);
    for (int i = 0; i < count; i++)
        add_instance(expansion, parent, &devices[i]);
}

void instances_expand(struct nvml *nvml, const struct nvidia_config *config,
                      const struct card_filter *filter, enum mig_strategy strategy,
                      const struct cards *known, struct mig_profiles *profiles, struct cards *cards)
{
    AUTOFREE struct cards *whole = malloc(sizeof(*whole));
    struct expansion expansion = {.nvml = nvml,
                                  .config = config,
                                  .filter = filter,
                                  .strategy = strategy,
                                  .known = known,
                                  .profiles = profiles,
                                  .cards = cards};

    if (strategy == MIG_STRATEGY_NONE || !whole)
        return;
    *whole = *cards;
    cards->count = 0;
    for (size_t i = 0; i < whole->count; i++)
        expand_card(&expansion, &whole->items[i]);
    if (expansion.left_out)
        log_warn("%zu MIG instances are left out: there is room for %d cards and %zu profiles",
                 expansion.left_out, CARDS_MAX, ARRAY_SIZE(profiles->names));
}

/* "nvidia.com/mig-1g.10gb.me": a plus sign may not be in a resource's name. */
void instances_offer(const struct mig_profiles *profiles, struct node_offer *offer)
{
    for (size_t i = offer->resource_count - 1; i < profiles->count; i++) {
        struct node_resource *resource = &offer->resources[offer->resource_count++];
        char name[sizeof(profiles->names[0])];

        COPY_TEXT(name, profiles->names[i]);
        for (char *c = name; *c; c++)
            *c = *c == '+' ? '.' : *c;
        *resource = (struct node_resource){.is_direct = true};
        (void)snprintf(resource->name, sizeof(resource->name), "nvidia.com/mig-%s", name);
        (void)snprintf(resource->endpoint, sizeof(resource->endpoint), "nvidia-mig-%s.sock", name);
    }
}
