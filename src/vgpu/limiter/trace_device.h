/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A device in stepped time, to judge the limiter by: contexts that are given slices in turn,
 * streams that are queues, kernels whose true lengths are known, events that are stamped when they
 * are reached. It knows nothing of the limiter. For tests only; asserts on misuse.
 *
 * A context without work gives its slice up at once. The kernels at the heads of a context's
 * streams run side by side at full speed or, where each fills the device, in the order of their
 * launches; or they slow each other, by a part for each other one. A switch costs TRACE_SWITCH_NS,
 * in which nobody runs. While others wait, the device looks after the context on it as long as that
 * has a kernel that waits behind another one. Once there is none it looks to who comes next, and
 * what comes to the context from then on is seen at its next slice. All of it as measured on H100
 * and H200, driver 580 (bench/results/h100-h200.txt).
 */

#include <stdbool.h>
#include <stdint.h>

#define TRACE_SLICE_NS 2090000
#define TRACE_SWITCH_NS 165000
#define TRACE_LATENCY_NS 2000   /* from a launch until the device sees it */
#define TRACE_RESOLUTION_NS 500 /* of an event's time */

enum {
    TRACE_CONTEXTS = 16,
    TRACE_STREAMS = 18, /* of a context */
};

struct trace_event {
    unsigned records; /* of which the last one counts */
    bool done;
    double stamp_ns; /* the device's clock */
};

struct trace_item {
    struct trace_event *event; /* NULL: a kernel */
    unsigned record;           /* which one of the event's */
    double left_ns;
    uint64_t order; /* of launches */
    int64_t available_ns;
    int waits_for; /* a spinning kernel: ends once the context has finished so many kernels of
                      stream TRACE_STREAMS - 1; 0: does not spin */
};

struct trace_stream {
    struct trace_item *items;
    unsigned head, count, room; /* room: a power of two */
    unsigned seen;              /* of the items, by the device, */
    unsigned kernels;           /* and of them */
    uint64_t launched, finished;
};

struct trace_context {
    bool alive;
    struct trace_stream streams[TRACE_STREAMS];
    double busy_ns;  /* time in which any kernel of it ran */
    uint64_t gates;  /* that the program has opened */
    uint32_t in_use; /* bit set of streams that are not empty */
    bool is_left;    /* until its next slice: the device sees nothing that comes */
};

struct trace_device {
    double now_ns;
    double drift; /* of the device's clock against now */
    double slice_end_ns, switch_end_ns;
    int active;     /* -1: none */
    uint64_t ended; /* kernels, of all */
    bool filled;    /* by each kernel */
    double slowing; /* of a kernel, by each other one that runs; 0: all run at full speed */
    uint64_t launched;
    int opened;            /* of the contexts: the first ones */
    double quiet_until_ns; /* what runs goes on alike until then, or something is launched */
    struct trace_context contexts[TRACE_CONTEXTS];
};

void trace_init(struct trace_device *device, double drift);
void trace_end(struct trace_device *device);

/* A new context's number. */
int trace_open(struct trace_device *device);

/* Its work goes with it. What it was busy is still told. */
void trace_kill(struct trace_device *device, int context);

void trace_launch(struct trace_device *device, int context, int stream, double length_ns,
                  int waits_for, int64_t now_ns);
/* The stream waits until then, and runs nothing: for a value in memory, or a host function. */
void trace_wait(struct trace_device *device, int context, int stream, int64_t until_ns);
/* Seen by the device from then on, or later. */
void trace_record(struct trace_device *device, int context, int stream, struct trace_event *event,
                  int64_t now_ns);

/* Lets time pass; never back. */
void trace_advance(struct trace_device *device, double until_ns);

/* The same, until the next kernel ends at most: now_ns says when. */
void trace_advance_to_an_end(struct trace_device *device, double until_ns);

/* Kernels of a stream that are not over. */
uint64_t trace_unfinished(const struct trace_device *device, int context, int stream);

/* What they take yet, in ns. */
double trace_left_ns(const struct trace_device *device, int context, int stream);
