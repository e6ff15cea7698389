/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the limiter: its state, and its parts. See limiter.h. */

#include "vgpu/limiter.h"

/* Where nothing else is said, the values are those whose effect on the error was tried
 * (ARCHITECTURE.md). */
#define LONG_NS INT64_C(250000)             /* from here on every launch is measured */
#define FIRST_COST_NS INT64_C(30000)        /* charged for what was never measured */
#define COST_MIN_NS INT64_C(1000)           /* no kernel takes less on hardware */
#define OUTSTANDING_MAX_NS INT64_C(4000000) /* charged and not known to be done */
#define WAIT_MAX_NS INT64_C(20000000)       /* for a completion */
#define SAMPLE_GAP_NS INT64_C(400000)       /* between measurements of short kernels */
#define THREAD_CREDIT_NS INT64_C(64000)     /* charged at once, spent without looking */
#define POLL_GAP_NS INT64_C(20000)
#define PROBE_GAP_NS INT64_C(10000000)
#define WINDOW_NS INT64_C(5000000)
#define STREAM_IDLE_NS INT64_C(100000000)

enum {
    KERNELS = 4096,
    LINE_PROBES = 8,
    SAMPLES = 128,
    STREAMS = 8,
    COVERS = 8,
    CALIBRATIONS = 8,
};

/* What is known of one function in one shape. */
struct kernel_cost {
    const void *function; /* NULL: free */
    uint32_t grid[3];
    uint32_t block[3];
    double cost_ns;    /* what a launch is charged */
    double raw_ns;     /* mean of what was measured, uncorrected */
    double stretched;  /* fraction of measurements that looked stretched by a slice */
    unsigned measured; /* how often, up to 2^31 */
    unsigned unseen;   /* launches since, while it was never measured */
};

enum sample_state {
    SAMPLE_FREE = 0,
    SAMPLE_OPEN,    /* its start is recorded */
    SAMPLE_PENDING, /* its end is recorded too */
};

struct sample {
    enum sample_state state;
    CUevent start, end;         /* NULL until first used */
    struct kernel_cost *kernel; /* NULL: a calibration */
    int64_t paid_ns;
    int64_t issued_ns;      /* what the process had charged by then */
    int64_t gap_ns;         /* host time between the start's execution and the kernel's queueing */
    int64_t began_ns;       /* host clock */
    int64_t provisional_ns; /* charged for it while it ran longer than expected */
    bool settle;            /* to be charged by its own measurement */
    unsigned on, off;       /* probes while it ran */
};

struct stream_use {
    CUstream stream;
    bool per_thread;
    int64_t used_ns;
    CUevent end; /* of the window */
};

struct interval {
    double start_ms, end_ms; /* on the device, since the base event */
};

struct limiter {
    CUcontext context;
    struct vgpu_device *device;
    struct region_compute *compute;
    pthread_mutex_t lock; /* everything below; never held while waiting */
    bool dead;

    _Atomic unsigned generation; /* of the costs: caches of another are stale */
    struct kernel_cost *kernels;
    struct sample samples[SAMPLES];
    unsigned pending;  /* samples in flight */
    unsigned settling; /* of them, long ones */

    int64_t issued_ns; /* charged by this process */
    int64_t done_ns;   /* of it, known to be done */
    int64_t polled_ns;
    int64_t next_sample_ns;
    int64_t last_sample_ns;
    int64_t last_launch_ns;
    uint64_t random;

    double overhead_ns; /* of an event pair, calibrated */
    CUevent base;       /* absolute times are taken against it */
    int64_t base_ns;
    struct interval cover[COVERS];
    double cover_long; /* of long charges, the part that was not covered already */

    struct {
        bool open, closing;
        CUevent start;
        double charged_ns;
        int64_t opened_ns;
    } window;
    struct stream_use streams[STREAMS];
    double window_charged, window_taken; /* moving sums: their ratio corrects short charges */

    CUstream probe_stream;
    CUevent probe_event;
    bool probe_out;
    int64_t probe_ns;          /* when the next is due */
    int64_t probe_recorded_ns; /* host clock, when the last was recorded */
    bool probe_sharp;          /* the host was not held up while it recorded */
    double probe_least_ns; /* the least that a probe's time on the device was behind the host's */
    double on_device;      /* fraction of probes during long samples that found us on the device */
    unsigned probes;
    double run_chance; /* of as many "on" in a row, if on_device were right */
    double contended;  /* fraction of probes that found us off it */
};

/* A random number for spreading moments: no two processes should keep step. */
double limiter_random(struct limiter *limiter);

void limiter_charge(struct limiter *limiter, int64_t amount_ns);

/* samples.c */
struct kernel_cost *samples_cost(struct limiter *limiter, const struct launch *launch);
CUevent samples_event(void);
CUresult samples_record(CUevent event, CUstream stream, bool per_thread);
struct sample *samples_begin(struct limiter *limiter, struct kernel_cost *kernel,
                             const struct launch *launch, int64_t now_ns);
void samples_end(struct limiter *limiter, struct sample *sample, const struct launch *launch,
                 int64_t gap_ns);
void samples_cancel(struct limiter *limiter, struct sample *sample);
void samples_poll(struct limiter *limiter, int64_t now_ns);
void samples_calibrate(struct limiter *limiter);

/* windows.c */
void windows_use_stream(struct limiter *limiter, const struct launch *launch, int64_t now_ns);
bool windows_wanted(const struct limiter *limiter, int64_t now_ns);
/* ahead_ns: what the calling thread has paid for and not launched yet, this launch included. */
void windows_open(struct limiter *limiter, const struct launch *launch, double ahead_ns,
                  int64_t now_ns);
void windows_charge(struct limiter *limiter, double cost_ns, int64_t now_ns);
void windows_close(struct limiter *limiter, double ahead_ns, int64_t now_ns);
void windows_poll(struct limiter *limiter);
double windows_factor(const struct limiter *limiter, int64_t now_ns);
void windows_forget_stream(struct limiter *limiter, CUstream stream);

/* probes.c */
void probes_start(void);
void probes_tick(struct limiter *limiter, int64_t now_ns);
void probes_after_fork(void);
