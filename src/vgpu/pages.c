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

uint64_t page_take(unsigned context, uint64_t piece)
{
    return page_is_shared(piece) ? page_take_small(context, piece) : piece;
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
