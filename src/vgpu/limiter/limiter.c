/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/limiter.h"

#include <string.h>

#include "base/util.h"
#include "region/bucket.h"
#include "region/turns.h"

/* Constants without a source were tried on the traces of limiter_trace_test.c. */
#define OUTSTANDING_NS INT64_C(4000000) /* charged and not known to be done */
#define COMPLETION_NS INT64_C(10000000) /* a launch waits for completions no longer */
#define UNKNOWN_MOST                                                                               \
    8 /* launches of unknown kernels on their way, each for the price of a short one */
#define BEHIND_NS INT64_C(20000000)       /* a queue of such a length is too long */
#define CREDIT_NS INT64_C(10000000)       /* beside an overdue kernel one launch goes each */
#define CREDIT_GROWTH 4                   /* more slowly each time, until nothing is overdue */
#define CREDIT_MOST_NS INT64_C(160000000) /* lest what stands behind ten others never goes, */
#define CREDIT_DEBT_NS (5 * NS_PER_S)     /* while the debt is not more than this */
#define THREAD_CREDIT_NS 128e3            /* charged at once, launched for without looking */
#define POLL_NS INT64_C(20000)            /* between looks at measurements */
#define STREAM_IDLE_NS INT64_C(100000000) /* a stream that long unused is not one of several */
#define PROBE_GAP_NS INT64_C(10000000)
#define PROBE_SHARP_NS INT64_C(6000) /* recorded within this, the host's time of it is good */
#define BUSY_NS (20 * NS_PER_MS)     /* after a launch */
#define PACE_NS INT64_C(10000000)    /* between looks at how fast launches come */
#define PACE_MEMORY_NS 2e8
#define PACE_PART                                                                                  \
    4 /* measuring by pace costs a program a quarter of what measuring by cost may                 \
       */
#define SCARCE_NS INT64_C(1000000) /* below this balance there are turns */

#define RELAXED memory_order_relaxed

static int64_t now_of(const struct limiter *limiter)
{
    return limiter->ops->now_ns(limiter->gpu);
}

static uint32_t rate_of(const struct limiter *limiter)
{
    return atomic_load_explicit(limiter->rate, RELAXED);
}

void limiter_init(struct limiter *limiter, const struct limiter_gpu *ops, void *gpu,
                  struct region *region, unsigned device, const _Atomic uint32_t *rate,
                  uint64_t seed)
{
    limiter->ops = ops;
    limiter->gpu = gpu;
    limiter->region = region;
    limiter->device = device;
    limiter->rate = rate;
    limiter->compute = &region->ext->devices[device].compute;
    limiter->lot.state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    limiter->generation = 1;
    presence_init(&limiter->presence);
    samples_calibrate(&limiter->samples, ops, gpu);
}

/* Payment */

static void charge_to(struct region *region, unsigned device, uint32_t rate, int64_t amount)
{
    struct region_compute *compute = &region->ext->devices[device].compute;

    if (rate)
        bucket_charge(compute, rate, amount);
    else
        atomic_fetch_add_explicit(&compute->charged_ns, amount, RELAXED);
    turns_serve(region, device, amount);
}

static void charge(struct limiter *limiter, double amount_ns)
{
    charge_to(limiter->region, limiter->device, rate_of(limiter), (int64_t)amount_ns);
}

/* Says what a death now would have charged for nothing. */
static void publish_owed(struct limiter *limiter)
{
    int64_t owed = 0, since = INT64_MAX;

    for (unsigned i = 0; i < SAMPLES && limiter->samples.always; i++) {
        const struct sample *sample = &limiter->samples.list[i];

        if (sample->state != SAMPLE_PENDING || sample->kind != SAMPLE_ALWAYS)
            continue;
        owed += sample->paid_ns + sample->provisional_ns;
        since = MIN(since, sample->began_ns);
    }
    turns_owe(limiter->region, limiter->device, owed, owed ? since : 0);
}

/* The other streams in use, in which marks can be recorded. A thread's own has no handle by which
 * another could mark it, and a mark in the legacy one would wait for all. */
