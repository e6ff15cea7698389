/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/presence.h"

#include <math.h>

#include "base/util.h"

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

#define NEVER_NS (-1e15)

#define PART_ONE 65536.0 /* of what processes tell one another */

/* The first kind is shorter than any slice. */
#define FIRST_KIND_NS 80e3

void presence_init(struct presence *presence, _Atomic uint32_t (*told)[PRESENCE_KINDS])
{
    *presence = (struct presence){.on_device = 1, .run_chance = 1, .told = told};
    presence_new_base(presence);
}

void presence_new_base(struct presence *presence)
{
    presence->drift = (struct presence_drift){.part = presence->drift.part};
    presence->least_known = false;
    presence->least_ns = 0;
    presence->open = 0;
    presence->slice_ns = presence->on_ns = NEVER_NS;
    presence->absence_ns = -1;
    for (unsigned i = 0; i < PRESENCE_PROBES; i++)
        presence->probes[i].state = PROBE_NONE;
    /* Later than NEVER_NS: a base's first late probe counts as of a slice in which something ended.
     */
    for (unsigned i = 0; i < PRESENCE_ENDS; i++)
        presence->ends_ns[i] = -1;
}

/* What slopes of the promptest probes, one span after the other, may differ by; as many make a
 * drift, which chance hardly does; and what no clock does. */
#define SLOPES_ALIKE 20e-6
#define SLOPES_AGREE 2
#define DRIFT_MOST 0.1

/* True when it is sure how far the clocks are apart: prompt is what was so in this span. */
static bool end_span(struct presence_drift *drift)
{
    double slope =
        (drift->least_ns - drift->before_ns) / (drift->least_at_ns - drift->before_at_ns);
    bool alike = fabs(slope - drift->slope) < SLOPES_ALIKE && fabs(slope) < DRIFT_MOST;

    drift->agreed = alike && drift->before_at_ns > 0 ? drift->agreed + 1 : 0;
    drift->slope = slope;
    drift->before_ns = drift->least_ns;
    drift->before_at_ns = drift->least_at_ns;
    if (drift->agreed < SLOPES_AGREE)
        return false;
    drift->part = slope;
    return true;
}

static void learn_drift(struct presence *presence, double behind_ns, int64_t now_ns)
{
    struct presence_drift *drift = &presence->drift;
    const double at_ns = (double)now_ns;

    if (drift->since_ns && now_ns - drift->since_ns >= PRESENCE_SPAN_NS && end_span(drift))
        presence->least_ns =
            MAX(presence->least_ns, drift->least_ns + drift->part * (at_ns - drift->least_at_ns));
    if (!drift->since_ns || now_ns - drift->since_ns >= PRESENCE_SPAN_NS)
        drift->since_ns = now_ns;
    else if (behind_ns >= drift->least_ns)
        return;
    drift->least_ns = behind_ns;
    drift->least_at_ns = at_ns;
}

double presence_late_ns(struct presence *presence, double device_ns, double host_ns, int64_t now_ns)
{
    double behind_ns = device_ns - host_ns;
    double late_ns;

    if (presence->least_known)
        presence->least_ns +=
            (PRESENCE_DRIFT + presence->drift.part) * (double)(now_ns - presence->least_at_ns);
    presence->least_at_ns = now_ns;
    learn_drift(presence, behind_ns, now_ns);
    if (!presence->least_known)
        presence->least_ns = PRESENCE_DRIFT * host_ns + PRESENCE_PROMPT_NS;
    presence->least_ns = MIN(presence->least_ns, behind_ns);
    presence->least_known = true;

    late_ns = behind_ns - presence->least_ns;
    return late_ns < PRESENCE_PROMPT_NS ? 0 : late_ns;
}

double presence_device_ns(const struct presence *presence, double host_ns)
{
    return presence->least_known ? host_ns + presence->least_ns : 1e30;
}

double presence_host_ns(const struct presence *presence, double device_ns)
{
    return presence->least_known ? device_ns - presence->least_ns : -1e15;
}

