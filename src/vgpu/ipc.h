/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that processes share by handles of 64 bytes: what becomes of its charge at its maker. */

#include "vgpu/allocations.h"
#include "vgpu/vgpu.h"

/* Lets the driver give out a dma-buf of what an address lies in. *ret_ours: that is a piece of
 * ours, which stays charged after its free. By one thread at a time. */
typedef CUresult (*ipc_give_fn)(void *ret, const void *data);
CUresult ipc_give_dma_buf(CUdeviceptr ptr, ipc_give_fn driver, int *ret_fd, const void *data,
                          bool *ret_ours);

/* What is there is freed: others of the container can't open it any more. It may live on with those
 * who have: hidden memory from now on. */
void ipc_freed(struct vgpu_device *device, CUdeviceptr ptr, const struct allocation *entry,
               uint64_t units);

/* The same for all that was in a context. */
void ipc_context_ended(struct vgpu_device *device, const struct allocations_bag *data);
