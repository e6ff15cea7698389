/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Holding a container to its share of a device's time.
 *
 * Each launch is charged its cost, as measured for its function and shape, to the bucket that the
 * container's processes share (bucket.h); a launch waits while the bucket is in debt. Costs are
 * measured by pairs of events around sampled launches. What events can't tell apart is corrected:
 *
 *   - The slices of others stretch what is measured. Short kernels: measurements that are longer by
 *     a slice are told from the rest. Long kernels: every one is measured, and multiplied by the
 *     fraction of time that probes found us on the device.
 *   - Our own streams overlap. Long kernels: no moment is charged twice (cover). Short ones: the
 *     charges of a window are compared with the time that it took (windows).
 *   - Queues hide everything: no more than a few ms of charged work may be outstanding.
 *
 * All waiting is before a launch, for a time that comes, with no lock held; waiting for completions
 * is cut off, since the kernel waited for may itself be waiting for this launch. Nothing is
 * measured or delayed while the stream is captured, or anything measured while any capture is going
 * on.
 *
 * One limiter per context of the process; the bucket is per device and shared.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda.h"
#include "region/region.h"
#include "vgpu/vgpu.h"

/* What is launched. Other functions, or other shapes of one, cost something else. */
struct launch {
    const void *function; /* CUfunction or CUgraphExec */
    uint32_t grid[3];
    uint32_t block[3];
    CUstream stream;
    bool per_thread; /* the _ptsz flavour: stream NULL is the thread's own */
};

/* From limiter_admit() to limiter_launched(). */
struct ticket {
    struct limiter *limiter; /* NULL: nothing more to do */
    struct kernel_cost *kernel;
    struct sample *sample;
    int64_t paid_ns;
    int64_t recorded_ns;
};

/* The thread's own credit and the costs it has seen: what makes an ordinary launch cheap. */
enum {
    LAUNCH_CACHE = 64,
};

struct launch_cache {
    unsigned epoch; /* of the contexts; 0: empty */
    unsigned generation;
    struct limiter *limiter;
    int64_t credit_ns;
    struct {
        const void *function;
        uint32_t grid[3];
        uint32_t block[3];
        int64_t cost_ns;
    } costs[LAUNCH_CACHE];
};

/* Waits for its turn, charges, and may begin a measurement. */
void limiter_admit(const struct launch *launch, struct ticket *ticket);

/* After the driver's call. */
void limiter_launched(const struct launch *launch, struct ticket *ticket, CUresult result);

/* Must be called before a context ends, or a stream. */
void limiter_forget(CUcontext context);
void limiter_forget_stream(CUstream stream);

/* Captures begin and end. */
extern _Atomic int limiter_captures;
