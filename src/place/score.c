/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "place/place.h"

/*
 * Go's int32 and float32, operation by operation: the file is compiled with -ffp-contract=off,
 * since a fused multiply-add would round differently.
 */
float place_score(const struct device *device, const struct request *requests, size_t count,
                  const struct place_weights *weights)
{
    uint32_t memory_mib = (uint32_t)(device->memory_bytes / MIB);
    uint32_t used_mib = (uint32_t)(device->used.memory_bytes / MIB);
    uint32_t tasks = 0, cores = 0, wanted_mib = 0;
    float by_tasks, by_cores, by_memory;

    /* Percentages divide before they multiply, so only whole cards count; they go before amounts.
     */
    for (size_t i = 0; i < count; i++) {
        tasks += requests[i].count;
        cores += requests[i].cores;
        if (requests[i].memory_percent)
            wanted_mib += memory_mib * (requests[i].memory_percent / 100);
        else
            wanted_mib += (uint32_t)(requests[i].memory_bytes / MIB);
    }

    by_tasks = (float)(tasks + device->used.tasks) / (float)device->max_tasks;
    by_cores = (float)(cores + device->used.cores) / (float)device->cores;
    by_memory = (float)(wanted_mib + used_mib) / (float)memory_mib;
    if (weights->tasks | weights->cores | weights->memory) {
        by_tasks *= (float)weights->tasks;
        by_cores *= (float)weights->cores;
        by_memory *= (float)weights->memory;
    }
    return 10.0f * (by_tasks + by_cores + by_memory);
}

/* Spread: NUMA nodes ascending, within one the most used first; binpack is the reverse. */
static bool goes_before_by_order(const struct device *devices, const float *scores,
                                 enum place_order order, size_t a, size_t b)
{
    if (order == PLACE_BINPACK) {
        if (devices[a].numa_node != devices[b].numa_node)
            return devices[a].numa_node > devices[b].numa_node;
        return scores[a] < scores[b];
    }

    if (devices[a].numa_node != devices[b].numa_node)
        return devices[a].numa_node < devices[b].numa_node;
    return scores[a] > scores[b];
}

static bool goes_before_by_keys(const struct device *devices, const float *scores,
                                const enum place_key *keys, size_t a, size_t b)
{
    for (size_t i = 0; i < PLACE_MAX_KEYS && keys[i] != PLACE_KEY_NONE; i++) {
        if (keys[i] == PLACE_KEY_NUMA) {
            if (devices[a].numa_node != devices[b].numa_node)
                return devices[a].numa_node < devices[b].numa_node;
        } else if (scores[a] != scores[b]) {
            return keys[i] == PLACE_KEY_BINPACK ? scores[a] < scores[b] : scores[a] > scores[b];
        }
    }
    return devices[a].index < devices[b].index;
}

static inline bool goes_before(const struct device *devices, const float *scores,
                               const struct place_policy *policy, size_t a, size_t b)
{
    return policy->keys[0] == PLACE_KEY_NONE
               ? goes_before_by_order(devices, scores, policy->order, a, b)
               : goes_before_by_keys(devices, scores, policy->keys, a, b);
}

void place_sort(const struct device *devices, const float *scores,
                const struct place_policy *policy, size_t *positions, size_t count)
{
    /* Insertion: stable, and machines have a handful of devices. */
    for (size_t i = 1; i < count; i++) {
        size_t moved = positions[i], j = i;

        for (; j > 0 && goes_before(devices, scores, policy, moved, positions[j - 1]); j--)
            positions[j] = positions[j - 1];
        positions[j] = moved;
    }
}
