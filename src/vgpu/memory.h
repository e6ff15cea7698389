/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An allocation in the current context, from its charge to its free; its handle may be an address.
 */

#include "vgpu/allocations.h"
#include "vgpu/grant.h"

/* What to answer instead of asking the driver; CUDA_SUCCESS to go on. The grant's device is NULL
 * where nothing is charged. */
CUresult alloc_begin(struct grant *grant, uint64_t bytes);

/* False when it can't be remembered, or its context, which had ended, was made again meanwhile: it
 * is cancelled, and must be given back to the driver. */
bool alloc_enter(struct grant *grant, uint64_t handle);

/* The driver did not make it. */
void alloc_cancel(struct grant *grant);

/*
 * The entry is taken out before the driver frees: the moment it has, another thread may be given
 * the same handle. False when there is none.
 */
bool alloc_begin_free(uint64_t handle, struct allocation *entry);
CUresult alloc_end_free(uint64_t handle, const struct allocation *entry, CUresult result);
