/* SPDX-License-Identifier: Apache-2.0 */

/* When a launch may go. */

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"
#include "vgpu/limiter/internal.h"

/* Constants without a source were tried on the traces of limiter_trace_test.c. */
#define OUTSTANDING_NS INT64_C(4000000) /* charged and not known to be done */
#define COMPLETION_NS INT64_C(10000000) /* a launch waits for completions no longer */
#define FULL_NS (2 * NS_PER_S)          /* until one that can't be measured is refused */
#define ROOM_NS INT64_C(50000)          /* until there may be room for one more measurement */
#define UNKNOWN_MOST 8 /* unknown kernels on their way, each for the price of a short one */
#define BEHIND_NS INT64_C(20000000)       /* a queue of such a length is too long */
#define BEHIND_MOST 32                    /* launches behind a kernel, as if they were short */
#define BEHIND_PAUSES 10                  /* behind a kernel on credit: a tenth of the time */
#define CREDIT_GROWTH 4                   /* more slowly each time, until nothing is overdue */
#define CREDIT_MOST_NS INT64_C(160000000) /* lest what stands behind ten others never goes, */
#define CREDIT_DEBT_NS (5 * NS_PER_S)     /* while the debt is not more than this, */
#define CREDIT_DEBT_PART 2                /* nor than half of the most, whose rest is dropped */
#define BETTERS_PART 10                   /* beside others that go first, a tenth of it */
#define PATIENCE_NS INT64_C(50000000)     /* held so long beside unmeasured work, one goes */
#define APART_PART 0.4                    /* so much of its length later one may end than another */
#define SCARCE_NS INT64_C(1000000)        /* below this balance there are turns */

/* When a kernel that was seen running began, as far as is known. */
static int64_t began_ns(const struct sample *sample)
{
    return sample->was_idle ? MIN(sample->recorded_ns, sample->started_ns) : sample->started_ns;
}

/* What can be owed at all. */
static int64_t most_ns(const struct limiter *limiter)
{
    const uint32_t rate = atomic_load_explicit(&limiter->share->rate, RELAXED);

    return BUCKET_DEBT_MAX_NS / BUCKET_ONE * (rate ? rate : BUCKET_ONE);
}

/*
 * Beside a kernel of ours that runs anyway, in another stream, and not longer than it: that costs
 * nothing. Kernels that are launched at once in several streams are a little apart. So as far as
 * those that went beside others of late did not have the device for themselves, one may end later,
 * and be charged for that: by less than half of its time, so that each that goes beside the one
 * before it ends less late. And so far they may take more together than what they run beside.
 */
static bool fits_beside(struct limiter *limiter, const struct launch *launch,
                        const struct cost *cost, struct waiting *waiting, int64_t now_ns)
{
    const double alone = limiter_ridden_part(limiter), price_ns = cost_expected(cost);
    struct sample *leader = samples_leader(&limiter->samples);
    double left_ns;

    waiting->rides = false;
    if (!leader || leader->expected_ns <= 0 || launches_share_stream(&leader->launch, launch))
        return false;
    left_ns = leader->expected_ns - (double)(now_ns - began_ns(leader)) - leader->ridden_ns;
    if (cost_is_long(cost))
        left_ns += APART_PART * (1 - alone) * price_ns;
    if (price_ns > left_ns)
        return false;
    leader->ridden_ns += alone * price_ns;
    waiting->rides = true;
    return true;
}

static int64_t bearable_ns(const struct limiter *limiter)
{
    return MIN(CREDIT_DEBT_NS, most_ns(limiter) / CREDIT_DEBT_PART);
}

/*
 * What is owed beyond the most is dropped, so there nothing may go that is to be paid for. The
 * nearer to it the longer the container's processes wait for one another, whichever goes on credit:
 * many, or ever new ones, have no more of it than one. 0: they need not.
 */
static int64_t container_gap_ns(const struct limiter *limiter, int64_t balance)
{
    const int64_t bearable = bearable_ns(limiter);
    double part;

    if (balance >= -bearable || balance == INT64_MIN) /* which is who is stopped */
        return 0;
    part = MIN((double)(-balance - bearable) / (double)(most_ns(limiter) - bearable), 1.0);
    return CREDIT_MOST_NS + (int64_t)(part * part * (double)(BUCKET_DEBT_MAX_NS - CREDIT_MOST_NS));
}

/*
 * Until the next launch goes on credit: what is surely short may follow soon while the debt is
 * bearable, all else more slowly each time; what is not known to be short may run on and on as
 * well.
 */
