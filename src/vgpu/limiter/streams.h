/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The streams that were launched into of late, to know which kernels may run beside a new one.
 * Pure: no clock, no driver. */

#include <stdint.h>

#include "vgpu/limiter/launch.h"

enum {
    STREAMS = 16, /* remembered */
};

struct streams {
    struct {
        void *stream;
        bool per_thread;
        const void *thread; /* that used it last */
        int64_t used_ns;    /* 0: free */
    } list[STREAMS];
};

/* Remembers a launch's stream, in the place of the one that is longest unused. thread: whatever
 * tells the thread that launches from others. */
void streams_use(struct streams *streams, const struct launch *launch, const void *thread,
                 int64_t now_ns);

/* A stream that long unused is not one of several. */
#define STREAMS_IDLE_NS INT64_C(100000000)

/* The others that were used after since_ns, and in which marks can be recorded; returns how many.
 * A thread's own has no handle by which another could mark it, and a mark in the legacy one would
 * wait for all. */
unsigned streams_beside(const struct streams *streams, const struct launch *launch,
                        int64_t since_ns, struct launch ret_others[STREAMS]);

/* The same of those that this thread used last. */
unsigned streams_beside_of_thread(const struct streams *streams, const struct launch *launch,
                                  const void *thread, int64_t since_ns,
                                  struct launch ret_others[STREAMS]);

/* How many were used after since_ns. */
unsigned streams_count(const struct streams *streams, int64_t since_ns);

/* The stream ends: nothing may be recorded in it any more. */
void streams_forget(struct streams *streams, const void *stream);
