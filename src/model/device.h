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

    MIG_MAX_GROUPS = 8,    /* ways of cutting a card */
    MIG_MAX_KINDS = 8,     /* kinds of instances in one of them */
    MIG_MAX_INSTANCES = 8, /* of all kinds together */
};

#define DEVICE_MODE_MIG "mig"

/* A kind of instance that a card in MIG mode is cut into, and how many of it. */
struct mig_kind {
    uint32_t memory_mib, cores, count;
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

struct device_usage {
    unsigned tasks;
    unsigned cores;
    uint64_t memory_bytes;
};

struct device {
    /* First what decisions read of every device, on one or two cache lines. */
    bool healthy;
    bool cordoned; /* by the operator: takes nothing new */
    uint16_t kind; /* devices of one kind have the same model and mode; 0: not told */
    unsigned cores;
    unsigned max_tasks; /* that may share it */
    unsigned misused; /* tasks on it of a kind that its mode rules out; while there are any it takes
                         nothing new */
    uint64_t memory_bytes;
    struct device_usage used;
    char mode[DEVICE_MODE_SIZE]; /* how it is shared: "" or "hami-core", "mig", "mps" */

    char model[DEVICE_MODEL_SIZE]; /* as the vendor's library names it: "NVIDIA A100-SXM4-40GB" */
    char uuid[DEVICE_UUID_SIZE];
    unsigned index;
    int numa_node; /* -1: unknown */

    /* In MIG mode: how it may be cut, which outlives the device (NULL: not known), and the tasks on
     * each instance of each group. */
    const struct mig_geometry *geometry;
    uint8_t mig_users[MIG_MAX_GROUPS][MIG_MAX_INSTANCES];
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
