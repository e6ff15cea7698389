/* SPDX-License-Identifier: Apache-2.0 */

/* What launches cost, by pairs of events around some of them. */

#include <string.h>

#include "base/clock.h"
#include "vgpu/bucket.h"
#include "vgpu/limiter_state.h"
#include "vgpu/real.h"

static uint64_t launch_hash(const struct launch *launch)
{
    uint64_t hash = (uint64_t)(uintptr_t)launch->function;

    for (unsigned i = 0; i < 3; i++)
        hash = (hash ^ launch->grid[i] ^ (uint64_t)launch->block[i] << 32) *
               UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static bool line_is_for(const struct line *line, const struct launch *launch)
{
    return line->function == launch->function &&
           memcmp(line->grid, launch->grid, sizeof(line->grid)) == 0 &&
           memcmp(line->block, launch->block, sizeof(line->block)) == 0;
}

/* A full neighbourhood gives up the line that was measured least. */
struct line *samples_line(struct limiter *limiter, const struct launch *launch)
{
    uint64_t hash = launch_hash(launch);
    struct line *least = NULL;

    for (unsigned i = 0; i < LINE_PROBES; i++) {
        struct line *line = &limiter->lines[(hash + i) % LINES];

        if (line_is_for(line, launch))
            return line;
        if (!least || (least->function && (!line->function || line->measured < least->measured)))
            least = line;
    }

    *least = (struct line){.function = launch->function};
    memcpy(least->grid, launch->grid, sizeof(least->grid));
    memcpy(least->block, launch->block, sizeof(least->block));
    return least;
}

CUevent samples_event(void)
{
    CUevent event;

    return REAL(cuEventCreate)(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : NULL;
}

CUresult samples_record(CUevent event, CUstream stream, bool per_thread)
{
    return per_thread && REAL(cuEventRecord_ptsz) ? REAL(cuEventRecord_ptsz)(event, stream)
                                                  : REAL(cuEventRecord)(event, stream);
}

static struct sample *free_sample(struct limiter *limiter)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        struct sample *sample = &limiter->samples[i];

        if (sample->state != SAMPLE_FREE)
            continue;
        if (!sample->start)
            sample->start = samples_event();
        if (!sample->end)
            sample->end = samples_event();
        return sample->start && sample->end ? sample : NULL;
    }
    return NULL;
}

struct sample *samples_begin(struct limiter *limiter, struct line *line,
                             const struct launch *launch, int64_t now_ns)
{
    struct sample *sample = free_sample(limiter);
    CUevent start, end;

    if (!sample ||
        samples_record(sample->start, launch->stream, launch->per_thread) != CUDA_SUCCESS)
        return NULL;

    start = sample->start, end = sample->end;
    *sample = (struct sample){
        .state = SAMPLE_OPEN,
        .start = start,
        .end = end,
        .line = line,
        .began_ns = now_ns,
        .settle = line->raw_ns >= (double)LONG_NS || !line->measured,
    };
    limiter->last_sample_ns = now_ns;
    limiter->next_sample_ns =
        now_ns + (int64_t)((double)SAMPLE_GAP_NS * (0.5 + limiter_random(limiter)));
    return sample;
}

void samples_cancel(struct limiter *limiter, struct sample *sample)
{
    if (sample->state == SAMPLE_PENDING) {
        limiter->pending--;
        limiter->settling -= sample->settle;
    }
    sample->state = SAMPLE_FREE;
}

void samples_end(struct limiter *limiter, struct sample *sample, const struct launch *launch,
                 int64_t gap_ns)
{
    if (samples_record(sample->end, launch->stream, launch->per_thread) != CUDA_SUCCESS) {
        samples_cancel(limiter, sample);
        return;
    }
    sample->state = SAMPLE_PENDING;
    sample->gap_ns = gap_ns;
    sample->issued_ns = limiter->issued_ns;
    limiter->pending++;
    limiter->settling += sample->settle;
}

