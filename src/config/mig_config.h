/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * nvidia.knownMigGeometries of the device configuration: how cards of each model may be cut.
 *
 *     - models: ["A30"]
 *       allowedGeometries:
 *         - - {name: 1g.6gb, core: 25, memory: 6144, count: 4}
 *         - - {name: 2g.12gb, core: 50, memory: 12288, count: 2}
 *
 * Inside config only.
 */

#include "config/yaml_reading.h"
#include "vendor/nvidia/nvidia.h"

/* -EINVAL with the place. */
int mig_config_read(const struct yaml_reading *reading, const yaml_node_t *list,
                    struct nvidia_config *config);