static int64_t credit_gap_ns(const struct limiter *limiter, const struct cost *cost,
                             int64_t balance, int64_t least_ns, int64_t *gap_ns)
{
    const bool is_bearable = balance > -bearable_ns(limiter);
    int64_t gap = MAX(*gap_ns, least_ns);

    if (is_bearable && cost_is_known(cost) && cost_expected(cost) < (double)CREDIT_NS / 10)
        return least_ns;
    *gap_ns = MIN(gap * CREDIT_GROWTH, is_bearable ? CREDIT_MOST_NS : BUCKET_DEBT_MAX_NS);
    return gap;
}

/* A kernel of ours runs longer than expected, perhaps since it waits for this launch: which is not
 * behind it in its own stream. One that was over when its launch returned waits for nothing,
 * however long that took: in debt nothing goes for it. */
static bool goes_on_credit(struct limiter *limiter, const struct launch *launch,
                           const struct cost *cost, int64_t balance, int64_t now_ns)
{
    const struct sample *leader = samples_leader(&limiter->samples);

    if (!leader || !limiter->credit.due_ns || now_ns < limiter->credit.due_ns ||
        launches_share_stream(&leader->launch, launch) || (leader->over_ns && balance < 0))
        return false;
    limiter->credit.due_ns =
        now_ns + credit_gap_ns(limiter, cost, balance, CREDIT_NS, &limiter->credit.gap_ns);
    return true;
}

/*
 * Behind it in its own stream another function's kernel goes, if it is short: it runs when the
 * first is done, which may wait for what this thread does once its launches are made (as programs
 * do that measure with a kernel which holds the stream up until all is launched). How long that was
 * expected to take says nothing here: the longer its launches were held, the longer it was the last
 * time. What is not known to be short, or comes after many that went so since nothing was owed,
 * follows ever more slowly: it may be long after all, and none is found out before the first ends.
 */
static bool goes_behind(struct limiter *limiter, const struct launch *launch,
                        const struct cost *cost, int64_t balance, int64_t now_ns)
{
    const struct sample *leader = samples_leader(&limiter->samples);
    const bool is_short = cost->measured && limiter->credit.behind < BEHIND_MOST;
    int64_t *slow_gap_ns = &limiter->credit.behind_gap_ns;
    int64_t gap_ns = *slow_gap_ns;

    if (is_short)
        gap_ns = MAX(NS_PER_MS, (int64_t)cost_skew_ns(cost) * BEHIND_PAUSES);
    if (!leader || leader->over_ns || !launches_share_stream(&leader->launch, launch) ||
        leader->launch.function == launch->function ||
        now_ns - leader->started_ns < MAX(CREDIT_NS, gap_ns) ||
        now_ns < limiter->credit.behind_due_ns || balance <= -bearable_ns(limiter))
        return false;
    limiter->credit.behind_due_ns = now_ns + gap_ns;
    limiter->credit.behind++;
    if (!is_short)
        *slow_gap_ns = MIN(2 * gap_ns, BUCKET_DEBT_MAX_NS);
    return true;
}

/* The same where nobody measured what runs: another stream of ours is busy though nothing was let
 * go for long. */
static bool goes_unseen(struct limiter *limiter, const struct launch *launch,
                        const struct cost *cost, const struct waiting *waiting, int64_t balance,
                        int64_t now_ns)
{
    struct launch others[STREAMS];
    unsigned count = 0, busy = 0;

    if (now_ns - waiting->since_ns >= PATIENCE_NS && now_ns >= limiter->credit.unseen_due_ns &&
        !samples_leader(&limiter->samples))
        count = limiter_beside(limiter, launch, 0, others);
    while (busy < count && limiter->ops->is_idle(limiter->gpu, &others[busy]))
        busy++;
    if (busy == count)
        return false;
    limiter->credit.unseen_due_ns =
        now_ns + credit_gap_ns(limiter, cost, balance, PATIENCE_NS, &limiter->credit.unseen_gap_ns);
    return true;
}

/* A kernel's measurement may change the balance any time, and a stream be found busy. */
static int64_t look_again(const struct limiter *limiter, const struct cost *cost, int64_t now_ns,
                          int64_t until_ns)
{
    if (limiter->samples.always)
        until_ns = MIN(until_ns, now_ns + MAX(2 * NS_PER_MS, (int64_t)(cost->mean_ns / 4)));
    if (limiter->credit.due_ns > now_ns)
        until_ns = MIN(until_ns, limiter->credit.due_ns);
    return MIN(until_ns, now_ns + PATIENCE_NS);
}

