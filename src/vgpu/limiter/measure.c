/* SPDX-License-Identifier: Apache-2.0 */

/* Which launches are measured, and what a launch itself says of its measurement. */

#include "base/util.h"
#include "region/bucket.h"
#include "vgpu/limiter/internal.h"

/* Measuring by pace costs a quarter of what measuring by cost may: from 2 ms between launches on
 * each one is measured, lest a long one be missed. */
#define PACE_PART 4
/*
 * Kernels of very different lengths are measured more where launches were held of late: there the
 * host has time left, of which two events of 0.8 us take no more than 6.4 %. Drawn with the chance
 * p they leave in 10 s at a share k a standard error of sqrt(10 s * skew * k * (1 - p) / p): 0.35
 * points at 60 % of 5 us kernels, one of fifty of which takes 1 ms.
 */
#define SKEW_PART 2.5
#define SKEW_PACE 20
#define HELD_NS (100 * NS_PER_MS)
#define SHORT_NS 500e3 /* no slice of the device (2.09 ms) ends within most such kernels */
#define WAIT_MOST_NS INT64_C(10000)   /* waiting for an empty stream does not take longer */
#define ASKING_MOST_NS INT64_C(20000) /* two questions to the driver take less */
#define HIDDEN_RISK_NS 25e3           /* of a launch into a stream that can't be looked at */
#define RIDDEN_PART 0.5               /* of kernels beside others; more of it is not worth a wake */
#define DOUBT_ALWAYS_NS 1e8           /* with so much in doubt each launch is measured */

unsigned limiter_beside(const struct limiter *limiter, const struct launch *launch,
                        int64_t since_ns, struct launch others[STREAMS])
{
    return limiter->ops->asks_others(limiter->gpu)
               ? streams_beside(&limiter->streams, launch, since_ns, others)
               : 0;
}

bool limiter_are_short(const struct limiter *limiter)
{
    return limiter->last_launch_ns - limiter->long_ns > HELD_NS;
}

/*
 * Side by side, and held for its share, each launch is measured: then it is known when the others
 * ran. A mark says only what was queued by then; of two threads that launch at once neither finds
 * the other's kernel, and both pay for the moments in which both run (three threads of 30 us
 * kernels, each waited for, had 20 of 37 %). Who is held has the time. Beside other contexts that
 * is so where kernels are short; of others a slice may end between a start and its kernel, and the
 * fewer measurements the better.
 */
static bool measures_each(const struct limiter *limiter)
{
    return streams_count(&limiter->streams, limiter->last_launch_ns - STREAMS_IDLE_NS) > 1 &&
           (!presence_contended(&limiter->presence) || limiter_are_short(limiter));
}

/* Of late each kernel was short and measured: those that run are known. */
static bool sees_all(const struct limiter *limiter)
{
    return limiter->last_launch_ns - limiter->drawn_ns > HELD_NS && limiter_are_short(limiter);
}

double limiter_risk_ns(const struct limiter *limiter, const struct launch_cache *cache,
                       const struct cost *cost)
{
    double risk_ns = cost_risk_ns(&limiter->costs, cost);
    double doubt_ns = COSTS_ALWAYS_NS * limiter->doubt_ns / DOUBT_ALWAYS_NS;
    double pace_ns = limiter->pace.mean_ns / PACE_PART;
    const bool is_held = limiter->last_launch_ns - limiter->held_ns < HELD_NS;

    if (risk_ns <= 0 || doubt_ns >= COSTS_ALWAYS_NS || pace_ns >= COSTS_GAP_NS ||
        (is_held && measures_each(limiter)))
        return 0;
    if (cache->is_hidden || limiter->tails.is_blind)
        risk_ns = MAX(risk_ns, HIDDEN_RISK_NS);
    risk_ns = MAX(risk_ns, doubt_ns);
    if (is_held)
        risk_ns =
            MAX(risk_ns, MIN(SKEW_PART * cost_skew_ns(cost), SKEW_PACE * limiter->pace.mean_ns));
    return MAX(risk_ns, pace_ns);
}

enum sample_kind limiter_kind_of(struct limiter *limiter, struct launch_cache *cache,
                                 const struct cost *cost, double *ret_weight)
{
    double risk_ns = limiter_risk_ns(limiter, cache, cost);

    if (risk_ns <= 0)
        return SAMPLE_ALWAYS;
    if (risk_ns <= cache->risk_ns) {
        cache->risk_ns -= risk_ns;
        return 0;
    }
    cache->risk_ns = lot_exponential(&limiter->lot) * COSTS_GAP_NS;
    *ret_weight = 1 / lot_chance(risk_ns / COSTS_GAP_NS);
    return SAMPLE_DRAWN;
}

static void note_record(struct limiter *limiter, int64_t took_ns)
{
    if (took_ns > 0)
        limiter->record_ns = limiter->record_ns ? MIN(limiter->record_ns, took_ns) : took_ns;
}

/*
 * The streams that get a mark. What is measured itself needs none. Where compute is not limited no
 * launch is held, so that each thread may fill its streams behind waits, and a mark in another
 * thread's would block this one.
 */
static unsigned list_company(const struct limiter *limiter, const struct launch_cache *cache,
                             const struct launch *launch, enum sample_kind kind, int64_t now_ns,
                             struct launch others[STREAMS])
{
    const int64_t since_ns = now_ns - STREAMS_IDLE_NS;

    if (sees_all(limiter))
        return 0;
    if (kind == SAMPLE_COUNTED)
        return limiter->ops->asks_others(limiter->gpu)
                   ? streams_beside_of_thread(&limiter->streams, launch, cache, since_ns, others)
                   : 0;
    return limiter_beside(limiter, launch, since_ns, others);
}

