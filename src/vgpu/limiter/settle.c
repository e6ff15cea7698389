/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/internal.h"

/* So much given back is worth a look of those who wait, and so is what lets them go so much
 * earlier. */
#define WORTH_NS INT64_C(250000)
#define WORTH_EARLIER_NS (4 * NS_PER_MS)
#define POLL_NS INT64_C(20000) /* between looks at measurements */
/* A launch that has not returned for so long blocks until its kernel ends; before that it may load
 * the kernel's code. */
#define LOADING_NS (20 * NS_PER_MS)

/* How much longer than charged for a stream of the container's was busy (tails.h), and nobody knows
 * what with: the longest of late. It is remembered for so many times as long as it took. */
#define DOUBT_MEMORY 64
#define DOUBT_LEAST_NS 1e6
#define DOUBT_MOST_NS 60e9 /* damage */

/* Where streams that wait pass for company: each launch is measured for 6.4 s, twice as long as
 * until what is passed over could be as much again. */
#define SIDE_DOUBT_NS 2e8

/* With so many of the first probes the part of the time on the device is half sure: until others
 * were met it seems to be all. */
#define SURE_PROBES 8

/* Longer than so many times what was expected, and CREDIT_NS, is far longer. */
#define OVERRUN_PART 2

/* Behind a kernel what may be long goes after so long first, and then more slowly. */
#define BEHIND_GAP_NS (100 * NS_PER_MS)

/* However little of the device seems to be ours, work that waits is late after so many times what
 * it takes. */
#define LATE_PART 0.05

/* What was charged for short kernels is remembered no further back. */
#define SHORTS_MOST_NS 20e6

void limiter_charge(struct limiter *limiter, double amount_ns)
{
    share_charge(limiter->share, (int64_t)amount_ns);
    limiter->charged_ns += (int64_t)amount_ns;
}

void limiter_charge_short(struct limiter *limiter, double amount_ns)
{
    limiter_charge(limiter, amount_ns);
    limiter->shorts_ns = MIN(MAX(limiter->shorts_ns + amount_ns, 0.0), SHORTS_MOST_NS);
}

/* How much of the time since then kernels had that are done, and is charged for them. */
static int64_t settled_ns(const struct limiter *limiter, int64_t since_ns)
{
    struct interval interval = {
        clocks_device_ns(&limiter->clocks, limiter_since_base(limiter, since_ns)) / 1e6,
        clocks_device_ns(&limiter->clocks, limiter_since_base(limiter, limiter_now(limiter))) / 1e6,
    };

    return (int64_t)((interval.end_ms - interval.start_ms -
                      cover_open(&limiter->overlap.always, interval)) *
                     1e6);
}

/* What it says itself, beside other contexts of the process. */
static void owe(struct limiter *limiter, int64_t amount_ns, int64_t since_ns)
{
    turns_owe(limiter->share->region, limiter->share->device, limiter->owed_ns, amount_ns,
              since_ns);
    limiter->owed_ns = amount_ns;
}

void limiter_announce_owed(struct limiter *limiter, int64_t amount_ns)
{
    owe(limiter, limiter->owed_ns + amount_ns, 0);
}

void limiter_publish_owed(struct limiter *limiter)
{
    int64_t owed = 0, since = INT64_MAX;

    samples_for_each (i, limiter->samples.taken) {
        const struct sample *sample = &limiter->samples.list[i];

        if (sample->state == SAMPLE_FREE || sample->kind != SAMPLE_ALWAYS)
            continue;
        owed += sample->paid_ns + sample->provisional_ns;
        /* One that the driver has not taken yet may run: where the process dies, all of it did. */
        since = sample->state == SAMPLE_OPEN && !sample->provisional_ns
                    ? 0
                    : MIN(since, sample->since_ns);
    }
    owe(limiter, owed, owed ? since + settled_ns(limiter, since) : 0);
}

