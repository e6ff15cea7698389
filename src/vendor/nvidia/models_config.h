/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists of models' names in the device configuration: a model is meant whose name contains one. */

#include "vendor/nvidia/nvidia.h"
#include "vendor/section.h"

/* path is for messages. -EINVAL: not a list of at most NVIDIA_MIG_NAMES names. */
int models_config_read(const struct section_reading *reading, const struct section *list,
                       const char *path, char (*ret_names)[48], size_t *ret_count);
