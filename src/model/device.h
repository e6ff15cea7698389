/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A device that tasks share, and its granted part. Its identity is the uuid; the index is only the
 * order in which its machine lists it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum {
    DEVICE_UUID_SIZE = 96,
    DEVICE_MODEL_SIZE = 96,
    DEVICE_MODE_SIZE = 16,
    DEVICE_MAX_MIB = 1 << 24, /* memory beyond this is garbage: sums of pods must not wrap round */
    DEVICE_CORES = 100,       /* compute is counted in percent of the card */
    DEVICE_DEFAULT_MAX_TASKS = 10, /* tasks that may share a card, HAMi's deviceSplitCount */

    DEVICE_PARTS = 64,
};

struct place_rules; /* place/rules.h */

/* A vendor as it is configured: whose devices these are is told by the address. */
struct device_vendor {
    const char *word; /* HAMi's CommonWord, "NVIDIA" */
    const struct place_rules *rules;
    const void *config; /* for the rules; of the vendor's own type */
};

struct device_usage {
    unsigned tasks;
    unsigned cores;
    uint64_t memory_bytes;
    uint64_t parts; /* a bit for each numbered part of the device, see device.special */
};

struct device {
    /* First what decisions read of every device, on one cache line. */
    uint16_t kind; /* devices of one kind have the same model and mode; 0: not told */
    bool healthy;
    bool cordoned; /* by the operator: takes nothing new */
    /* Its vendor's rules have a say in each request for it. They may give it out in numbered parts:
     * an instance of a card, a core of a chip. */
    bool special;
    unsigned cores;
    unsigned max_tasks; /* that may share it */
    unsigned misused; /* tasks on it of a kind that its mode rules out; while there are any it takes
                         nothing new */
    uint32_t facts_size;
    uint64_t memory_bytes;
    struct device_usage used;
    const struct device_vendor *vendor; /* NULL: nobody's; no vendor's request gets it */
    char mode[DEVICE_MODE_SIZE];        /* how it is shared: "" or "hami-core", "mig", "mps" */

    char model[DEVICE_MODEL_SIZE]; /* as the vendor's library names it: "NVIDIA A100-SXM4-40GB" */
    char uuid[DEVICE_UUID_SIZE];
    unsigned index;
    int numa_node; /* -1: unknown */

    /* What its vendor's rules know of it beside. Of facts_size bytes the owner of the devices keeps
     * a copy; 0: they outlive the device. Nothing in them points into themselves. */
    const void *facts;

    uint8_t part_users[DEVICE_PARTS]; /* grants that hold each part */
};

/* In whole MiB, as HAMi counts; 0 where more is used than there is. */
static inline uint64_t device_free_mib(const struct device *device)
{
    uint64_t total = device->memory_bytes / MIB;
    uint64_t used = (device->used.memory_bytes + MIB - 1) / MIB;

    return used < total ? total - used : 0;
}

static inline unsigned device_free_cores(const struct device *device)
{
    return device->used.cores < device->cores ? device->cores - device->used.cores : 0;
}
