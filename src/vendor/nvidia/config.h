/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Section `nvidia` of the device configuration, for struct vendor. */

#include "vendor/nvidia/nvidia.h"
#include "vendor/section.h"

void nvidia_config_missing(void *ret_config);
int nvidia_config_read(const struct section_reading *reading, const struct section *section,
                       void *config);
int nvidia_config_check(const struct section_reading *reading, const void *config);
