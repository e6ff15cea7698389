/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which memory the processes of a container let one another have by a handle of 64 bytes
 * (cuIpcGetMemHandle): such a handle does not say whose it is. A row belongs to the process that
 * claimed it; if that is killed, whoever settles its slot frees it. No lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region/region.h"

/* Of a handle's bytes; never 0. */
uint64_t share_hash(const void *handle, size_t size);

/* Notes a handle of an address, once. False when the table is full. */
bool share_add(struct region_ext *ext, unsigned slot, uint64_t handle, uint64_t address);

/* Whether any process of the container gave this handle out, and has that memory. */
bool share_is_known(const struct region_ext *ext, uint64_t handle);

/* The process has freed what is there. */
void share_remove(struct region_ext *ext, unsigned slot, uint64_t address);

/* Frees a dead process' rows. */
void shares_settle(struct region_ext *ext, unsigned slot);
