/* SPDX-License-Identifier: Apache-2.0 */
#include "region/turns.h"

#include "base/util.h"
#include "region/bucket.h"

/* Idle for so long, a process comes back as a newcomer. */
#define IDLE_NS (100 * NS_PER_MS)

/* What a process that always wants the device, but little of it, may take later before others: the
 * others would not launch at all until it has caught up. Several kernels, where they are long. */
#define LAG_NS (50 * NS_PER_MS)
#define LAG_KERNELS 2

/* What is said to be unfinished beyond this is damage: kernels of a day. */
#define UNSETTLED_MOST_NS (24 * 3600 * NS_PER_S)

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

static struct region_turn *turn_of(struct region_ext *ext, unsigned slot, unsigned device)
{
    return &ext->turns[slot][device];
}

static unsigned slots_in_use(const struct region *region)
{
    int32_t count = LOAD(region->base->slot_count);

    return (unsigned)MAX(0, MIN(count, (int32_t)REGION_SLOTS));
}

/* The least that anybody else was served who wants the device; INT64_MAX when nobody does. */
static int64_t least_served(struct region *region, unsigned device, int64_t now_ns)
{
    unsigned count = slots_in_use(region);
    int64_t least = INT64_MAX;

    for (unsigned i = 0; i < count; i++) {
        const struct region_turn *turn = turn_of(region->ext, i, device);

        if ((int)i != region->slot && LOAD(turn->wanted_until_ns) > now_ns)
            least = MIN(least, LOAD(turn->served_ns));
    }
    return least;
}

void turns_want(struct region *region, unsigned device, int64_t now_ns, int64_t until_ns)
{
    struct region_turn *turn = turn_of(region->ext, (unsigned)region->slot, device);

    if (LOAD(turn->wanted_until_ns) < now_ns - IDLE_NS) {
        int64_t least = least_served(region, device, now_ns);

        if (least != INT64_MAX)
            STORE(turn->served_ns, MAX(LOAD(turn->served_ns), least));
    }
    STORE(turn->wanted_until_ns, MAX(now_ns, until_ns) + TURNS_WANT_NS);
}

void turns_pause(struct region *region, unsigned device, int64_t now_ns)
{
    struct region_turn *turn = turn_of(region->ext, (unsigned)region->slot, device);

    if (LOAD(turn->wanted_until_ns) > now_ns)
        STORE(turn->wanted_until_ns, now_ns);
}

static int64_t lag_of(struct region_ext *ext, unsigned device)
{
    int64_t longest = LOAD(ext->devices[device].compute.longest_ns);

    return MAX(LAG_NS, LAG_KERNELS * MAX(INT64_C(0), MIN(longest, BUCKET_DEBT_MAX_NS)));
}

bool turns_is_ours(struct region *region, unsigned device, int64_t now_ns)
{
    struct region_turn *turn = turn_of(region->ext, (unsigned)region->slot, device);
    int64_t least = least_served(region, device, now_ns);
    int64_t behind = least == INT64_MAX ? 0 : least - LOAD(turn->served_ns);
    int64_t lag = lag_of(region->ext, device);

    if (behind > lag)
        (void)atomic_fetch_add_explicit(&turn->served_ns, behind - lag, memory_order_relaxed);
    return least == INT64_MAX || LOAD(turn->served_ns) <= least + TURNS_SLACK_NS;
}

void turns_serve(struct region *region, unsigned device, int64_t amount_ns)
{
    atomic_fetch_add_explicit(&turn_of(region->ext, (unsigned)region->slot, device)->served_ns,
                              amount_ns, memory_order_relaxed);
}

void turns_owe(struct region *region, unsigned device, int64_t before_ns, int64_t amount_ns,
               int64_t since_ns)
{
    struct region_turn *turn = turn_of(region->ext, (unsigned)region->slot, device);

    /* Killed between the two, it is wrong by one launch. */
    if (LOAD(turn->unsettled_ns) <= before_ns)
        STORE(turn->since_ns, since_ns);
    else if (amount_ns)
        STORE(turn->since_ns, MIN(LOAD(turn->since_ns), since_ns));
    atomic_fetch_add_explicit(&turn->unsettled_ns, amount_ns - before_ns, memory_order_relaxed);
}

static int64_t all_unsettled_ns(const struct region *region, unsigned device)
{
    const unsigned count = slots_in_use(region);
    int64_t sum_ns = 0;

    for (unsigned i = 0; i < count && sum_ns < UNSETTLED_MOST_NS; i++)
        sum_ns += MIN(MAX(LOAD(turn_of(region->ext, i, device)->unsettled_ns), INT64_C(0)),
                      UNSETTLED_MOST_NS);
    return MIN(sum_ns, UNSETTLED_MOST_NS);
}

void turns_limit_debt(struct region *region, unsigned device, int64_t now_ns)
{
    struct region_compute *compute = &region->ext->devices[device].compute;
    const uint64_t rate = LOAD(compute->rate);

    if (bucket_owes_too_much(compute, now_ns) && rate && rate <= BUCKET_ONE)
        bucket_limit_debt(compute, (uint32_t)rate, all_unsettled_ns(region, device), now_ns);
}

void turns_forgive(struct region *region, unsigned device, int64_t now_ns)
{
    struct region_compute *compute = &region->ext->devices[device].compute;
    const uint64_t rate = LOAD(compute->rate);

    if (rate && rate <= BUCKET_ONE)
        bucket_forgive(compute, (uint32_t)rate, all_unsettled_ns(region, device), now_ns);
}

void turns_settle(struct region_ext *ext, unsigned slot, unsigned device, int64_t now_ns)
{
    struct region_turn *turn = turn_of(ext, slot, device);
    struct region_compute *compute = &ext->devices[device].compute;
    int64_t unsettled = atomic_exchange(&turn->unsettled_ns, 0);
    int64_t ran = now_ns - LOAD(turn->since_ns);
    uint64_t rate = LOAD(compute->rate);

    STORE(turn->served_ns, 0);
    STORE(turn->wanted_until_ns, 0);
    STORE(turn->since_ns, 0);
    unsettled = MIN(unsettled, BUCKET_DEBT_MAX_NS);
    if (unsettled <= 0 || ran < 0 || unsettled <= ran || rate == 0 || rate > BUCKET_ONE)
        return;
    bucket_charge(compute, (uint32_t)rate, ran - unsettled);
    bucket_wake(compute);
}
