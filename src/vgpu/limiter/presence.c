/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/presence.h"

#include "base/util.h"
#include "vgpu/limiter/clocks.h"

/* What is this unlikely is not chance. */
#define UNLIKELY 0.01

/* A probe is done right behind a kernel's end: events are 1.3 us apart on H100, and told to half a
 * microsecond. What is left of a kernel when a slice begins ends after that. */
#define BEHIND_NS 3000.0
#define TOLD_NS 600.0

/* One probe in thirty can be late for reasons of its own. */
#define CONTENDED 0.03

/* Of the sums over kernels of a kind, what the next probe leaves. */
#define SUMS_KEPT 0.99

/* What is expected of a kind's first kernel is worth so many probes. */
#define PRIOR 0.5

/* So many slices of ours in which a kernel ended, and no probe that was recorded before came back
 * after it: events complete at once here. */
#define PROMPT_SLICES 96
#define SENT_NS 350e3 /* from a slice's beginning until the next probe may be on its way */

#define NEVER_NS (-1e15)
#define ALWAYS_NS 1e15

/* From a launch until the device sees it. */
#define LATENCY_NS 2e3

/* Of probes, which are kept in the order in which they were sent: by what is known of the clocks,
 * which changes, it may be another one. */
#define DISORDER_NS 10e6

/* As long as nothing is known of it, others have the device for a slice of theirs and two changes
 * of the context, 165 us each on H100. */
#define ABSENCE_NS (PRESENCE_SLICE_NS + 330e3)

/* What slices of ours are told to. */
#define SLICE_ERROR_NS 100e3

#define PART_ONE 65536.0 /* of what processes tell one another */

/* The first kind is shorter than any slice. */
#define FIRST_KIND_NS 80e3

void presence_init(struct presence *presence, _Atomic uint32_t (*told)[PRESENCE_KINDS])
{
    *presence = (struct presence){
        .on_device = 1,
        .run_chance = 1,
        .told = told,
        .slice_ns = NEVER_NS,
        .on_ns = NEVER_NS,
        .absence_ns = -1,
        .runs_since_ns = ALWAYS_NS,
    };
    /* Later than NEVER_NS: the first late probe counts as of a slice in which something ended. */
    for (unsigned i = 0; i < PRESENCE_ENDS; i++)
        presence->runs[i] = (struct presence_run){NEVER_NS, NEVER_NS, -1};
    for (unsigned i = 0; i < PRESENCE_STARTS; i++)
        presence->starts_ns[i] = NEVER_NS;
}

void presence_move(struct presence *presence, double later_ns)
{
    presence->slice_ns -= later_ns;
    presence->on_ns -= later_ns;
    for (unsigned i = 0; i < PRESENCE_PROBES; i++)
        presence->probes[i].at_ns -= later_ns;
    for (unsigned i = 0; i < PRESENCE_ENDS; i++) {
        presence->runs[i].began_ns -= later_ns;
        presence->runs[i].queued_ns -= later_ns;
        presence->runs[i].end_ns -= later_ns;
    }
    for (unsigned i = 0; i < PRESENCE_STARTS; i++)
        presence->starts_ns[i] -= later_ns;
}

static void add(struct presence *presence, enum probe_state state, double at_ns,
                enum probe_work work)
{
    presence->open -= presence->probes[presence->next].state == PROBE_OPEN;
    presence->open += state == PROBE_OPEN;
    presence->probes[presence->next].at_ns = at_ns;
    presence->probes[presence->next].state = state;
    presence->probes[presence->next].work = work;
    presence->next = (presence->next + 1) % PRESENCE_PROBES;
}

static void note_contention(struct presence *presence, bool on)
{
    presence->contended += ((on ? 0.0 : 1.0) - presence->contended) / 32;
    presence->off += presence->answered < PRESENCE_FIRST && !on;
    presence->answered += presence->answered < PRESENCE_FIRST;

    /* So long a run of "on" that the fraction so far does not explain it: the others have left. */
    presence->run_chance = on ? presence->run_chance * presence->on_device : 1;
    if (presence->run_chance < UNLIKELY) {
        presence->on_device = 1;
        presence->run_chance = 1;
    }
}

void presence_on(struct presence *presence, double at_ns, enum probe_work work)
{
    add(presence, PROBE_ON, at_ns, work);
    note_contention(presence, true);
}

void presence_note_on(struct presence *presence, double at_ns)
{
    presence->on_ns = MAX(presence->on_ns, at_ns);
}

void presence_open(struct presence *presence, double at_ns, enum probe_work work)
{
    add(presence, PROBE_OPEN, at_ns, work);
}

