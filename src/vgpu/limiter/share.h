/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a process may use of a device's time. All processes of a container pay into the bucket in
 * their region, whose rate is that of the container: the highest that any of its processes was
 * given, or, where one rule holds for all of them, that. A process that was given less pays into a
 * bucket of its own as well, and waits for both.
 *
 * One per process and device; any thread may use it.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

struct share {
    struct region *region;
    unsigned device;           /* in the region */
    _Atomic uint32_t rate;     /* this process', 1/65536; 0: none */
    _Atomic bool is_common;    /* one rule holds for the container: its rate may be lowered */
    struct region_compute own; /* in use while the container's rate is higher */
};

/* Negative: gives back. Without a rate it is counted only. */
void share_charge(struct share *share, int64_t amount_ns);

/* What is left, of the process or of the container, whichever is less; negative in debt. Without a
 * rate there is always some. */
int64_t share_balance(struct share *share, int64_t now_ns);

/* Whether a launch may be paid for; if not, it is looked at again at until_ns. Wants a turn, unless
 * the process itself had its part. */
bool share_allows(struct share *share, int64_t now_ns, int64_t *ret_until_ns);

/* The container's words of the device. */
static inline struct region_compute *share_compute(const struct share *share)
{
    return &share->region->ext->devices[share->device].compute;
}
