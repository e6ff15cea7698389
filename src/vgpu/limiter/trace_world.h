/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Random programs in stepped time on the device of trace_device.h: processes of a container, which
 * the limiter holds or an oracle, and neighbours. The oracle knows what the device did, and charges
 * that. For tests only; aborts when there is no memory.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "region/region.h"

/* What is looked at of each world, unless its setup says otherwise. */
#define TRACE_WINDOW_NS (10 * NS_PER_S)

enum {
    PROCESSES = 12,
    SHAPES = 4,
};

enum lengths {
    LENGTHS_FIXED,
    LENGTHS_SPREAD,  /* lognormal, sigma 0.4 */
    LENGTHS_BIMODAL, /* one of five takes nine times as long */
    LENGTHS_TRICKS,  /* mostly very short, now and then long: of one shape */
    LENGTHS_COUNT,
};

struct program {
    double length_ns[SHAPES]; /* mean */
    double shortest_ns;
    enum lengths lengths;
    unsigned shapes, threads, streams; /* streams of a thread */
    unsigned batch;                    /* launches until it synchronises; 0: never */
    double think_ns;                   /* after each */
    bool blocking;
    unsigned
        held; /* of so many launches of a thread one returns late, whenever its kernel ends, by */
    int64_t held_ns;
    bool held_early;       /* and its kernel is queued only then */
    double capture_gap_ns; /* mean, between captures of a thread's stream; 0: none */
    unsigned relay;        /* launches until a thread ends and another goes on; 0: it lives on */
    double life_ns;        /* mean, until it is killed and started anew; 0: it lives on */
    unsigned cores;        /* its own limit; 0: the container's */
    unsigned rare;         /* of so many launches of a thread the last takes rare_ns; 0: none */
    double rare_ns;
    unsigned turns;    /* from so many launches of a thread on each takes rare_ns, and the first of
                          those, of another function, ten times as long; 0: none */
    unsigned steps;    /* of so many launches of a thread the n-th takes n times as long; 0: none */
    int64_t wait_ns;   /* the first stream of each thread waits so long before each kernel */
    bool spins;        /* each second kernel waits for the next one, in another stream; */
    unsigned spares;   /* but so many of them, before one does, don't */
    unsigned gated;    /* of so many launches of a thread the first waits until all are made, but
                          for the first time */
    int64_t starts_ns; /* when it begins to launch */
    bool high;         /* apart: of a higher priority than the others */
    bool by_chance;    /* how long it thinks: the mean is think_ns, and nothing less than half */
};

enum {
    MARKS = 4,
};

struct setup {
    unsigned cores, tenants, neighbours;
    bool apart; /* each tenant is a container of its own, by its program's cores, which uses what
                   the others leave idle */
    int64_t window_ns;       /* 0: TRACE_WINDOW_NS */
    int64_t marks_ns[MARKS]; /* when the tenants' busy times are noted; ascending */
    double drift;
    bool filled;                     /* the device, by each kernel */
    int64_t hold_ns, hold_period_ns; /* probes come to the device later the longer the period
                                        lasts, by up to so much */
    double slowing; /* of each kernel, by each other one of its process that runs: a part */
    struct program programs[PROCESSES];
};

struct result {
    double share;
    double charged; /* what the limiter made of it */
    double grain;   /* what is paid for and not done, or done and not paid for, may be so much */
    double launches;
    double longest_ms;      /* kernel */
    double longest_wait_ms; /* of a launch that a kernel spins for */
    double beyond_ms;       /* that a launch waited although its process owed nothing, at most */
    double busy_ms[MARKS][PROCESSES]; /* of each tenant until that mark */
    double p99_ms; /* of the first one's batches after the first mark: from the first launch's
                      wish until the last one's end is seen */
    unsigned batches;
};

struct setup trace_setup(uint64_t seed);

/* Says what runs, a line each. */
void trace_print(const struct setup *setup);

/* A program on one stream whose kernels all take that long. */
struct program trace_program(double length_ns, unsigned cores);

/* Runs a world; not from two threads at once. */
struct result trace_run(const struct setup *setup, uint64_t seed, bool oracle);
