/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * nvidia.contextSizes of the device configuration: what a context takes for itself on cards of each
 * model, in MiB.
 *
 *     - {models: ["A100"], memory: 420}
 */

#include "vendor/nvidia/nvidia.h"
#include "vendor/section.h"

/* For a table of keys; config is a struct nvidia_config. */
int context_config_read(const struct section_reading *reading, const struct section *list,
                        const char *path, void *config);