static unsigned other_streams(const struct limiter *limiter, const struct launch *launch,
                              int64_t now_ns, struct launch ret_others[LIMITER_STREAMS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < LIMITER_STREAMS; i++) {
        if (!limiter->streams[i].used_ns || !limiter->streams[i].stream ||
            limiter->streams[i].stream == launch->stream ||
            now_ns - limiter->streams[i].used_ns > STREAM_IDLE_NS)
            continue;
        ret_others[count++] = (struct launch){.stream = limiter->streams[i].stream};
    }
    return count;
}

static void use_stream(struct limiter *limiter, const struct launch *launch, int64_t now_ns)
{
    unsigned oldest = 0;

    for (unsigned i = 0; i < LIMITER_STREAMS; i++) {
        if (limiter->streams[i].used_ns && limiter->streams[i].stream == launch->stream &&
            limiter->streams[i].per_thread == launch->per_thread) {
            limiter->streams[i].used_ns = now_ns;
            return;
        }
        if (limiter->streams[i].used_ns < limiter->streams[oldest].used_ns)
            oldest = i;
    }
    limiter->streams[oldest].stream = launch->stream;
    limiter->streams[oldest].per_thread = launch->per_thread;
    limiter->streams[oldest].used_ns = now_ns;
}

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
    /* A thread that ends takes its credit along: never more than it has launched for. */
    if (in_advance && price < cache->advance_ns)
        more = cache->advance_ns - price;
    cache->advance_ns = MIN(2 * (cache->advance_ns + price), THREAD_CREDIT_NS);
    charge(limiter, price + more - cache->credit_ns);
    atomic_fetch_add_explicit(&limiter->compute->raw_ns, (int64_t)(price + more), RELAXED);
    limiter->issued_ns += (int64_t)(price + more - cache->credit_ns);
    cache->credit_ns = more;
}

/* What measurements say */

static void note_longest(struct limiter *limiter, double length_ns)
{
    _Atomic int64_t *longest = &limiter->compute->longest_ns;
    double before = (double)atomic_load_explicit(longest, RELAXED);
    double kept = before * (length_ns >= COSTS_ALWAYS_NS ? 0.98 : 0.999);

    atomic_store_explicit(longest, (int64_t)MAX(kept, length_ns), RELAXED);
}

static void learn(struct limiter *limiter, struct sample *sample, double length_ns)
{
    if (costs_learn(&limiter->costs, costs_of(&limiter->costs, &sample->launch), length_ns))
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
}

/* A kernel that is measured each time is charged what it took of the device, less what others of
 * ours took at the same moments. */
static void finish_always(struct limiter *limiter, struct sample *sample, double length_ns)
{
    struct interval interval;
    double part = 1;

    if (samples_interval(&limiter->samples, limiter->ops, limiter->gpu, sample, &interval)) {
        double all_ms;

        /* What came after the call is none of the kernel's. */
        if (sample->most_ns)
            interval.end_ms =
                MIN(interval.end_ms, interval.start_ms + (double)sample->most_ns / 1e6);
        all_ms = interval.end_ms - interval.start_ms;
        length_ns *=
            presence_part(&limiter->presence, interval.start_ms * 1e6, interval.end_ms * 1e6);
        if (sample->mark_count)
            interval.start_ms +=
                MAX(samples_company_ns(limiter->ops, limiter->gpu, sample), 0.0) / 1e6;
        part = overlap_take(&limiter->overlap, interval) / all_ms;
    }
    learn(limiter, sample, length_ns);
    charge(limiter, length_ns * part - (double)(sample->paid_ns + sample->provisional_ns));
    note_longest(limiter, length_ns);
}

/* Of a short kernel's length what was ours, as far as can be told. */
static double ours_of(struct limiter *limiter, const struct sample *sample, double length_ns)
{
    const struct cost *cost = costs_of(&limiter->costs, &sample->launch);
    struct interval interval;

    if (!presence_contended(&limiter->presence) || !cost_is_doubtful(cost, length_ns) ||
        !samples_interval(&limiter->samples, limiter->ops, limiter->gpu, sample, &interval))
        return length_ns;
    return cost->mean_ns + (length_ns - cost->mean_ns) * presence_doubt(&limiter->presence,
                                                                        interval.start_ms * 1e6,
                                                                        interval.end_ms * 1e6);
}

