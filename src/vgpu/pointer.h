/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the driver says of an address. False as well where it does not know it. */

#include "vgpu/vgpu.h"

bool pointer_is_known(CUdeviceptr ptr); /* wherever that is */
bool pointer_is_on_device(CUdeviceptr ptr);
bool pointer_ordinal(CUdeviceptr ptr, int *ret_ordinal);

/* Whether a side of a copy, of a type CU_MEMORYTYPE_, is a device's: memory or an array. */
bool pointer_is_there(int type, CUdeviceptr ptr);