/* A slice of somebody else's lies within the measurement, as far as can be told from its length. */
static bool looks_stretched(const struct limiter *limiter, const struct line *line, double length)
{
    return limiter->contended > 0.03 && line->raw_ns < (double)LONG_NS && line->measured >= 4 &&
           length > 2.5 * line->cost_ns + 150000;
}

static void learn(struct limiter *limiter, struct line *line, double length)
{
    double before = line->cost_ns, weight = 1.0 / MIN(line->measured + 1, 64u);
    bool stretched = looks_stretched(limiter, line, length);

    line->stretched += ((stretched ? 1.0 : 0.0) - line->stretched) / 64;
    if (stretched) {
        /* More of them than slices end explain: then they are the kernel's own. */
        double expected = line->cost_ns / 1e6;

        if (line->stretched > expected)
            line->cost_ns += (1 - expected / line->stretched) / 64 * (length - line->cost_ns);
    } else if (limiter->contended > 0.03 && line->measured && line->measured < 4 &&
               line->raw_ns < (double)LONG_NS) {
        line->cost_ns = MIN(line->cost_ns, length);
    } else {
        line->cost_ns += weight * (length - line->cost_ns);
    }

    line->cost_ns = MAX(line->cost_ns, (double)COST_MIN_NS);
    line->measured += line->measured < INT32_MAX;
    line->unseen = 0;
    if (line->cost_ns > 1.05 * before || line->cost_ns < 0.95 * before)
        atomic_fetch_add_explicit(&limiter->generation, 1, memory_order_relaxed);
}

/* The part of an interval that was not charged before; covers it. */
static double take_cover(struct limiter *limiter, struct interval interval)
{
    double open = interval.end_ms - interval.start_ms;
    struct interval *oldest = &limiter->cover[0];

    for (unsigned i = 0; i < COVERS; i++) {
        struct interval *cover = &limiter->cover[i];
        double start = MAX(cover->start_ms, interval.start_ms);
        double end = MIN(cover->end_ms, interval.end_ms);

        if (end > start)
            open -= end - start;
        if (cover->end_ms < oldest->end_ms)
            oldest = cover;
    }

    /* What overlaps grows into one, so that nothing is counted twice. */
    for (unsigned i = 0; i < COVERS; i++) {
        struct interval *cover = &limiter->cover[i];

        if (cover->end_ms < interval.start_ms || cover->start_ms > interval.end_ms ||
            cover->end_ms <= cover->start_ms)
            continue;
        interval.start_ms = MIN(interval.start_ms, cover->start_ms);
        interval.end_ms = MAX(interval.end_ms, cover->end_ms);
        *cover = (struct interval){0};
        oldest = cover;
    }
    *oldest = interval;
    return MAX(open, 0.0);
}

/* Event times are floats of ms: exact enough for some seconds after their base. */
static void renew_base(struct limiter *limiter, int64_t now_ns)
{
    if (now_ns - limiter->base_ns < 8 * NS_PER_S || limiter->pending > limiter->settling)
        return;
    if (!limiter->base)
        limiter->base = samples_event();
    if (!limiter->base || !limiter->probe_stream ||
        REAL(cuEventRecord)(limiter->base, limiter->probe_stream) != CUDA_SUCCESS)
        return;
    limiter->base_ns = now_ns;
    limiter->probe_least_ns = 1e18;
    memset(limiter->cover, 0, sizeof(limiter->cover));
}

/* The fraction of a sample's time that no earlier one was charged for. */
static double uncovered(struct limiter *limiter, const struct sample *sample)
{
    float start_ms, end_ms;

    if (!limiter->base ||
        REAL(cuEventElapsedTime)(&start_ms, limiter->base, sample->start) != CUDA_SUCCESS ||
        REAL(cuEventElapsedTime)(&end_ms, limiter->base, sample->end) != CUDA_SUCCESS ||
        end_ms <= start_ms)
        return 1;
    return take_cover(limiter, (struct interval){start_ms, end_ms}) /
           ((double)end_ms - (double)start_ms);
}

/* Charged by its own measurement: what it took, less what it had paid. */
static void settle(struct limiter *limiter, const struct sample *sample, double length)
{
    double part = uncovered(limiter, sample);

    limiter->cover_long += (part - limiter->cover_long) / 32;
    limiter_charge(limiter, (int64_t)(length * part) - sample->paid_ns - sample->provisional_ns);
    bucket_wake(limiter->compute);
}

