/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

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
#define CREDIT_GROWTH 4                   /* more slowly each time, until nothing is overdue */
#define CREDIT_MOST_NS INT64_C(160000000) /* lest what stands behind ten others never goes, */
#define CREDIT_DEBT_NS (5 * NS_PER_S)     /* while the debt is not more than this */
#define BETTERS_PART 10                   /* beside others that go first, a tenth of it */
#define PATIENCE_NS INT64_C(50000000)     /* held so long beside unmeasured work, one goes */
#define THREAD_CREDIT_NS 128e3            /* charged at once, launched for without looking */
#define BUSY_NS (20 * NS_PER_MS)          /* after a launch */
#define PACE_NS INT64_C(10000000)         /* between looks at how fast launches come */
#define PACE_MEMORY_NS 2e8
/* Measuring by pace costs a quarter of what measuring by cost may: from 2 ms between launches on
 * each one is measured, lest a long one be missed. */
#define PACE_PART 4
/* Kernels of very different lengths are measured more where launches were held of late: there the
 * host has time left, of which two events of 0.8 us take no more than 1.9 %. */
#define SKEW_PACE 6
#define HELD_NS (100 * NS_PER_MS)
#define SHORT_NS 500e3 /* no slice of the device (2.09 ms) ends within most such kernels */
#define WAIT_MOST_NS INT64_C(10000)   /* waiting for an empty stream does not take longer */
#define ASKING_MOST_NS INT64_C(20000) /* two questions to the driver take less */
#define HIDDEN_RISK_NS 25e3           /* of a launch into a stream that can't be looked at */
#define DOUBT_ALWAYS_NS 1e8           /* with so much in doubt each launch is measured */
#define SCARCE_NS INT64_C(1000000)    /* below this balance there are turns */

void limiter_init(struct limiter *limiter, const struct limiter_gpu *ops, void *gpu,
                  struct share *share, uint64_t seed)
{
    limiter->ops = ops;
    limiter->gpu = gpu;
    limiter->share = share;
    limiter->compute = share_compute(share);
    limiter->lot.state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    limiter->generation = 1;
    presence_init(&limiter->presence, share_parts(share));
    samples_calibrate(&limiter->samples, ops, gpu);
}

/* Payment */

/* Charged for a launch: short ones less where our streams overlap. */
static double price_of(const struct limiter *limiter, const struct cost *cost)
{
    if (!cost_is_known(cost) || cost_is_long(cost))
        return cost_expected(cost);
    return cost_expected(cost) * overlap_factor(&limiter->overlap);
}

/* Pays for this launch, and for short ones some more, which the thread then spends without
 * looking. */
static void pay(struct limiter *limiter, struct launch_cache *cache, double price, bool in_advance)
{
    double more = 0;

    if (cache->credit_ns >= price) {
        cache->credit_ns -= price;
        return;
    }
    /* Never more than it has launched for. */
    if (in_advance && price < cache->advance_ns && !share_is_ranked(limiter->share))
        more = cache->advance_ns - price;
    cache->advance_ns = MIN(2 * (cache->advance_ns + price), THREAD_CREDIT_NS);
    if (in_advance)
        limiter_charge_short(limiter, price + more - cache->credit_ns);
    else
        limiter_charge(limiter, price + more - cache->credit_ns);
    atomic_fetch_add_explicit(&limiter->compute->raw_ns, (int64_t)(price + more), RELAXED);
    limiter->issued_ns += (int64_t)(price + more - cache->credit_ns);
    cache->credit_ns = more;
}

/* Waiting */

/* Beside a kernel of ours that runs anyway, in another stream, and not longer than it: that costs
 * nothing. */
static bool fits_beside(struct limiter *limiter, const struct launch *launch,
                        const struct cost *cost, int64_t now_ns)
{
    struct sample *leader = samples_leader(&limiter->samples);
    double left_ns, price_ns = cost_expected(cost);

    if (!leader || leader->expected_ns <= 0 || launches_share_stream(&leader->launch, launch))
        return false;
    left_ns = leader->expected_ns - (double)(now_ns - leader->started_ns) - leader->ridden_ns;
    if (price_ns > left_ns)
        return false;
    leader->ridden_ns += price_ns;
    return true;
}

/*
 * Until the next launch goes on credit: what is surely short may follow soon while the debt is
 * bearable, all else more slowly each time; what is not known to be short may run on and on as
 * well.
 */
