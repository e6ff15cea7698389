/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/samples.h"

#include "base/util.h"

/* Event times are floats of ms: exact to a microsecond for some seconds after their base. */
#define BASE_NS (8 * NS_PER_S)

#define LOOKS_KEPT 64 /* of late */

/* Behind so long a kernel the host is done with a pair of events before the device comes to it. */
#define CALIBRATION_LEAST_NS 20e3

/* A launch that blocks has its kernel queued within this, if nobody found its stream idle since. */
#define LAUNCH_MOST_NS INT64_C(20000)

/* What was launched so long ago and has not begun is in a stream that waits. */
#define STUCK_NS INT64_C(30000000)

/* A mark may be on its way longer than the sample. */
static bool marks_are_done(const struct limiter_gpu *ops, void *gpu, struct sample *sample)
{
    while (sample->mark_count &&
           ops->query(gpu, sample->marks[sample->mark_count - 1]) != EVENT_NOT_YET)
        sample->mark_count--;
    return sample->mark_count == 0;
}

static struct sample *find_place(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    for (unsigned i = samples_find(samples->taken, 0, false); i < SAMPLES;
         i = samples_find(samples->taken, i + 1, false)) {
        if (marks_are_done(ops, gpu, &samples->list[i]))
            return &samples->list[i];
    }
    return NULL;
}

bool samples_have_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    return find_place(samples, ops, gpu) != NULL;
}

/* A place of which nothing but marks is on its way. */
static struct sample *find_left(struct samples *samples)
{
    const unsigned place = samples_find(samples->taken, 0, false);

    return place < SAMPLES ? &samples->list[place] : NULL;
}

static void take(struct samples *samples, struct sample *sample, enum sample_state state)
{
    const size_t place = (size_t)(sample - samples->list);

    sample->state = state;
    samples->taken[place / 64] |= UINT64_C(1) << (place % 64);
    samples->open += state == SAMPLE_OPEN;
    samples->pending += state == SAMPLE_PENDING;
}

static bool is_paid_for(const struct sample *sample)
{
    return sample->state == SAMPLE_PENDING &&
           (sample->kind == SAMPLE_ALWAYS || sample->kind == SAMPLE_DRAWN);
}

/* What is measured next in its stream; NULL: nothing. */
static struct sample *find_next(struct samples *samples, const struct sample *sample)
{
    struct sample *next = NULL;

    samples_for_each (i, samples->taken) {
        struct sample *other = &samples->list[i];

        if (is_paid_for(other) && other->began_ns > sample->began_ns &&
            launches_share_stream(&other->launch, &sample->launch) &&
            (!next || other->began_ns < next->began_ns))
            next = other;
    }
    return next;
}

static struct sample *find_pair(struct samples *samples, struct sample **ret_next)
{
    samples_for_each (i, samples->taken) {
        struct sample *sample = &samples->list[i];

        *ret_next = is_paid_for(sample) ? find_next(samples, sample) : NULL;
        if (*ret_next)
            return sample;
    }
    return NULL;
}

static void join(struct samples *samples, struct sample *sample, struct sample *next)
{
    void *end = sample->end;

    sample->end = next->end;
    next->end = end;
    samples->always += sample->kind != SAMPLE_ALWAYS;
    sample->kind = SAMPLE_ALWAYS;
    sample->is_sum = true;
    sample->weight = 1;
    sample->expected_ns += next->expected_ns;
    sample->paid_ns += next->paid_ns;
    sample->provisional_ns += next->provisional_ns;
    sample->issued_ns = next->issued_ns;
    sample->over_ns = 0;
    samples_free(samples, next);
}

bool samples_can_make_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    struct sample *next;

    return samples_have_room(samples, ops, gpu) || find_left(samples) || find_pair(samples, &next);
}

static struct sample *find_free(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    struct sample *sample = find_place(samples, ops, gpu);

    if (!sample)
        sample = find_left(samples);
    if (!sample)
        return NULL;
    sample->marks_are_old = sample->mark_count;
    if (!sample->start)
        sample->start = ops->make_event(gpu);
    if (!sample->end)
        sample->end = ops->make_event(gpu);
    return sample->start && sample->end ? sample : NULL;
}

