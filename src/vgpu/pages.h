/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What an allocation takes of a device, which is more than was asked for: drivers give memory in
 * pages of 2 MiB ("currently", says CUDA's guide to virtual memory). A piece of more than half a
 * page is charged whole pages of its own; smaller ones of a context share pages, and are charged as
 * many as they fill together. What a driver takes beyond that is found as hidden memory
 * (hidden.h); but without this a program that asks for one byte more than a page, again and
 * again, would have twice its limit before that is looked at.
 */

#include "region/ledger.h"
#include "vgpu/vgpu.h"

#define PAGE_UNITS (UINT64_C(2 * 1024 * 1024) / LEDGER_UNIT)

/* The units of a piece are remembered (allocations.h): for a small one its own, else whole pages.
 */
static inline bool page_is_shared(uint64_t piece)
{
    return piece <= PAGE_UNITS / 2;
}

/* Units that were asked for, as a piece. */
static inline uint64_t page_piece(uint64_t units)
{
    if (page_is_shared(units) || units > LEDGER_UNITS_MAX - PAGE_UNITS)
        return units;
    return (units + PAGE_UNITS - 1) / PAGE_UNITS * PAGE_UNITS;
}

/*
 * A piece comes to a context (contexts.h): the units that page_need() says are charged first, and
 * page_claim() then lets it in, unless other pieces came or went meanwhile: false, and all is done
 * again. So no piece shares a page that is not charged yet, and may be refused.
 */
uint64_t page_need(unsigned context, uint64_t piece, uint64_t *ret_small_before);
bool page_claim(unsigned context, uint64_t piece, uint64_t small_before);

/* It goes: the units to be discharged for it now. */
uint64_t page_give(unsigned context, uint64_t piece);

/* Many small pieces, which are this together, come, whatever the limit, or go at once: the units to
 * be charged or discharged. */
uint64_t page_take_small(unsigned context, uint64_t units);
uint64_t page_give_small(unsigned context, uint64_t units);