static int64_t credit_gap_ns(const struct cost *cost, int64_t balance, int64_t least_ns,
                             int64_t *gap_ns)
{
    bool is_bearable = balance > -CREDIT_DEBT_NS;
    int64_t gap = MAX(*gap_ns, least_ns);

    if (is_bearable && cost_is_known(cost) && cost_expected(cost) < (double)CREDIT_NS / 10)
        return least_ns;
    *gap_ns = MIN(gap * CREDIT_GROWTH, is_bearable ? CREDIT_MOST_NS : BUCKET_DEBT_MAX_NS);
    return gap;
}

/* A kernel of ours runs longer than expected, perhaps since it waits for this launch: which is not
 * behind it in its own stream. */
static bool goes_on_credit(struct limiter *limiter, const struct launch *launch,
                           const struct cost *cost, int64_t balance, int64_t now_ns)
{
    const struct sample *leader = samples_leader(&limiter->samples);

    if (!leader || !limiter->credit.due_ns || now_ns < limiter->credit.due_ns ||
        launches_share_stream(&leader->launch, launch))
        return false;
    limiter->credit.due_ns =
        now_ns + credit_gap_ns(cost, balance, CREDIT_NS, &limiter->credit.gap_ns);
    return true;
}

unsigned limiter_beside(const struct limiter *limiter, const struct launch *launch,
                        int64_t since_ns, struct launch others[STREAMS])
{
    return limiter->ops->asks_others(limiter->gpu)
               ? streams_beside(&limiter->streams, launch, since_ns, others)
               : 0;
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
        now_ns + credit_gap_ns(cost, balance, PATIENCE_NS, &limiter->credit.unseen_gap_ns);
    return true;
}

/* A kernel's measurement may change the balance any time, and a stream be found busy. */
static int64_t look_again(const struct limiter *limiter, const struct cost *cost, int64_t now_ns,
                          int64_t until_ns)
{
    if (limiter->samples.always)
        until_ns = MIN(until_ns, now_ns + MAX(2 * NS_PER_MS, (int64_t)(cost->mean_ns / 4)));
    if (limiter->credit.due_ns)
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
    if (share_allows(limiter->share, back_ns(limiter, cost, now_ns), now_ns, ret_until_ns)) {
        limiter->credit.unseen_gap_ns = 0;
        return true;
    }
    limiter->held_ns = now_ns;
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

static bool are_short(const struct limiter *limiter)
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
           (!presence_contended(&limiter->presence) || are_short(limiter));
}

bool limiter_sees_all(const struct limiter *limiter)
{
    return limiter->last_launch_ns - limiter->drawn_ns > HELD_NS && are_short(limiter);
}

/* What a launch uses up of its thread's risk: see lot.h. 0: it is measured each time. */
static double risk_of(const struct limiter *limiter, const struct launch_cache *cache,
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
        risk_ns = MAX(risk_ns, MIN(cost_skew_ns(cost), SKEW_PACE * limiter->pace.mean_ns));
    return MAX(risk_ns, pace_ns);
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
    risk_ns = risk_of(limiter, cache, cost);
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
    if (balance > INT64_MIN)
        balance -= BETTERS_PART * (limiter->charged_ns - limiter->credit.ranked_ns);
    waiting->on_credit = (goes_on_credit(limiter, launch, cost, balance, now_ns) ||
                          goes_unseen(limiter, launch, cost, waiting, balance, now_ns)) &&
                         !is_full(limiter);
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
        !cost_is_long(cost) && cache->credit_ns >= price_of(limiter, cost) &&
        !stream_is_behind(limiter, launch, now_ns))
        return !lacks_sample(limiter, cache, cost) ||
               cuts_wait(limiter, waiting, ROOM_NS, now_ns, ret_until_ns);
    balance = share_balance(limiter->share, now_ns);
    if (may_owe(limiter, launch, cost, waiting, stopped ? INT64_MIN : balance, now_ns) ||
        (!yields && !betters && fits_beside(limiter, launch, cost, now_ns) && !is_full(limiter)))
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

/* Launching */

/* A thread that launches in several contexts in turn pays in each for what it launches there. The
 * limiter itself may be another context's by now. */
static void give_credit_back(struct launch_cache *cache)
{
    if (cache->credit_ns > 0)
        share_charge(cache->share, -(int64_t)cache->credit_ns);
    cache->credit_ns = cache->advance_ns = 0;
}

static void forget_costs(struct launch_cache *cache)
{
    for (unsigned i = 0; i < LAUNCH_CACHE; i++)
        cache->costs[i].function = NULL;
}

