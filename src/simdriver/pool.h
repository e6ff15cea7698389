/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pools of objects in the state, each of which begins with its owner, its generation and a link. An
 * object is there from the store of its owner on, which comes last, and gone with it.
 */

#include "simdriver/state.h"

/* An index whose object is zeros but for its generation; 0 when the pool is used up, or
 * the machine's disk is full. */
uint32_t sim_pool_take(struct sim_pool *pool, void *objects, size_t size, uint32_t count);
void sim_pool_give_back(struct sim_pool *pool, void *objects, size_t size, uint32_t i);

/* Derives the list of the free ones anew. */
void sim_pool_rebuild(struct sim_pool *pool, void *objects, size_t size);
