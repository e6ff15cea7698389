/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a process owes, read off the region's words by a second writing of their rules
 * (region/bucket.h, region/turns.h): whoever owes nothing has no reason to wait long. For tests
 * only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

struct trace_debt {
    int64_t until_ns; /* then the buckets have enough for a launch, if nobody takes anything */
    bool is_others;   /* somebody else who wants the device was served less, and there is little */
};

/* own: the process' own bucket, of a limit below its container's; its rate is 0 where there is
 * none. */
struct trace_debt trace_debt_of(const struct region *region, const struct region_compute *own,
                                int64_t now_ns);