/* Until what is on its way is expected to be done; INT64_MAX: that can't be told. */
static int64_t running_ns(struct limiter *limiter, int64_t now_ns)
{
    const struct sample *leader = samples_leader(&limiter->samples);

    if (!leader)
        return limiter->samples.pending ? limiter->issued_ns - limiter->done_ns : 0;
    if (limiter->samples.always > 1)
        return INT64_MAX;
    return leader->started_ns + (int64_t)leader->expected_ns - now_ns;
}

/* The same with one launch more; INT64_MAX also where another container had to wait for what is on
 * its way already. */
static int64_t back_ns(struct limiter *limiter, const struct cost *cost, int64_t now_ns)
{
    const int64_t left = running_ns(limiter, now_ns);

    return left > OUTSTANDING_NS ? INT64_MAX : MAX(left, INT64_C(0)) + (int64_t)cost_expected(cost);
}

static bool balance_allows(struct limiter *limiter, const struct cost *cost, int64_t now_ns,
                           int64_t *ret_until_ns)
{
    if (share_allows(limiter->share, (int64_t)limiter_price(limiter, cost),
                     back_ns(limiter, cost, now_ns), now_ns, ret_until_ns)) {
        limiter->credit.unseen_gap_ns = 0;
        limiter->credit.behind = 0;
        return true;
    }
    limiter->held_ns = now_ns;
    gang_note_held(limiter->share->region, limiter->share->device, now_ns);
    *ret_until_ns = look_again(limiter, cost, now_ns, *ret_until_ns);
    return false;
}

/* A process' own limit leaves the container's time to the others all the same. */
static bool turn_allows(struct limiter *limiter, int64_t now_ns, int64_t *ret_until_ns)
{
    if (share_common_balance(limiter->share, now_ns) >= SCARCE_NS ||
        turns_is_ours(limiter->share->region, limiter->share->device, now_ns))
        return true;
    limiter->held_ns = now_ns;
    *ret_until_ns = now_ns + BUCKET_QUANTUM_NS;
    return false;
}

/* What was launched into the same stream long ago is not done yet: there is more in it than was
 * charged, and to wait here takes nothing from the launch. */
static bool stream_is_behind(const struct limiter *limiter, const struct launch *launch,
                             int64_t now_ns)
{
    samples_for_each (i, limiter->samples.taken) {
        const struct sample *sample = &limiter->samples.list[i];

        if (sample->state == SAMPLE_PENDING && sample->kind != SAMPLE_CALIBRATION &&
            now_ns - sample->began_ns > BEHIND_NS && launches_share_stream(&sample->launch, launch))
            return true;
    }
    return false;
}

/* Too many are being measured, and this one is to be as well, by its length or by lot. To let it go
 * unmeasured for the price of the mean is to let it choose when: most go while the mean happens to
 * be low. */
static bool lacks_sample(struct limiter *limiter, const struct launch_cache *cache,
                         const struct cost *cost)
{
    double risk_ns;

    if (samples_have_room(&limiter->samples, limiter->ops, limiter->gpu))
        return false;
    risk_ns = limiter_risk_ns(limiter, cache, cost);
    return risk_ns <= 0 || (cache->limiter == limiter && risk_ns > cache->risk_ns);
}

static bool is_full(struct limiter *limiter)
{
    return !samples_can_make_room(&limiter->samples, limiter->ops, limiter->gpu);
}

/* A launch has waited long enough for completions. If not, it is asked again after a pause. */
static bool cuts_wait(struct limiter *limiter, struct waiting *waiting, int64_t pause_ns,
                      int64_t now_ns, int64_t *ret_until_ns)
{
    if (!waiting->completion_until_ns)
        waiting->completion_until_ns = now_ns + (is_full(limiter) ? FULL_NS : COMPLETION_NS);
    if (now_ns >= waiting->completion_until_ns) {
        atomic_fetch_add_explicit(&limiter->compute->waits_cut, 1, RELAXED);
        limiter->done_ns = limiter->issued_ns;
        return true;
    }
    *ret_until_ns = now_ns + pause_ns;
    return false;
}

/* Too much on its way, or a first launch that is being measured. */
static bool completions_allow(struct limiter *limiter, const struct launch *launch,
                              const struct launch_cache *cache, const struct cost *cost,
                              struct waiting *waiting, int64_t balance, int64_t now_ns,
                              int64_t *ret_until_ns)
{
    int64_t out = limiter->issued_ns - limiter->done_ns;
    int64_t excess = out - OUTSTANDING_NS - MAX(balance, INT64_C(0));
    int64_t pause = 0;

    if (!limiter->samples.pending)
        return true;
    if (!cost->measured && (cost->unseen || limiter->samples.always >= UNKNOWN_MOST))
        pause = 100 * NS_PER_US;
    else if (stream_is_behind(limiter, launch, now_ns))
        pause = NS_PER_MS;
    else if (lacks_sample(limiter, cache, cost))
        pause = ROOM_NS;
    else if (excess > 0 && (double)out > 1.01 * cost->mean_ns)
        pause = MAX(50 * NS_PER_US, MIN(excess, NS_PER_MS));
    return !pause || cuts_wait(limiter, waiting, pause, now_ns, ret_until_ns);
}

