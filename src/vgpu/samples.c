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

static bool cost_is_for(const struct kernel_cost *kernel, const struct launch *launch)
{
    return kernel->function == launch->function &&
           memcmp(kernel->grid, launch->grid, sizeof(kernel->grid)) == 0 &&
           memcmp(kernel->block, launch->block, sizeof(kernel->block)) == 0;
}

/* A full neighbourhood gives up the kernel that was measured least. */
struct kernel_cost *samples_cost(struct limiter *limiter, const struct launch *launch)
{
    uint64_t hash = launch_hash(launch);
    struct kernel_cost *least = NULL;

    for (unsigned i = 0; i < LINE_PROBES; i++) {
        struct kernel_cost *kernel = &limiter->kernels[(hash + i) % KERNELS];

        if (cost_is_for(kernel, launch))
            return kernel;
        if (!least ||
            (least->function && (!kernel->function || kernel->measured < least->measured)))
            least = kernel;
    }

    *least = (struct kernel_cost){.function = launch->function};
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

struct sample *samples_begin(struct limiter *limiter, struct kernel_cost *kernel,
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
        .kernel = kernel,
        .began_ns = now_ns,
        .settle = kernel->raw_ns >= (double)LONG_NS || !kernel->measured,
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
static bool looks_stretched(const struct limiter *limiter, const struct kernel_cost *kernel,
                            double length)
{
    return limiter->contended > 0.03 && kernel->raw_ns < (double)LONG_NS && kernel->measured >= 4 &&
           length > 2.5 * kernel->cost_ns + 150000;
}

static void learn(struct limiter *limiter, struct kernel_cost *kernel, double length)
{
    double before = kernel->cost_ns, weight = 1.0 / MIN(kernel->measured + 1, 64u);
    bool stretched = looks_stretched(limiter, kernel, length);

    kernel->stretched += ((stretched ? 1.0 : 0.0) - kernel->stretched) / 64;
    if (stretched) {
        /* More of them than slices end explain: then they are the kernel's own. */
        double expected = kernel->cost_ns / 1e6;

        if (kernel->stretched > expected)
            kernel->cost_ns += (1 - expected / kernel->stretched) / 64 * (length - kernel->cost_ns);
    } else if (limiter->contended > 0.03 && kernel->measured && kernel->measured < 4 &&
               kernel->raw_ns < (double)LONG_NS) {
        kernel->cost_ns = MIN(kernel->cost_ns, length);
    } else {
        kernel->cost_ns += weight * (length - kernel->cost_ns);
    }

    kernel->cost_ns = MAX(kernel->cost_ns, (double)COST_MIN_NS);
    kernel->measured += kernel->measured < INT32_MAX;
    kernel->unseen = 0;
    if (kernel->cost_ns > 1.05 * before || kernel->cost_ns < 0.95 * before)
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
    struct kernel_cost *kernel = sample->kernel;
    bool first = !kernel->measured;
    bool is_long = kernel->raw_ns >= (double)LONG_NS || (first && length >= (double)LONG_NS);

    length = MAX(length - limiter->overhead_ns - (double)sample->gap_ns, (double)COST_MIN_NS);
    kernel->raw_ns += (length - kernel->raw_ns) / MIN(kernel->measured + 1, 64u);
    if (is_long) {
        /* The slices of others: the part of the probes that found us on the device. */
        double seen = sample->on + sample->off;

        length *= (sample->on + 4 * limiter->on_device) / (seen + 4);
    }
    learn(limiter, kernel, length);
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

        if (sample->settle && sample->kernel &&
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
    if (sample->kernel)
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