bool samples_make_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    struct sample *sample, *next;

    if (!samples_have_room(samples, ops, gpu) && !find_left(samples)) {
        sample = find_pair(samples, &next);
        if (sample)
            join(samples, sample, next);
    }
    return find_free(samples, ops, gpu);
}

static void begin_calibration(struct samples *samples, struct sample *sample)
{
    take(samples, sample, SAMPLE_PENDING);
    sample->kind = SAMPLE_CALIBRATION;
    sample->is_behind = false;
    sample->kernel = NULL;
    sample->over_ns = 0;
}

void samples_calibrate(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    samples->overhead_ns = -1;
    for (unsigned i = 0; i < CALIBRATIONS; i++) {
        struct sample *sample = find_free(samples, ops, gpu);

        if (!sample || !ops->record(gpu, sample->start, NULL) ||
            !ops->record(gpu, sample->end, NULL))
            return;
        begin_calibration(samples, sample);
    }
}

/* Behind a kernel that is over when the pair is recorded, or just about, the host has a part in it.
 * If the device has not even come to what is before the kernel, it has not. */
static void calibrate_behind(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                             const struct sample *kernel)
{
    struct sample *sample = NULL;

    if (samples->behind + samples->behind_out < CALIBRATIONS &&
        samples->behind_tries < CALIBRATION_TRIES)
        sample = find_free(samples, ops, gpu);
    if (!sample || !ops->record(gpu, sample->start, &kernel->launch) ||
        !ops->record(gpu, sample->end, &kernel->launch))
        return;
    begin_calibration(samples, sample);
    sample->is_behind = ops->query(gpu, kernel->start) == EVENT_NOT_YET;
    sample->kernel = kernel;
    sample->kernel_began_ns = kernel->began_ns;
    samples->behind_tries++;
    samples->behind_out++;
}

/* The kernel ran so long that the pair waited for it. */
static bool was_behind(const struct limiter_gpu *ops, void *gpu, const struct sample *sample)
{
    const struct sample *kernel = sample->kernel;
    double ms;

    if (sample->is_behind || !kernel)
        return sample->is_behind;
    return kernel->began_ns == sample->kernel_began_ns &&
           ops->elapsed_ms(gpu, kernel->start, sample->start, &ms) &&
           ms * 1e6 - (double)kernel->gap_ns > CALIBRATION_LEAST_NS;
}

void samples_note_overhead(struct samples *samples, const struct sample *sample, double length_ns)
{
    bool is_first = samples->overhead_ns < 0 || (sample->is_behind && !samples->knows_behind);

    if (length_ns < 0 || (samples->knows_behind && !sample->is_behind))
        return;
    samples->overhead_ns = is_first ? length_ns : MIN(samples->overhead_ns, length_ns);
    samples->knows_behind = sample->is_behind;
    samples->behind += sample->is_behind;
}

/* Of what a pair takes by itself, without the host: where the kernel waited for that, its part is
 * told by the gap. */
static double overhead_of(const struct samples *samples, const struct sample *sample)
{
    return (sample->gap_ns || sample->queued_ns) && !samples->knows_behind
               ? 0
               : MAX(samples->overhead_ns, 0.0);
}

static bool is_on_its_way_in(const struct sample *sample, const struct launch *where)
{
    return sample->state == SAMPLE_PENDING && sample->kind != SAMPLE_CALIBRATION &&
           launches_share_stream(&sample->launch, where);
}

/* NULL: nothing that is measured is on its way in the stream. */
static const struct sample *find_oldest(const struct samples *samples, const struct launch *where)
{
    const struct sample *oldest = NULL;

    samples_for_each (i, samples->taken) {
        const struct sample *sample = &samples->list[i];

        if (is_on_its_way_in(sample, where) && (!oldest || sample->began_ns < oldest->began_ns))
            oldest = sample;
    }
    return oldest;
}

