/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device addresses that one process has in use. Blocks are powers of two, each size in an arena
 * of its own, so that an address says where its block is: everything is O(1), and a million of them
 * are a table of 24 MB. Addresses are reused, last freed first. What the 32-bit functions of old
 * get comes from a small window below 4 GiB, first fit. Locks itself.
 */

#include <stdbool.h>
#include <stdint.h>

/* An address for an allocation of a context; 0 when there is none, or no memory for the table. */
uint64_t address_take(uint64_t bytes, uint32_t context);
uint32_t address_take_low(uint64_t bytes, uint32_t context);

/* Ends the allocation that begins there, if there is one. */
bool address_give(uint64_t address, uint64_t *ret_bytes, uint32_t *ret_context);

/* The allocation that an address lies in, as large as was asked for, and whose it is. */
bool address_find(uint64_t address, uint64_t *ret_base, uint64_t *ret_bytes);
bool address_context(uint64_t address, uint32_t *ret_context);

/* Ends all of a context. */
void address_drop(uint32_t context);