/* The thread's cache belongs to one limiter, and to the costs of one generation. */
static void enter_cache(struct limiter *limiter, struct launch_cache *cache)
{
    unsigned generation = atomic_load_explicit(&limiter->generation, RELAXED);

    if (cache->limiter == limiter && cache->generation == generation)
        return;
    if (cache->limiter != limiter) {
        give_credit_back(cache);
        cache->share = limiter->share;
        cache->risk_ns = lot_exponential(&limiter->lot) * COSTS_GAP_NS;
    }
    forget_costs(cache);
    memset(cache->streams, 0, sizeof(cache->streams));
    cache->is_hidden = false;
    cache->limiter = limiter;
    cache->generation = generation;
}

static void put_stream_in_cache(struct launch_cache *cache, const struct launch *launch)
{
    uint64_t key = launch_stream_key(launch);
    unsigned try = 0;

    if (launch_cache_knows_stream(cache, launch))
        return;
    while (try < LAUNCH_STREAM_TRIES && cache->streams[launch_stream_slot(key, try)])
        try++;
    if (try == LAUNCH_STREAM_TRIES)
        try = cache->next_stream++ % LAUNCH_STREAM_TRIES;
    cache->streams[launch_stream_slot(key, try)] = key;
}

/* The streams that a thread launches into without looking are known. What it launches into those
 * that can't be is measured the more often, wherever else it launches. */
static void enter_stream(struct limiter *limiter, struct launch_cache *cache,
                         const struct launch *launch, int64_t now_ns)
{
    enum tails_outcome outcome = tails_use(&limiter->tails, launch, limiter->charged_ns, now_ns);

    if (outcome == TAILS_REPLACED)
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
    if ((outcome == TAILS_FULL || outcome == TAILS_HIDDEN) && !cache->is_hidden) {
        forget_costs(cache);
        cache->is_hidden = true;
    }
    put_stream_in_cache(cache, launch);
}

static void put_in_cache(struct launch_cache *cache, const struct launch *launch, double cost_ns,
                         double risk_ns)
{
    unsigned at = launch_cache_slot(launch);

    cache->costs[at].function = launch->function;
    memcpy(cache->costs[at].grid, launch->grid, sizeof(launch->grid));
    memcpy(cache->costs[at].block, launch->block, sizeof(launch->block));
    cache->costs[at].cost_ns = cost_ns;
    cache->costs[at].risk_ns = risk_ns;
}

/* Wall time a launch, on average over the last moments: a program that launches seldom can afford
 * to be measured more often, and where the lot passes over a launch, little time goes unseen. */
static void note_pace(struct limiter *limiter, struct launch_cache *cache, int64_t now_ns)
{
    int64_t passed = now_ns - limiter->pace.since_ns;
    double weight;

    limiter->pace.launches += cache->launches;
    cache->launches = 0;
    if (!limiter->pace.since_ns)
        limiter->pace.since_ns = now_ns;
    if (passed < PACE_NS || limiter->pace.since_ns == now_ns)
        return;
    weight = MIN((double)passed / PACE_MEMORY_NS, 1.0);
    limiter->pace.mean_ns +=
        ((double)passed / MAX(limiter->pace.launches, 1u) - limiter->pace.mean_ns) * weight;
    limiter->pace.launches = 0;
    limiter->pace.since_ns = now_ns;
}

