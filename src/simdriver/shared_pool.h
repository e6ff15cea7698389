/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pools whose memory other processes have as well. All under guest.lock and the machine's.
 */

#include "simdriver/heap.h"

/* The heap of a pool, and whether it was imported; NULL when the handle is none. */
struct heap *shared_pool_find(CUmemoryPool handle, bool *ret_imported);

/* A pool that stands for another process'; NULL when there are too many. */
CUmemoryPool shared_pool_new(unsigned device);

/* What was imported into one: freed, false when it is nothing of that kind; where it lies. */
bool shared_pool_free(uint64_t address);
bool shared_pool_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes);