/* Whether anything of ours ended in between. */
static bool has_ended(const struct presence *presence, double from_ns, double to_ns)
{
    for (unsigned i = 0; i < PRESENCE_ENDS; i++) {
        if (presence->runs[i].end_ns > from_ns && presence->runs[i].end_ns < to_ns)
            return true;
    }
    return false;
}

/* The end of the slice that began last: a slice after its beginning, or so many later that what we
 * know to be on the device is in it. */
static double slice_end_ns(const struct presence *presence)
{
    double since_ns = presence->on_ns - presence->slice_ns;

    return presence->slice_ns +
           PRESENCE_SLICE_NS * (1 + (double)(int64_t)(since_ns / PRESENCE_SLICE_NS));
}

/* A probe was not done before a kernel of ours was, in whose hardware queue it had waited. */
static bool is_behind(const struct presence *presence, double done_ns)
{
    return has_ended(presence, done_ns - BEHIND_NS, done_ns + TOLD_NS);
}

/* The slice of ours before the one that begins: a probe that was recorded in it, and waited for
 * this one, was on the device all the same. */
struct slice {
    double from_ns, until_ns;
    bool is_seen; /* its beginning is known, not how much time has passed */
};

/* A probe that was recorded in a slice and done as the next one began says how long others have the
 * device in between. */
static void learn_absence(struct presence *presence, double end_ns, double done_ns)
{
    double absence_ns = done_ns - end_ns;

    if (presence->absence_ns < 0)
        presence->absence_ns = absence_ns;
    presence->absence_ns += (absence_ns - presence->absence_ns) / 8;
    presence->least_absence_ns += (absence_ns - presence->least_absence_ns) / 64;
    presence->least_absence_ns = MIN(presence->least_absence_ns, absence_ns);
}

static double absence_ns(const struct presence *presence)
{
    return presence->absence_ns < 0 ? ABSENCE_NS : presence->absence_ns;
}

/* Whether a kernel was on the device as the slice before ended: where its launch came after its
 * start had run, and the device had left us in between, it began with this one. */
static bool was_seen(const struct presence *presence, const struct presence_run *run)
{
    const double seen_ns = MAX(MAX(presence->slice_ns, presence->on_ns), run->began_ns);

    return run->queued_ns + LATENCY_NS <= seen_ns;
}

/* Whether a kernel of ours ran when the probe was recorded, and runs on in the slice in which it is
 * done: the slice before lasted. */
static bool has_lasted(const struct presence *presence, double recorded_ns, double done_ns)
{
    if (presence->runs_since_ns < recorded_ns)
        return true;
    for (unsigned i = 0; i < PRESENCE_ENDS; i++) {
        const struct presence_run *run = &presence->runs[i];

        if (run->began_ns < recorded_ns && run->end_ns > done_ns + BEHIND_NS &&
            was_seen(presence, run))
            return true;
    }
    return false;
}

/* Where so much time has passed that a slice of ours may have begun unseen, it was as long before
 * this one as others mostly have the device; but none began since the probe was sent, which would
 * have been done then. */
static struct slice slice_before(struct presence *presence, double recorded_ns, double done_ns)
{
    const bool lasted = has_lasted(presence, recorded_ns, done_ns);
    const double end_ns = slice_end_ns(presence);
    double before_ns;

    if (lasted && recorded_ns >= presence->slice_ns && recorded_ns < end_ns && done_ns > end_ns)
        learn_absence(presence, end_ns, done_ns);
    before_ns = done_ns - absence_ns(presence);
    if (presence->absence_ns < 0 || before_ns < end_ns + PRESENCE_SLICE_NS - SLICE_ERROR_NS ||
        before_ns - PRESENCE_SLICE_NS > recorded_ns)
        return (struct slice){
            .from_ns = presence->slice_ns,
            .until_ns = lasted ? end_ns : MIN(end_ns, before_ns),
            .is_seen = end_ns - presence->slice_ns < 1.5 * PRESENCE_SLICE_NS,
        };
    return (struct slice){.from_ns = before_ns - PRESENCE_SLICE_NS, .until_ns = before_ns};
}

/* Whether probes are late here on the device, too: one that outlasts the end of a kernel was.
 * What ended right after a slice's beginning ended before one could be sent. */
static void learn_deferral(struct presence *presence, double at_ns, double done_ns)
{
    if (has_ended(presence, at_ns, done_ns - BEHIND_NS))
        presence->prompt_slices = 0;
    else if (at_ns < slice_end_ns(presence) && presence->prompt_slices < PROMPT_SLICES &&
             has_ended(presence, presence->slice_ns + SENT_NS, at_ns + BEHIND_NS))
        presence->prompt_slices++;
}

/*
 * A late probe is done as a slice of ours begins, and may have been recorded in the one before. By
 * the time that has passed that is told only where the device may have stopped to look after us:
 * not while kernels wait. Where they are short the slice ended soon after that.
 */