/* For how long a kernel has had the device, by the probes since it began. */
static double ran_so_far_ns(const struct limiter *limiter, const struct sample *sample,
                            int64_t now_ns)
{
    const struct presence *presence = &limiter->presence;
    double start_ns =
        clocks_device_ns(&limiter->clocks, limiter_since_base(limiter, sample->started_ns));
    double end_ns = clocks_device_ns(&limiter->clocks, limiter_since_base(limiter, now_ns));

    return (double)(now_ns - sample->started_ns) * presence_part_so_far(presence, start_ns, end_ns);
}

/* Of a program without long kernels nothing but all probes tells how much others run; of one that
 * begins, nothing but their plain mean. */
static double on_device(const struct limiter *limiter)
{
    const struct presence *presence = &limiter->presence;
    double on = MIN(presence->on_device, 1 - presence->contended);

    if (presence->answered == 0 || presence->answered == PRESENCE_FIRST)
        return on;
    return MIN(on, 1 - (double)presence->off / presence->answered);
}

void limiter_charge_lost(struct limiter *limiter, const struct sample *sample, int64_t now_ns)
{
    double ran_ns = (double)(now_ns - sample->recorded_ns) * on_device(limiter);

    limiter_charge(limiter, MAX(ran_ns - (double)(sample->paid_ns + sample->provisional_ns), 0.0) *
                                sample->weight);
}

/* A kernel that runs on and on is charged as it runs, so that others wait. What waits in a queue
 * does not run, and of those that run side by side one is charged. */
static void charge_overdue(struct limiter *limiter, int64_t now_ns)
{
    struct sample *leader = samples_leader(&limiter->samples);
    double ran_ns, paid_ns;

    if (!limiter->samples.always) {
        limiter->credit.gap_ns = CREDIT_NS;
        limiter->credit.behind_gap_ns = BEHIND_GAP_NS;
    }
    if (!leader || (leader->state == SAMPLE_OPEN && now_ns - leader->started_ns < LOADING_NS)) {
        limiter->credit.due_ns = 0;
        return;
    }
    ran_ns = (double)(now_ns - leader->started_ns);
    paid_ns = (double)(leader->paid_ns + leader->provisional_ns);
    if (ran_ns > 1.1 * paid_ns + 2e6)
        ran_ns = ran_so_far_ns(limiter, leader, now_ns);
    if (ran_ns > 1.1 * paid_ns + 2e6) {
        leader->provisional_ns += (int64_t)(ran_ns - paid_ns);
        limiter_charge(limiter, ran_ns - paid_ns);
        limiter_publish_owed(limiter);
    }
    if (ran_ns < OVERRUN_PART * leader->expected_ns + (double)CREDIT_NS) {
        limiter->credit.due_ns = 0;
    } else if (!limiter->credit.due_ns) {
        limiter->credit.due_ns = now_ns;
    }
}

static void say_doubt(struct limiter *limiter, double doubt_ns, int64_t now_ns)
{
    _Atomic int64_t *word = &limiter->compute->doubted_until_ns;
    int64_t until_ns = now_ns + (int64_t)(DOUBT_MEMORY * MIN(doubt_ns, DOUBT_MOST_NS));

    if (doubt_ns > 0 && atomic_load_explicit(word, RELAXED) < until_ns)
        atomic_store_explicit(word, until_ns, RELAXED);
}

/* Of the streams that are known by handles and were used since then. */
static bool is_any_busy(const struct limiter *limiter, int64_t since_ns)
{
    struct launch named[STREAMS];
    unsigned count = limiter_beside(limiter, &(struct launch){0}, since_ns, named), busy = 0;

    while (busy < count && !samples_may_run(limiter->ops, limiter->gpu, &named[busy]))
        busy++;
    return busy < count;
}

/* In streams without a handle nothing is marked as company. */
static bool are_side_by_side(const struct limiter *limiter, int64_t now_ns, bool *ret_busy)
{
    const int64_t since_ns = now_ns - STREAMS_IDLE_NS;

    if (streams_count(&limiter->streams, since_ns) < 2)
        return false;
    *ret_busy = is_any_busy(limiter, since_ns);
    return true;
}

