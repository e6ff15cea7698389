/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG by NVML: how a card may be cut, and its instances. A GPU instance with a compute instance of
 * its size is what a program can use, by a uuid. Cards go by the index of nvml_list(). To make and
 * end instances, and to see where they lie, takes root.
 */

#include "nvml/nvml.h"

enum {
    NVML_INSTANCES_MAX = 32,
    NVML_PROFILES_MAX = 16,
    NVML_PLACEMENTS_MAX = 8,
    NVML_PROFILE_NAME_SIZE = 24,
    NVML_SLICES = 8, /* of a card's memory */
};

/* A MIG device. */
struct nvml_mig_device {
    char uuid[DEVICE_UUID_SIZE];
    char model[DEVICE_MODEL_SIZE];
    char profile[NVML_PROFILE_NAME_SIZE]; /* "1g.10gb", "1g.10gb+me" */
    unsigned gpu_instance, compute_instance;
    uint64_t memory_bytes;
    unsigned multiprocessors;
};

/* A way of cutting a card. */
struct nvml_profile {
    unsigned id;
    unsigned slices, multiprocessors;
    uint64_t memory_mib;
    char name[NVML_PROFILE_NAME_SIZE];
    unsigned size; /* memory slices; 0: where it may lie is not told */
    size_t start_count;
    unsigned starts[NVML_PLACEMENTS_MAX];
};

struct nvml_gpu_instance {
    unsigned id, profile_id, start, size;
};

/* Instances that programs can use; their number, 0 where the card is not in MIG mode or NVML knows
 * nothing of it. -EIO. */
int nvml_list_mig_devices(struct nvml *nvml, unsigned index, struct nvml_mig_device *ret_devices,
                          size_t max, struct error *err);

/* Whether the card is in MIG mode, and whether it is to be after a reset. -ENOSYS: it has no MIG;
 * -EIO. */
int nvml_read_mig_mode(struct nvml *nvml, unsigned index, bool *ret_on, bool *ret_pending,
                       struct error *err);

/* Of a card that nobody uses. -EBUSY: the card changes at its next reset only; -ENOSYS, -EPERM,
 * -EIO. */
int nvml_set_mig_mode(struct nvml *nvml, unsigned index, bool on, struct error *err);

/* Their number; -ENOSYS, -EIO. */
int nvml_list_profiles(struct nvml *nvml, unsigned index, struct nvml_profile *ret_profiles,
                       size_t max, struct error *err);

/* All GPU instances of a card, whether or not there is a compute instance in them. Their number;
 * -ENOSYS, -EPERM, -EIO. */
int nvml_list_gpu_instances(struct nvml *nvml, unsigned index,
                            struct nvml_gpu_instance *ret_instances, size_t max, struct error *err);

/*
 * A GPU instance at that place, and a compute instance of its size in a GPU instance: the two steps
 * of making one. -ENOSPC: there is no room; -EPERM, -EIO.
 */
int nvml_make_gpu_instance(struct nvml *nvml, unsigned index, unsigned profile_id, unsigned start,
                           unsigned size, unsigned *ret_id, struct error *err);
int nvml_make_compute_instance(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                               struct error *err);

/* The two steps of ending one: all compute instances of a GPU instance, then that. -EBUSY: a
 * process uses it; -ENOENT, -EPERM, -EIO. */
int nvml_end_compute_instances(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                               struct error *err);
int nvml_end_gpu_instance(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                          struct error *err);
