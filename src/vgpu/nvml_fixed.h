/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Our function for one of NVML's that has one answer here, or NULL. */
void *nvml_fixed_find(const char *name);
