/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Short kernels on several streams run side by side, so their measured lengths add up to more than
 * the device's time. A window takes what was charged between two moments and the time that passed
 * on the device between them; the ratio, over many windows, corrects the charges of short kernels.
 */

#include "vgpu/limiter_state.h"
#include "vgpu/real.h"

/* Some 60 ms of charges are remembered. */
#define MEMORY_NS 60e6

static bool in_use(const struct stream_use *use, int64_t now_ns)
{
    return use->used_ns && now_ns - use->used_ns < STREAM_IDLE_NS;
}

static unsigned count_streams(const struct limiter *limiter, int64_t now_ns)
{
    unsigned count = 0;

    for (unsigned i = 0; i < STREAMS; i++)
        count += in_use(&limiter->streams[i], now_ns);
    return count;
}

void windows_use_stream(struct limiter *limiter, const struct launch *launch, int64_t now_ns)
{
    struct stream_use *oldest = &limiter->streams[0];

    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream_use *use = &limiter->streams[i];

        if (use->used_ns && use->stream == launch->stream &&
            use->per_thread == launch->per_thread) {
            use->used_ns = now_ns;
            return;
        }
        if (use->used_ns < oldest->used_ns)
            oldest = use;
    }
    oldest->stream = launch->stream;
    oldest->per_thread = launch->per_thread;
    oldest->used_ns = now_ns;
}

/* The threads' own streams have no handle by which another thread could mark them. */
static bool is_threads_own(const struct stream_use *use)
{
    return use->stream == CU_STREAM_PER_THREAD || (use->per_thread && !use->stream);
}

bool windows_wanted(const struct limiter *limiter, int64_t now_ns)
{
    if (limiter->window.open || limiter->window.closing || count_streams(limiter, now_ns) < 2)
        return false;
    for (unsigned i = 0; i < STREAMS; i++) {
        if (in_use(&limiter->streams[i], now_ns) && is_threads_own(&limiter->streams[i]))
            return false;
    }
    return true;
}

void windows_open(struct limiter *limiter, const struct launch *launch, double ahead_ns,
                  int64_t now_ns)
{
    if (!limiter->window.start)
        limiter->window.start = samples_event();
    if (!limiter->window.start ||
        samples_record(limiter->window.start, launch->stream, launch->per_thread) != CUDA_SUCCESS)
        return;
    limiter->window.open = true;
    limiter->window.charged_ns = ahead_ns;
    limiter->window.opened_ns = now_ns;
}

void windows_charge(struct limiter *limiter, double cost_ns, int64_t now_ns)
{
    if (!limiter->window.open)
        return;
    limiter->window.charged_ns += cost_ns;
    if (limiter->window.charged_ns >= (double)WINDOW_NS)
        windows_close(limiter, 0, now_ns);
}

void windows_close(struct limiter *limiter, double ahead_ns, int64_t now_ns)
{
    if (!limiter->window.open)
        return;
    limiter->window.open = false;
    limiter->window.charged_ns -= MIN(ahead_ns, limiter->window.charged_ns);

    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream_use *use = &limiter->streams[i];

        if (!in_use(use, now_ns))
            continue;
        if (!use->end)
            use->end = samples_event();
        if (!use->end || samples_record(use->end, use->stream, use->per_thread) != CUDA_SUCCESS)
            return;
    }
    limiter->window.closing = true;
}

/* When the last stream has passed its mark, the window took the longest of the times to the marks.
 */
void windows_poll(struct limiter *limiter)
{
    double longest_ns = 0, keep;
    float ms;

    if (!limiter->window.closing)
        return;
    for (unsigned i = 0; i < STREAMS; i++) {
        CUevent end = limiter->streams[i].end;

        if (!end)
            continue;
        if (REAL(cuEventQuery)(end) == CUDA_ERROR_NOT_READY)
            return;
        if (REAL(cuEventElapsedTime)(&ms, limiter->window.start, end) == CUDA_SUCCESS)
            longest_ns = MAX(longest_ns, (double)ms * 1e6);
    }

    limiter->window.closing = false;
    keep = MEMORY_NS / (MEMORY_NS + limiter->window.charged_ns);
    limiter->window_charged = limiter->window_charged * keep + limiter->window.charged_ns;
    limiter->window_taken = limiter->window_taken * keep +
                            MIN(limiter->window.charged_ns, longest_ns * limiter->on_device);
}

double windows_factor(const struct limiter *limiter, int64_t now_ns)
{
    if (limiter->window_charged <= 0 || count_streams(limiter, now_ns) < 2)
        return 1;
    return limiter->window_taken / limiter->window_charged;
}

void windows_forget_stream(struct limiter *limiter, CUstream stream)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        if (limiter->streams[i].used_ns && limiter->streams[i].stream == stream) {
            limiter->streams[i].used_ns = 0;
            limiter->window.open = limiter->window.closing = false;
        }
    }
}