/* It waits for something, and is no company. */
static bool is_stuck(const struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                     const struct launch *where, int64_t now_ns)
{
    const struct sample *oldest = find_oldest(samples, where);

    return oldest && now_ns - oldest->began_ns > STUCK_NS &&
           ops->query(gpu, oldest->start) == EVENT_NOT_YET;
}

struct sample *samples_begin(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                             enum sample_kind kind, const struct launch *launch,
                             const struct launch *others, unsigned other_count, int64_t now_ns)
{
    struct sample *sample = find_free(samples, ops, gpu);
    unsigned marks = 0;
    int64_t recorded_ns;

    if (sample && sample->marks_are_old)
        other_count = 0;
    for (unsigned i = 0; sample && i < MIN(other_count, (unsigned)SAMPLE_MARKS); i++) {
        if (ops->is_idle(gpu, &others[i]) || is_stuck(samples, ops, gpu, &others[i], now_ns))
            continue;
        if (!sample->marks[marks])
            sample->marks[marks] = ops->make_event(gpu);
        if (!sample->marks[marks] || !ops->record(gpu, sample->marks[marks], &others[i]))
            continue;
        sample->mark_in[marks++] = others[i];
    }
    recorded_ns = ops->now_ns(gpu);
    if (!sample || !ops->record(gpu, sample->start, launch))
        return NULL;
    sample->recorded_ns = recorded_ns;
    take(samples, sample, SAMPLE_OPEN);
    sample->kind = kind;
    sample->launch = *launch;
    if (!sample->marks_are_old)
        sample->mark_count = marks;
    sample->is_sum = sample->is_ended = false;
    sample->weight = 1;
    sample->expected_ns = sample->ridden_ns = 0;
    sample->paid_ns = sample->provisional_ns = sample->started_ns = 0;
    sample->gap_ns = sample->held_ns = sample->after_ns = sample->over_ns = 0;
    sample->queued_ns = sample->called_ns = sample->seen_ns = 0;
    sample->looks = sample->busy_looks = 0;
    sample->began_ns = sample->since_ns = now_ns;
    return sample;
}

/* Of what was launched before it into a stream and is being measured, the first; NULL: nothing. */
static const struct sample *first_before(const struct samples *samples, const struct sample *sample,
                                         const struct launch *where)
{
    const struct sample *first = NULL;

    samples_for_each (i, samples->taken) {
        const struct sample *other = &samples->list[i];

        if (is_on_its_way_in(other, where) && other->began_ns <= sample->began_ns &&
            (!first || other->began_ns < first->began_ns))
            first = other;
    }
    return first;
}

static bool began_before_end(const struct limiter_gpu *ops, void *gpu, const struct sample *other,
                             const struct sample *sample, double *ret_began_ms)
{
    double ms;

    return ops->query(gpu, other->start) == EVENT_DONE &&
           ops->elapsed_ms(gpu, other->start, sample->end, &ms) && ms > 0 &&
           ops->elapsed_ms(gpu, sample->start, other->start, ret_began_ms);
}

static double company_of(const struct limiter_gpu *ops, void *gpu, const struct sample *sample,
                         void *mark)
{
    double ms;

    if (ops->query(gpu, mark) != EVENT_DONE)
        return 1e18;
    return ops->elapsed_ms(gpu, sample->start, mark, &ms) ? ms * 1e6 : -1e18;
}

struct company samples_company(const struct samples *samples, const struct limiter_gpu *ops,
                               void *gpu, const struct sample *sample)
{
    struct company company = {.running_ns = -1e18, .waiting_ns = -1e18, .unseen_ns = -1e18};
    double began_ms;

    for (unsigned i = 0; i < sample->mark_count && sample_has_company(sample); i++) {
        const struct sample *first = first_before(samples, sample, &sample->mark_in[i]);
        const double ns = company_of(ops, gpu, sample, sample->marks[i]);

        if (!first) {
            company.unseen_ns = MAX(company.unseen_ns, ns);
        } else if (began_before_end(ops, gpu, first, sample, &began_ms)) {
            company.running_ns = MAX(company.running_ns, ns);
            company.unseen_ns = MAX(company.unseen_ns, MIN(began_ms * 1e6, ns));
            (void)cover_take(&company.ran, (struct interval){began_ms, ns / 1e6});
        } else {
            company.waiting_ns = MAX(company.waiting_ns, ns);
        }
    }
    return company;
}