/* The correction is charged for all the launches that this one stands for. */
static void finish_short(struct limiter *limiter, struct sample *sample, double length_ns)
{
    double part = 1;

    if (sample->mark_count) {
        double company_ns = samples_company_ns(limiter->ops, limiter->gpu, sample);

        part = MAX(1 - MAX(company_ns, 0.0) / length_ns, 0.0);
    }
    length_ns = ours_of(limiter, sample, length_ns);
    overlap_note(&limiter->overlap, length_ns, length_ns * part);
    learn(limiter, sample, length_ns);
    charge(limiter, (length_ns * part - (double)sample->paid_ns) * sample->weight);
    note_longest(limiter, length_ns);
}

static void finish(struct limiter *limiter, struct sample *sample, double length_ns)
{
    double *overhead_ns = &limiter->samples.overhead_ns;

    if (sample->kind == SAMPLE_CALIBRATION) {
        if (length_ns >= 0)
            *overhead_ns = *overhead_ns < 0 ? length_ns : MIN(*overhead_ns, length_ns);
        return;
    }
    limiter->done_ns = MAX(limiter->done_ns, sample->issued_ns);
    if (length_ns < 0)
        return;
    atomic_fetch_add_explicit(&limiter->compute->samples, 1, RELAXED);
    if (sample->kind == SAMPLE_ALWAYS)
        finish_always(limiter, sample, length_ns);
    else
        finish_short(limiter, sample, length_ns);
}

/* A kernel that runs on and on is charged as it runs, so that others wait. What waits in a queue
 * does not run, and of those that run side by side one is charged. */
static void charge_overdue(struct limiter *limiter, int64_t now_ns)
{
    struct sample *leader = samples_leader(&limiter->samples);
    double ran_ns, paid_ns;

    if (!limiter->samples.always)
        limiter->credit_gap_ns = CREDIT_NS;
    if (!leader) {
        limiter->credit_due_ns = 0;
        return;
    }
    ran_ns = (double)(now_ns - leader->started_ns) * limiter->presence.on_device;
    paid_ns = (double)(leader->paid_ns + leader->provisional_ns);
    if (ran_ns > 1.1 * paid_ns + 2e6) {
        leader->provisional_ns += (int64_t)(ran_ns - paid_ns);
        charge(limiter, ran_ns - paid_ns);
        publish_owed(limiter);
    }
    if (ran_ns < 2 * leader->expected_ns + (double)CREDIT_NS) {
        limiter->credit_due_ns = 0;
    } else if (!limiter->credit_due_ns) {
        limiter->credit_due_ns = now_ns;
    }
}

/* Probes */

static double since_base(const struct limiter *limiter, int64_t at_ns)
{
    return (double)(at_ns - limiter->samples.base_ns);
}

/* When the probe was done, on the device's clock since the base; negative: it can't be told. */
static double probe_done_ns(const struct limiter *limiter)
{
    double ms;

    if (!limiter->samples.base_ns || limiter->probe.stale ||
        !limiter->ops->elapsed_ms(limiter->gpu, limiter->samples.base, limiter->samples.probe, &ms))
        return -1;
    return ms * 1e6;
}

static double probe_late_ns(struct limiter *limiter)
{
    double done_ns = probe_done_ns(limiter);

    if (done_ns < 0)
        return 0;
    return presence_late_ns(&limiter->presence, done_ns,
                            since_base(limiter, limiter->probe.recorded_ns),
                            limiter->probe.recorded_ns);
}

static void resolve_probes(struct limiter *limiter)
{
    double done_ns = probe_done_ns(limiter);
    unsigned off = presence_resolve(&limiter->presence, MAX(done_ns, 0.0));

    atomic_fetch_add_explicit(&limiter->compute->probes_off, off, RELAXED);
}

/* The answer of a probe that was late, once it is back. */
static void take_late_answer(struct limiter *limiter)
{
    if (!limiter->probe.out || !limiter->probe.late ||
        limiter->ops->query(limiter->gpu, limiter->samples.probe) == EVENT_NOT_YET)
        return;
    limiter->probe.out = false;
    (void)probe_late_ns(limiter);
    resolve_probes(limiter);
}

static void note_end(struct limiter *limiter, const struct sample *sample)
{
    struct interval interval;

    if (sample->kind != SAMPLE_CALIBRATION &&
        samples_interval(&limiter->samples, limiter->ops, limiter->gpu, sample, &interval))
        presence_note_end(&limiter->presence, interval.end_ms * 1e6);
}