static enum probe_state late_state(const struct presence *presence, const struct slice *slice,
                                   double at_ns, enum probe_work work, double done_ns)
{
    if (is_behind(presence, done_ns))
        return PROBE_NONE;
    if (!presence->are_short && at_ns >= slice->from_ns && at_ns < slice->until_ns &&
        (slice->is_seen || work == WORK_RUNS) && presence->prompt_slices < PROMPT_SLICES)
        return PROBE_ON;
    return has_ended(presence, at_ns, done_ns - BEHIND_NS) ? PROBE_ON : PROBE_OFF;
}

static unsigned resolve_open(struct presence *presence, const struct slice *slice, double done_ns)
{
    unsigned off = 0;

    for (unsigned i = 0; i < PRESENCE_PROBES && presence->open; i++) {
        if (presence->probes[i].state != PROBE_OPEN)
            continue;
        presence->open--;
        presence->probes[i].state = late_state(presence, slice, presence->probes[i].at_ns,
                                               presence->probes[i].work, done_ns);
        presence->voided += presence->probes[i].state == PROBE_NONE;
        off += presence->probes[i].state == PROBE_OFF;
        if (presence->probes[i].state != PROBE_NONE)
            note_contention(presence, false);
    }
    return off;
}

void presence_was_prompt(struct presence *presence)
{
    for (unsigned i = 0; i < PRESENCE_PROBES && presence->open; i++) {
        if (presence->probes[i].state != PROBE_OPEN)
            continue;
        presence->open--;
        presence->probes[i].state = PROBE_ON;
        note_contention(presence, true);
    }
}

void presence_forget(struct presence *presence)
{
    for (unsigned i = 0; i < PRESENCE_PROBES; i++) {
        if (presence->probes[i].state == PROBE_OPEN)
            presence->probes[i].state = PROBE_NONE;
    }
    presence->open = 0;
}

/* A kernel that had to wait for the device began as a slice of ours did. */
static void take_starts(struct presence *presence, double done_ns)
{
    for (unsigned i = 0; i < PRESENCE_STARTS; i++) {
        if (presence->starts_ns[i] > presence->slice_ns &&
            presence->starts_ns[i] < done_ns - BEHIND_NS)
            presence->slice_ns = presence->starts_ns[i];
    }
    presence->on_ns = MAX(presence->on_ns, presence->slice_ns);
}

unsigned presence_resolve(struct presence *presence, double sent_ns, double done_ns)
{
    struct slice slice;
    unsigned off;

    take_starts(presence, done_ns);
    slice = slice_before(presence, sent_ns, done_ns);
    learn_deferral(presence, sent_ns, done_ns);
    off = resolve_open(presence, &slice, done_ns);
    presence->runs_since_ns = ALWAYS_NS;
    if (!is_behind(presence, done_ns))
        presence->slice_ns = presence->on_ns = done_ns;
    return off;
}

void presence_note_end(struct presence *presence, struct presence_run run)
{
    presence->runs[presence->next_run] = run;
    presence->next_run = (presence->next_run + 1) % PRESENCE_ENDS;
}

void presence_note_running(struct presence *presence, struct presence_run run)
{
    if (was_seen(presence, &run))
        presence->runs_since_ns = MIN(presence->runs_since_ns, run.began_ns);
}

void presence_note_start(struct presence *presence, double sent_ns, double began_ns)
{
    if (began_ns - sent_ns <= CLOCKS_PROMPT_NS)
        return;
    for (unsigned i = 0; i < PRESENCE_STARTS; i++) {
        if (presence->starts_ns[i] == began_ns)
            return;
    }
    presence->starts_ns[presence->next_start] = began_ns;
    presence->next_start = (presence->next_start + 1) % PRESENCE_STARTS;
}

bool presence_contended(const struct presence *presence)
{
    return presence->contended > CONTENDED;
}

/* A probe that is out yet when a kernel has ended in which it was recorded waits for the next
 * slice: it was recorded in this one. Of a kernel that runs nothing is known by it. */
static unsigned count_within(const struct presence *presence, double start_ns, double end_ns,
                             bool ended, unsigned *ret_on)
{
    const enum probe_state least = ended ? PROBE_OPEN : PROBE_ON;

    unsigned all = 0;

    *ret_on = 0;
    for (unsigned i = 1; i <= PRESENCE_PROBES; i++) {
        const struct probe *probe = &presence->probes[(presence->next - i) % PRESENCE_PROBES];

        if (probe->at_ns < start_ns - DISORDER_NS)
            break;
        if (probe->at_ns < start_ns || probe->at_ns > end_ns || probe->state < least)
            continue;
        *ret_on += probe->state != PROBE_OFF;
        all++;
    }
    return all;
}

