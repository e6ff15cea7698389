/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tables of memory that is mapped, for the files that know them from the inside: virtual.c,
 * which makes it, virtual_map.c and virtual_share.c.
 */

#include <pthread.h>

#include "vgpu/references.h"
#include "vgpu/virtual.h"

extern struct virtual_rows {
    pthread_mutex_t lock;     /* held over the driver's calls: virtual.c says why */
    struct references made;   /* by handle */
    struct references mapped; /* by address */
} virtual_rows;

/* What becomes of memory whose last reference has gone. */
struct virtual_end {
    struct vgpu_device *device; /* NULL: nothing is charged */
    uint64_t units;
    uint64_t lent;
    uint32_t given;
    bool shared, held, spilled;
};

/* Units of it that others may have when this process dies. */
static inline uint64_t virtual_lent(const struct reference_row *row)
{
    return row->shared && !row->spilled ? row->units : 0;
}

/* With the lock held: after one reference less. */
struct virtual_end virtual_end_if_last(struct reference_row *row);

void virtual_forget_spilled(const struct virtual_end *end);

/* Whether descriptors keep it, which are watched from then on. */
bool virtual_is_kept(const struct virtual_end *end);

/* A handle that the driver knows and nobody was given yet: its memory is about to be charged, and
 * what it would be held by is not in its count. */
bool virtual_refuses_unknown(const char *name);

/* With the lock held: the next mapping in the range, from a place on; NULL: there is none. */
const struct reference_row *virtual_next_mapping(CUdeviceptr ptr, size_t bytes, size_t *at);

/* A child has imported nothing. */
void virtual_share_after_fork(void);
