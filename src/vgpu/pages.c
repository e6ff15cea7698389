/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/pages.h"

#include <string.h>

#include "vgpu/contexts.h"

/* What the small pieces of a context are together. */
static _Atomic uint64_t small[CONTEXTS_MAX + 1];

static uint64_t pages_of(uint64_t units)
{
    return (units + PAGE_UNITS - 1) / PAGE_UNITS * PAGE_UNITS;
}

uint64_t page_need(unsigned context, uint64_t piece, uint64_t *ret_small_before)
{
    const uint64_t before = atomic_load(&small[context]);

    *ret_small_before = before;
    return page_is_shared(piece) ? pages_of(before + piece) - pages_of(before) : piece;
}

bool page_claim(unsigned context, uint64_t piece, uint64_t small_before)
{
    return !page_is_shared(piece) ||
           atomic_compare_exchange_strong(&small[context], &small_before, small_before + piece);
}

uint64_t page_give(unsigned context, uint64_t piece)
{
    return page_is_shared(piece) ? page_give_small(context, piece) : piece;
}

uint64_t page_take_small(unsigned context, uint64_t units)
{
    const uint64_t before = atomic_fetch_add(&small[context], units);

    return pages_of(before + units) - pages_of(before);
}

uint64_t page_give_small(unsigned context, uint64_t units)
{
    const uint64_t before = atomic_fetch_sub(&small[context], units);

    return pages_of(before) - pages_of(before - units);
}

void pages_after_fork(void)
{
    memset((void *)small, 0, sizeof(small));
}