void limiter_poll(struct limiter *limiter)
{
    int64_t now_ns = now_of(limiter);
    struct samples *samples = &limiter->samples;
    struct sample *done[SAMPLES_POLLED];
    double lengths_ns[SAMPLES_POLLED];
    unsigned looked = 0, count = 0;
    bool settled = false;

    if (now_ns - samples->polled_ns < POLL_NS)
        return;
    samples->polled_ns = now_ns;
    while ((done[count] = samples_next(samples, limiter->ops, limiter->gpu, &looked, now_ns,
                                       &lengths_ns[count]))) {
        settled |= done[count]->kind == SAMPLE_ALWAYS;
        samples_free(samples, done[count]);
        note_end(limiter, done[count]);
        if (++count == SAMPLES_POLLED)
            break;
    }
    /* First what ended, then what that says of the probes, then what those say of what ended. */
    take_late_answer(limiter);
    for (unsigned i = 0; i < count; i++)
        finish(limiter, done[i], lengths_ns[i]);
    charge_overdue(limiter, now_ns);
    if (settled) {
        publish_owed(limiter);
        bucket_wake(limiter->compute);
    }
    if (samples_renew_base(samples, limiter->ops, limiter->gpu, now_ns)) {
        overlap_forget(&limiter->overlap);
        presence_new_base(&limiter->presence);
        limiter->probe.stale = true;
    }
}

/* Waiting */

static bool is_same_stream(const struct launch *a, const struct launch *b)
{
    return a->stream == b->stream && a->per_thread == b->per_thread;
}

/* Beside a kernel of ours that runs anyway, in another stream, and not longer than it: that costs
 * nothing. */
static bool fits_beside(struct limiter *limiter, const struct launch *launch,
                        const struct cost *cost, int64_t now_ns)
{
    struct sample *leader = samples_leader(&limiter->samples);
    double left_ns, price_ns = cost_expected(cost);

    if (!leader || leader->expected_ns <= 0 || is_same_stream(&leader->launch, launch))
        return false;
    left_ns = leader->expected_ns - (double)(now_ns - leader->started_ns) - leader->ridden_ns;
    if (price_ns > left_ns)
        return false;
    leader->ridden_ns += price_ns;
    return true;
}

/* A kernel of ours runs longer than expected, perhaps since it waits for this launch: which is not
 * behind it in its own stream. What is not known to be short may run on and on as well. */
static bool goes_on_credit(struct limiter *limiter, const struct launch *launch,
                           const struct cost *cost, int64_t balance, int64_t now_ns)
{
    const struct sample *leader = samples_leader(&limiter->samples);

    if (!leader || !limiter->credit_due_ns || now_ns < limiter->credit_due_ns ||
        is_same_stream(&leader->launch, launch))
        return false;
    if (cost_is_known(cost) && cost_expected(cost) < (double)CREDIT_NS / 10) {
        limiter->credit_due_ns = now_ns + CREDIT_NS;
        return true;
    }
    limiter->credit_due_ns = now_ns + limiter->credit_gap_ns;
    limiter->credit_gap_ns *= CREDIT_GROWTH;
    if (balance > -CREDIT_DEBT_NS)
        limiter->credit_gap_ns = MIN(limiter->credit_gap_ns, CREDIT_MOST_NS);
    limiter->credit_gap_ns = MIN(limiter->credit_gap_ns, BUCKET_DEBT_MAX_NS);
    return true;
}

/* A kernel's measurement may change the balance any time. */
static int64_t look_again(const struct limiter *limiter, const struct cost *cost, int64_t now_ns,
                          int64_t until_ns)
{
    if (limiter->samples.always)
        until_ns = MIN(until_ns, now_ns + MAX(2 * NS_PER_MS, (int64_t)(cost->mean_ns / 4)));
    if (limiter->credit_due_ns)
        until_ns = MIN(until_ns, limiter->credit_due_ns);
    return until_ns;
}

