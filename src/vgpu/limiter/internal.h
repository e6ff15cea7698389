/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the limiter's files share: gate.c holds launches, limiter.c lets them go, measure.c begins
 * and ends measurements, settle.c looks at what is under way, finish.c charges what measurements
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

/* Negative: gives back. limiter_charge_short(): for kernels that are not measured each time. */
void limiter_charge(struct limiter *limiter, double amount_ns);
void limiter_charge_short(struct limiter *limiter, double amount_ns);

/* What a launch is charged for when it goes, in ns. */
double limiter_price(const struct limiter *limiter, const struct cost *cost);

/* What is charged, in 0..1 of their length, for kernels that go beside others: half until some were
 * seen, and all of it beside other contexts, where a kernel that seems to run may not. */
double limiter_ridden_part(const struct limiter *limiter);

/* What a launch uses up of its thread's risk: see lot.h. 0: it is measured each time. */
double limiter_risk_ns(const struct limiter *limiter, const struct launch_cache *cache,
                       const struct cost *cost);

/* Whether a launch is measured, and how; 0: not. The weight is set of one that is drawn. */
enum sample_kind limiter_kind_of(struct limiter *limiter, struct launch_cache *cache,
                                 const struct cost *cost, double *ret_weight);

/* Begins a launch's measurement, if there is room; and ends it after limiter_returned(). */
void limiter_measure(struct limiter *limiter, const struct launch_cache *cache,
                     const struct launch *launch, struct ticket *ticket, enum sample_kind kind,
                     double weight, const struct cost *cost, int64_t now_ns);
void limiter_end_measured(struct limiter *limiter, const struct ticket *ticket);

/* A launch goes: whether it had to be measured, and may be long. */
void limiter_note_let_go(struct limiter *limiter, const struct cost *cost, double risk_ns,
                         int64_t now_ns);

/* Whether each kernel of late was short, as far as it is known. */
bool limiter_are_short(const struct limiter *limiter);

/* streams_beside(), of those that may be asked: none while a stream joins a capture. */
unsigned limiter_beside(const struct limiter *limiter, const struct launch *launch,
                        int64_t since_ns, struct launch others[STREAMS]);

/* When a kernel ran, against the base. False: not known. */
bool limiter_ran(const struct limiter *limiter, const struct sample *sample,
                 struct interval *ret_interval);

/* A measurement is done, and found that length. */
void limiter_finish(struct limiter *limiter, struct sample *sample, double length_ns);

/* Charges a launch whose end can't be recorded, for its stream has ended meanwhile: it ran for as
 * long as it blocked. */
void limiter_charge_lost(struct limiter *limiter, const struct sample *sample, int64_t now_ns);

/* Says what a death now would have charged for nothing. */
void limiter_publish_owed(struct limiter *limiter);

/* Before so much is charged for a launch, which is given back if it fails: else whoever looks at
 * the debt before it is published drops what it exceeds the most by. Also, of nothing more, before
 * something is given back. Killed from now until it is published, the process gets nothing back. */
void limiter_announce_owed(struct limiter *limiter, int64_t amount_ns);

/* Whether so little is on its way that one of higher priority, should it come, hardly waits. */
bool limiter_is_short(struct limiter *limiter, const struct launch *launch, const struct cost *cost,
                      struct waiting *waiting, int64_t now_ns, int64_t *ret_until_ns);

/* One of higher priority has work: what is launched after that is looked at more closely. */
void limiter_was_held(struct limiter *limiter, struct waiting *waiting);

/* A launch goes: says how long it will be, where anybody waits for that. */
void limiter_expect(struct limiter *limiter, double price_ns, int64_t now_ns);

/* Says so again, of what takes longer than can be said at once. */
void limiter_claim(struct limiter *limiter, int64_t now_ns);

/* A launch waits for the card until then: others of the same priority leave it that turn. */
void limiter_claim_next(struct limiter *limiter, int64_t now_ns, int64_t until_ns);

/* What presence.h wants to know of a kernel. */
struct presence_run limiter_run_of(const struct limiter *limiter, const struct sample *sample,
                                   double began_ns, double end_ns);

/* When it began says when a slice of ours did, if it had to wait for that. */
void limiter_note_start(struct limiter *limiter, const struct sample *sample, double began_ns);

/* Takes in the answer of a probe that was late, once it is back. */
void limiter_take_late_answer(struct limiter *limiter);
