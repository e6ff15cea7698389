/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that is mapped, for what holds it beside handles and mappings. */

#include "vgpu/vgpu.h"

/*
 * Something that nobody counts is about to hold a handle's memory, which stays charged after its
 * last handle and mapping until NVML says that it has gone. False where the call is refused: nobody
 * was given that handle.
 */
bool virtual_mark_held(CUmemGenericAllocationHandle handle, const char *name);
bool virtual_mark_held_at(CUdeviceptr ptr, const char *name); /* of what is mapped there */

/* Lets the driver give out a dma-buf of what is mapped to a range, which stays charged after its
 * end. False: nothing is mapped there, and the driver was not asked. */
typedef CUresult (*virtual_give_fn)(void *ret, const void *data);
bool virtual_give_dma_buf(CUdeviceptr ptr, size_t bytes, virtual_give_fn driver, int *ret_fd,
                          const void *data, CUresult *ret_result);

/* A descriptor that is given out says who made it: whether a living process of the container did.
 */
void virtual_mark_descriptor(int fd);
bool virtual_is_of_container(int fd);

/* A handle of what takes no memory. False when there is no memory to remember it. */
bool virtual_remember_free(CUmemGenericAllocationHandle handle);