static bool balance_allows(struct limiter *limiter, const struct cost *cost, uint32_t rate,
                           int64_t balance, int64_t now_ns, int64_t *ret_until_ns)
{
    struct region_compute *compute = limiter->compute;

    if (balance <= 0)
        atomic_store_explicit(&compute->gate, 1, RELAXED);
    if (!atomic_load_explicit(&compute->gate, RELAXED))
        return true;
    if (balance >= BUCKET_QUANTUM_NS) {
        atomic_store_explicit(&compute->gate, 0, RELAXED);
        return true;
    }
    *ret_until_ns = look_again(limiter, cost, now_ns,
                               now_ns + (BUCKET_QUANTUM_NS - balance) * (int64_t)BUCKET_ONE / rate);
    return false;
}

static bool turn_allows(struct limiter *limiter, int64_t balance, int64_t now_ns,
                        int64_t *ret_until_ns)
{
    if (balance >= SCARCE_NS || turns_is_ours(limiter->region, limiter->device, now_ns))
        return true;
    *ret_until_ns = now_ns + BUCKET_QUANTUM_NS;
    return false;
}

/* What was launched into the same stream long ago is not done yet: there is more in it than was
 * charged, and to wait here takes nothing from the launch. */
static bool stream_is_behind(const struct limiter *limiter, const struct launch *launch,
                             int64_t now_ns)
{
    for (unsigned i = 0; i < SAMPLES && limiter->samples.pending; i++) {
        const struct sample *sample = &limiter->samples.list[i];

        if (sample->state == SAMPLE_PENDING && sample->kind != SAMPLE_CALIBRATION &&
            now_ns - sample->began_ns > BEHIND_NS && is_same_stream(&sample->launch, launch))
            return true;
    }
    return false;
}

/* Too much on its way, or a first launch that is being measured. */
static bool completions_allow(struct limiter *limiter, const struct launch *launch,
                              const struct cost *cost, struct waiting *waiting, int64_t balance,
                              int64_t now_ns, int64_t *ret_until_ns)
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
    else if (excess > 0 && (double)out > 1.01 * cost->mean_ns)
        pause = MAX(50 * NS_PER_US, MIN(excess, NS_PER_MS));
    if (!pause)
        return true;

    if (!waiting->completion_until_ns)
        waiting->completion_until_ns = now_ns + COMPLETION_NS;
    if (now_ns >= waiting->completion_until_ns) {
        atomic_fetch_add_explicit(&limiter->compute->waits_cut, 1, RELAXED);
        limiter->done_ns = limiter->issued_ns;
        return true;
    }
    *ret_until_ns = now_ns + pause;
    return false;
}

bool limiter_may_go(struct limiter *limiter, const struct launch_cache *cache,
                    const struct launch *launch, struct waiting *waiting, int64_t *ret_until_ns)
{
    uint32_t rate = rate_of(limiter);
    const struct cost *cost;
    int64_t now_ns, balance;

    waiting->entered_ns = waiting->asked ? 0 : now_of(limiter);
    waiting->asked = true;
    limiter_poll(limiter);
    if (!rate)
        return true;
    now_ns = now_of(limiter);
    cost = costs_of(&limiter->costs, launch);
    /* Paid already: it comes by to be measured, and must go as those that do not. */
    if (cache->limiter == limiter && cost_is_known(cost) && !cost_is_long(cost) &&
        cache->credit_ns >= price_of(limiter, cost) && !stream_is_behind(limiter, launch, now_ns))
        return true;
    bucket_set_rate(limiter->compute, rate, now_ns);
    balance = bucket_balance(limiter->compute, rate, now_ns);
    turns_want(limiter->region, limiter->device, now_ns, now_ns);

    if (fits_beside(limiter, launch, cost, now_ns) ||
        goes_on_credit(limiter, launch, cost, balance, now_ns))
        return true;
    if (!balance_allows(limiter, cost, rate, balance, now_ns, ret_until_ns) ||
        !turn_allows(limiter, balance, now_ns, ret_until_ns)) {
        turns_want(limiter->region, limiter->device, now_ns, *ret_until_ns);
        return false;
    }
    return completions_allow(limiter, launch, cost, waiting, balance, now_ns, ret_until_ns);
}

/* Launching */

/* A thread that launches in several contexts in turn pays in each for what it launches there. The
 * limiter itself may be another context's by now. */
static void give_credit_back(struct launch_cache *cache)
{
    if (cache->credit_ns > 0)
        charge_to(cache->account.region, cache->account.device,
                  atomic_load_explicit(cache->account.rate, RELAXED), -(int64_t)cache->credit_ns);
    cache->credit_ns = cache->advance_ns = 0;
}

