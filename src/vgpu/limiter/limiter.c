/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/util.h"
#include "vgpu/limiter/internal.h"

#define THREAD_CREDIT_NS 128e3    /* charged at once, launched for without looking */
#define BUSY_NS (20 * NS_PER_MS)  /* after a launch */
#define PACE_NS INT64_C(10000000) /* between looks at how fast launches come */
#define PACE_MEMORY_NS 2e8

enum {
    /* Our events take places in the queues of the program's streams, of which each has some 1,024
     * for launches that wait. */
    COUNTED_PENDING = 32,
};

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
double limiter_price(const struct limiter *limiter, const struct cost *cost)
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

bool limiter_begin(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   const struct waiting *waiting, struct ticket *ticket)
{
    struct cost *cost = costs_of(&limiter->costs, launch);
    int64_t now_ns = limiter_now(limiter);
    double price, weight, risk_ns;
    enum sample_kind kind;
    bool is_large;

    *ticket = (struct ticket){0};
    streams_use(&limiter->streams, launch, cache, now_ns);
    enter_cache(limiter, cache);
    enter_stream(limiter, cache, launch, now_ns);
    cache->launches++;
    if (cache->launches > 1)
        limiter->drawn_ns = now_ns;
    note_pace(limiter, cache, now_ns);
    risk_ns = limiter_risk_ns(limiter, cache, cost);
    price = limiter_price(limiter, cost);
    is_large = price >= COSTS_ALWAYS_NS;
    if (is_large)
        limiter_announce_owed(limiter, (int64_t)price);
    pay(limiter, cache, price, risk_ns > 0);
    ticket->paid_ns = (int64_t)price;
    limiter_expect(limiter, price, now_ns);
    cost->unseen++;
    limiter->last_launch_ns = now_ns;
    gang_note_gone(limiter->share->region, limiter->share->device, ticket->paid_ns, now_ns);

    /* What goes on credit is seen each time, lest it be another than what it was when it was paid.
     */
    weight = 1;
    kind = waiting->on_credit ? SAMPLE_ALWAYS : limiter_kind_of(limiter, cache, cost, &weight);
    if (kind && !samples_make_room(&limiter->samples, limiter->ops, limiter->gpu) &&
        share_is_limited(limiter->share)) {
        limiter_end(limiter, ticket, false);
        return false;
    }
    if (kind)
        limiter_measure(limiter, cache, launch, ticket, kind, weight, cost, now_ns);
    if (kind == SAMPLE_ALWAYS || is_large)
        limiter_publish_owed(limiter); /* it may be long until the driver has taken it */
    /* An ordinary launch does not come by here, and overlaps so much more. */
    if (ticket->sample)
        ticket->sample->rides = waiting->rides;
    if (ticket->sample && waiting->entered_ns)
        ticket->sample->held_ns += now_ns - waiting->entered_ns;
    limiter_note_let_go(limiter, cost, risk_ns, now_ns);
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
    streams_use(&limiter->streams, launch, cache, now_ns);
    cache->launches += launches;
    note_pace(limiter, cache, now_ns);
    limiter->last_launch_ns = now_ns;
    limiter->uncounted += launches;
    if (limiter->samples.pending >= COUNTED_PENDING)
        return;
    limiter_measure(limiter, cache, launch, ticket, SAMPLE_COUNTED, limiter->uncounted, cost,
                    now_ns);
    if (ticket->sample)
        limiter->uncounted = 0;
}

void limiter_end(struct limiter *limiter, const struct ticket *ticket, bool launched)
{
    if (!launched) {
        limiter_announce_owed(limiter, 0);
        limiter_charge(limiter, -(double)ticket->paid_ns);
        limiter->issued_ns -= ticket->paid_ns;
    }
    if (ticket->sample && launched)
        limiter_end_measured(limiter, ticket);
    else if (ticket->sample)
        samples_free(&limiter->samples, ticket->sample);
    if (!launched)
        limiter_publish_owed(limiter);
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
