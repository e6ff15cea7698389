/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the limiter's files share: limiter.c lets launches go, settle.c charges what measurements
 * say, probes.c looks whether the context is on the device. */

#include "vgpu/limiter/limiter.h"

#define RELAXED memory_order_relaxed

/* Beside a kernel that is overdue one launch may go each. */
#define CREDIT_NS INT64_C(10000000)

static inline int64_t limiter_now(const struct limiter *limiter)
{
    return limiter->ops->now_ns(limiter->gpu);
}

/* On the host's clock, in ns. */
static inline double limiter_since_base(const struct limiter *limiter, int64_t at_ns)
{
    return (double)(at_ns - limiter->samples.base_ns);
}

/* Negative: gives back. */
void limiter_charge(struct limiter *limiter, double amount_ns);

/* Says what a death now would have charged for nothing. */
void limiter_publish_owed(struct limiter *limiter);

/* Takes in the answer of a probe that was late, once it is back. */
void limiter_take_late_answer(struct limiter *limiter);
