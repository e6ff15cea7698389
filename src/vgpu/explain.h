/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the library does to a process' launches, told in the region (struct region_explain): how
 * many of which kind, how long they waited, and what our own code took. A launch that is paid for
 * from its thread's credit writes nothing there: the thread counts it, and tells with its next
 * launch that is looked at. What a thread has not told when it ends is not counted, at most a few
 * milliseconds' launches.
 */

#include "region/region.h"
#include "vgpu/limiter/share.h"

struct explain_thread {
    unsigned others[REGION_LAUNCH_KINDS]; /* than kernels; not told yet */
    unsigned looked;
    int64_t waited_ns; /* since explain_begin() */
};

extern __thread struct explain_thread explain_thread __attribute__((tls_model("initial-exec")));

/* A launch of another kind than most goes. Nothing where the kind is known to be a kernel. */
static inline __attribute__((always_inline)) void explain_other(unsigned kind)
{
    if (kind != REGION_LAUNCH_KERNEL)
        explain_thread.others[kind]++;
}

/* So many launches of the thread, the last of them of this kind. */
void explain_launches(const struct share *share, unsigned count, enum region_launch_kind kind);

/* One waited. */
void explain_wait(const struct share *share, int64_t ns);

/* Around what our code does for a launch, the driver's call left out: returns the time, or 0 if
 * this one is not timed. */
int64_t explain_begin(void);
/* What it took without waiting, at least 1; 0 if it is not timed. */
int64_t explain_admitted(int64_t began_ns);
/* own_ns: of both parts. */
void explain_end(const struct share *share, int64_t own_ns);

/* For watch.c, with the region attached: how busy the process kept each device over the last
 * second, for HAMi's readers; and that it rests. */
void explain_tick(int64_t now_ns);
void explain_rest(void);
