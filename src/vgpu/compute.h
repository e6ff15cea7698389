/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The limiters of this process, one per context that launches, and their threads: who calls
 * limiter/limiter.h with a real driver and a real clock. Nothing is measured in a stream that is
 * being captured, and every call of ours to the driver is made in relaxed capture mode, so that
 * nobody's capture is disturbed.
 */

#include "vgpu/code.h"
#include "vgpu/contexts.h"
#include "vgpu/explain.h"
#include "vgpu/heaps.h"
#include "vgpu/limiter/limiter.h"

struct compute_row;

/* From compute_admit() to compute_launched(). */
struct compute_ticket {
    struct compute_row *row; /* NULL: nothing more to do */
    CUcontext context;       /* NULL: it is not known */
    struct ticket ticket;
    int64_t own_ns;    /* of our own code so far; 0: not timed */
    int64_t passed_ns; /* host clock, where what was looked at may change in the call; else 0 */
    bool is_list;      /* the driver may refuse it when a part of it was launched */
    bool captured;     /* and nothing is charged: no capture ends before it is told */
    CUresult refused;  /* it can't be measured; CUDA_SUCCESS: it can */
    struct heap_growth growth;
};

extern __thread struct launch_cache launch_cache __attribute__((tls_model("initial-exec")));

/* Launches until the next one that is looked at, where there is no limit. */
extern __thread int compute_uncounted __attribute__((tls_model("initial-exec")));

/* Pays for an ordinary launch: known cost, from the thread's own credit. No clock, no shared
 * memory. */
static inline __attribute__((always_inline)) bool compute_pays(const struct launch *launch)
{
    /* With one context only, it need not be asked which is current. */
    if (launch_cache.epoch != contexts_epoch() ||
        atomic_load_explicit(&contexts_live, memory_order_relaxed) != 1 ||
        launch_cache.generation !=
            atomic_load_explicit(&launch_cache.limiter->generation, memory_order_relaxed) ||
        !launch_cache_pays(&launch_cache, launch))
        return false;
    explain_other(launch->kind);
    return true;
}

/* Whether it is no default stream. */
static inline bool compute_has_name(CUstream stream)
{
    return launch_stream_has_handle(stream);
}

/*
 * After the driver's call for a launch that compute_pays() for, in that epoch of launch_cache:
 * which stream a default one is depends on the context that is current, and in the call a signal's
 * handler may make another one, and make that current. What ran there is paid for.
 */
void compute_strayed(const struct launch *launch, unsigned epoch, CUresult result);
static inline __attribute__((always_inline)) bool compute_may_stray(const struct launch *launch,
                                                                    unsigned epoch)
{
    return epoch != contexts_epoch() && !compute_has_name(launch->stream);
}

/* Whether a function was launched before in the context that this launch is for. */
bool compute_was_launched(const struct launch *launch);

/* Where there is no limit: whether this launch need not even be looked at. */
static inline __attribute__((always_inline)) bool compute_passes(const struct launch *launch)
{
    if (--compute_uncounted <= 0)
        return false;
    if (atomic_load_explicit(&contexts_live, memory_order_relaxed) == 1
            ? !code_was_launched(launch->function, NULL)
            : !compute_was_launched(launch))
        return false;
    explain_other(launch->kind);
    return true;
}

/*
 * Waits for the launch's turn, charges it, and may begin its measurement. CUDA_SUCCESS to go on;
 * otherwise what to answer instead, since nothing would be held to the limit.
 */
CUresult compute_admit(const struct launch *launch, struct compute_ticket *ticket);

/* After the driver's call. */
void compute_launched(const struct launch *launch, struct compute_ticket *ticket, CUresult result);

/* After the driver's call for what nobody paid for, though it runs: see compute.c. */
void compute_pay_late(const struct launch *launch, int64_t since_ns);

/* Both ways in two calls, for what is seldom launched: less code, and some ns more. An error is the
 * launch's answer; compute_end() returns its result. */
struct compute_flight {
    struct compute_ticket ticket;
    unsigned epoch; /* in which compute_pays() paid; 0: it did not */
    bool goes;      /* it is paid for, or need not be */
};
CUresult compute_begin(const struct launch *launch, struct compute_flight *flight);
CUresult compute_end(const struct launch *launch, struct compute_flight *flight, CUresult result);

/* The same for a launch that runs on a set of devices (graph_homes.h), perhaps not on its stream's:
 * it is paid for on each. */
struct compute_aside {
    struct vgpu_device *device;
    struct compute_ticket ticket;
    bool paid;
};
struct compute_spread {
    struct compute_ticket own;
    bool paid, captured;
    CUcontext context, looked_in; /* of the launch's stream; NULL: there is none */
    unsigned count;
    struct compute_aside asides[REGION_DEVICES];
};
CUresult compute_admit_spread(const struct launch *launch, unsigned devices,
                              struct compute_spread *spread);
void compute_launched_spread(const struct launch *launch, struct compute_spread *spread,
                             CUresult result);

/* Around the driver's call that may end a context: what was measured of it is kept if it does not.
 */
void compute_ending(CUcontext context);
void compute_ended(CUcontext context, bool gone);

/*
 * Whether what is put into a stream becomes a part of a graph, and takes nothing. If so no capture
 * ends, and no stream, until compute_end_captured(): another thread could end it before the driver
 * is called.
 */
bool compute_begin_captured(CUstream stream, bool per_thread);
void compute_end_captured(void);

/* The device of a stream. What the driver says where there is none. */
CUresult compute_stream_device(CUstream stream, bool per_thread, struct vgpu_device **ret_device);

/*
 * Around the driver's call that ends a stream, of which one at a time is made. What is launched
 * into the stream meanwhile would not be measured, so it waits; a launch that was before it is
 * waited for, for 20 ms at most.
 */
void compute_forget_stream(CUstream stream);
void compute_forgot_stream(void);

/*
 * Around the driver's call that begins a capture: nothing of ours looks into the stream meanwhile,
 * since that would invalidate the capture if it had just begun.
 */
struct compute_row *compute_capture_begins(CUstream stream);
void compute_capture_began(struct compute_row *row, CUresult result);

/* Without a lock: a look that has just begun may come in between. */
void compute_capture_begins_unlocked(void);
void compute_capture_began_unlocked(CUresult result);

/*
 * Around the driver's call by which a stream may join a capture: until then no stream but a
 * launch's own is looked into. compute_join_ended() takes what compute_join_begins() returned.
 */
bool compute_join_begins(CUstream stream);
void compute_join_ended(bool began);

/* Around the driver's call that ends a capture, or a stream. */
void compute_capture_ends(void);
void compute_capture_ended(bool ended);

/* For who asks the driver itself whether a stream is captured: before it, to the end of what that
 * lets pass. */
void compute_hold_captures(void);

/* For watch.c: looks after every limiter, the probes included. False when none had anything to do.
 * Lowers ret_due_ns to when it wants to be called again. */
bool compute_tick(int64_t now_ns, int64_t *ret_due_ns);

/* Starts the thread that calls it, or wakes it. Where that can't be: no memory for it, or the
 * program is at its end. */
CUresult watch_start(void);
void watch_after_fork(void);
