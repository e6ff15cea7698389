/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVIDIA: whole cards shared by HAMi-core, and instances of cards in MIG mode. */

#include <stdbool.h>
#include <stdint.h>

#include "vendor/nvidia/mig.h"
#include "vendor/vendor.h"

#define NVIDIA_COMMON_WORD "NVIDIA"
#define NVIDIA_REGISTER_KEY "hami.io/node-nvidia-register"
#define NVIDIA_SCORE_KEY "hami.io/node-nvidia-score"
/* What our plugin says of each card in its registration, beside what HAMi's says. */
#define NVIDIA_CUSTOM "{\"lock\":\"none\"}"
/* The same where it must know at Allocate whose devices it hands over: pods are bound one by one,
 * and no lock need be written for it. */
#define NVIDIA_CUSTOM_ORDERED "{\"lock\":\"turn\"}"
#define NVIDIA_TO_ALLOCATE_KEY "hami.io/vgpu-devices-to-allocate"
#define NVIDIA_ALLOCATED_KEY "hami.io/vgpu-devices-allocated"

/* The user's, on a pod: lists with commas. */
#define NVIDIA_USE_UUID_KEY "nvidia.com/use-gpuuuid"
#define NVIDIA_AVOID_UUID_KEY "nvidia.com/nouse-gpuuuid"
#define NVIDIA_USE_TYPE_KEY "nvidia.com/use-gputype"
#define NVIDIA_AVOID_TYPE_KEY "nvidia.com/nouse-gputype"
#define NVIDIA_NUMA_BIND_KEY "nvidia.com/numa-bind"
#define NVIDIA_MODE_KEY "nvidia.com/vgpu-mode" /* the modes of sharing that the pod accepts */

enum {
    NVIDIA_NO_PERCENT = 101, /* in HAMi: no percentage is asked for */
    NVIDIA_CARDS_MAX = 16,   /* of a container that our device plugin starts */
};

enum {
    NVIDIA_MIG_MODELS = 32,
    NVIDIA_MIG_NAMES = 8,
    NVIDIA_MIG_PROFILES = 16,
    NVIDIA_CONTEXT_MAX_MIB = 65536,
};

/* How a card may be cut, if its model's name contains one of these names. */
struct nvidia_mig {
    size_t name_count;
    char names[NVIDIA_MIG_NAMES][48];
    struct mig_geometry geometry;
};

/* Profiles that cards of some models may be cut into, by HAMi 2.10's migProfileAllowlist
 * (allowance.h). */
struct nvidia_allowance {
    size_t name_count, profile_count;
    char names[NVIDIA_MIG_NAMES][48];
    char profiles[NVIDIA_MIG_PROFILES][MIG_NAME_SIZE];
};

/* What a context of a card takes for itself, if the card's model contains one of these names. */
struct nvidia_context {
    size_t name_count;
    char names[NVIDIA_MIG_NAMES][48];
    uint32_t mib;
};

/* Section `nvidia` of the device configuration. Names are "" where there is none. */
struct nvidia_config {
    char count_name[SECTION_NAME_SIZE];
    char memory_name[SECTION_NAME_SIZE];
    char memory_percent_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE];
    char priority_name[SECTION_NAME_SIZE];
    char runtime_class[SECTION_NAME_SIZE];
    bool overwrite_env;
    int32_t default_memory_mib; /* 0: all of the card */
    int32_t default_cores;
    int32_t default_count; /* added at admission; 0: not */
    int32_t memory_factor; /* MiB in a unit of requested memory; 0 and 1: one */
    char core_policy[16];  /* "", "default", "force", "disable" */

    size_t mig_count;
    struct nvidia_mig migs[NVIDIA_MIG_MODELS];
    size_t allowance_count;
    struct nvidia_allowance allowances[NVIDIA_MIG_MODELS];

    /* For the node's plugin. */
    uint32_t split_count;
    double memory_scaling, cores_scaling;
    int64_t preconfigured_memory_mib; /* of cards that don't tell; 0: unknown */
    bool numa_topology;
    bool disable_core_limit;
    size_t context_count;
    struct nvidia_context contexts[NVIDIA_MIG_MODELS];
    uint32_t context_mib; /* of all cards of this node, whatever contexts say; 0: not said */
    char managed[16];     /* "", "resident", "full", "free" */
    char imports[8];      /* "", "refuse", "allow": memory that is not known to be its own */
    char log_level[4];    /* of libvgpu: "0", "1", "3", "4"; "": not set */
};

/* HAMi's chart's values: resources nvidia.com/gpu and so on, 10 tasks a card. */
void nvidia_config_defaults(struct nvidia_config *ret_config);

/* The instance keeps the pointer to the config. -E2BIG: the set is full. */
int nvidia_add_instance(struct vendor_set *set, const struct nvidia_config *config);

/*
 * -EINVAL, naming the annotation, when a pod's list of uuids or types is beyond the bounds above,
 * or when it asks for a mode that does not exist or for what is not supported.
 */
int nvidia_check_annotations(const struct pod *pod, struct error *err);

/* How cards of a model may be cut; NULL: the configuration does not say. */
const struct mig_geometry *nvidia_find_geometry(const struct nvidia_config *config,
                                                const char *model);

/* What a context takes for itself on a card of a model, in MiB; 0: the configuration does not say.
 */
uint32_t nvidia_find_context(const struct nvidia_config *config, const char *model);

extern const struct vendor nvidia_vendor;