/* Where the start ran at once, the kernel waited for the host, and we held that up. */
double samples_delay_ns(const struct sample *sample)
{
    return sample->gap_ns ? (double)sample->held_ns : 0;
}

bool samples_end(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                 struct sample *sample, bool is_recorded)
{
    if (!is_recorded && !sample->is_ended) {
        samples_free(samples, sample);
        return false;
    }
    samples->open--;
    take(samples, sample, SAMPLE_PENDING);
    samples->always += sample->kind == SAMPLE_ALWAYS;
    calibrate_behind(samples, ops, gpu, sample);
    return true;
}

bool samples_may_run(const struct limiter_gpu *ops, void *gpu, const struct launch *where)
{
    return !launch_stream_has_handle(where->stream) || !ops->asks_others(gpu) ||
           ops->is_captured(gpu, where) || !ops->is_idle(gpu, where);
}

static void look_at(struct sample *sample, bool is_busy, int64_t now_ns)
{
    if (is_busy && !sample->seen_ns)
        sample->seen_ns = sample->looks ? now_ns : sample->recorded_ns + LAUNCH_MOST_NS;
    sample->looks++;
    sample->busy_looks += is_busy;
    sample->looked_ns = now_ns;
    sample->was_busy = is_busy;
}

void samples_look(struct samples *samples, const struct limiter_gpu *ops, void *gpu)
{
    samples_for_each (i, samples->taken) {
        struct sample *sample = &samples->list[i];

        if (sample->state != SAMPLE_OPEN)
            continue;
        if (ops->query(gpu, sample->start) != EVENT_DONE)
            continue; /* what is busy is something before it */
        look_at(sample, samples_may_run(ops, gpu, &sample->launch), ops->now_ns(gpu));
    }
}

void samples_note_returned(struct sample *sample, int64_t returned_ns)
{
    if (!sample->seen_ns || sample->seen_ns > returned_ns)
        sample->seen_ns = returned_ns;
    if (!sample->looks || sample->looked_ns < returned_ns)
        return;
    sample->looks--;
    sample->busy_looks -= sample->was_busy;
}

/* Idle once: what nobody looked at is not the kernel's. */
int64_t samples_gap_ns(struct samples *samples, const struct sample *sample, int64_t took_ns)
{
    samples->looks += sample->looks;
    samples->busy_looks += sample->busy_looks;
    if (samples->looks > LOOKS_KEPT) {
        samples->busy_looks *= LOOKS_KEPT / samples->looks;
        samples->looks = LOOKS_KEPT;
    }
    return took_ns - (int64_t)((double)took_ns * samples->busy_looks / (samples->looks + 1));
}

void samples_note_over(struct samples *samples, const struct sample *sample, double took_ns)
{
    double kept;

    samples->over.looks += sample->looks;
    samples->over.busy_looks += sample->busy_looks;
    samples->over.launches++;
    samples->over.took_ns += took_ns;
    if (samples->over.looks <= LOOKS_KEPT)
        return;
    kept = LOOKS_KEPT / samples->over.looks;
    samples->over.looks = LOOKS_KEPT;
    samples->over.busy_looks *= kept;
    samples->over.launches *= kept;
    samples->over.took_ns *= kept;
}

/* Idle once, as above. */
double samples_beside_ns(const struct samples *samples)
{
    const double idle = samples->over.looks - samples->over.busy_looks + 1;

    return samples->over.took_ns / MAX(samples->over.launches, 1.0) * idle /
           (samples->over.looks + 1);
}

static bool is_open_in(const struct sample *sample, const void *stream)
{
    return sample->state == SAMPLE_OPEN && stream && sample->launch.stream == stream;
}

bool samples_are_open_in(const struct samples *samples, const void *stream)
{
    samples_for_each (i, samples->taken) {
        if (is_open_in(&samples->list[i], stream))
            return true;
    }
    return false;
}

