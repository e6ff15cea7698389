/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What managed.c remembers, for the variables that are in managed memory. */

#include "vgpu/allocations.h"
#include "vgpu/grant.h"

/* With the lock over making and freeing. The driver has just given the address, or told of it: what
 * was remembered of it before has gone. False: there is no memory for it. */
bool managed_remember(CUdeviceptr ptr, const struct grant *grant, uint64_t units, bool spilled);

/* What was charged for one that has gone. */
void managed_give_back(const struct allocation *entry);

/* Tells the driver that a range is best kept on the host. */
bool managed_keep_on_host(CUdeviceptr ptr, size_t bytes, const struct vgpu_device *device);

void managed_variables_after_fork(void);
