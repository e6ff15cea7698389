/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/explain.h"

#include "base/clock.h"
#include "vgpu/vgpu.h"

#define ADD(word, more) atomic_fetch_add_explicit(&(word), (more), memory_order_relaxed)

#define UTIL_NS NS_PER_S /* over which HAMi's readers are told how busy the process was */

enum {
    OWN_EVERY = 16, /* of the launches that are looked at, one is timed */
};

__thread struct explain_thread explain_thread;

/* The helper thread's. */
static struct {
    int64_t at_ns; /* 0: not begun */
    int64_t busy_ns[REGION_DEVICES];
} past;

static struct region_explain *explains_of(const struct share *share)
{
    return &vgpu.region.ext->explains[vgpu.region.slot][share->device];
}

void explain_launches(const struct share *share, unsigned count, enum region_launch_kind kind)
{
    struct region_explain *explain = explains_of(share);
    unsigned kernels = count;

    explain_other(kind);
    for (unsigned i = REGION_LAUNCH_KERNEL + 1; i < REGION_LAUNCH_KINDS; i++) {
        unsigned others = explain_thread.others[i];

        if (!others)
            continue;
        others = others < kernels ? others : kernels;
        ADD(explain->launches[i], others);
        kernels -= others;
        explain_thread.others[i] = 0;
    }
    if (kernels)
        ADD(explain->launches[REGION_LAUNCH_KERNEL], kernels);
}

void explain_wait(const struct share *share, int64_t ns)
{
    struct region_explain *explain = explains_of(share);

    ADD(explain->throttled, 1);
    ADD(explain->throttled_ns, (uint64_t)ns);
    explain_thread.waited_ns += ns;
}

int64_t explain_begin(void)
{
    /* Not the first one, in which everything is made. */
    if (++explain_thread.looked % OWN_EVERY != 0)
        return 0;
    explain_thread.waited_ns = 0;
    return clock_now_ns();
}

int64_t explain_admitted(int64_t began_ns)
{
    int64_t own_ns = began_ns ? clock_now_ns() - began_ns - explain_thread.waited_ns : 0;

    return own_ns > 0 ? own_ns : began_ns != 0;
}

void explain_end(const struct share *share, int64_t own_ns)
{
    ADD(explains_of(share)->own_ns, (uint64_t)own_ns * OWN_EVERY);
}

static uint64_t percent(int64_t busy_ns, int64_t passed_ns)
{
    int64_t util = (100 * busy_ns + passed_ns / 2) / passed_ns;

    return (uint64_t)(util < 0 ? 0 : util > 100 ? 100 : util);
}

void explain_tick(int64_t now_ns)
{
    struct region_slot *slot = &vgpu.region.base->slots[vgpu.region.slot];
    const int64_t passed_ns = now_ns - past.at_ns;

    if (passed_ns < UTIL_NS)
        return;
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        const struct share *share = &vgpu.devices[i].share;
        int64_t busy_ns = atomic_load(&explains_of(share)->busy_ns);

        if (past.at_ns)
            slot->util[share->device].sm_util =
                percent(busy_ns - past.busy_ns[share->device], passed_ns);
        past.busy_ns[share->device] = busy_ns;
    }
    past.at_ns = now_ns;
}

void explain_rest(void)
{
    struct region_slot *slot = &vgpu.region.base->slots[vgpu.region.slot];

    for (unsigned i = 0; i < vgpu.device_count; i++)
        slot->util[vgpu.devices[i].share.device].sm_util = 0;
    past.at_ns = 0;
}
