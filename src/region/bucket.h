/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bucket of compute time that a container's processes share, one per device. It is one word in
 * the region, zero_ns: the time at which the balance is zero, so that
 *
 *     balance(now) = rate * (now - zero_ns)
 *
 * and there is no refiller, no lock, and nothing to clean up after a kill. Rates are in 1/65536 of
 * the device, amounts in nanoseconds of its time, times in nanoseconds of CLOCK_MONOTONIC. All
 * accesses are relaxed: the word publishes nothing but itself.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

#define BUCKET_ONE UINT32_C(65536)

/* The gate, once closed, opens at this balance, so that a sleep outlasts the timer's slack. */
#define BUCKET_QUANTUM_NS INT64_C(250000)

/* What may be saved up: a burst after a pause costs nothing. In wall time. */
#define BUCKET_CREDIT_NS INT64_C(200000000)

/* What is owed beyond what is earned in this is dropped: see turns_limit_debt(). In wall time. */
#define BUCKET_DEBT_MAX_NS INT64_C(60000000000)

/* A word that is a year in the future is damage, and costs no more than that. */
#define BUCKET_DAMAGE_NS (365 * 24 * 3600 * INT64_C(1000000000))

/* Percent to rate; 0 for no limit. */
static inline uint32_t bucket_rate(unsigned percent)
{
    return percent < 100 ? percent * BUCKET_ONE / 100 : 0;
}

/* Takes an amount out, or, negative, gives it back. */
void bucket_charge(struct region_compute *compute, uint32_t rate, int64_t amount_ns);

/* What is left; negative in debt. Caps what was saved up, and clamps damage. */
int64_t bucket_balance(struct region_compute *compute, uint32_t rate, int64_t now_ns);

/* Whether more is owed than is earned in BUCKET_DEBT_MAX_NS. */
static inline bool bucket_owes_too_much(const struct region_compute *compute, int64_t now_ns)
{
    return atomic_load_explicit(&compute->zero_ns, memory_order_relaxed) >
           now_ns + BUCKET_DEBT_MAX_NS;
}

/* Drops what is owed beyond that, but for an amount of which a part is to be given back. */
void bucket_limit_debt(struct region_compute *compute, uint32_t rate, int64_t unsettled_ns,
                       int64_t now_ns);

/* Whether the gate is open: it closes in debt, and opens at a balance that is worth it. If not,
 * that is at until_ns, unless something is charged meanwhile. */
bool bucket_is_open(struct region_compute *compute, uint32_t rate, int64_t now_ns,
                    int64_t *ret_until_ns);

/* Drops what is owed, if anything is, but for an amount of which a part is to be given back: what
 * was used was idle, and costs nobody. */
void bucket_forgive(struct region_compute *compute, uint32_t rate, int64_t unsettled_ns,
                    int64_t now_ns);

/*
 * Expresses the bucket in a new rate, keeping its balance, if it is not yet. Whoever sees the new
 * rate first does it; waiters are woken to look again.
 */
void bucket_set_rate(struct region_compute *compute, uint32_t rate, int64_t now_ns);

/* Sleeps until a time, or until bucket_wake(). */
void bucket_sleep(struct region_compute *compute, int64_t until_ns);
void bucket_wake(struct region_compute *compute);
