/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a world (trace_world.h) is made of, for the files that run it. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"
#include "vgpu/limiter/limiter.h"
#include "vgpu/limiter/trace_debt.h"
#include "vgpu/limiter/trace_device.h"
#include "vgpu/limiter/trace_world.h"

#define SYNC_NS 5000   /* from a kernel's end until the waiting thread runs */
#define SLACK_NS 50000 /* of a timer */
#define NEVER INT64_MAX

enum {
    THREADS = 4, /* of a process */
    EVENTS = (2 + SAMPLE_MARKS) * SAMPLES + TAILS + 8,
    BATCHES = 65536, /* remembered */
    CELL_PATH = 128,
    HANDLES = 16, /* a stream's handle is its number and this: the first ones have a meaning */
};

struct thread {
    struct process *process;
    unsigned number;
    struct launch_cache cache;
    struct waiting waiting;
    int64_t at_ns;   /* when it goes on; NEVER: when its streams are done */
    bool has_launch; /* chosen, and held up */
    bool in_launch;  /* its launch has not returned */
    bool is_early;   /* and its kernel is not queued yet */
    struct ticket ticket;
    struct launch launch;
    double length_ns;
    unsigned launches, in_batch;
    unsigned burst;                        /* of LENGTHS_TRICKS: launches until the next long one */
    int64_t captures_until_ns, capture_ns; /* its first stream; the next time */
    int64_t held_since_ns, batch_since_ns;
    int64_t beyond_ns; /* that it has waited although its process owed nothing */
};

struct process {
    struct world *world;
    int context;
    struct region region; /* of its own: only the slot differs */
    struct share share;
    struct limiter *limiter; /* NULL: none, or the oracle's */
    struct program program;
    struct thread threads[THREADS];
    struct trace_event events[EVENTS];
    unsigned events_used;
    int64_t tick_ns, answer_ns; /* of the helper thread */
    double longest_ns;          /* kernel so far */
    int64_t killed_ns, born_ns; /* next; born_ns: 0: it lives */
    double lost_ns;             /* by the oracle: not used in time */
    double busy_before_ns;      /* of its contexts that are gone */
    struct trace_debt debt;     /* after the last step */
    uint64_t fate;              /* when it is killed: the same for the oracle */
};

struct world {
    const struct setup *setup;
    struct trace_device device;
    int64_t now_ns; /* of whoever is at work */
    uint64_t random;
    bool oracle;
    unsigned cores;
    double lost_ns; /* the container's: what the oracle did not let it save up */
    bool apart;
    char cells[64]; /* folder of their cells */
    struct region_base *base;
    struct region_ext *ext;
    struct process processes[PROCESSES];
    uint32_t wakes[PROCESSES]; /* of each container's bucket, so far */
    unsigned count, tenants;   /* the first are of the container, the others neighbours */
    int64_t longest_wait_ns;   /* of a launch that a kernel spins for */
    int64_t beyond_ns;         /* the longest that any waited beyond what its process owed */
    int64_t mark_ns;           /* the first */
    double took_ms[BATCHES];   /* the first tenant's batches since */
    unsigned batches;
};

static inline double trace_draw_from(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (double)(*random >> 11) / 9007199254740992.0;
}

static inline double trace_draw(struct world *world)
{
    return trace_draw_from(&world->random);
}

static inline unsigned trace_draw_below(struct world *world, unsigned bound)
{
    return (unsigned)(trace_draw(world) * bound);
}

static inline double trace_exponential(uint64_t *random, double mean)
{
    return -mean * log(1 - trace_draw_from(random));
}

/* The last but one stream of a context is the limiter's. */
static inline int trace_stream_of(const struct launch *where)
{
    return where ? (int)(uintptr_t)where->stream - HANDLES : TRACE_STREAMS - 2;
}

/* It has asked for its launch, and been refused. */
static inline bool trace_is_held(const struct thread *thread)
{
    return thread->has_launch && !thread->in_launch;
}

/* trace_gpu.c: of a struct process. */
extern const struct limiter_gpu trace_gpu;

/* trace_program.c */

void trace_choose_launch(struct world *world, struct thread *thread);
/* Whether the first launch of a thread's present pair spins until the second is done. */
bool trace_pair_spins(const struct thread *thread);
/* The launch that comes next, where this one spins until that is done; 0: for none. */
int trace_waits_for(const struct process *process, const struct thread *thread);

/* trace_oracle.c */

double trace_busy_of(const struct process *process);
double trace_busy_of_tenants(const struct world *world);
/* Knows what the device did, and lets go while that is less than the limit. */
bool trace_oracle_may_go(struct process *process, int64_t *ret_until_ns);

/* trace_process.c */

void trace_add_process(struct world *world, struct program program);
/* A process begins, or its successor in the same slot. */
void trace_begin_process(struct world *world, struct process *process);
/* By SIGKILL: nothing is settled but by those who find the slot. */
void trace_kill_process(struct world *world, struct process *process);
void trace_step_thread(struct world *world, struct thread *thread);
void trace_step_helper(struct world *world, struct process *process);
bool trace_streams_are_done(const struct world *world, const struct thread *thread);
/* What the process' launches have waited since the last step, but for what it owed. */
void trace_note_waits(struct process *process, int64_t since_ns);

/* A tenant's cell, where each is a container of its own. */
void trace_cell_path(const struct world *world, unsigned number, char *path, size_t size);
void trace_make_cell(const struct world *world, unsigned number);
