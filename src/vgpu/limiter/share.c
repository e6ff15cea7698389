/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/share.h"

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/gang.h"

/* Who is held looks so often whether the card became idle. */
#define IDLE_LOOK_NS INT64_C(5000000)
#define BLOCK_LOOK_NS INT64_C(10000000) /* who is blocked, whether it still is */
#define QUEUE_LOOK_NS INT64_C(500000)   /* and so often whether what it has on its way is done */

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* A process' own rate is read once in each function: it may be lifted any moment. */
static uint32_t container_rate(const struct share *share, uint32_t own)
{
    uint64_t rate = LOAD(share_compute(share)->rate);

    return rate && rate <= BUCKET_ONE ? (uint32_t)rate : own;
}

static bool has_less(const struct share *share, uint32_t own)
{
    return own < container_rate(share, own);
}

static void note_busy(struct share *share, int64_t amount_ns)
{
    atomic_fetch_add_explicit(
        &share->region->ext->explains[share->region->slot][share->device].busy_ns, amount_ns,
        memory_order_relaxed);
}

void share_charge(struct share *share, int64_t amount_ns)
{
    struct region_compute *container = share_compute(share);
    uint32_t own = LOAD(share->rate);

    if (own)
        bucket_charge(container, container_rate(share, own), amount_ns);
    else
        atomic_fetch_add_explicit(&container->charged_ns, amount_ns, memory_order_relaxed);
    if (own && has_less(share, own))
        bucket_charge(&share->own, own, amount_ns);
    turns_serve(share->region, share->device, amount_ns);
    note_busy(share, amount_ns);
}

void share_count(struct share *share, int64_t amount_ns)
{
    atomic_fetch_add_explicit(&share_compute(share)->charged_ns, amount_ns, memory_order_relaxed);
    note_busy(share, amount_ns);
}

bool share_is_stopped(const struct share *share, int64_t now_ns, int64_t *ret_until_ns)
{
    *ret_until_ns = now_ns + BLOCK_LOOK_NS;
    return LOAD(share->suspended) ||
           (LOAD(share->heeds_block) && LOAD(share->region->base->recent_kernel) < 0);
}

static void set_rates(struct share *share, uint32_t own, int64_t now_ns)
{
    struct region_compute *container = share_compute(share);
    const uint32_t common = LOAD(share->common);

    if (common || own > LOAD(container->rate))
        bucket_set_rate(container, common ? common : own, now_ns);
    if (!has_less(share, own))
        return;
    bucket_set_rate(&share->own, own, now_ns);
    atomic_store_explicit(&share->own.longest_ns, LOAD(container->longest_ns),
                          memory_order_relaxed);
}

int64_t share_balance(struct share *share, int64_t now_ns)
{
    uint32_t own = LOAD(share->rate);
    int64_t balance;

    if (!own)
        return BUCKET_CREDIT_NS;
    set_rates(share, own, now_ns);
    balance = share_common_balance(share, now_ns);
    if (has_less(share, own)) {
        bucket_limit_debt(&share->own, own, 0, now_ns);
        balance = MIN(balance, bucket_balance(&share->own, own, now_ns));
    }
    return balance;
}

int64_t share_common_balance(const struct share *share, int64_t now_ns)
{
    uint32_t own = LOAD(share->rate);

    if (!own)
        return BUCKET_CREDIT_NS;
    turns_limit_debt(share->region, share->device, now_ns);
    return bucket_balance(share_compute(share), container_rate(share, own), now_ns);
}

static bool own_share_allows(struct share *share, uint32_t own, int64_t price_ns, int64_t now_ns,
                             int64_t *ret_until_ns)
{
    bool allowed;

    set_rates(share, own, now_ns);
    if (has_less(share, own) && !bucket_is_open(&share->own, own, now_ns, ret_until_ns)) {
        turns_pause(share->region, share->device, now_ns);
        return false;
    }
    allowed =
        bucket_is_open(share_compute(share), container_rate(share, own), now_ns, ret_until_ns);
    allowed = gang_allows(share->region, share->device, allowed, price_ns, now_ns, ret_until_ns);
    turns_want(share->region, share->device, now_ns, allowed ? now_ns : *ret_until_ns);
    return allowed;
}

/* Nobody is to wait for what is launched now, nor is anything owed for what somebody waited for. */
static bool may_borrow(struct share *share, int64_t back_ns, int64_t now_ns)
{
    const int64_t idle_ns = card_idle_ns(&share->card, now_ns);
    const int64_t most_ns = MAX(SHARE_BACK_NS, idle_ns / SHARE_BACK_PART);

    if (back_ns == INT64_MAX || idle_ns == INT64_MAX)
        return back_ns < INT64_MAX;
    return back_ns <= most_ns && share_balance(share, now_ns) >= -most_ns;
}

/* Of a launch that the share does not allow. */
static bool idle_time_allows(struct share *share, int64_t back_ns, int64_t now_ns,
                             int64_t *ret_until_ns)
{
    const bool wanted = card_is_wanted(&share->card, now_ns);
    const bool fits = back_ns < INT64_MAX;

    if (wanted || !may_borrow(share, back_ns, now_ns)) {
        if (share->card.own)
            *ret_until_ns =
                MIN(*ret_until_ns, now_ns + (wanted || fits ? IDLE_LOOK_NS : QUEUE_LOOK_NS));
        return false;
    }
    turns_forgive(share->region, share->device, now_ns);
    bucket_forgive(&share->own, BUCKET_ONE, 0, now_ns);
    return true;
}

bool share_allows(struct share *share, int64_t price_ns, int64_t back_ns, int64_t now_ns,
                  int64_t *ret_until_ns)
{
    uint32_t own = LOAD(share->rate);

    return !own || own_share_allows(share, own, price_ns, now_ns, ret_until_ns) ||
           idle_time_allows(share, back_ns, now_ns, ret_until_ns);
}
