/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that processes share by handles of 64 bytes: what becomes of its charge at its maker. */

#include "vgpu/vgpu.h"

/* What is there is freed: others of the container can't open it any more. It may live on with those
 * who have: hidden memory from now on. */
void ipc_freed(struct vgpu_device *device, CUdeviceptr ptr, uint64_t units);

/* The same for all that was in a context. */
void ipc_context_ended(struct vgpu_device *device, uint64_t units);
