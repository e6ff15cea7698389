/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "place/fit.h"
#include "place/place.h"

enum {
    MOST = 1 << (PLACE_STEPS - 1),
    PERCENT_TOTAL_MIN_MIB = 100, /* of smaller cards, percentages round too coarsely to be kept */
};

bool fit_is_usable(const struct device *device)
{
    const struct place_rules *rules = rules_of(device->vendor);

    if (!device->healthy || device->misused || device->cordoned)
        return false;
    if (device->used.tasks >= device->max_tasks &&
        !(rules->waived & 1u << PLACE_CARD_TASKS_EXHAUSTED))
        return false;
    if (device->special && rules->is_usable && !rules->is_usable(device))
        return false;
    return !device->cores || device_free_cores(device) ||
           (rules->waived & 1u << PLACE_CARD_CORES_EXHAUSTED);
}

/* How often one request may be given the device, at most. */
static unsigned times_of(const struct device *device)
{
    return device->special && rules_of(device->vendor)->repeats ? DEVICE_PARTS : 1;
}

/* At least the largest percentage that place_fit() can find room for. */
static unsigned free_percent(const struct device *device)
{
    uint64_t total = device->memory_bytes / MIB;

    if (total < PERCENT_TOTAL_MIN_MIB)
        return UINT8_MAX;
    return (unsigned)((device_free_mib(device) * 100 + total - 1) / total);
}

float place_node_score(const struct device *devices, size_t count)
{
    uint32_t tasks = 0, used_tasks = 0, cores = 0, used_cores = 0, mib = 0, used_mib = 0;

    for (size_t i = 0; i < count; i++) {
        const struct device *device = &devices[i];

        tasks += device->max_tasks;
        used_tasks += device->used.tasks;
        cores += device->cores;
        used_cores += device->used.cores;
        mib += (uint32_t)(device->memory_bytes / MIB);
        used_mib += (uint32_t)(device->used.memory_bytes / MIB);
    }
    if (!tasks || !cores || !mib)
        return 0;
    return 10.0f * ((float)used_tasks / (float)tasks + (float)used_cores / (float)cores +
                    (float)used_mib / (float)mib);
}

/* Among the most that devices have free, descending. */
static void note_free(uint32_t most[static MOST], uint32_t mib)
{
    for (size_t i = 0; i < MOST; i++) {
        uint32_t less = MIN(most[i], mib);

        most[i] = MAX(most[i], mib);
        mib = less;
    }
}

uint32_t place_vendor_bit(const struct device_vendor *vendor)
{
    uint32_t hash = 0;

    for (const char *at = vendor ? vendor->word : ""; *at; at++)
        hash = hash * 31 + (unsigned char)*at;
    return UINT32_C(1) << (hash & 31);
}

void place_node_update(struct place_node *node)
{
    const struct device_vendor *last = NULL;
    uint32_t vendors = node->device_count ? place_vendor_bit(NULL) : 0;
    unsigned usable = 0, cores = 0, percent = 0, times;
    uint32_t most[MOST] = {0};

    for (size_t i = 0; i < node->device_count; i++) {
        const struct device *device = &node->devices[i];

        if (!fit_is_usable(device))
            continue;
        if (device->vendor != last)
            vendors |= place_vendor_bit(device->vendor);
        last = device->vendor;
        times = times_of(device);
        usable += times;
        for (unsigned k = 0; k < MIN(times, (unsigned)MOST); k++)
            note_free(most, (uint32_t)MIN(device_free_mib(device), (uint64_t)UINT32_MAX));
        cores = MAX(cores, device_free_cores(device));
        percent = MAX(percent, free_percent(device));
    }
    node->version++;
    node->score = place_node_score(node->devices, node->device_count);
    node->vendors = vendors;
    node->usable = (uint16_t)MIN(usable, (unsigned)UINT16_MAX);
    for (size_t step = 0; step < PLACE_STEPS; step++)
        node->free_mib[step] = most[((size_t)1 << step) - 1];
    node->free_cores = (uint8_t)MIN(cores, (unsigned)UINT8_MAX);
    node->free_percent = (uint8_t)MIN(percent, (unsigned)UINT8_MAX);
}
