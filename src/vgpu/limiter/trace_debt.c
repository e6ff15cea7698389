/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/trace_debt.h"

#include "base/util.h"

#define ENOUGH_NS 250e3 /* the gate, once closed, opens at this balance */
#define PLENTY_NS 1e6   /* beyond it there are no turns */
#define LEAD_NS 1000000 /* nobody is held up for less */

/* Device time that a bucket has, at a time. */
static double balance_of(const struct region_compute *bucket, int64_t now_ns)
{
    return (double)(now_ns - bucket->zero_ns) * (double)bucket->rate / 65536;
}

static int64_t opens_ns(const struct region_compute *bucket)
{
    return bucket->rate ? bucket->zero_ns + (int64_t)(ENOUGH_NS * 65536 / (double)bucket->rate) : 0;
}

struct trace_debt trace_debt_of(const struct region *region, const struct region_compute *own,
                                int64_t now_ns)
{
    const struct region_compute *bucket = &region->ext->devices[0].compute;
    const struct region_turn *mine = &region->ext->turns[region->slot][0];
    struct trace_debt debt = {.until_ns = MAX(opens_ns(bucket), opens_ns(own))};

    if (balance_of(bucket, now_ns) >= PLENTY_NS)
        return debt;
    for (int i = 0; i < region->base->slot_count; i++) {
        const struct region_turn *turn = &region->ext->turns[i][0];

        debt.is_others |= i != region->slot && turn->wanted_until_ns > now_ns &&
                          turn->served_ns < mine->served_ns - LEAD_NS;
    }
    return debt;
}