/* The thread's cache belongs to one limiter, and to the costs of one generation. */
static void enter_cache(struct limiter *limiter, struct launch_cache *cache)
{
    unsigned generation = atomic_load_explicit(&limiter->generation, RELAXED);

    if (cache->limiter == limiter && cache->generation == generation)
        return;
    if (cache->limiter != limiter) {
        give_credit_back(cache);
        cache->account.region = limiter->region;
        cache->account.device = limiter->device;
        cache->account.rate = limiter->rate;
        cache->risk_ns = lot_exponential(&limiter->lot) * COSTS_GAP_NS;
    }
    for (unsigned i = 0; i < LAUNCH_CACHE; i++)
        cache->costs[i].function = NULL;
    cache->limiter = limiter;
    cache->generation = generation;
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

static double risk_of(const struct limiter *limiter, const struct cost *cost)
{
    double risk_ns = cost_risk_ns(&limiter->costs, cost);

    return risk_ns <= 0 ? 0 : MAX(risk_ns, MIN(limiter->pace.mean_ns / PACE_PART, COSTS_GAP_NS));
}

/* Whether a launch is measured, and how; 0: not. */
static enum sample_kind kind_of(struct limiter *limiter, struct launch_cache *cache,
                                const struct cost *cost, double *ret_weight)
{
    double risk_ns = risk_of(limiter, cost);

    *ret_weight = 1;
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

static void measure(struct limiter *limiter, const struct launch *launch, struct ticket *ticket,
                    enum sample_kind kind, double weight, const struct cost *cost, int64_t now_ns)
{
    struct launch others[LIMITER_STREAMS];
    unsigned count = other_streams(limiter, launch, now_ns, others);
    struct sample *sample = samples_begin(&limiter->samples, limiter->ops, limiter->gpu, kind,
                                          launch, others, count, now_ns);

    if (!sample)
        return;
    sample->weight = weight;
    sample->expected_ns = cost->measured ? cost->mean_ns : 0;
    sample->paid_ns = ticket->paid_ns;
    ticket->sample = sample;
    ticket->recorded_ns = now_of(limiter);
    sample->held_ns = ticket->recorded_ns - now_ns;
}

void limiter_begin(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   const struct waiting *waiting, struct ticket *ticket)
{
    struct cost *cost = costs_of(&limiter->costs, launch);
    int64_t now_ns = now_of(limiter);
    double price, weight, risk_ns;
    enum sample_kind kind;

    *ticket = (struct ticket){0};
    use_stream(limiter, launch, now_ns);
    enter_cache(limiter, cache);
    cache->launches++;
    note_pace(limiter, cache, now_ns);
    risk_ns = risk_of(limiter, cost);
    price = price_of(limiter, cost);
    pay(limiter, cache, price, risk_ns > 0);
    ticket->paid_ns = (int64_t)price;
    cost->unseen++;
    limiter->last_launch_ns = now_ns;

    kind = kind_of(limiter, cache, cost, &weight);
    if (kind)
        measure(limiter, launch, ticket, kind, weight, cost, now_ns);
    /* An ordinary launch does not come by here, and overlaps so much more. */
    if (ticket->sample && waiting->entered_ns)
        ticket->sample->held_ns += now_ns - waiting->entered_ns;
    if (risk_ns > 0)
        put_in_cache(cache, launch, price, risk_ns);
}

void limiter_count(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   unsigned launches, struct ticket *ticket)
{
    const struct cost *cost = costs_of(&limiter->costs, launch);
    int64_t now_ns = now_of(limiter);

    *ticket = (struct ticket){0};
    limiter_poll(limiter);
    use_stream(limiter, launch, now_ns);
    cache->launches += launches;
    note_pace(limiter, cache, now_ns);
    limiter->last_launch_ns = now_ns;
    measure(limiter, launch, ticket, SAMPLE_DRAWN, launches, cost, now_ns);
}

void limiter_forget_stream(struct limiter *limiter, const void *stream)
{
    for (unsigned i = 0; i < LIMITER_STREAMS; i++) {
        if (limiter->streams[i].stream == stream && stream)
            limiter->streams[i].used_ns = 0;
    }
}

/*
 * If the start ran before the kernel was queued, the host's time between the two is in the
 * measurement. Where the kernel is over when the launch returns, as where launches block, it took
 * no longer than the call; the end is recorded afterwards, and may have to wait for a slice of its
 * own.
 */
static void note_host_time(struct limiter *limiter, const struct launch *launch,
                           const struct ticket *ticket)
{
    int64_t took_ns = now_of(limiter) - ticket->recorded_ns;

    if (limiter->ops->query(limiter->gpu, ticket->sample->start) != EVENT_DONE)
        return;
    if (limiter->ops->is_idle(limiter->gpu, launch))
        ticket->sample->most_ns = MAX(took_ns, INT64_C(1));
    else
        ticket->sample->gap_ns = took_ns;
}

void limiter_end(struct limiter *limiter, const struct launch *launch, struct ticket *ticket,
                 bool launched)
{
    struct sample *sample = ticket->sample;

    if (!launched) {
        charge(limiter, -(double)ticket->paid_ns);
        limiter->issued_ns -= ticket->paid_ns;
    }
    if (!sample)
        return;
    if (launched) {
        note_host_time(limiter, launch, ticket);
        sample->issued_ns = limiter->issued_ns;
        if (samples_end(&limiter->samples, limiter->ops, limiter->gpu, sample)) {
            if (sample->kind == SAMPLE_ALWAYS)
                publish_owed(limiter);
            return;
        }
    } else {
        samples_free(&limiter->samples, sample);
    }
}

/* The helper thread's part */

bool limiter_is_busy(const struct limiter *limiter, int64_t now_ns)
{
    return limiter->samples.pending > 0 || now_ns - limiter->last_launch_ns < BUSY_NS;
}

/* A look at whether the context is on the device, when one is due: whatever the answers so far, at
 * random moments; that is what makes their mean right. */
static void set_next_probe(struct limiter *limiter)
{
    double gap = (double)PROBE_GAP_NS * (0.5 + lot_draw(&limiter->lot));

    /* What is off by chance goes with the root of their number; alone there is no chance in it. */
    if (presence_contended(&limiter->presence))
        gap /= 4;
    limiter->probe.due_ns = now_of(limiter) + (int64_t)gap;
}

bool limiter_probe(struct limiter *limiter)
{
    struct samples *samples = &limiter->samples;
    int64_t now_ns = now_of(limiter);

    take_late_answer(limiter);
    if (now_ns < limiter->probe.due_ns)
        return false;
    set_next_probe(limiter);
    if (limiter->probe.out) { /* it still waits for our slice */
        presence_open(&limiter->presence, since_base(limiter, now_ns));
        return false;
    }
    if (!samples->probe)
        samples->probe = limiter->ops->make_event(limiter->gpu);
    if (!samples->probe)
        return false;
    limiter->probe.recorded_ns = now_ns;
    limiter->probe.late = false;
    limiter->probe.stale = false;
    limiter->probe.out = limiter->ops->record(limiter->gpu, samples->probe, NULL);
    limiter->probe.sharp = now_of(limiter) - now_ns < PROBE_SHARP_NS;
    return limiter->probe.out;
}

/* A probe during which the host was held up tells nothing, whatever its answer. */
void limiter_probe_answer(struct limiter *limiter)
{
    double recorded_ns = since_base(limiter, limiter->probe.recorded_ns);
    bool done;

    if (!limiter->probe.out)
        return;
    done = limiter->ops->query(limiter->gpu, limiter->samples.probe) != EVENT_NOT_YET;
    limiter->probe.late = !done || probe_late_ns(limiter) > 0;
    limiter->probe.out = limiter->probe.late;
    if (!limiter->probe.sharp)
        return;
    if (limiter->probe.late) {
        presence_open(&limiter->presence, recorded_ns);
        return;
    }
    presence_on(&limiter->presence, recorded_ns);
    atomic_fetch_add_explicit(&limiter->compute->probes_on, 1, RELAXED);
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
        ran_ns = (double)(now_of(limiter) - leader->started_ns) * limiter->presence.on_device;
        charge(limiter, MAX(ran_ns - (double)(leader->paid_ns + leader->provisional_ns), 0.0));
    }
    memset(&limiter->samples, 0, sizeof(limiter->samples));
    publish_owed(limiter);
}
