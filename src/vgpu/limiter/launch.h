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

static inline bool launches_share_stream(const struct launch *a, const struct launch *b)
{
    return a->stream == b->stream && a->per_thread == b->per_thread;
}
