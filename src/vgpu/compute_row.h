/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inside of compute.h, for the files it is made of: compute.c (launches, the helper thread),
 * compute_rows.c (the limiters, a row for each context that launches), compute_spread.c (launches
 * that run on several devices), compute_gpu.c (the driver as the limiter sees it) and captures.c.
 */

#include "vgpu/compute.h"
#include "vgpu/real.h"

/* Streams share queues of the device, eight unless set otherwise: a probe in one that a program's
 * kernels keep busy waits for them, and the next goes into another. */
enum {
    IDLE_STREAMS = 8,
};

/* Twice as many as a row has events: see samples.h. A power of two. */
enum {
    COMPUTE_EVENTS = 8192,
};
_Static_assert(COMPUTE_EVENTS >= 2 * (SAMPLES * (SAMPLE_MARKS + 2) + TAILS + 2), "half empty");

/* One context's. Never unmapped: a thread may be on its way into one. Used again for another
 * context when its own is gone. */
struct compute_row {
    pthread_rwlock_t lives; /* held by who asks the driver about a launch of the context that has
                               just returned; alone before the context may end */
    pthread_mutex_t lock;   /* everything below; never held while waiting */
    CUcontext context;      /* NULL: free, but where one is ending */
    CUcontext ending;       /* the driver was asked to end it, and has not answered */
    CUcontext
        looked_in;     /* what others than who launches in it make current: see compute_looked_in().
                          Without a context: a green one's row, for the next of that one's */
    bool whole_ending; /* of a green one: its primary context is */
    unsigned long long id;
    struct vgpu_device *device;
    CUstream idle_streams[IDLE_STREAMS];
    unsigned idle_count, idle_at;
    bool elsewhere; /* its share is another device's than the context's: what is launched here runs
                       there. No context is its, but a name of its own */
    struct limiter limiter;
    void *_Atomic events[COMPUTE_EVENTS]; /* its own, by a hash; read without the lock */
};

extern struct compute_table {
    pthread_mutex_t lock; /* over changes of the table */
    _Atomic(struct compute_row *) rows[CONTEXTS_MAX];
    _Atomic unsigned count;
} compute_table;

/* The row of a context, made at its first launch, which is into this stream; NULL when there can't
 * be one. compute_find_row() makes none. */
struct compute_row *compute_row_of(CUcontext context, CUstream stream);
struct compute_row *compute_find_row(CUcontext context);

/* The row for what is launched in a context and runs on another device; NULL when there can't be
 * one. By its name it is known what it was for when a launch was admitted. */
struct compute_row *compute_row_elsewhere(CUcontext context, struct vgpu_device *device);
static inline CUcontext compute_name_elsewhere(const struct compute_row *row)
{
    return (CUcontext)(uintptr_t)row;
}

/* Sees to it that the row has as many streams for probes, in its context, which is current; no more
 * than IDLE_STREAMS. Each takes half a MiB of the device. Where probes wait behind work of ours in
 * a hardware queue, there are some in others. */
void compute_want_idle(struct compute_row *row, unsigned count);

/* watch_start(), of which an error counts where there is a limit. */
CUresult compute_begin_watch(void);

/* As compute_admit(), in a context that is known, and no capture's. compute_admit_row(): in a row,
 * false when what it was for has ended. compute_wait() waits only. */
CUresult compute_admit_in(CUcontext context, const struct launch *launch,
                          struct compute_ticket *ticket);
bool compute_admit_row(struct compute_row *row, CUcontext context, const struct launch *launch,
                       struct compute_ticket *ticket);
void compute_wait(struct compute_row *row, CUcontext context, const struct launch *launch);

/* With the row's lock held, which it gives up meanwhile: waits for the end of the stream if that is
 * about to end. True: it was, and what was looked at before may have changed. */
bool compute_await_end(struct compute_row *row, CUstream stream);

/* With the row's lock held: an event of the driver's is the row's. */
void compute_note_event(struct compute_row *row, void *event);

/* Whether an event is the library's, which no program may change. */
bool compute_is_own_event(CUevent event);

/* The thread looks its row up anew. */
void compute_forget_row(void);

/* The context in which a launch into a stream runs; NULL when there is none, or no such stream. */
CUcontext compute_context_of(const struct launch *launch);

/* What is answered where there is none: under a limit that is not left to the driver. */
CUresult compute_without_context(const struct launch *launch);

/* Whether the driver says of the stream that it is idle or busy, and not that something is wrong.
 */
bool compute_stream_is_sound(const struct launch *where);

/* The calling thread inside a context, disturbing nobody's capture. */
struct inside {
    bool pushed;
    struct real_relaxed relaxed;
};
struct inside compute_enter(CUcontext context);
void compute_leave(struct inside *inside);

/*
 * A green context may be current to one thread at a time, and is a part of the device's primary
 * one: we look into its streams from there, but for its default stream, which only its own thread
 * can name.
 */
CUcontext compute_looked_in(CUstream stream, CUcontext context);

/* Nothing may be done in it. */
bool compute_is_capturing(const struct launch *launch);

extern _Atomic int compute_captures; /* that are open */
extern _Atomic int compute_joins;    /* threads that make a stream wait for an event, perhaps a
                                        captured one */

extern const struct limiter_gpu compute_gpu; /* of a struct compute_row */

void compute_rows_after_fork(void);
void compute_captures_after_fork(void);