void limiter_measure(struct limiter *limiter, const struct launch_cache *cache,
                     const struct launch *launch, struct ticket *ticket, enum sample_kind kind,
                     double weight, const struct cost *cost, int64_t now_ns)
{
    struct launch others[STREAMS];
    unsigned count = list_company(limiter, cache, launch, kind, now_ns, others);
    bool was_idle = limiter->ops->is_idle(limiter->gpu, launch);
    struct sample *sample = samples_begin(&limiter->samples, limiter->ops, limiter->gpu, kind,
                                          launch, others, count, now_ns);

    if (!sample)
        return;
    sample->was_idle = was_idle;
    sample->weight = weight;
    sample->expected_ns = cost->measured ? cost->mean_ns : 0;
    sample->paid_ns = ticket->paid_ns;
    ticket->sample = sample;
    ticket->recorded_ns = limiter_now(limiter);
    sample->held_ns = ticket->recorded_ns - now_ns;
    note_record(limiter, ticket->recorded_ns - sample->recorded_ns);
}

/* A launch that blocks returns later than its kernel ends: by what waiting for an empty stream
 * takes, and never by more than half of the call, however long the program made that appear. */
static int64_t returned_late_ns(struct limiter *limiter, void *event, int64_t took_ns)
{
    if (!limiter->wait_ns)
        limiter->wait_ns =
            MIN(MAX(limiter->ops->wait_ns(limiter->gpu, event), INT64_C(1)), WAIT_MOST_NS);
    return MIN(limiter->wait_ns, took_ns / 2);
}

void limiter_calls(const struct limiter *limiter, struct ticket *ticket)
{
    if (ticket->sample)
        ticket->called_ns = limiter_now(limiter);
}

void limiter_returned(const struct limiter *limiter, const struct launch *launch,
                      struct ticket *ticket)
{
    struct sample *sample = ticket->sample;
    int64_t asked_ns;

    if (!sample)
        return;
    ticket->returned_ns = limiter_now(limiter);
    ticket->was_on = limiter->ops->query(limiter->gpu, sample->start) == EVENT_DONE;
    ticket->was_over = ticket->was_on && limiter->ops->is_idle(limiter->gpu, launch);
    asked_ns = limiter_now(limiter);
    /* It may have run on until it was asked for. */
    if (asked_ns - ticket->returned_ns > ASKING_MOST_NS)
        ticket->returned_ns = asked_ns;
    ticket->is_recorded = limiter->ops->record(limiter->gpu, sample->end, launch);
    ticket->end_took_ns = limiter_now(limiter) - ticket->returned_ns;
}

/*
 * If the start ran before the kernel was queued, the host's time between the two is in the
 * measurement: all of it where the stream was idle. Where it was not, the start waited, perhaps for
 * as long as the kernel takes (take_gap()). Where the kernel is over when the launch returns, as
 * where launches block, the end is recorded afterwards, and may have to wait for a slice of its
 * own.
 */
static void note_host_time(struct limiter *limiter, const struct ticket *ticket)
{
    struct sample *sample = ticket->sample;
    int64_t took_ns;

    sample->called_ns = ticket->called_ns;
    samples_note_returned(sample, ticket->returned_ns);
    /* Its kernel is told of late, when it is forgotten what ran beside it, and needs marks. */
    if (ticket->returned_ns - ticket->called_ns > NS_PER_MS)
        limiter->long_ns = ticket->returned_ns;
    if (!ticket->was_on)
        return;
    if (ticket->was_over) {
        sample->late_ns =
            returned_late_ns(limiter, sample->end, ticket->returned_ns - ticket->called_ns);
        sample->over_ns = ticket->returned_ns - sample->late_ns;
        return;
    }
    took_ns = samples_gap_ns(&limiter->samples, sample, ticket->returned_ns - ticket->recorded_ns);
    if (sample->was_idle)
        sample->gap_ns = took_ns;
    else
        sample->queued_ns = took_ns;
}

/* Those who were held of late may go beside it, if such kernels run side by side. */
static void wake_who_may_ride(struct limiter *limiter, const struct sample *sample)
{
    if (sample->rides || sample->began_ns - limiter->held_ns > HELD_NS ||
        limiter_ridden_part(limiter) > RIDDEN_PART)
        return;
    limiter->samples.polled_ns = 0; /* that it has begun is to be seen */
    bucket_wake(limiter->compute);
}

void limiter_end_measured(struct limiter *limiter, const struct ticket *ticket)
{
    struct sample *sample = ticket->sample;
    int64_t began_ns = limiter_now(limiter);

    note_host_time(limiter, ticket);
    sample->issued_ns = limiter->issued_ns;
    if (samples_end(&limiter->samples, limiter->ops, limiter->gpu, sample, ticket->is_recorded)) {
        sample->after_ns = ticket->end_took_ns + limiter_now(limiter) - began_ns;
        if (sample->kind == SAMPLE_ALWAYS) {
            limiter_publish_owed(limiter);
            wake_who_may_ride(limiter, sample);
        }
    } else if (sample->kind != SAMPLE_COUNTED) {
        limiter_charge_lost(limiter, sample, ticket->returned_ns);
    }
}

void limiter_note_let_go(struct limiter *limiter, const struct cost *cost, double risk_ns,
                         int64_t now_ns)
{
    limiter->draws_lots |= risk_ns > 0;
    if (risk_ns > 0)
        limiter->drawn_ns = now_ns;
    if (!cost_is_known(cost) || cost_skew_ns(cost) > SHORT_NS)
        limiter->long_ns = now_ns;
}
