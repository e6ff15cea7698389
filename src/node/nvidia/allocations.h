/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG as HAMi 2.10's scheduler has it: the Node's registration says which profiles a card has and
 * where they may lie, within the configuration's migProfileAllowlist; a pod's annotation
 * hami.io/vgpu-mig-allocations says which profile at which place each device of its grant is. Here
 * such an instance is named "GPU-uuid[1g.10gb@3]", as 2.8's are "GPU-uuid[0-3]". Pure.
 */

#include "base/strbuf.h"
#include "nvml/instances.h"
#include "vendor/nvidia/nvidia.h"

/* A registered card's migProfiles, JSON: 1; 0 where the list names no profile of the model. */
int allocations_format_profiles(const struct nvidia_config *config, const char *model,
                                const struct nvml_profile *profiles, size_t count,
                                struct strbuf *text);

/*
 * The grant with the instances' names in the places of their cards', allocated. A grant that fits
 * no allocations, or has names of instances already, stays as it is. NULL: no memory.
 */
char *allocations_name_parts(const char *grant, const char *allocations);

/* "GPU-uuid[1g.10gb@3]". -EINVAL. */
int allocations_parse_name(const char *name, char ret_profile[NVML_PROFILE_NAME_SIZE],
                           unsigned *ret_start);
