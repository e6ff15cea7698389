/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The addresses that a process has reserved, and what it mapped to them. Two lists by address;
 * ranges of both kinds don't overlap their like. Not locked: guest.lock's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANGE_FROM (UINT64_C(6) << 44) /* above all that addresses.c gives out */
#define RANGE_TO (UINT64_C(7) << 44)

/* Where a mapping may be accessed from: two bits a place, the devices and then the host. */
#define RANGE_ACCESS_HOST 16u

struct mapping {
    uint64_t from, bytes;
    uint32_t hold;
    uint64_t access;
};

/* Reserves a range at the hint, if that is free, else at the lowest aligned place; 0: none. */
uint64_t range_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint);

/* Gives back a whole reservation in which nothing is mapped. */
bool range_release(uint64_t from, uint64_t bytes);

/* Maps to a part of one reservation in which nothing is mapped. False: it is not such a part. */
bool range_map(const struct mapping *mapping);

/* The mapping that an address lies in; NULL when there is none. Valid until the next change. */
struct mapping *range_find(uint64_t address);

/* The mappings that a range is made of, whole and without gaps: the first and how many; 0: it is
 * not. */
size_t range_run(uint64_t from, uint64_t bytes, struct mapping **ret_first);

/* Takes out one that range_find() or range_run() told of. */
void range_unmap(struct mapping *mapping);
