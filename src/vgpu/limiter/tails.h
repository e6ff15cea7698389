/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Streams that stay busy for longer than what was charged explains. The lot (lot.h) seldom finds a
 * very long kernel among very many of a microsecond, and what it then charges is more than anybody
 * is made to owe. Such a kernel shows while it runs: an event that is recorded at the tail of its
 * stream does not complete. That is no proof, since copies, host functions and waits for other
 * streams' events hold a stream up as well. So nothing is charged for it, but the container is in
 * doubt (settle.c): the longer the stream was busy, the more of what it launches is measured. An
 * honest program pays for that with the time of some events.
 *
 * A stream is looked at every TAILS_GAP_NS or so, by whoever polls. An ordinary launch does nothing
 * for it, but that its stream must be known (launch_cache_knows_stream()).
 *
 * Behind a measurement that is on its way no event is recorded: the measurement's end tells as
 * much, and a stream whose queue is full would block whoever records.
 *
 * The legacy stream gets no event: one would wait for all blocking streams, and hold them up in
 * turn, perhaps for ever where a kernel in one waits for a kernel in another. What is in it is done
 * when it is seen empty, or when a measurement in it is done that began later.
 */

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/limiter/launch.h"
#include "vgpu/limiter/samples.h"

enum {
    TAILS = 64,        /* streams of a context */
    TAILS_LOOKED = 16, /* at once */
};

#define TAILS_GAP_NS INT64_C(10000000)

struct tail {
    struct launch where; /* its stream */
    void *event;         /* NULL until first used */
    int64_t used_ns;     /* 0: free */
    int64_t recorded_ns; /* the event is on its way since; 0: it is not */
    int64_t behind_ns;   /* the measurement that began then stands for the event; 0: none does */
    int64_t charged_ns;  /* to the process when it was recorded, or the stream seen empty */
    int64_t done_ns;     /* the same of the event before: what it had been charged for is done */
};

struct tails {
    struct tail list[TAILS];
    unsigned out;  /* events on their way */
    unsigned next; /* where the next look begins */
    bool is_blind; /* one could not be looked at of late, for a capture */
    bool is_new;   /* one is looked at no more: caches that know it are stale */
    int64_t looked_ns, blind_ns;
};

enum tails_outcome {
    TAILS_KNOWN = 1,
    TAILS_REPLACED, /* another stream is looked at no more */
    TAILS_FULL,     /* it is not looked at: all others are in use */
    TAILS_HIDDEN,   /* a thread's own stream, which has no handle */
};

/* A launch goes into a stream. charged_ns: what the process was charged so far, in all, this launch
 * apart. */
enum tails_outcome tails_use(struct tails *tails, const struct launch *launch, int64_t charged_ns,
                             int64_t now_ns);

/*
 * A look at some of them, where it is due. on_device: the part of the time in which the context is
 * on the device. Returns how much longer than the process was charged for a stream has been busy,
 * the longest of them, in ns; 0 where that may be chance.
 */
double tails_look(struct tails *tails, const struct samples *samples, const struct limiter_gpu *ops,
                  void *gpu, int64_t charged_ns, double on_device, int64_t now_ns);

/* A measurement that began then is done, and with it what was launched before into its stream. */
void tails_note_done(struct tails *tails, const struct launch *launch, int64_t began_ns);

/* The stream ends; what is in it is looked at until it is done. True when it was known. */
bool tails_forget(struct tails *tails, const struct samples *samples, const struct limiter_gpu *ops,
                  void *gpu, const void *stream, int64_t charged_ns, int64_t now_ns);