static void note_longest(struct limiter *limiter, double length)
{
    _Atomic int64_t *longest = &limiter->compute->longest_ns;
    int64_t before = atomic_load_explicit(longest, memory_order_relaxed);
    double kept = (double)before * (length >= (double)LONG_NS ? 0.98 : 0.999);

    atomic_store_explicit(longest, (int64_t)MAX(kept, length), memory_order_relaxed);
}

static void finish(struct limiter *limiter, struct sample *sample, double length)
{
    struct line *line = sample->line;
    bool first = !line->measured;
    bool is_long = line->raw_ns >= (double)LONG_NS || (first && length >= (double)LONG_NS);

    length = MAX(length - limiter->overhead_ns - (double)sample->gap_ns, (double)COST_MIN_NS);
    line->raw_ns += (length - line->raw_ns) / MIN(line->measured + 1, 64u);
    if (is_long) {
        /* The slices of others: the part of the probes that found us on the device. */
        double seen = sample->on + sample->off;

        length *= (sample->on + 4 * limiter->on_device) / (seen + 4);
    }
    learn(limiter, line, length);
    note_longest(limiter, length);
    if (sample->settle)
        settle(limiter, sample, length);
    limiter->done_ns = MAX(limiter->done_ns, sample->issued_ns);
    atomic_fetch_add_explicit(&limiter->compute->samples, 1, memory_order_relaxed);
}

/* Pairs recorded back to back take what an event takes. */
static void finish_calibration(struct limiter *limiter, double length)
{
    limiter->overhead_ns = limiter->overhead_ns < 0 ? length : MIN(limiter->overhead_ns, length);
}

static void poll_sample(struct limiter *limiter, struct sample *sample, int64_t now_ns)
{
    CUresult result = REAL(cuEventQuery)(sample->end);
    double length;
    float ms;

    if (result == CUDA_ERROR_NOT_READY) {
        /* What runs on and on is charged as it runs, so that its siblings wait. */
        double expected = (double)(now_ns - sample->began_ns) * limiter->on_device;

        if (sample->settle && sample->line &&
            expected > 2 * (double)(sample->paid_ns + sample->provisional_ns) + 1e7) {
            int64_t more = (int64_t)expected - sample->paid_ns - sample->provisional_ns;

            sample->provisional_ns += more;
            limiter_charge(limiter, more);
        }
        return;
    }

    samples_cancel(limiter, sample);
    if (result != CUDA_SUCCESS ||
        REAL(cuEventElapsedTime)(&ms, sample->start, sample->end) != CUDA_SUCCESS)
        return;
    length = (double)ms * 1e6;
    if (sample->line)
        finish(limiter, sample, length);
    else
        finish_calibration(limiter, length);
}

void samples_poll(struct limiter *limiter, int64_t now_ns)
{
    unsigned asked = 0;

    if (now_ns - limiter->polled_ns < POLL_GAP_NS)
        return;
    limiter->polled_ns = now_ns;
    for (unsigned i = 0; i < SAMPLES && limiter->pending && asked < 16; i++) {
        if (limiter->samples[i].state != SAMPLE_PENDING)
            continue;
        poll_sample(limiter, &limiter->samples[i], now_ns);
        asked++;
    }
    windows_poll(limiter);
    renew_base(limiter, now_ns);
}

void samples_calibrate(struct limiter *limiter)
{
    for (unsigned i = 0; i < CALIBRATIONS; i++) {
        struct sample *sample = free_sample(limiter);
        CUevent start, end;

        if (!sample || REAL(cuEventRecord)(sample->start, limiter->probe_stream) != CUDA_SUCCESS ||
            REAL(cuEventRecord)(sample->end, limiter->probe_stream) != CUDA_SUCCESS)
            return;
        start = sample->start, end = sample->end;
        *sample = (struct sample){.state = SAMPLE_PENDING, .start = start, .end = end};
        limiter->pending++;
    }
}
