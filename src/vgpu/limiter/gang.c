/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/gang.h"

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"

/* So long devices are bound from when they were found to be: for as long as any debt takes to
 * repay. To find it again costs some waits. */
#define BOUND_NS BUCKET_DEBT_MAX_NS
/* Of devices that have nothing to do with one another every third wait may end so by chance; of
 * long waits it is seldom. */
#define FOUND_LEAST 3
#define FOUND_NS (25 * NS_PER_MS)     /* so long a wait counts once more */
#define WAIT_LEAST_NS (5 * NS_PER_MS) /* a shorter one says little: kernels vary */
#define LONG_NS NS_PER_S              /* until a debt is repaid */
#define LOOK_NS (4 * NS_PER_MS)       /* a look comes no later than that, but for the host */
#define FRESH_NS (8 * NS_PER_MS)      /* who waits says so at each look */
#define PATIENCE_NS (100 * NS_PER_MS) /* what waits for so long may wait for any device */

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

static struct region_gang *gang_of(struct region *region, unsigned device)
{
    return &region->ext->devices[device].gang;
}

static unsigned devices(const struct region *region)
{
    return (unsigned)MIN(region->base->device_count, (uint64_t)REGION_DEVICES);
}

/* 0: there is none, or it is damaged. */
static uint32_t rate_of(struct region *region, unsigned device)
{
    const uint64_t rate = LOAD(region->ext->devices[device].compute.rate);

    return rate <= BUCKET_ONE ? (uint32_t)rate : 0;
}

static bool is_bound(struct region *region, unsigned device, int64_t now_ns)
{
    return LOAD(gang_of(region, device)->until_ns) > now_ns && rate_of(region, device);
}

static void wake_held(struct region *region, unsigned device)
{
    for (unsigned i = 0; i < devices(region); i++) {
        if (i != device && LOAD(gang_of(region, i)->held_since_ns))
            bucket_wake(&region->ext->devices[i].compute);
    }
}

void gang_note_held(struct region *region, unsigned device, int64_t now_ns)
{
    int64_t none = 0;

    if (devices(region) > 1)
        (void)atomic_compare_exchange_strong(&gang_of(region, device)->held_since_ns, &none,
                                             now_ns);
}

void gang_note_gone(struct region *region, unsigned device, int64_t price_ns, int64_t now_ns)
{
    struct region_gang *gang = gang_of(region, device);
    int64_t since_ns;

    if (devices(region) < 2)
        return;
    since_ns = LOAD(gang->held_since_ns) ? atomic_exchange(&gang->held_since_ns, 0) : 0;
    if (since_ns)
        atomic_fetch_add_explicit(&gang->held_ns, MAX(now_ns - since_ns, INT64_C(0)),
                                  memory_order_relaxed);
    if (!is_bound(region, device, now_ns))
        return;
    atomic_fetch_add_explicit(&gang->gone_ns, price_ns, memory_order_relaxed);
    /* Others may be behind it now. */
    if (LOAD(region->ext->gang_closed))
        wake_held(region, device);
}

/* Whether none that is bound is in debt; if so, who was ahead is not any more. Else whether it
 * takes long to repay. */
static bool are_open(struct region *region, bool allowed, int64_t now_ns, int64_t *ret_until_ns,
                     bool *ret_long)
{
    bool open = allowed;

    *ret_long = false;
    for (unsigned i = 0; i < devices(region); i++) {
        int64_t until_ns = now_ns;

        turns_limit_debt(region, i, now_ns);
        if (!is_bound(region, i, now_ns) ||
            bucket_is_open(&region->ext->devices[i].compute, rate_of(region, i), now_ns, &until_ns))
            continue;
        *ret_long |= until_ns - now_ns > LONG_NS;
        *ret_until_ns = open ? until_ns : MAX(*ret_until_ns, until_ns);
        open = false;
    }
    if (LOAD(region->ext->gang_closed) == !open)
        return open;
    STORE(region->ext->gang_closed, !open);
    for (unsigned i = 0; open && i < devices(region); i++)
        STORE(gang_of(region, i)->gone_ns, 0);
    return open;
}

/* Whether it stays so with this launch, but for what prices are off by. */
static bool is_behind(struct region *region, unsigned device, int64_t price_ns, int64_t now_ns)
{
    const int64_t gone_ns = LOAD(gang_of(region, device)->gone_ns) + price_ns / 2;
    bool is = false;

    for (unsigned i = 0; i < devices(region); i++)
        is |= is_bound(region, i, now_ns) && gone_ns < LOAD(gang_of(region, i)->gone_ns);
    return is;
}

