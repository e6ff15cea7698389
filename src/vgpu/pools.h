/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pools of stream-ordered memory. What a pool has taken from its device is charged, whatever of it
 * is given out: the driver says how much that is, after each allocation and wherever it may have
 * become less. So reuse is free, and what lies broken in pieces counts.
 *
 * An allocation that the pool has no room for is charged before the driver is asked. Whether there
 * is room in one piece only the driver knows: where a pool grows all the same, that is charged
 * afterwards, and undone beyond the limit.
 *
 * What an oversubscribed device has no room for comes from a pool of ours on the host, which is
 * charged to the device alike. NVML counts none of it: it is part of vgpu_device.managed_units.
 *
 * A pool of managed memory (CUDA 13) is charged as any, to the device that it is best on or that
 * was current when it was first seen, and is part of managed_units, too. By the policy "resident"
 * (managed.h) what the limit has no room for comes from a pool of ours whose memory is best kept on
 * the host; by "free" nothing is charged.
 */

#include "vgpu/vgpu.h"

/* Brings the charges of a device's pools to what they have. True when something was given back. */
bool pools_settle(struct vgpu_device *device);

/* Whether a place of memory, of a pool or of what a graph's node allocates, is known. False: it is
 * refused, as the limits say. */
bool pools_know_place(const CUmemLocation *location, const char *name);

/* Whether a graph is not to allocate managed memory that is best at such a place, as the limits
 * say: it is charged as its device's memory, so that it must be of one. */
bool pools_refuse_graph(const CUmemLocation *location, const char *name);

/* Whether a pool of managed memory has it, and the device on which it may be, CU_DEVICE_CPU for the
 * host alone. */
bool pools_home(CUdeviceptr ptr, CUdevice *ret_home);

/* Whether it is memory that a device had no room for and a pool of ours holds on the host: the
 * driver takes that for no device's. */
bool pools_spilled(CUdeviceptr ptr);

/* Something was freed that a pool may have given out. */
void pools_freed(void);

/* For hidden.c, between the two of which no charge of a pool changes. */
void pools_lock(void);
void pools_unlock(void);

/* With the lock: what is charged for a device's pools less what they have, in units. */
int64_t pools_surplus(const struct vgpu_device *device);

/* Around the driver's free of what was imported from another process' pool: false when it is none.
 */
struct allocation;
bool pool_begin_free_import(CUdeviceptr ptr, struct allocation *entry);
void pool_end_free_import(CUdeviceptr ptr, const struct allocation *entry, bool gone);

void pools_after_fork(void);
