/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a process may use of a device's time. All processes of a container pay into the bucket in
 * their region, whose rate is that of the container: what one rule says for all of them, or, where
 * none does, the highest that any of its processes was given. A process that was given less pays
 * into a bucket of its own as well, and waits for both.
 *
 * Where the container may use what others leave idle (region/card.h), a bucket in debt does not
 * hold it while no other container wants the card, and the debt is dropped then: once another
 * comes, it is held to its rate from that moment on. Where another used the card lately, that goes
 * for launches that are done within SHARE_BACK_NS, or within a part of the time that nobody else
 * wanted it: that one waits no longer when it comes. What takes longer is paid for, and a debt that
 * is larger was not made by what may be borrowed, and stays.
 *
 * One per process and device; any thread may use it.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/card.h"
#include "region/region.h"

/* Who comes back has the card after so long, or such a part of the time that it was away. */
#define SHARE_BACK_NS INT64_C(10000000)
#define SHARE_BACK_PART 20

struct share {
    struct region *region;
    unsigned device;           /* in the region */
    _Atomic uint32_t rate;     /* this process', 1/65536; 0: none */
    _Atomic uint32_t common;   /* the container's, where one rule says it; 0: none does */
    _Atomic bool heeds_switch; /* HAMi's monitor may switch the rate off, by the region's word */
    _Atomic bool heeds_block;  /* and may hold all launches */
    _Atomic bool suspended;    /* no launch goes, by the limits */
    struct region_compute own; /* in use while the container's rate is higher */
    struct card card;
};

/* The process uses the device, or waits for it: other containers see that. */
static inline void share_want(struct share *share, int64_t now_ns)
{
    card_want(&share->card, now_ns);
}

/* Whether the process is held to a rate now. */
static inline bool share_is_limited(const struct share *share)
{
    return atomic_load_explicit(&share->rate, memory_order_relaxed) != 0 &&
           (!atomic_load_explicit(&share->heeds_switch, memory_order_relaxed) ||
            atomic_load_explicit(&share->region->base->utilization_switch, memory_order_relaxed));
}

/* Whether no launch goes whoever else wants the card: the process is suspended by its limits, or
 * blocked by HAMi's monitor. If so, it is looked at again at until_ns. */
bool share_is_stopped(const struct share *share, int64_t now_ns, int64_t *ret_until_ns);

/* Whether the card is left to others of higher priority: no launch goes, limited or not. If so, it
 * is looked at again at until_ns. own_until_ns: when what was launched is expected to be done. */
static inline bool share_yields(struct share *share, int64_t now_ns, int64_t own_until_ns,
                                int64_t *ret_until_ns)
{
    return card_yields(&share->card, now_ns, own_until_ns, ret_until_ns);
}

/* Whether others of lower priority use the card, too: they are told of each launch. */
static inline bool share_has_lessers(const struct share *share)
{
    return atomic_load_explicit(&share->card.has_lessers, memory_order_relaxed);
}

/* Whether others of higher priority do: little is to be on its way when they come. */
static inline bool share_has_betters(const struct share *share)
{
    return atomic_load_explicit(&share->card.has_betters, memory_order_relaxed);
}

/* Whether each launch is to be looked at, for either. */
static inline bool share_is_ranked(const struct share *share)
{
    return share_has_lessers(share) || share_has_betters(share);
}

/* Negative: gives back. Without a rate it is counted only. */
void share_charge(struct share *share, int64_t amount_ns);

/* What no rate holds: it is told, and paid by nobody. */
void share_count(struct share *share, int64_t amount_ns);

/* What is left, of the process or of the container, whichever is less; negative in debt. Without a
 * rate there is always some. */
int64_t share_balance(struct share *share, int64_t now_ns);

/* The container's alone. */
int64_t share_common_balance(const struct share *share, int64_t now_ns);

/* Whether a launch may be paid for; if not, it is looked at again at until_ns. Wants a turn, unless
 * the process itself had its part. price_ns: what is charged for it. back_ns: until it and all that
 * is on its way is expected to be done; INT64_MAX: there is too much on its way for it to use what
 * others leave idle. */
bool share_allows(struct share *share, int64_t price_ns, int64_t back_ns, int64_t now_ns,
                  int64_t *ret_until_ns);

/* What the container's processes tell one another of it: see presence.h. */
static inline _Atomic uint32_t (*share_parts(const struct share *share))[REGION_PARTS]
{
    return share->region->ext->devices[share->device].parts;
}

/* The container's words of the device. */
static inline struct region_compute *share_compute(const struct share *share)
{
    return &share->region->ext->devices[share->device].compute;
}
