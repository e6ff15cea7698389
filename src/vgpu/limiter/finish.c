/* SPDX-License-Identifier: Apache-2.0 */

/* What a measurement that is done says: when the kernel ran, what of that is charged, and what is
 * learnt for those that follow. */

#include "base/util.h"
#include "vgpu/limiter/internal.h"

/* An event takes the host no longer, however slow the program made it. */
#define RECORD_MOST_NS INT64_C(1000)
/* A launch takes the host no less than so many of them: 3,122 ns against 830 on H100, driver 580.
 */
#define LAUNCH_RECORDS 3
/* Looks at a launch under way that say more than how long it took. */
#define LOOKS_LEAST 2
/* What looks may be off by: a stream is busy some us before its kernel runs, and there are few. */
#define QUEUED_NS 2e3
#define OVER_PART 0.9

/* Of a kernel's time, no less is taken to be ours. */
#define OURS_LEAST 1e-3

/* Of the sums of what went beside others, what the next one leaves. Of what is not known yet, half
 * is taken to be charged: of those on their way, which may be more at once than went before, of the
 * first, and after a second in which none went. */
#define RIDES_KEPT 0.95
#define RIDES_MEMORY_NS NS_PER_S
#define RIDES_UNKNOWN 0.5
#define RIDES_UNKNOWN_NS 2e6

static void note_longest(struct limiter *limiter, double length_ns)
{
    _Atomic int64_t *longest = &limiter->compute->longest_ns;
    double before = (double)atomic_load_explicit(longest, RELAXED);
    double kept = before * (length_ns >= COSTS_ALWAYS_NS ? 0.98 : 0.999);

    atomic_store_explicit(longest, (int64_t)MAX(kept, length_ns), RELAXED);
}

/*
 * The part of a launch's time in which its kernel ran, where that was over when the launch
 * returned. It is all of it where the launch blocked. But the host may have held the thread up
 * meanwhile, and so may the program: the looks at the stream say, on average, how long it was busy.
 */
static double busy_part(const struct sample *sample)
{
    if (!sample->over_ns || sample->looks < LOOKS_LEAST)
        return 1;
    return (double)sample->busy_looks / sample->looks;
}

static void learn(struct limiter *limiter, struct sample *sample, double length_ns)
{
    /* Nobody knows what each took. */
    if (sample->is_sum || busy_part(sample) < 1)
        return;
    if (costs_learn(&limiter->costs, costs_of(&limiter->costs, &sample->launch), length_ns))
        atomic_fetch_add_explicit(&limiter->generation, 1, RELAXED);
}

/* What came after it was over is none of it, though its end was recorded later. */
bool limiter_ran(const struct limiter *limiter, const struct sample *sample,
                 struct interval *ret_interval)
{
    double over_ns, length_ms;

    if (!samples_interval(&limiter->samples, limiter->ops, limiter->gpu, sample, ret_interval))
        return false;
    if (!sample->over_ns)
        return true;
    over_ns = clocks_device_ns(&limiter->clocks, limiter_since_base(limiter, sample->over_ns));
    over_ns =
        MIN(over_ns, ret_interval->start_ms * 1e6 + (double)(sample->over_ns - sample->began_ns));
    ret_interval->end_ms = MIN(ret_interval->end_ms, over_ns / 1e6);
    length_ms = MAX((ret_interval->end_ms - ret_interval->start_ms) * busy_part(sample),
                    COSTS_LEAST_NS / 1e6);
    if (sample->was_busy)
        ret_interval->start_ms = ret_interval->end_ms - length_ms;
    else
        ret_interval->end_ms = ret_interval->start_ms + length_ms;
    return true;
}

/* The same from when it was queued, where it waited for the host until then. */
static bool ran_queued(const struct limiter *limiter, const struct sample *sample,
                       struct interval *ret_interval)
{
    if (!limiter_ran(limiter, sample, ret_interval))
        return false;
    ret_interval->start_ms = MIN(ret_interval->start_ms + (double)sample->gap_ns / 1e6,
                                 ret_interval->end_ms - COSTS_LEAST_NS / 1e6);
    return true;
}

