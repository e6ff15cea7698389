/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What NVML says that this process, and a device, use. It lists processes by pids of which not all
 * are ours to know: this process is found for sure by its own pid in the host's namespace, or where
 * all that are listed are processes of its namespace, and it came with its first context; by the
 * host's pid that the node wrote into its slot; by the one pid that was new in the list when its
 * first context had been made.
 *
 * Nothing here locks: the account's lock (hidden.h) is held.
 */

#include "vgpu/vgpu.h"

/* Asks which processes use a device: the list that the functions below are about. */
bool usage_list(const struct vgpu_device *device);

/* Whether it will be listed by a name that is known already. Before a context is made. */
bool usage_is_named(void);

/* What the list of a device says of this process; false when it does not say so for sure. */
bool usage_of_self(const struct vgpu_device *device, uint64_t *ret_bytes, bool *ret_listed);

/* All that is in use on the device. */
bool usage_of_device(const struct vgpu_device *device, uint64_t *ret_bytes);

/* Who is listed before the first context is made; then this process is the one that has come since,
 * if it is one. */
void usage_note_strangers(void);
void usage_learn_name(void);

/* Where there is no NVML it is looked for again only when a context is made. */
void usage_look_again(void);

void usage_after_fork(void);
