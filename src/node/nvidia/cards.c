/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/cards.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "node/nvidia/links.h"

static const struct card *find_index(const struct cards *cards, unsigned index)
{
    for (size_t i = 0; cards && i < cards->count; i++) {
        if (cards->items[i].index == index)
            return &cards->items[i];
    }
    return NULL;
}

static bool is_filtered(const struct card_filter *filter, const struct device *device)
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

static void offer(const struct device *device, const struct nvidia_config *config,
                  struct card *ret_card)
{
    uint64_t mib = device->memory_bytes / MIB;
    bool named = strncmp(device->model, "NVIDIA", 6) == 0;

    if (!mib && config->preconfigured_memory_mib > 0)
        mib = (uint64_t)config->preconfigured_memory_mib;
    *ret_card = (struct card){
        .index = device->index,
        .numa_node = device->numa_node,
        .memory_mib = scale((double)mib, config->memory_scaling),
        .cores = scale(DEVICE_CORES, config->cores_scaling),
        .max_tasks = config->split_count ? config->split_count : DEVICE_DEFAULT_MAX_TASKS,
        .healthy = device->healthy && mib,
    };
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
    } else if (!device->uuid[0]) {
        return; /* it never answered, so its uuid is not known */
    } else {
        offer(device, config, card);
        card->has_minor = nvml_read_minor(nvml, device->index, &card->minor, NULL) == 0;
    }
    cards->count++;
}

int nvidia_cards_find(struct nvml *nvml, const struct nvidia_config *config,
                      const struct card_filter *filter, const struct cards *known,
                      struct cards *ret_cards, struct error *err)
{
    struct device devices[CARDS_MAX];
    struct cards found = {.count = 0};
    int count;

    count = nvml_list(nvml, devices, ARRAY_SIZE(devices), err);
    if (count < 0)
        return count;
    found.present = (size_t)count;
    for (int i = 0; i < count; i++) {
        if (!is_filtered(filter, &devices[i]))
            find_one(nvml, config, &devices[i], known, &found);
    }
    links_find(nvml, known, &found);
    *ret_cards = found;
    return 0;
}

const char *nvidia_cards_encode(const struct cards *cards, const char *mode, struct arena *arena)
{
    struct registered_devices devices = {
        .items = ARENA_ARRAY(arena, struct registered_device, cards->count),
        .count = cards->count,
    };

    if (!devices.items)
        return NULL;
    for (size_t i = 0; i < cards->count; i++) {
        const struct card *card = &cards->items[i];

        devices.items[i] = (struct registered_device){
            .id = card->uuid,
            .own_custom = NVIDIA_CUSTOM,
            .type = card->type,
            .mode = mode,
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