void samples_end_stream(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                        const void *stream)
{
    samples_for_each (i, samples->taken) {
        struct sample *sample = &samples->list[i];

        if (is_open_in(sample, stream))
            sample->is_ended = ops->record(gpu, sample->end, &sample->launch);
    }
}

void samples_free(struct samples *samples, struct sample *sample)
{
    const size_t place = (size_t)(sample - samples->list);

    samples->open -= sample->state == SAMPLE_OPEN;
    if (sample->state == SAMPLE_PENDING) {
        samples->pending--;
        samples->always -= sample->kind == SAMPLE_ALWAYS;
        samples->behind_out -= sample->kind == SAMPLE_CALIBRATION && sample->kernel;
    }
    sample->state = SAMPLE_FREE;
    samples->taken[place / 64] &= ~(UINT64_C(1) << (place % 64));
    samples->started[place / 64] &= ~(UINT64_C(1) << (place % 64));
}

void samples_note_started(struct samples *samples, struct sample *sample, int64_t since_ns)
{
    const size_t place = (size_t)(sample - samples->list);

    sample->started_ns = since_ns;
    samples->started[place / 64] |= UINT64_C(1) << (place % 64);
}

static void note_start(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                       struct sample *sample, int64_t now_ns)
{
    if (sample->kind == SAMPLE_ALWAYS && !sample->started_ns &&
        ops->query(gpu, sample->start) == EVENT_DONE)
        samples_note_started(samples, sample, now_ns);
}

/* True when the sample is over, with its length or without. */
static bool look(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                 struct sample *sample, int64_t now_ns, double *ret_length_ns)
{
    enum event_state state = ops->query(gpu, sample->end);
    double ms;

    if (state == EVENT_NOT_YET) {
        note_start(samples, ops, gpu, sample, now_ns);
        return false;
    }
    *ret_length_ns = -1;
    if (state != EVENT_DONE || !ops->elapsed_ms(gpu, sample->start, sample->end, &ms))
        return true;
    *ret_length_ns = ms * 1e6;
    if (sample->kind == SAMPLE_CALIBRATION)
        sample->is_behind = was_behind(ops, gpu, sample);
    else
        *ret_length_ns =
            MAX(ms * 1e6 - overhead_of(samples, sample) - (double)sample->gap_ns, COSTS_LEAST_NS);
    return true;
}

struct sample *samples_next(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                            unsigned *looked, int64_t now_ns, double *ret_length_ns)
{
    const unsigned end = samples->next + SAMPLES;

    for (unsigned at = samples->next; at < end && *looked < SAMPLES_POLLED;) {
        const unsigned place = at % SAMPLES, taken = samples_find(samples->taken, place, true);
        struct sample *sample = &samples->list[taken];

        at += taken - place;
        if (taken == SAMPLES || at >= end)
            continue; /* round the end, or all the way round */
        samples->next = ++at % SAMPLES;
        if (sample->state == SAMPLE_OPEN)
            note_start(samples, ops, gpu, sample, now_ns);
        if (sample->state != SAMPLE_PENDING)
            continue;
        ++*looked;
        if (look(samples, ops, gpu, sample, now_ns, ret_length_ns))
            return sample;
    }
    if (*looked < SAMPLES_POLLED)
        samples->next = end % SAMPLES;
    return NULL;
}

bool samples_interval(const struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                      const struct sample *sample, struct interval *ret_interval)
{
    return samples->base_ns &&
           ops->elapsed_ms(gpu, samples->base, sample->start, &ret_interval->start_ms) &&
           ops->elapsed_ms(gpu, samples->base, sample->end, &ret_interval->end_ms) &&
           ret_interval->end_ms > ret_interval->start_ms;
}

static bool base_is_needed(const struct samples *samples)
{
    samples_for_each (i, samples->taken) {
        const struct sample *sample = &samples->list[i];

        if (sample->state != SAMPLE_FREE && sample->kind == SAMPLE_ALWAYS)
            return true;
    }
    return false;
}

static bool record_base(const struct limiter_gpu *ops, void *gpu, void **event)
{
    if (!*event)
        *event = ops->make_event(gpu);
    return *event && ops->record(gpu, *event, NULL);
}

