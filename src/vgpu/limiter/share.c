/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/share.h"

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)

static uint32_t container_rate(const struct share *share)
{
    uint64_t rate = LOAD(share_compute(share)->rate);

    return rate && rate <= BUCKET_ONE ? (uint32_t)rate : LOAD(share->rate);
}

static bool has_less(const struct share *share)
{
    return LOAD(share->rate) < container_rate(share);
}

void share_charge(struct share *share, int64_t amount_ns)
{
    struct region_compute *container = share_compute(share);
    uint32_t rate = LOAD(share->rate);

    if (rate)
        bucket_charge(container, container_rate(share), amount_ns);
    else
        atomic_fetch_add_explicit(&container->charged_ns, amount_ns, memory_order_relaxed);
    if (rate && has_less(share))
        bucket_charge(&share->own, rate, amount_ns);
    turns_serve(share->region, share->device, amount_ns);
}

static void set_rates(struct share *share, int64_t now_ns)
{
    struct region_compute *container = share_compute(share);
    uint32_t rate = LOAD(share->rate);

    if (rate > LOAD(container->rate) || LOAD(share->is_common))
        bucket_set_rate(container, rate, now_ns);
    if (!has_less(share))
        return;
    bucket_set_rate(&share->own, rate, now_ns);
    atomic_store_explicit(&share->own.longest_ns, LOAD(container->longest_ns),
                          memory_order_relaxed);
}

int64_t share_balance(struct share *share, int64_t now_ns)
{
    int64_t balance;

    set_rates(share, now_ns);
    balance = bucket_balance(share_compute(share), container_rate(share), now_ns);
    if (has_less(share))
        balance = MIN(balance, bucket_balance(&share->own, LOAD(share->rate), now_ns));
    return balance;
}

/* The gate closes in debt, and opens at a balance that is worth it. */
static bool gate_allows(struct region_compute *compute, uint32_t rate, int64_t now_ns,
                        int64_t *ret_until_ns)
{
    int64_t balance = bucket_balance(compute, rate, now_ns);

    if (balance <= 0)
        atomic_store_explicit(&compute->gate, 1, memory_order_relaxed);
    else if (balance >= BUCKET_QUANTUM_NS)
        atomic_store_explicit(&compute->gate, 0, memory_order_relaxed);
    if (!LOAD(compute->gate))
        return true;
    *ret_until_ns = now_ns + (BUCKET_QUANTUM_NS - balance) * (int64_t)BUCKET_ONE / rate;
    return false;
}

bool share_allows(struct share *share, int64_t now_ns, int64_t *ret_until_ns)
{
    bool allowed;

    set_rates(share, now_ns);
    if (has_less(share) && !gate_allows(&share->own, LOAD(share->rate), now_ns, ret_until_ns)) {
        turns_pause(share->region, share->device, now_ns);
        return false;
    }
    allowed = gate_allows(share_compute(share), container_rate(share), now_ns, ret_until_ns);
    turns_want(share->region, share->device, now_ns, allowed ? now_ns : *ret_until_ns);
    return allowed;
}
