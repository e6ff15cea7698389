/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Managed memory, for whoever frees it. */

#include "vgpu/allocations.h"
#include "vgpu/grant.h"
#include "vgpu/vgpu.h"

/* What begins there is out of the table; the driver is about to be asked to free it. False when it
 * is none that is charged or kept on the host. */
bool managed_begin_free(CUdeviceptr ptr, struct allocation *entry);
void managed_end_free(CUdeviceptr ptr, const struct allocation *entry, bool freed);

/* Linear memory that an oversubscribed card has no room for, though the limit has: made on the
 * host, charged what the grant is. Ends the grant; cancels it where that can't be: false. */
bool managed_spill(CUdeviceptr *ptr, size_t bytes, const struct grant *grant);

/*
 * A variable of a module or a library was asked for, and is in managed memory: charged as such
 * memory is when it is made, or kept on the host. False where there is no room for it and the
 * policy is "full".
 */
bool managed_met(CUdeviceptr ptr, size_t bytes, const void *owner);

/* Around the driver's call that unloads what may have such variables, or stand for what has. False:
 * there are none, and managed_end_unload() must not be called. */
bool managed_begin_unload(const void *owner);
void managed_end_unload(const void *owner, bool gone);

/*
 * Around the driver's call that ends a context: what it has in managed memory is in the bag, and
 * none is moved meanwhile, for the driver may refuse, and then it is all there again. The end is
 * told whether the begin held it; and which context has its variables now, 0 when they have gone.
 */
bool managed_begin_context_end(unsigned context, struct allocations_bag *ret_bag);
void managed_end_context_end(bool held, unsigned context, unsigned now);

/* Whether there is any, or was. */
bool managed_is_any(void);

/* From looking up where memory may be to the driver's answer: nothing is made or freed meanwhile.
 * managed_end_placing() ends it. */
void managed_hold_places(void);

/* Where a range may be: anywhere (CU_DEVICE_INVALID), on the one device that it is charged to, or
 * on the host alone (CU_DEVICE_CPU), as also what is more than one allocation. */
CUdevice managed_home(CUdeviceptr ptr, size_t bytes);

/* There is managed memory that no table has: where it may be its pool says (pools_home()). */
void managed_expect_pools(void);

/* Around what takes memory from a pool that must stay on the host: no place is looked up. */
void managed_begin_placing(void);
void managed_end_placing(void);

/* One line says that so many bytes exceed the limit and live on the host. */
void managed_say_kept(const struct vgpu_device *device, uint64_t bytes);

/* So much more of it, or less, of this kind or another. */
void managed_count_spilled(int64_t units);

/* The host's NUMA node that is nearest to the device, by its driver; 0 where there are none. */
int managed_host_node(const struct vgpu_device *device);

/* One line says that so many bytes live on the host. */
void managed_say_spilled(const struct vgpu_device *device, uint64_t bytes);
