/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a driver's libraries lie: below a root, which is "/" on most machines, a folder that an
 * operator's container fills on others, or wherever a pod has the host's root mounted.
 */

#include "nvml/nvml.h"

#define NVML_LIBRARY "libnvidia-ml.so.1"

/* Folders below a root, as distributions have them; ends with NULL. */
extern const char *const driver_library_folders[];

/* Usual roots of drivers, in a container or on the host; ends with NULL. */
extern const char *const driver_usual_roots[];

/*
 * As nvml_open(): by the loader's own search, else in each of the folders below each of the roots,
 * which end with NULL. root, "" or another place to look at before those, may be NULL. -ENOENT when
 * it is in none of them.
 */
int nvml_find(const char *root, const char *const *roots, struct nvml **ret_nvml,
              struct error *err);