/* Whether it goes on credit, whatever holds it: by this balance, and beside others that go first as
 * if that were less. */
static bool may_owe(struct limiter *limiter, const struct launch *launch, const struct cost *cost,
                    struct waiting *waiting, int64_t balance, int64_t now_ns)
{
    _Atomic int64_t *until = &limiter->compute->credit_until_ns;
    const int64_t gap_ns = container_gap_ns(limiter, balance);
    int64_t until_ns = atomic_load_explicit(until, RELAXED);

    waiting->on_credit = false;
    /* One that is further ahead is damage. */
    if (gap_ns && until_ns > now_ns && until_ns <= now_ns + BUCKET_DEBT_MAX_NS)
        return false;
    if (balance > INT64_MIN)
        balance -= BETTERS_PART * (limiter->charged_ns - limiter->credit.ranked_ns);
    waiting->on_credit = (goes_on_credit(limiter, launch, cost, balance, now_ns) ||
                          goes_behind(limiter, launch, cost, balance, now_ns) ||
                          goes_unseen(limiter, launch, cost, waiting, balance, now_ns)) &&
                         !is_full(limiter);
    /* Another process may have been faster. */
    if (waiting->on_credit && gap_ns)
        waiting->on_credit = atomic_compare_exchange_strong_explicit(
            until, &until_ns, now_ns + gap_ns, RELAXED, RELAXED);
    return waiting->on_credit;
}

bool limiter_may_go(struct limiter *limiter, const struct launch_cache *cache,
                    const struct launch *launch, struct waiting *waiting, int64_t *ret_until_ns)
{
    const struct cost *cost;
    int64_t now_ns, balance;
    bool stopped, yields, ranked, betters;

    waiting->entered_ns = waiting->since_ns ? 0 : limiter_now(limiter);
    waiting->since_ns = waiting->since_ns ? waiting->since_ns : waiting->entered_ns;
    limiter_poll(limiter);
    now_ns = limiter_now(limiter);
    stopped = share_is_stopped(limiter->share, now_ns, ret_until_ns);
    yields = stopped || share_yields(limiter->share, now_ns, limiter->ahead.until_ns, ret_until_ns);
    ranked = share_is_ranked(limiter->share);
    betters = share_has_betters(limiter->share);
    if (!betters)
        limiter->credit.ranked_ns = limiter->charged_ns;
    if (!stopped && (ranked || yields || share_is_limited(limiter->share)))
        share_want(limiter->share, now_ns);
    if (!yields && !betters && !share_is_limited(limiter->share))
        return true;
    cost = costs_of(&limiter->costs, launch);
    /* Paid already: it comes by to be measured, and must go as those that do not. */
    if (!yields && !ranked && cache->limiter == limiter && cost_is_known(cost) &&
        !cost_is_long(cost) && cache->credit_ns >= limiter_price(limiter, cost) &&
        !stream_is_behind(limiter, launch, now_ns))
        return !lacks_sample(limiter, cache, cost) ||
               cuts_wait(limiter, waiting, ROOM_NS, now_ns, ret_until_ns);
    balance = share_balance(limiter->share, now_ns);
    if (may_owe(limiter, launch, cost, waiting, stopped ? INT64_MIN : balance, now_ns) ||
        (!yields && !betters && fits_beside(limiter, launch, cost, waiting, now_ns) &&
         !is_full(limiter)))
        return true;
    if (yields) {
        limiter_was_held(limiter, waiting);
        if (!stopped)
            limiter_claim_next(limiter, now_ns, *ret_until_ns);
        *ret_until_ns = look_again(limiter, cost, now_ns, *ret_until_ns);
        return false;
    }
    if (betters && !limiter_is_short(limiter, launch, cost, waiting, now_ns, ret_until_ns)) {
        limiter_claim_next(limiter, now_ns, *ret_until_ns);
        return false;
    }
    if (!share_is_limited(limiter->share))
        return true;
    if (!balance_allows(limiter, cost, now_ns, ret_until_ns) ||
        !turn_allows(limiter, now_ns, ret_until_ns))
        return false;
    return completions_allow(limiter, launch, cache, cost, waiting, balance, now_ns, ret_until_ns);
}