/* The probes within, and where they are few, what is known of others. */
static double part_by(unsigned on, unsigned all, double others)
{
    return (on + 4 * others) / (all + 4.0);
}

double presence_part_so_far(const struct presence *presence, double start_ns, double end_ns)
{
    unsigned on, all = count_within(presence, start_ns, end_ns, false, &on);

    return part_by(on, all, presence->on_device);
}

/* What part of the time of such kernels is ours. */
static void learn_part(struct presence *presence, unsigned on, unsigned all)
{
    for (unsigned i = 0; i < all; i++) {
        double weight = MAX(1.0 / (presence->known + 8), 1.0 / 64);

        presence->on_device += ((double)on / all - presence->on_device) * weight;
        presence->known += presence->known < 1000;
    }
}

/* By powers of four of its length. */
static struct presence_sums *sums_of(struct presence_sums kinds[PRESENCE_KINDS], double length_ns)
{
    unsigned kind = 0;

    for (double most_ns = FIRST_KIND_NS; length_ns > most_ns && kind + 1 < PRESENCE_KINDS;
         most_ns *= 4)
        kind++;
    return &kinds[kind];
}

enum {
    ALWAYS,
    DOUBT,
};

/* The container's processes' word for sums of a kind; NULL: there is none. */
static _Atomic uint32_t *told_of(const struct presence *presence, unsigned which,
                                 const struct presence_sums *sums)
{
    const struct presence_sums *first = which == ALWAYS ? presence->always : presence->doubt;

    return presence->told ? &presence->told[which][sums - first] : NULL;
}

static double first_part(_Atomic uint32_t *told, double guess)
{
    uint32_t part = told ? atomic_load_explicit(told, memory_order_relaxed) : 0;

    return part && part <= PART_ONE ? (double)part / PART_ONE : guess;
}

static void tell(_Atomic uint32_t *told, double part)
{
    if (told)
        atomic_store_explicit(told, (uint32_t)MAX(part * PART_ONE, 1.0), memory_order_relaxed);
}

static void begin_sums(const struct presence *presence, unsigned which, struct presence_sums *sums,
                       double weight, double guess)
{
    if (sums->all > 0)
        return;
    sums->all = PRIOR * weight;
    sums->on = PRIOR * weight * first_part(told_of(presence, which, sums), guess);
}

/* Adds a kernel, or what is its own of it, with the probes that fell into that. */
static double take_into(const struct presence *presence, unsigned which, struct presence_sums *sums,
                        unsigned on, unsigned all, double weight, double length_ns)
{
    double ours_ns, charge_ns;

    for (unsigned i = 0; i < all; i++) {
        sums->on = sums->on * SUMS_KEPT + weight * on / all;
        sums->all = sums->all * SUMS_KEPT + weight;
        sums->length_ns *= SUMS_KEPT;
        sums->charged_ns *= SUMS_KEPT;
    }
    if (all)
        tell(told_of(presence, which, sums), sums->on / sums->all);
    sums->length_ns += weight * length_ns;
    ours_ns = sums->length_ns * sums->on / sums->all;
    charge_ns = (ours_ns - sums->charged_ns) / weight;
    sums->charged_ns = ours_ns;
    return charge_ns;
}

double presence_always(struct presence *presence, double start_ns, double end_ns, double length_ns)
{
    struct presence_sums *sums = sums_of(presence->always, length_ns);
    unsigned on, all = count_within(presence, start_ns, end_ns, true, &on);

    learn_part(presence, on, all);
    if (!presence_contended(presence))
        return length_ns;
    begin_sums(presence, ALWAYS, sums, 1, 1);
    return length_ns * part_by(on, all, sums->on / sums->all);
}

double presence_charge(struct presence *presence, double start_ns, double end_ns, double own_ns,
                       double length_ns)
{
    struct presence_sums *sums = sums_of(presence->always, length_ns);
    unsigned on, all;

    if (!presence_contended(presence) || sums->all <= 0)
        return own_ns;
    all = count_within(presence, start_ns, end_ns, true, &on);
    return take_into(presence, ALWAYS, sums, on, all, 1, own_ns);
}

double presence_doubt(struct presence *presence, double start_ns, double end_ns, double weight,
                      double expected_ns, double *ret_charge_ns)
{
    unsigned on, all = count_within(presence, start_ns, end_ns, true, &on);
    double length_ns = end_ns - start_ns;
    struct presence_sums *sums = sums_of(presence->doubt, length_ns);

    begin_sums(presence, DOUBT, sums, weight, MIN(expected_ns / length_ns, 1.0));
    *ret_charge_ns = take_into(presence, DOUBT, sums, on, all, weight, length_ns);
    return length_ns * part_by(on, all, sums->on / sums->all);
}
