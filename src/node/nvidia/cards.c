/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/cards.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "node/nvidia/made.h"

static const struct card *find_index(const struct cards *cards, unsigned index)
{
    for (size_t i = 0; cards && i < cards->count; i++) {
        if (cards->items[i].index == index && !cards->items[i].is_instance)
            return &cards->items[i];
    }
    return NULL;
}

bool nvidia_card_is_filtered(const struct card_filter *filter, const struct device *device)
{
    for (size_t i = 0; filter && i < filter->uuid_count; i++) {
        if (strcmp(filter->uuids[i], device->uuid) == 0)
            return true;
    }
    for (size_t i = 0; filter && i < filter->index_count; i++) {
        if (filter->indices[i] == device->index)
            return true;
    }
    return false;
}

static unsigned scale(double amount, double factor)
{
    double scaled = amount * (factor > 0 ? factor : 1);

    return scaled < (double)INT32_MAX ? (unsigned)scaled : (unsigned)INT32_MAX;
}

void nvidia_card_offer(const struct device *device, const struct nvidia_config *config,
                       bool is_shared, struct card *ret_card)
{
    double memory_scaling = is_shared ? config->memory_scaling : 1;
    double cores_scaling = is_shared ? config->cores_scaling : 1;
    unsigned split_count = config->split_count ? config->split_count : DEVICE_DEFAULT_MAX_TASKS;

    uint64_t mib = device->memory_bytes / MIB;
    bool named = strncmp(device->model, "NVIDIA", 6) == 0;

    if (!mib && config->preconfigured_memory_mib > 0)
        mib = (uint64_t)config->preconfigured_memory_mib;
    *ret_card = (struct card){
        .index = device->index,
        .numa_node = device->numa_node,
        .memory_mib = scale((double)mib, memory_scaling),
        .cores = scale(DEVICE_CORES, cores_scaling),
        .max_tasks = is_shared ? split_count : 1,
        .healthy = device->healthy && mib,
    };
    if (!mib)
        COPY_TEXT(ret_card->why, "NVML tells of no memory of its own");
    COPY_TEXT(ret_card->uuid, device->uuid);
    (void)snprintf(ret_card->type, sizeof(ret_card->type), "%s%s", named ? "" : "NVIDIA-",
                   device->model);
}

static void find_one(struct nvml *nvml, const struct nvidia_config *config,
                     const struct device *device, const struct cards *known, struct cards *cards)
{
    const struct card *before = find_index(known, device->index);
    struct card *card = &cards->items[cards->count];

    if (!device->healthy && before) {
        *card = *before;
        card->healthy = false;
        COPY_TEXT(card->why, "NVML does not answer for it");
    } else if (!device->uuid[0] && known && cards_have_instance(known, device->index)) {
        /* It stands for its instances, which are known, until they take its place. */
        *card = (struct card){.index = device->index, .why = "NVML does not answer for it"};
    } else if (!device->uuid[0]) {
        return; /* it never answered, so its uuid is not known */
    } else {
        nvidia_card_offer(device, config, true, card);
        card->has_minor = nvml_read_minor(nvml, device->index, &card->minor, NULL) == 0;
    }
    cards->count++;
}

int nvidia_cards_find(struct nvml *nvml, const struct nvidia_config *config,
                      const struct card_filter *filter, const struct cards *known,
                      struct cards *ret_cards, struct error *err)
{
    struct device devices[CARDS_WHOLE_MAX];
    struct cards found = {.count = 0};
    int count;

    count = nvml_list(nvml, devices, ARRAY_SIZE(devices), err);
    if (count < 0)
        return count;
    found.present = (size_t)count;
    for (int i = 0; i < count; i++) {
        if (!nvidia_card_is_filtered(filter, &devices[i]))
            find_one(nvml, config, &devices[i], known, &found);
    }
    *ret_cards = found;
    return 0;
}

const char *nvidia_cards_encode(const struct cards *cards, const char *mode, bool is_ordered,
                                struct made *made, struct arena *arena)
{
    struct registered_devices devices = {
        .items = ARENA_ARRAY(arena, struct registered_device, cards->count),
    };

    if (!devices.items)
        return NULL;
    for (size_t i = 0; i < cards->count; i++) {
        const struct card *card = &cards->items[i];

        if (card->resource)
            continue; /* kubelet's alone */
        devices.items[devices.count++] = (struct registered_device){
            .id = card->uuid,
            .own_custom = is_ordered ? NVIDIA_CUSTOM_ORDERED : NVIDIA_CUSTOM,
            .type = card->type,
            .mode = mode,
            .own_profiles = made ? made_profiles(made, card->uuid, arena) : NULL,
            .index = card->index,
            .count = (int32_t)card->max_tasks,
            .devmem = (int32_t)card->memory_mib,
            .devcore = (int32_t)card->cores,
            .numa = MAX(card->numa_node, 0),
            .health = card->healthy,
        };
    }
    return node_devices_encode_json(&devices, arena);
}