bool samples_renew_base(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                        int64_t now_ns, double *ret_later_ms, int64_t *ret_host_later_ns)
{
    void *before = samples->base;

    if (!samples->base_ns) {
        if (record_base(ops, gpu, &samples->base)) {
            samples->base_ns = now_ns;
            samples->renew_ns = now_ns + BASE_NS;
        }
        return false;
    }
    if (now_ns < samples->renew_ns ||
        (base_is_needed(samples) && now_ns - samples->base_ns < 8 * BASE_NS))
        return false;
    if (!samples->next_base_ns) {
        if (record_base(ops, gpu, &samples->next_base))
            samples->next_base_ns = now_ns;
        else
            samples->renew_ns = now_ns + BASE_NS;
        return false;
    }
    if (ops->query(gpu, samples->next_base) == EVENT_NOT_YET)
        return false;
    samples->renew_ns = now_ns + BASE_NS;
    *ret_host_later_ns = samples->next_base_ns - samples->base_ns;
    if (!ops->elapsed_ms(gpu, before, samples->next_base, ret_later_ms)) {
        samples->next_base_ns = 0;
        return false;
    }
    samples->base = samples->next_base;
    samples->base_ns = samples->next_base_ns;
    samples->next_base = before;
    samples->next_base_ns = 0;
    return true;
}

void samples_note_end(struct samples *samples, const struct sample *done, int64_t ended_ns)
{
    if (!samples->always)
        return;
    samples_for_each (i, samples->taken) {
        struct sample *sample = &samples->list[i];

        if (sample->state == SAMPLE_PENDING && sample->began_ns > done->began_ns &&
            launches_share_stream(&sample->launch, &done->launch))
            sample->since_ns = MAX(sample->since_ns, ended_ns);
    }
}

int64_t samples_oldest_ns(const struct samples *samples, const struct launch *where)
{
    const struct sample *oldest = find_oldest(samples, where);

    return oldest ? oldest->began_ns : 0;
}

int64_t samples_newest_ns(const struct samples *samples, const struct launch *where)
{
    int64_t newest_ns = 0;

    samples_for_each (i, samples->taken) {
        const struct sample *sample = &samples->list[i];

        if (is_on_its_way_in(sample, where))
            newest_ns = MAX(newest_ns, sample->began_ns);
    }
    return newest_ns;
}

/* Until its launch returns that is known by the looks alone. */
static bool runs(const struct sample *sample)
{
    return sample->started_ns && (sample->state == SAMPLE_PENDING ||
                                  (sample->state == SAMPLE_OPEN && sample->busy_looks));
}

struct sample *samples_leader(struct samples *samples)
{
    struct sample *leader = NULL;

    samples_for_each (i, samples->started) {
        struct sample *sample = &samples->list[i];

        if (sample->kind == SAMPLE_ALWAYS && runs(sample) &&
            (!leader || sample->started_ns < leader->started_ns))
            leader = sample;
    }
    return leader;
}

/* In a stream that waits for something else nothing waits for a kernel. */
static bool is_behind_running(const struct samples *samples, const struct sample *sample)
{
    samples_for_each (i, samples->started) {
        const struct sample *other = &samples->list[i];

        if (other != sample && other->state == SAMPLE_PENDING && other->kind == SAMPLE_ALWAYS &&
            other->started_ns && other->began_ns <= sample->began_ns &&
            launches_share_stream(&other->launch, &sample->launch))
            return true;
    }
    return false;
}

bool samples_wait(const struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                  int64_t since_ns)
{
    samples_for_each (i, samples->taken) {
        const struct sample *sample = &samples->list[i];

        /* Its start is behind what is before it, and done as that ends. */
        if (sample->state == SAMPLE_PENDING && sample->kind != SAMPLE_CALIBRATION &&
            !sample->was_idle && sample->recorded_ns < since_ns &&
            is_behind_running(samples, sample) && ops->query(gpu, sample->start) == EVENT_NOT_YET)
            return true;
    }
    return false;
}
