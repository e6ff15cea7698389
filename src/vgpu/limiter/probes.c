/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "vgpu/limiter/internal.h"

#define GAP_NS INT64_C(10000000)
/* Others have the device for no less than two changes of the context, 165 us each on H100. */
#define ABSENCE_LEAST_NS 430e3
#define PAUSE_MOST_NS INT64_C(2500000)
#define PAUSE_PART 0.6
#define PAUSE_SPREAD 0.4
/* Probes are due at random moments, of which some are close to one another. */
#define DUE_LEAST_NS INT64_C(625000)
/* After the last launch, where nothing is measured or marked: later our context has no work. */
#define WORK_NS INT64_C(500000)
/* Recorded within this, the host's time of it is good enough to tell by how much an event is late;
 * and within that, to tell in which slice it was recorded. Drivers take one to some us. */
#define SHARP_NS INT64_C(6000)
#define BLURRED_NS INT64_C(100000)

/* When the probe was done, on the device's clock since the base; negative: it can't be told. */
static double probe_done_ns(const struct limiter *limiter)
{
    double ms;

    if (!limiter->samples.base_ns || limiter->probe.stale ||
        !limiter->ops->elapsed_ms(limiter->gpu, limiter->samples.base, limiter->samples.probe, &ms))
        return -1;
    return ms * 1e6;
}

/* A moment of the host's clock on the device's, since the base, as far as it is known. */
static double on_device_at(const struct limiter *limiter, int64_t at_ns)
{
    return clocks_guess_ns(&limiter->clocks, limiter_since_base(limiter, at_ns));
}

/* Not done yet: then it is done no sooner than now. */
static bool probe_is_out(struct limiter *limiter)
{
    const int64_t asked_ns = limiter_now(limiter);

    if (limiter->ops->query(limiter->gpu, limiter->samples.probe) != EVENT_NOT_YET)
        return false;
    limiter->probe.asked_ns = asked_ns;
    return true;
}

static double probe_late_ns(struct limiter *limiter)
{
    double done_ns = probe_done_ns(limiter);

    if (done_ns < 0)
        return 0;
    if (limiter->probe.asked_ns > limiter->probe.recorded_ns)
        clocks_note_unseen(&limiter->clocks, done_ns,
                           limiter_since_base(limiter, limiter->probe.asked_ns),
                           limiter->probe.asked_ns);
    return clocks_late_ns(&limiter->clocks, done_ns,
                          limiter_since_base(limiter, limiter->probe.recorded_ns),
                          limiter->probe.recorded_ns);
}

void limiter_note_start(struct limiter *limiter, const struct sample *sample, double began_ns)
{
    if (sample->was_idle && sample->called_ns)
        presence_note_start(&limiter->presence, on_device_at(limiter, sample->called_ns), began_ns);
}

static bool is_done_at(const struct limiter *limiter, void *event, double *ret_ns)
{
    double ms;

    if (limiter->ops->query(limiter->gpu, event) != EVENT_DONE ||
        !limiter->ops->elapsed_ms(limiter->gpu, limiter->samples.base, event, &ms))
        return false;
    *ret_ns = ms * 1e6;
    return true;
}

struct presence_run limiter_run_of(const struct limiter *limiter, const struct sample *sample,
                                   double began_ns, double end_ns)
{
    return (struct presence_run){began_ns, on_device_at(limiter, sample->seen_ns), end_ns};
}

/* Of one that has begun, perhaps in a launch that blocks. */
static void note_start_and_end(struct limiter *limiter, const struct sample *sample)
{
    double began_ns, end_ns = 0;

    if (!is_done_at(limiter, sample->start, &began_ns))
        return;
    limiter_note_start(limiter, sample, began_ns);
    if (sample->state == SAMPLE_PENDING && is_done_at(limiter, sample->end, &end_ns))
        presence_note_end(&limiter->presence, limiter_run_of(limiter, sample, began_ns, end_ns));
    else if (sample->seen_ns)
        presence_note_running(&limiter->presence,
                              limiter_run_of(limiter, sample, began_ns, end_ns));
}

/* Kernels that have ended are taken in by turns, a few at a look. What a late probe says rests on
 * all of them: behind one of ours in its hardware queue it had to wait for that. */
static void note_starts_and_ends(struct limiter *limiter)
{
    const struct samples *samples = &limiter->samples;

    samples_for_each (i, samples->taken) {
        if (samples->list[i].kind != SAMPLE_CALIBRATION)
            note_start_and_end(limiter, &samples->list[i]);
    }
}

static void resolve_probes(struct limiter *limiter, double done_ns)
{
    unsigned off;

    note_starts_and_ends(limiter);
    limiter->presence.are_short = limiter_are_short(limiter);
    off = presence_resolve(&limiter->presence, on_device_at(limiter, limiter->probe.recorded_ns),
                           done_ns);
    atomic_fetch_add_explicit(&limiter->compute->probes_off, off, RELAXED);
}

