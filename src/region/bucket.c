/* SPDX-License-Identifier: Apache-2.0 */
#include "region/bucket.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

/* Wall time in which a rate earns an amount. */
static int64_t earning_time(uint32_t rate, int64_t amount_ns)
{
    return (int64_t)((__int128)amount_ns * BUCKET_ONE / rate);
}

void bucket_charge(struct region_compute *compute, uint32_t rate, int64_t amount_ns)
{
    atomic_fetch_add_explicit(&compute->zero_ns, earning_time(rate, amount_ns),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&compute->charged_ns, amount_ns, memory_order_relaxed);
}

int64_t bucket_balance(struct region_compute *compute, uint32_t rate, int64_t now_ns)
{
    int64_t zero = atomic_load_explicit(&compute->zero_ns, memory_order_relaxed);
    int64_t longest = atomic_load_explicit(&compute->longest_ns, memory_order_relaxed);
    int64_t cap, kept = zero;

    /* Below twice the longest kernel, the credit of long kernels would be lost. */
    longest = MAX(INT64_C(0), MIN(longest, BUCKET_DEBT_MAX_NS));
    cap = MAX(BUCKET_CREDIT_NS, earning_time(rate, 2 * longest));

    if (zero < now_ns - cap)
        kept = now_ns - cap;
    else if (zero > now_ns + BUCKET_DAMAGE_NS)
        kept = now_ns + BUCKET_DEBT_MAX_NS;
    /* One try: whoever was faster changed it to something that counts. */
    if (kept != zero &&
        !atomic_compare_exchange_strong_explicit(&compute->zero_ns, &zero, kept,
                                                 memory_order_relaxed, memory_order_relaxed))
        kept = zero;
    return (int64_t)((__int128)(now_ns - kept) * rate / BUCKET_ONE);
}

/* One try, as above: what is charged meanwhile is owed. */
static void limit_zero(struct region_compute *compute, int64_t most_ns)
{
    int64_t zero = atomic_load_explicit(&compute->zero_ns, memory_order_relaxed);

    if (zero > most_ns)
        (void)atomic_compare_exchange_strong_explicit(&compute->zero_ns, &zero, most_ns,
                                                      memory_order_relaxed, memory_order_relaxed);
}

void bucket_limit_debt(struct region_compute *compute, uint32_t rate, int64_t unsettled_ns,
                       int64_t now_ns)
{
    limit_zero(compute, now_ns + BUCKET_DEBT_MAX_NS + earning_time(rate, unsettled_ns));
}

bool bucket_is_open(struct region_compute *compute, uint32_t rate, int64_t now_ns,
                    int64_t *ret_until_ns)
{
    int64_t balance = bucket_balance(compute, rate, now_ns);

    if (balance <= 0)
        atomic_store_explicit(&compute->gate, 1, memory_order_relaxed);
    else if (balance >= BUCKET_QUANTUM_NS)
        atomic_store_explicit(&compute->gate, 0, memory_order_relaxed);
    if (!atomic_load_explicit(&compute->gate, memory_order_relaxed))
        return true;
    *ret_until_ns = now_ns + earning_time(rate, BUCKET_QUANTUM_NS - balance);
    return false;
}

void bucket_forgive(struct region_compute *compute, uint32_t rate, int64_t unsettled_ns,
                    int64_t now_ns)
{
    limit_zero(compute, now_ns + earning_time(rate, unsettled_ns));
    atomic_store_explicit(&compute->gate, 0, memory_order_relaxed);
}

void bucket_set_rate(struct region_compute *compute, uint32_t rate, int64_t now_ns)
{
    uint64_t before = atomic_load_explicit(&compute->rate, memory_order_acquire);
    int64_t zero, scaled;

    if (before == rate ||
        !atomic_compare_exchange_strong_explicit(&compute->rate, &before, rate,
                                                 memory_order_acq_rel, memory_order_acquire))
        return;

    zero = atomic_load_explicit(&compute->zero_ns, memory_order_relaxed);
    if (before && before <= BUCKET_ONE)
        scaled = now_ns - (int64_t)((__int128)(now_ns - zero) * (int64_t)before / rate);
    else
        scaled = now_ns; /* a new bucket is empty */
    atomic_fetch_add_explicit(&compute->zero_ns, scaled - zero, memory_order_relaxed);
    bucket_wake(compute);
}

void bucket_sleep(struct region_compute *compute, int64_t until_ns)
{
    uint32_t seen = atomic_load_explicit(&compute->wake, memory_order_relaxed);
    struct timespec until = clock_timespec(until_ns);

    (void)syscall(SYS_futex, &compute->wake, FUTEX_WAIT_BITSET, seen, &until, NULL,
                  FUTEX_BITSET_MATCH_ANY);
}

void bucket_wake(struct region_compute *compute)
{
    atomic_fetch_add_explicit(&compute->wake, 1, memory_order_relaxed);
    (void)syscall(SYS_futex, &compute->wake, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

unsigned region_wait_range(int64_t ns)
{
    static const int64_t ends_ms[] = REGION_WAIT_MS;
    unsigned range = 0;

    while (range < ARRAY_SIZE(ends_ms) && ns > ends_ms[range] * NS_PER_MS)
        range++;
    return range;
}