/*
 * Moments in which short kernels ran beside a long one, as far as such were charged: in each of
 * them for all that ran in it. ours: the part of the time that was not other contexts'. Beside
 * others more seems to be company than is, and each pays for itself.
 */
static double take_shorts_ms(struct limiter *limiter, struct interval interval, double ours)
{
    struct cover *shorts = &limiter->overlap.shorts;
    double open_ms, more_ms;

    if (presence_contended(&limiter->presence))
        *shorts = (struct cover){0};
    open_ms = cover_open(shorts, interval);
    more_ms = MIN(open_ms, limiter->shorts_ns / ours / 1e6);
    limiter->shorts_ns -= more_ms * ours * 1e6;
    interval.end_ms -= open_ms - more_ms;
    (void)cover_take(shorts, interval);
    return MAX(interval.end_ms - interval.start_ms, 0.0);
}

/*
 * A long kernel's time without that in which it ran beside what was launched before it into other
 * streams, as far as that lies at its beginning or its end; the rest of that is in ret_ran. For it
 * the device was charged already. Where nobody measures what it was, or what is measured had not
 * begun, it is no longer than was charged for such: the stream may wait for something, and run
 * nothing.
 */
static struct interval without_company(struct limiter *limiter, const struct sample *sample,
                                       struct interval interval, double ours, struct cover *ret_ran)
{
    struct company company = samples_company(&limiter->samples, limiter->ops, limiter->gpu, sample);
    const double start_ms = interval.start_ms - (double)sample->gap_ns / 1e6;
    struct interval unseen;

    cover_move(&company.ran, -start_ms);
    *ret_ran = company.ran;
    interval = unseen = cover_rest(ret_ran, interval);
    unseen.end_ms = MIN(interval.end_ms, start_ms + company.unseen_ns / 1e6);
    interval.start_ms += take_shorts_ms(limiter, unseen, ours);
    return interval;
}

double limiter_ridden_part(const struct limiter *limiter)
{
    double unknown_ns = RIDES_UNKNOWN_NS;

    if (presence_contended(&limiter->presence))
        return 1;
    if (limiter_now(limiter) - limiter->rides.noted_ns > RIDES_MEMORY_NS)
        return RIDES_UNKNOWN;
    samples_for_each (i, limiter->samples.taken) {
        if (limiter->samples.list[i].rides)
            unknown_ns += limiter->samples.list[i].expected_ns;
    }
    return MIN(MAX(limiter->rides.charged_ns + RIDES_UNKNOWN * unknown_ns, 0.0) /
                   (limiter->rides.length_ns + unknown_ns),
               1.0);
}

static void note_ride(struct limiter *limiter, double length_ns, double charge_ns)
{
    const int64_t now_ns = limiter_now(limiter);
    const double kept = now_ns - limiter->rides.noted_ns > RIDES_MEMORY_NS ? 0 : RIDES_KEPT;

    limiter->rides.length_ns = kept * limiter->rides.length_ns + length_ns;
    limiter->rides.charged_ns = kept * limiter->rides.charged_ns + charge_ns;
    limiter->rides.noted_ns = now_ns;
}

/* A kernel that is measured each time is charged what it took of the device, less what others of
 * ours took at the same moments. It stands for itself alone: that our recording held it up, so that
 * the device was busy for longer, is in what it took. */