void limiter_take_late_answer(struct limiter *limiter)
{
    int64_t now_ns;
    double done_ns;

    if (!limiter->probe.out || !limiter->probe.late || probe_is_out(limiter))
        return;
    /* It was done by now, not when this look began. */
    now_ns = limiter_now(limiter);
    done_ns = probe_done_ns(limiter);
    limiter->probe.out = false;
    if (done_ns < 0) {
        presence_forget(&limiter->presence);
        return;
    }
    clocks_note_seen(&limiter->clocks, done_ns, limiter_since_base(limiter, now_ns), now_ns);
    if (probe_late_ns(limiter) > 0)
        resolve_probes(limiter, done_ns);
    else
        presence_was_prompt(&limiter->presence);
}

/* A look at whether the context is on the device, when one is due: whatever the answers so far, at
 * random moments; that is what makes their mean right. */
static void set_next_probe(struct limiter *limiter)
{
    double gap = (double)GAP_NS * (0.5 + lot_draw(&limiter->lot));

    /* What is off by chance goes with the root of their number; alone there is no chance in it. */
    if (presence_contended(&limiter->presence))
        gap /= 4;
    limiter->probe.due_ns = limiter_now(limiter) + (int64_t)gap;
}

/* Beside others a probe in a context without work tells nothing of what that takes, and takes the
 * device from who has some, with two changes of the context: where one kernel is launched each ms a
 * tenth of it. */
static bool has_work(const struct limiter *limiter)
{
    return limiter->samples.open || limiter->samples.pending || limiter->tails.out ||
           limiter_now(limiter) - limiter->last_launch_ns < WORK_NS;
}

/* What has been in its queue for a slice was there as the present one began. */
static enum probe_work work_of(struct limiter *limiter)
{
    if (!samples_leader(&limiter->samples))
        return WORK_UNKNOWN;
    return samples_wait(&limiter->samples, limiter->ops, limiter->gpu,
                        limiter_now(limiter) - (int64_t)PRESENCE_SLICE_NS)
               ? WORK_WAITS
               : WORK_RUNS;
}

/*
 * By chance, since looks would keep step with the slices for seconds: five were as long as one of
 * ours and one of others', and probes came at a few moments of a slice only (75 of 69 % went).
 */
static int64_t pause_ns(struct limiter *limiter)
{
    double absence_ns = MAX(limiter->presence.least_absence_ns, ABSENCE_LEAST_NS);

    if (!presence_contended(&limiter->presence) || !samples_leader(&limiter->samples))
        return PAUSE_MOST_NS;
    absence_ns *= PAUSE_PART + PAUSE_SPREAD * lot_draw(&limiter->lot);
    return (int64_t)MIN(absence_ns, (double)PAUSE_MOST_NS);
}

int64_t limiter_due_ns(struct limiter *limiter)
{
    const int64_t now_ns = limiter_now(limiter);

    return MIN(now_ns + pause_ns(limiter), MAX(limiter->probe.due_ns, now_ns + DUE_LEAST_NS));
}

bool limiter_probe(struct limiter *limiter)
{
    const bool due = limiter_now(limiter) >= limiter->probe.due_ns;
    struct samples *samples = &limiter->samples;

    limiter_take_late_answer(limiter);
    if (due)
        set_next_probe(limiter);
    if (limiter->probe.out) { /* it still waits for our slice */
        if (due)
            presence_open(&limiter->presence, on_device_at(limiter, limiter_now(limiter)),
                          work_of(limiter));
        return false;
    }
    /* Beside others one is on its way at most times: it says when our slices begin. */
    if (presence_contended(&limiter->presence) ? !has_work(limiter) : !due)
        return false;
    limiter->probe.work = work_of(limiter);
    limiter->probe.counts = due;
    if (!samples->probe)
        samples->probe = limiter->ops->make_event(limiter->gpu);
    if (!samples->probe)
        return false;
    limiter->probe.late = false;
    limiter->probe.stale = false;
    limiter->probe.recorded_ns = limiter->probe.asked_ns = limiter_now(limiter);
    limiter->probe.out = limiter->ops->record(limiter->gpu, samples->probe, NULL);
    limiter->probe.took_ns = limiter_now(limiter) - limiter->probe.recorded_ns;
    return limiter->probe.out;
}

/* One during which the host was held up for long tells nothing, whatever its answer. */
void limiter_probe_answer(struct limiter *limiter)
{
    double recorded_ns;
    bool done;

    if (!limiter->probe.out)
        return;
    done = !probe_is_out(limiter);
    limiter->probe.late =
        !done || (limiter->probe.took_ns < SHARP_NS && probe_late_ns(limiter) > 0);
    limiter->probe.out = limiter->probe.late;
    recorded_ns = on_device_at(limiter, limiter->probe.recorded_ns);
    if (limiter->probe.took_ns >= BLURRED_NS)
        return;
    if (!limiter->probe.late)
        presence_note_on(&limiter->presence, recorded_ns);
    if (!limiter->probe.counts)
        return;
    if (limiter->probe.late) {
        presence_open(&limiter->presence, recorded_ns, limiter->probe.work);
        return;
    }
    presence_on(&limiter->presence, recorded_ns, limiter->probe.work);
    atomic_fetch_add_explicit(&limiter->compute->probes_on, 1, RELAXED);
}
