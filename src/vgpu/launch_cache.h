/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The fast way of a launch: known cost, paid from the thread's own credit. No clock, no shared
 * memory. */

#include "vgpu/contexts.h"
#include "vgpu/limiter.h"
#include "vgpu/limiter_state.h"

extern __thread struct launch_cache launch_cache __attribute__((tls_model("initial-exec")));

static inline unsigned launch_cache_slot(const struct launch *launch)
{
    uint64_t hash = (uint64_t)(uintptr_t)launch->function + launch->grid[0] * 31u +
                    launch->grid[1] * 17u + launch->block[0];

    return (unsigned)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

_Static_assert(LAUNCH_CACHE == 64, "six bits of the hash");

static inline bool launch_cache_pays(const struct launch *launch)
{
    unsigned at = launch_cache_slot(launch);

    /* With one context only, it need not be asked which is current. */
    if (launch_cache.epoch != contexts_epoch() ||
        atomic_load_explicit(&contexts_live, memory_order_relaxed) != 1)
        return false;
    if (launch_cache.generation !=
        atomic_load_explicit(&launch_cache.limiter->generation, memory_order_relaxed))
        return false;
    if (launch_cache.costs[at].function != launch->function ||
        launch_cache.costs[at].grid[0] != launch->grid[0] ||
        launch_cache.costs[at].grid[1] != launch->grid[1] ||
        launch_cache.costs[at].grid[2] != launch->grid[2] ||
        launch_cache.costs[at].block[0] != launch->block[0] ||
        launch_cache.costs[at].block[1] != launch->block[1] ||
        launch_cache.costs[at].block[2] != launch->block[2])
        return false;
    if (launch_cache.credit_ns < launch_cache.costs[at].cost_ns ||
        atomic_load_explicit(&limiter_captures, memory_order_relaxed))
        return false;

    launch_cache.credit_ns -= launch_cache.costs[at].cost_ns;
    return true;
}