static void finish_always(struct limiter *limiter, struct sample *sample, double length_ns)
{
    struct cover *always = &limiter->overlap.always;
    double charge_ns = length_ns, took_ns = length_ns, all_ns, own_ns;
    struct interval interval, own;
    struct cover ran = {0};

    if (ran_queued(limiter, sample, &interval)) {
        all_ns = (interval.end_ms - interval.start_ms) * 1e6;
        length_ns = presence_always(&limiter->presence, interval.start_ms * 1e6,
                                    interval.end_ms * 1e6, took_ns);
        if (sample_has_company(sample))
            interval = without_company(limiter, sample, interval,
                                       MAX(length_ns / all_ns, OURS_LEAST), &ran);
        own = cover_rest(always, interval);
        own_ns = cover_take_beside(always, &ran, interval) * 1e6 * took_ns / all_ns;
        charge_ns = presence_charge(&limiter->presence, own.start_ms * 1e6, own.end_ms * 1e6,
                                    own_ns, took_ns);
    }
    if (sample->rides)
        note_ride(limiter, length_ns, charge_ns);
    learn(limiter, sample, length_ns);
    limiter_charge(limiter, charge_ns - (double)(sample->paid_ns + sample->provisional_ns));
    note_longest(limiter, length_ns);
}

/* Of a short kernel's length what was ours, as far as can be told, and what is charged for it. */
static double ours_of(struct limiter *limiter, const struct sample *sample, double length_ns,
                      double *ret_charge_ns)
{
    const struct cost *cost = costs_of(&limiter->costs, &sample->launch);
    struct interval interval;

    *ret_charge_ns = length_ns;
    if (!presence_contended(&limiter->presence) || !cost_is_doubtful(cost, length_ns) ||
        !ran_queued(limiter, sample, &interval))
        return length_ns;
    return presence_doubt(&limiter->presence, interval.start_ms * 1e6, interval.end_ms * 1e6,
                          sample->weight, cost->mean_ns, ret_charge_ns);
}

/* Of a kernel's length what is left after the company of those before it. */
static double own_part(double company_ns, double length_ns)
{
    return MAX(1 - MAX(company_ns, 0.0) / length_ns, 0.0);
}

/* Whether it took longer for those that it ran beside: of those alone that did so for as long as
 * they take alone. */
static void note_beside(struct limiter *limiter, const struct sample *sample, double length_ns,
                        double seen_ns)
{
    struct cost *cost = costs_of(&limiter->costs, &sample->launch);

    if (sample->is_sum || presence_contended(&limiter->presence))
        return;
    if (seen_ns <= 0)
        cost_learn_alone(cost, length_ns);
    else if (cost->alone_ns && seen_ns >= (double)cost->alone_ns)
        overlap_note_longer(&limiter->overlap, MIN(seen_ns, length_ns),
                            length_ns - (double)cost->alone_ns);
}

/* What of a short kernel is charged: a part of its length, and, once for all launches that it
 * stands for, what our recording held up. */
struct own {
    double part, held_ns;
};

/*
 * Our recording held it up, so that it ran beside less of what was launched before it, and holds up
 * the next one: so much longer the device is busy, where the kernel waited for the host. But where
 * kernels fill the device it is busy for no longer. Kernels that are longer the more of them there
 * are look as if they did: then less is seen busy than is charged.
 */
static struct own own_of(struct limiter *limiter, const struct sample *sample, double length_ns)
{
    const double free = MAX(1 - overlap_filled(&limiter->overlap), side_doubt(&limiter->side));
    struct company company = samples_company(&limiter->samples, limiter->ops, limiter->gpu, sample);
    /* From when it was queued, if it waited for that. */
    double seen_ns = MAX(MAX(company.running_ns, company.waiting_ns), company.unseen_ns) -
                     (double)sample->gap_ns;
    struct own own = {.part = 1};

    if (sample->mark_count && !sample_has_company(sample))
        return own;
    note_beside(limiter, sample, length_ns, seen_ns);
    if (!sample->mark_count)
        return own;
    own.part = own_part(seen_ns + free * samples_delay_ns(sample), length_ns);
    own.held_ns = length_ns * (own_part(seen_ns, length_ns) - own.part) +
                  (sample->gap_ns ? free * (double)sample->after_ns : 0);
    return own;
}

