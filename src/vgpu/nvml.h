/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * NVML as the container should see it. A program that only looks (a monitor, nvidia-smi) takes no
 * slot.
 */

#include "driver/nvml.h"
#include "vgpu/real.h"

/* NVML's own answer. */
#define NVML_CALL(name, ...)                                                                       \
    (real_nvml() && REAL(name) ? REAL(name)(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

/* The number in the region of a device that is limited or accounted here; -1 for others. */
int nvml_place(nvmlDevice_t device);

/* Whether only granted devices may be seen, and this is none of them: the card of an instance, or
 * one that was found by its neighbour. */
bool nvml_is_foreign(nvmlDevice_t device);