/* Whether a stream is busy long after all that was launched should be done. */
static bool is_late(const struct limiter *limiter, int64_t now_ns)
{
    const double left_ns = (double)MAX(limiter->issued_ns - limiter->done_ns, INT64_C(0)) /
                           MAX(on_device(limiter), LATE_PART);

    return now_ns - limiter->last_launch_ns >= GANG_LATE_NS + (int64_t)left_ns &&
           is_any_busy(limiter, 0);
}

static void look_at_others(struct limiter *limiter, int64_t now_ns)
{
    const struct share *share = limiter->share;

    if (share->region->base->device_count > 1 && share_is_limited(share))
        gang_look(share->region, share->device, &limiter->wait, is_late(limiter, now_ns), now_ns);
}

void limiter_look(struct limiter *limiter)
{
    const int64_t now_ns = limiter_now(limiter);
    const double answered = limiter->presence.answered;
    const double sure = answered < PRESENCE_FIRST ? answered / (answered + SURE_PROBES) : 1;
    bool busy;

    samples_look(&limiter->samples, limiter->ops, limiter->gpu);
    look_at_others(limiter, now_ns);
    if (!limiter->draws_lots || !share_is_limited(limiter->share) ||
        !are_side_by_side(limiter, now_ns, &busy))
        return;
    if (side_look(&limiter->side, busy, limiter->charged_ns, on_device(limiter), sure, now_ns) > 0)
        say_doubt(limiter, SIDE_DOUBT_NS, now_ns);
}

/* A stream was busy, and nobody knows what with: from now on more launches are measured, and fewer
 * again as time passes. Other processes of the container see it as well, and those to come. */
static void look_at_tails(struct limiter *limiter, int64_t now_ns)
{
    const bool was_blind = limiter->tails.is_blind;
    double doubt_ns =
        !limiter->draws_lots
            ? 0
            : tails_look(&limiter->tails, &limiter->samples, limiter->ops, limiter->gpu,
                         limiter->charged_ns, on_device(limiter), now_ns);
    int64_t until_ns;

    if (limiter->tails.is_blind != was_blind || limiter->tails.is_new)
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
    limiter->tails.is_new = false;
    say_doubt(limiter, doubt_ns, now_ns);
    until_ns = atomic_load_explicit(&limiter->compute->doubted_until_ns, RELAXED);
    doubt_ns = (double)MAX(until_ns - now_ns, INT64_C(0)) / DOUBT_MEMORY;
    doubt_ns = doubt_ns < DOUBT_LEAST_NS ? 0 : MIN(doubt_ns, DOUBT_MOST_NS);
    if (doubt_ns <= 1.5 * limiter->doubt_ns && doubt_ns >= 0.75 * limiter->doubt_ns)
        return;
    limiter->doubt_ns = doubt_ns;
    atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
}

static void note_end(struct limiter *limiter, const struct sample *sample, int64_t now_ns)
{
    struct interval interval;
    double host_ns;

    if (sample->kind == SAMPLE_CALIBRATION || !limiter_ran(limiter, sample, &interval))
        return;
    limiter_note_start(limiter, sample, interval.start_ms * 1e6);
    presence_note_end(&limiter->presence, limiter_run_of(limiter, sample, interval.start_ms * 1e6,
                                                         interval.end_ms * 1e6));
    if (!sample->over_ns)
        clocks_note_seen(&limiter->clocks, interval.end_ms * 1e6,
                         limiter_since_base(limiter, limiter_now(limiter)), now_ns);
    host_ns = clocks_host_ns(&limiter->clocks, interval.end_ms * 1e6);
    samples_note_end(&limiter->samples, sample,
                     MIN(limiter->samples.base_ns + (int64_t)host_ns, now_ns));
}

/*
 * The start ran before the kernel was queued, and after it was recorded: how long after, the clocks
 * tell. In between the device waited for the host. Where they can't tell it yet, none of it did.
 */