/* The correction is charged for all the launches that this one stands for. */
static void finish_short(struct limiter *limiter, struct sample *sample, double length_ns)
{
    struct own own = own_of(limiter, sample, length_ns);
    double charge_ns;

    length_ns = ours_of(limiter, sample, length_ns, &charge_ns);
    overlap_note(&limiter->overlap, length_ns, length_ns * own.part);
    learn(limiter, sample, length_ns);
    charge_ns = charge_ns * own.part;
    if (sample->kind == SAMPLE_COUNTED)
        share_count(limiter->share, (int64_t)(charge_ns * sample->weight + own.held_ns));
    else
        limiter_charge_short(limiter,
                             (charge_ns - (double)sample->paid_ns) * sample->weight + own.held_ns);
    note_longest(limiter, length_ns);
}

/*
 * Of a launch that blocks, the host's time from the start's execution to the kernel's queueing: no
 * less than what a launch takes it at the least, nor than until the driver was called. How much
 * more it is can't be told from a longer kernel. If the start may have waited for a slice there was
 * none.
 */
static int64_t least_gap_ns(const struct limiter *limiter, const struct sample *sample,
                            struct interval interval)
{
    const bool is_known = limiter->clocks.most.is_known;
    double host_ns = clocks_host_ns(&limiter->clocks, interval.start_ms * 1e6);
    int64_t began_ns = limiter->samples.base_ns + (int64_t)host_ns, least_ns = 0;

    if (sample->was_idle &&
        (!presence_contended(&limiter->presence) ||
         (is_known && (double)(began_ns - sample->recorded_ns) < CLOCKS_PROMPT_NS)))
        least_ns = LAUNCH_RECORDS * MIN(limiter->record_ns, RECORD_MOST_NS);
    return is_known ? MAX(least_ns, sample->called_ns - MAX(began_ns, sample->recorded_ns))
                    : least_ns;
}

/*
 * A launch that returns after its kernel's end is late by up to half of the call, as far as the
 * host knows. Who keeps his launches a little longer than the kernels take had 43 of 25 % by that:
 * so it is no less than what looks at such launches leave of it, but for what they may be off by.
 */
static double least_over_ns(struct limiter *limiter, const struct sample *sample, double over_ns)
{
    const double took_ns = over_ns + (double)sample->late_ns;

    if (sample->looks >= LOOKS_LEAST || !launch_stream_has_handle(sample->launch.stream))
        return 0;
    samples_note_over(&limiter->samples, sample, took_ns);
    return OVER_PART * (took_ns - samples_beside_ns(&limiter->samples)) - QUEUED_NS;
}

void limiter_finish(struct limiter *limiter, struct sample *sample, double length_ns)
{
    struct interval interval;
    double over_ns;

    if (sample->kind == SAMPLE_CALIBRATION) {
        samples_note_overhead(&limiter->samples, sample, length_ns);
        return;
    }
    limiter->done_ns = MAX(limiter->done_ns, sample->issued_ns);
    if (length_ns < 0)
        return;
    length_ns = MAX(length_ns * busy_part(sample), COSTS_LEAST_NS);
    if (sample->over_ns && limiter_ran(limiter, sample, &interval)) {
        sample->gap_ns = least_gap_ns(limiter, sample, interval);
        over_ns = (interval.end_ms - interval.start_ms) * 1e6;
        length_ns = MIN(length_ns, MAX(over_ns - (double)sample->gap_ns, COSTS_LEAST_NS));
        length_ns = MAX(length_ns, least_over_ns(limiter, sample, over_ns));
    }
    atomic_fetch_add_explicit(&limiter->compute->samples, 1, RELAXED);
    if (sample->kind == SAMPLE_ALWAYS)
        finish_always(limiter, sample, length_ns);
    else
        finish_short(limiter, sample, length_ns);
}