/* Whether a launch is measured, and how; 0: not. The weight is set of one that is drawn. */
static enum sample_kind kind_of(struct limiter *limiter, struct launch_cache *cache,
                                const struct cost *cost, double *ret_weight)
{
    double risk_ns = risk_of(limiter, cache, cost);

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

static void measure(struct limiter *limiter, const struct launch *launch, struct ticket *ticket,
                    enum sample_kind kind, double weight, const struct cost *cost, int64_t now_ns)
{
    struct launch others[STREAMS];
    /* What is measured itself needs no mark. */
    unsigned count = limiter_sees_all(limiter)
                         ? 0
                         : limiter_beside(limiter, launch, now_ns - STREAMS_IDLE_NS, others);
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

bool limiter_begin(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   const struct waiting *waiting, struct ticket *ticket)
{
    struct cost *cost = costs_of(&limiter->costs, launch);
    int64_t now_ns = limiter_now(limiter);
    double price, weight, risk_ns;
    enum sample_kind kind;

    *ticket = (struct ticket){0};
    streams_use(&limiter->streams, launch, now_ns);
    enter_cache(limiter, cache);
    enter_stream(limiter, cache, launch, now_ns);
    cache->launches++;
    if (cache->launches > 1)
        limiter->drawn_ns = now_ns;
    note_pace(limiter, cache, now_ns);
    risk_ns = risk_of(limiter, cache, cost);
    price = price_of(limiter, cost);
    pay(limiter, cache, price, risk_ns > 0);
    ticket->paid_ns = (int64_t)price;
    limiter_expect(limiter, price, now_ns);
    cost->unseen++;
    limiter->last_launch_ns = now_ns;

    /* What goes on credit is seen each time, lest it be another than what it was when it was paid.
     */
    weight = 1;
    kind = waiting->on_credit ? SAMPLE_ALWAYS : kind_of(limiter, cache, cost, &weight);
    if (kind && !samples_make_room(&limiter->samples, limiter->ops, limiter->gpu) &&
        share_is_limited(limiter->share)) {
        limiter_end(limiter, ticket, false);
        return false;
    }
    if (kind)
        measure(limiter, launch, ticket, kind, weight, cost, now_ns);
    /* An ordinary launch does not come by here, and overlaps so much more. */
    if (ticket->sample && waiting->entered_ns)
        ticket->sample->held_ns += now_ns - waiting->entered_ns;
    limiter->draws_lots |= risk_ns > 0;
    if (risk_ns > 0)
        limiter->drawn_ns = now_ns;
    if (!cost_is_known(cost) || cost_skew_ns(cost) > SHORT_NS)
        limiter->long_ns = now_ns;
    if (risk_ns > 0)
        put_in_cache(cache, launch, price, risk_ns);
    return true;
}

void limiter_began(struct limiter *limiter, const struct ticket *ticket, int64_t since_ns)
{
    if (!ticket->sample)
        return;
    ticket->sample->recorded_ns = since_ns;
    samples_note_started(&limiter->samples, ticket->sample, since_ns);
    ticket->sample->busy_looks = 1;
}

void limiter_count(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   unsigned launches, struct ticket *ticket)
{
    const struct cost *cost = costs_of(&limiter->costs, launch);
    int64_t now_ns = limiter_now(limiter);

    *ticket = (struct ticket){0};
    share_want(limiter->share, now_ns);
    limiter_poll(limiter);
    streams_use(&limiter->streams, launch, now_ns);
    cache->launches += launches;
    note_pace(limiter, cache, now_ns);
    limiter->last_launch_ns = now_ns;
    measure(limiter, launch, ticket, SAMPLE_COUNTED, launches, cost, now_ns);
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

static void end_measured(struct limiter *limiter, const struct ticket *ticket)
{
    struct sample *sample = ticket->sample;
    int64_t began_ns = limiter_now(limiter);

    note_host_time(limiter, ticket);
    sample->issued_ns = limiter->issued_ns;
    if (samples_end(&limiter->samples, limiter->ops, limiter->gpu, sample, ticket->is_recorded)) {
        sample->after_ns = ticket->end_took_ns + limiter_now(limiter) - began_ns;
        if (sample->kind == SAMPLE_ALWAYS)
            limiter_publish_owed(limiter);
    } else if (sample->kind != SAMPLE_COUNTED) {
        limiter_charge_lost(limiter, sample, ticket->returned_ns);
    }
}

void limiter_end(struct limiter *limiter, const struct ticket *ticket, bool launched)
{
    if (!launched) {
        limiter_charge(limiter, -(double)ticket->paid_ns);
        limiter->issued_ns -= ticket->paid_ns;
    }
    if (ticket->sample && launched)
        end_measured(limiter, ticket);
    else if (ticket->sample)
        samples_free(&limiter->samples, ticket->sample);
}

void limiter_end_thread(struct limiter *limiter, struct launch_cache *cache)
{
    const int64_t credit_ns = (int64_t)cache->credit_ns;

    give_credit_back(cache);
    limiter->charged_ns -= credit_ns;
    limiter->issued_ns -= credit_ns;
    *cache = (struct launch_cache){0};
}

bool limiter_launches_into(const struct limiter *limiter, const void *stream)
{
    return samples_are_open_in(&limiter->samples, stream);
}

void limiter_forget_stream(struct limiter *limiter, const void *stream)
{
    samples_end_stream(&limiter->samples, limiter->ops, limiter->gpu, stream);
    streams_forget(&limiter->streams, stream);
    /* A new one may get the same handle. */
    if (tails_forget(&limiter->tails, &limiter->samples, limiter->ops, limiter->gpu, stream,
                     limiter->charged_ns, limiter_now(limiter)))
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
}

/* The helper thread's part */

bool limiter_is_busy(const struct limiter *limiter, int64_t now_ns)
{
    return limiter->samples.open > 0 || limiter->samples.pending > 0 || limiter->tails.out > 0 ||
           limiter->ahead.until_ns > now_ns || now_ns - limiter->last_launch_ns < BUSY_NS;
}

void limiter_rest(struct limiter *limiter, bool rests)
{
    /* Lest a thread that has credit left launches something while nobody looks. */
    if (rests && !limiter->rests)
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
    limiter->rests = rests;
}