static void add(struct presence *presence, enum probe_state state, double host_ns)
{
    presence->open -= presence->probes[presence->next].state == PROBE_OPEN;
    presence->open += state == PROBE_OPEN;
    presence->probes[presence->next].at_ns = host_ns + presence->least_ns;
    presence->probes[presence->next].state = state;
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

void presence_on(struct presence *presence, double host_ns)
{
    add(presence, PROBE_ON, host_ns);
    note_contention(presence, true);
}

void presence_note_on(struct presence *presence, double host_ns)
{
    presence->on_ns = MAX(presence->on_ns, host_ns + presence->least_ns);
}

void presence_open(struct presence *presence, double host_ns)
{
    add(presence, PROBE_OPEN, host_ns);
}

/* Whether anything of ours ended in between. */
static bool has_ended(const struct presence *presence, double from_ns, double to_ns)
{
    for (unsigned i = 0; i < PRESENCE_ENDS; i++) {
        if (presence->ends_ns[i] > from_ns && presence->ends_ns[i] < to_ns)
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

/* What is known of our slices as one begins: the one that began last before, and until when a
 * probe that waited for this one was on the device all the same. */
struct slices {
    double from_ns, until_ns;
};

/* A probe that was recorded in a slice and done as the next one began says how long others have the
 * device in between. */
static void learn_absence(struct presence *presence, double end_ns, double done_ns)
{
    double absence_ns = done_ns - end_ns;

    if (presence->absence_ns < 0)
        presence->absence_ns = absence_ns;
    presence->absence_ns += (absence_ns - presence->absence_ns) / 8;
}

/* Where so much time has passed that a slice of ours may have begun unseen, it was as long before
 * this one as others mostly have the device; but none began since the probe was sent, which would
 * have been done then. */
static struct slices slices_before(struct presence *presence, double recorded_ns, double done_ns)
{
    const double end_ns = slice_end_ns(presence);
    double before_ns;

    if (recorded_ns >= presence->slice_ns && recorded_ns < end_ns && done_ns > end_ns)
        learn_absence(presence, end_ns, done_ns);
    before_ns = done_ns - presence->absence_ns;
    if (presence->absence_ns < 0 || before_ns < end_ns + PRESENCE_SLICE_NS ||
        before_ns - PRESENCE_SLICE_NS > recorded_ns)
        return (struct slices){presence->slice_ns, end_ns};
    return (struct slices){before_ns - PRESENCE_SLICE_NS, before_ns};
}

/* Whether probes are late here on the device, too: one that outlasts the end of a kernel was. */
static void learn_deferral(struct presence *presence, double at_ns, double done_ns)
{
    if (has_ended(presence, at_ns, done_ns - BEHIND_NS))
        presence->prompt_slices = 0;
    else if (has_ended(presence, presence->slice_ns, at_ns + BEHIND_NS) &&
             presence->prompt_slices < PROMPT_SLICES)
        presence->prompt_slices++;
}

/* A late probe is done as a slice of ours begins, and may have been recorded in the one before. */
static enum probe_state late_state(const struct presence *presence, struct slices slices,
                                   double at_ns, double done_ns)
{
    if (is_behind(presence, done_ns))
        return PROBE_NONE;
    if (at_ns >= slices.from_ns && at_ns < slices.until_ns &&
        presence->prompt_slices < PROMPT_SLICES)
        return PROBE_ON;
    return has_ended(presence, at_ns, done_ns - BEHIND_NS) ? PROBE_ON : PROBE_OFF;
}

static unsigned resolve_open(struct presence *presence, struct slices slices, double done_ns)
{
    unsigned off = 0;

    for (unsigned i = 0; i < PRESENCE_PROBES && presence->open; i++) {
        if (presence->probes[i].state != PROBE_OPEN)
            continue;
        presence->open--;
        presence->probes[i].state =
            late_state(presence, slices, presence->probes[i].at_ns, done_ns);
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

unsigned presence_resolve(struct presence *presence, double host_ns, double done_ns)
{
    struct slices slices = slices_before(presence, host_ns + presence->least_ns, done_ns);
    unsigned off;

    learn_deferral(presence, host_ns + presence->least_ns, done_ns);
    off = resolve_open(presence, slices, done_ns);

    if (!is_behind(presence, done_ns))
        presence->slice_ns = presence->on_ns = done_ns;
    return off;
}

void presence_note_end(struct presence *presence, double end_ns)
{
    presence->ends_ns[presence->next_end] = end_ns;
    presence->next_end = (presence->next_end + 1) % PRESENCE_ENDS;
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
    for (unsigned i = 0; i < PRESENCE_PROBES; i++) {
        double at_ns = presence->probes[i].at_ns;

        if (at_ns < start_ns || at_ns > end_ns || presence->probes[i].state < least)
            continue;
        *ret_on += presence->probes[i].state != PROBE_OFF;
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