static double take_gap(struct limiter *limiter, struct sample *sample, double length_ns)
{
    double at_ns = limiter_since_base(limiter, sample->recorded_ns);
    double late_ns, ms;

    if (!sample->queued_ns || length_ns < 0 || !limiter->samples.base_ns || at_ns < 0 ||
        !limiter->clocks.most.is_known ||
        !limiter->ops->elapsed_ms(limiter->gpu, limiter->samples.base, sample->start, &ms))
        return length_ns;
    late_ns = ms * 1e6 - clocks_device_ns(&limiter->clocks, at_ns);
    sample->gap_ns = MAX(sample->queued_ns - (int64_t)MAX(late_ns, 0.0), INT64_C(0));
    return MAX(length_ns - (double)sample->gap_ns, COSTS_LEAST_NS);
}

/* Who waits reckons with what was charged when it was held. */
static void wake_those_who_wait(struct limiter *limiter, bool settled)
{
    uint32_t rate = atomic_load_explicit(&limiter->share->rate, RELAXED);
    int64_t earlier_ns = WORTH_EARLIER_NS * (int64_t)(rate ? rate : BUCKET_ONE) / BUCKET_ONE;

    if (!settled && limiter->told_ns - limiter->charged_ns < MIN(earlier_ns, WORTH_NS))
        return;
    limiter->told_ns = limiter->charged_ns;
    bucket_wake(limiter->compute);
}

void limiter_poll(struct limiter *limiter)
{
    int64_t now_ns = limiter_now(limiter);
    struct samples *samples = &limiter->samples;
    struct sample *done[SAMPLES_POLLED];
    double lengths_ns[SAMPLES_POLLED];
    unsigned looked = 0, count = 0;
    int64_t host_later_ns;
    double later_ms;
    bool settled = false;

    if (now_ns - samples->polled_ns < POLL_NS)
        return;
    samples->polled_ns = now_ns;
    limiter->told_ns = MAX(limiter->told_ns, limiter->charged_ns);
    if (samples->pending && limiter->last_launch_ns)
        share_want(limiter->share, now_ns);
    limiter_claim(limiter, now_ns);
    while ((done[count] = samples_next(samples, limiter->ops, limiter->gpu, &looked, now_ns,
                                       &lengths_ns[count]))) {
        settled |= done[count]->kind == SAMPLE_ALWAYS;
        samples_free(samples, done[count]);
        note_end(limiter, done[count], now_ns);
        if (done[count]->kind != SAMPLE_CALIBRATION)
            tails_note_done(&limiter->tails, &done[count]->launch, done[count]->began_ns);
        if (++count == SAMPLES_POLLED)
            break;
    }
    /* First what ended, then what that says of the probes, then what those say of what ended. */
    limiter_take_late_answer(limiter);
    if (settled)
        limiter_announce_owed(limiter, 0);
    for (unsigned i = 0; i < count; i++)
        limiter_finish(limiter, done[i], take_gap(limiter, done[i], lengths_ns[i]));
    charge_overdue(limiter, now_ns);
    look_at_tails(limiter, now_ns);
    if (settled)
        limiter_publish_owed(limiter);
    wake_those_who_wait(limiter, settled);
    if (samples_renew_base(samples, limiter->ops, limiter->gpu, now_ns, &later_ms,
                           &host_later_ns)) {
        overlap_move(&limiter->overlap, later_ms);
        presence_move(&limiter->presence, later_ms * 1e6);
        clocks_move(&limiter->clocks, later_ms * 1e6, (double)host_later_ns);
        limiter->probe.stale = true;
    }
}

void limiter_settle(struct limiter *limiter)
{
    for (unsigned i = 0; i < SAMPLES / SAMPLES_POLLED && limiter->samples.pending; i++) {
        limiter->samples.polled_ns = 0;
        limiter_poll(limiter);
    }
}

void limiter_abandon(struct limiter *limiter)
{
    const struct sample *leader = samples_leader(&limiter->samples);
    double ran_ns;

    /* What was charged while it ran, it ran for. */
    if (leader) {
        ran_ns = ran_so_far_ns(limiter, leader, limiter_now(limiter));
        limiter_charge(limiter,
                       MAX(ran_ns - (double)(leader->paid_ns + leader->provisional_ns), 0.0));
    }
    memset(&limiter->samples, 0, sizeof(limiter->samples));
    memset(&limiter->tails, 0, sizeof(limiter->tails));
    limiter_publish_owed(limiter);
}