/* since_ns: seen after that. */
static bool is_waited_for(struct region *region, unsigned device, bool bound, int64_t since_ns,
                          int64_t now_ns)
{
    bool is = false;

    for (unsigned i = 0; i < devices(region); i++) {
        const struct region_gang *gang = gang_of(region, i);
        const int64_t patience_ns = bound && is_bound(region, i, now_ns) ? 0 : PATIENCE_NS;
        const int64_t late_since_ns = LOAD(gang->late_since_ns), late_ns = LOAD(gang->late_ns);

        is |= i != device && late_since_ns && late_since_ns <= now_ns - patience_ns &&
              late_ns > now_ns - FRESH_NS && late_ns > since_ns;
    }
    return is;
}

/* While a long debt is repaid one launch at a time goes, if another device goes on waiting: what a
 * step that is let go too early would wait for is as long. */
static bool is_surely_waited_for(struct region *region, unsigned device, int64_t now_ns)
{
    const int64_t held_since_ns = LOAD(gang_of(region, device)->held_since_ns);

    return held_since_ns && is_waited_for(region, device, true, held_since_ns + LOOK_NS, now_ns);
}

static bool owes_little(struct region *region, unsigned device, int64_t now_ns)
{
    const uint32_t rate = rate_of(region, device);

    return rate &&
           bucket_balance(&region->ext->devices[device].compute, rate, now_ns) > -GANG_DEBT_NS;
}

bool gang_allows(struct region *region, unsigned device, bool allowed, int64_t price_ns,
                 int64_t now_ns, int64_t *ret_until_ns)
{
    const bool bound = is_bound(region, device, now_ns);
    bool is_long = false;

    if (devices(region) < 2 ||
        (bound ? are_open(region, allowed, now_ns, ret_until_ns, &is_long) : allowed))
        return allowed;
    if (!owes_little(region, device, now_ns))
        return false;
    if (is_long)
        return is_surely_waited_for(region, device, now_ns);
    return (bound && is_behind(region, device, price_ns, now_ns)) ||
           is_waited_for(region, device, bound, 0, now_ns);
}

/* For how long launches were held on a device, in all. */
static int64_t held_ns(struct region *region, unsigned device, int64_t now_ns)
{
    const struct region_gang *gang = gang_of(region, device);
    const int64_t since_ns = LOAD(gang->held_since_ns);

    return LOAD(gang->held_ns) + (since_ns ? MAX(now_ns - since_ns, INT64_C(0)) : 0);
}

static void bind(struct region *region, unsigned device, int64_t now_ns)
{
    STORE(gang_of(region, device)->until_ns, now_ns + BOUND_NS);
}

/* A wait has ended: whether it was for what another device's launches would have done, as far as
 * they were held for most of it. */
static void judge(struct region *region, unsigned device, struct gang_wait *wait, int64_t now_ns)
{
    const int64_t waited_ns = now_ns - wait->since_ns;

    for (unsigned i = 0; waited_ns >= WAIT_LEAST_NS && i < devices(region); i++) {
        const int64_t since_ns = LOAD(gang_of(region, i)->held_since_ns);

        if (i == device)
            continue;
        if (since_ns && since_ns < now_ns - LOOK_NS)
            wait->found[i] = 0;
        else if (2 * (held_ns(region, i, now_ns) - wait->held_ns[i]) > waited_ns)
            wait->found[i] += 1 + (unsigned)MIN(waited_ns / FOUND_NS, NS_PER_S);
        if (wait->found[i] < FOUND_LEAST)
            continue;
        wait->found[i] = 0;
        bind(region, device, now_ns);
        bind(region, i, now_ns);
    }
}

static void begin(struct region *region, unsigned device, struct gang_wait *wait, int64_t now_ns)
{
    wait->since_ns = now_ns;
    for (unsigned i = 0; i < devices(region); i++)
        wait->held_ns[i] = held_ns(region, i, now_ns);
    STORE(gang_of(region, device)->late_since_ns, now_ns);
}

void gang_look(struct region *region, unsigned device, struct gang_wait *wait, bool is_late,
               int64_t now_ns)
{
    if (is_late && !wait->since_ns)
        begin(region, device, wait, now_ns);
    if (is_late) {
        STORE(gang_of(region, device)->late_ns, now_ns);
        wake_held(region, device);
    } else if (wait->since_ns) {
        STORE(gang_of(region, device)->late_since_ns, 0);
        judge(region, device, wait, now_ns);
        wait->since_ns = 0;
    }
}
