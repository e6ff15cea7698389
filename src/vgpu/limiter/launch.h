/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is launched, as far as the limiter has to know. */

#include <stdbool.h>
#include <stdint.h>

/* Other functions, or other shapes of one, cost something else. */
struct launch {
    const void *function; /* CUfunction, CUkernel or CUgraphExec */
    uint32_t grid[3];     /* blocks; all 0: a graph */
    uint32_t block[3];    /* threads */
    void *stream;         /* CUstream */
    bool per_thread;      /* the _ptsz flavour: stream NULL is the thread's own */
    bool is_transfer;     /* memory is set or copied: the function is none of the driver's */
    unsigned kind;        /* enum region_launch_kind */
};

/* Whether a stream means the same one to whoever names it. 0 to 2 are names of the legacy stream,
 * which waits for all blocking ones, and of a thread's own, which is another one in each thread. */
static inline bool launch_stream_has_handle(const void *stream)
{
    return (uintptr_t)stream > 2;
}

static inline bool launches_share_stream(const struct launch *a, const struct launch *b)
{
    return a->stream == b->stream && a->per_thread == b->per_thread;
}
