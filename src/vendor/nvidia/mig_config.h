/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * nvidia.knownMigGeometries of the device configuration: how cards of each model may be cut.
 *
 *     - models: ["A30"]
 *       allowedGeometries:
 *         - - {name: 1g.6gb, core: 25, memory: 6144, count: 4}
 *         - - {name: 2g.12gb, core: 50, memory: 12288, count: 2}
 */

#include "vendor/nvidia/nvidia.h"
#include "vendor/section.h"

/* For a table of keys; config is a struct nvidia_config. */
int mig_config_read(const struct section_reading *reading, const struct section *list,
                    const char *path, void *config);
/* HAMi 2.10's migProfileAllowlist (allowance.h). */
int mig_config_read_allowlist(const struct section_reading *reading, const struct section *list,
                              const char *path, void *config);
