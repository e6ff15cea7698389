/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A simulated machine: its GPUs, and what every process has on them, in one state file that all
 * processes naming it (HAMI_SIM=PATH) map. This is the side that tools and tests use; programs meet
 * the machine as libcuda.so.1 and libnvidia-ml.so.1.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum {
    SIM_MAX_GPUS = 16,
    SIM_MAX_PROCESSES = 1024,
    SIM_MIG_STARTS = 7, /* memory slices of a card at which an instance may begin */
    /* The GPUs, then each GPU's instances by where they begin: an instance is a device. */
    SIM_DEVICES = SIM_MAX_GPUS * (1 + SIM_MIG_STARTS),
};

/* One GPU as asked for. A field that is 0 or empty gets the default, from sim_spec_defaults(). */
struct sim_gpu_spec {
    char uuid[48];  /* "GPU-..."; default: made from the machine's path and the index */
    char model[96]; /* "NVIDIA A100-SXM4-40GB" */
    uint64_t memory_bytes;
    uint64_t context_bytes; /* device memory that each context takes for itself */
    unsigned multiprocessors;
    int numa_node; /* -1: none */
    unsigned compute_major, compute_minor;
    int64_t slice_ns;  /* of the round robin between contexts: 2 ms */
    int64_t switch_ns; /* lost at each change of context: 160 us, by sim_gpu_init() */
};

/*
 * How the machine's driver behaves, where drivers, releases or their settings differ. A field that
 * is 0 is the default; docs/simulator.md says what each of them does.
 */
enum sim_captures {
    SIM_CAPTURES_STRICT = 0,
    SIM_CAPTURES_KIND, /* no call is forbidden because somebody captures */
};

enum sim_lost_captures {
    SIM_LOST_CAPTURES_END = 0, /* with their stream */
    SIM_LOST_CAPTURES_STAY,    /* and forbid, for ever */
};

enum sim_pids {
    SIM_PIDS_CALLER = 0, /* of the caller's pid namespace; who is not seen there is left out */
    SIM_PIDS_HOST,       /* of the namespace in which the machine was made */
};

enum sim_stale_handles {
    SIM_STALE_HANDLES_ERROR = 0,
    SIM_STALE_HANDLES_CRASH, /* with SIGSEGV */
};

enum sim_loading {
    SIM_LOADING_LAZY = 0, /* a kernel's code takes memory at its first launch */
    SIM_LOADING_EAGER,    /* all of a module's does as it is loaded */
};

enum sim_load_waits {
    SIM_LOAD_WAITS_NO = 0,
    SIM_LOAD_WAITS_YES, /* code is loaded lazily once the context has nothing to do */
};

enum sim_heaps {
    SIM_HEAPS_KEEP = 0, /* what a limit once took stays taken */
    SIM_HEAPS_SHRINK,
};

enum sim_events {
    SIM_EVENTS_TOLD = 0,
    SIM_EVENTS_NONE, /* NVML has none of this card's */
};

enum sim_recovery {
    SIM_RECOVERY_TOLD = 0,
    SIM_RECOVERY_UNKNOWN, /* drivers before 560 */
};

enum sim_deferred {
    SIM_DEFERRED_YES = 0,
    SIM_DEFERRED_NO, /* no array is mapped later: such a flag is an invalid value */
};

enum sim_host_memory {
    SIM_HOST_MEMORY_ANY = 0,
    SIM_HOST_MEMORY_NODES, /* cuMemCreate knows nodes of the host, and not the host at large */
};

enum sim_graph_places {
    SIM_GRAPH_PLACES_MANAGED = 0, /* nodes of graphs allocate on devices, also managed memory */
    SIM_GRAPH_PLACES_HOST,        /* and on the host */
    SIM_GRAPH_PLACES_DEVICE,      /* no managed memory: drivers before CUDA 13 */
};

enum sim_multicast {
    SIM_MULTICAST_NO = 0,
    SIM_MULTICAST_YES, /* any devices of the machine form a team */
};

/* When the device sees what comes to an idle stream of the context on it. */
enum sim_idle_streams {
    SIM_IDLE_STREAMS_LATE = 0, /* while others wait, mostly at the context's next slice */
    SIM_IDLE_STREAMS_PROMPT,
};

struct sim_driver_spec {
    unsigned captures;           /* enum sim_captures */
    unsigned lost_captures;      /* enum sim_lost_captures */
    unsigned pids;               /* enum sim_pids: by which NVML names processes */
    unsigned stale_handles;      /* enum sim_stale_handles */
    unsigned loading;            /* enum sim_loading */
    unsigned load_waits;         /* enum sim_load_waits */
    unsigned heaps;              /* enum sim_heaps */
    unsigned events;             /* enum sim_events */
    unsigned recovery;           /* enum sim_recovery: whether NVML says what a card needs */
    unsigned deferred;           /* enum sim_deferred */
    unsigned multicast;          /* enum sim_multicast */
    unsigned host_memory;        /* enum sim_host_memory */
    unsigned idle_streams;       /* enum sim_idle_streams */
    unsigned graph_places;       /* enum sim_graph_places; now there are no holes */
    int64_t context_time_ns;     /* that it takes to make a context */
    int64_t granule_bytes;       /* in which device memory is given out */
    int64_t graph_node_bytes;    /* of device memory for each kernel of what can be launched */
    int64_t stream_bytes;        /* the same for each stream */
    int64_t event_resolution_ns; /* of events' times */
    int64_t queues;              /* hardware queues of a context; its streams share them */
    int64_t clock_drift_ppm;     /* by which the GPUs' clocks run faster than the host's */
};

struct sim_spec {
    struct sim_driver_spec driver;
    unsigned gpu_count;
    struct sim_gpu_spec gpus[SIM_MAX_GPUS];
};

/* Sets an option by its name and value, as text: NULL, or what the value should have been. */
const char *sim_driver_set(struct sim_driver_spec *driver, const char *key, const char *value);

/*
 * The option of this number: its name, and its value in the same words; "off by default" options
 * read "0". False when there are fewer.
 */
bool sim_driver_option(const struct sim_driver_spec *driver, unsigned number, const char **ret_key,
                       char *ret_value, size_t size);

/* A duration of at most a second, "2ms", "50us", "0", in nanoseconds: NULL, or what is wrong. */
const char *sim_parse_duration(const char *text, int64_t *ret_ns);

#define SIM_SLICE_MIN_NS 10000

/*
 * Sets every option to its default, for a machine that is described by its differences. In a
 * specification of zeros those options of which 0 is a value, context-time, graph-node and
 * clock-drift, are 0.
 */
void sim_driver_init(struct sim_driver_spec *driver);

/* The same for a GPU: all zero, but for its NUMA node and the cost of a switch. */
void sim_gpu_init(struct sim_gpu_spec *gpu);

/* Fills every field that is 0 or empty, but the UUIDs and what the above set. */
void sim_spec_defaults(struct sim_spec *spec);

/* Whether a context would leave nothing of the GPU's memory, with its defaults. */
bool sim_context_takes_all(const struct sim_gpu_spec *gpu);

/* Makes the state file; -EEXIST when there is one already. */
int sim_machine_create(const char *path, const struct sim_spec *spec, struct error *err);

/* Whether there is a machine at the path, of this version or of another one. */
bool sim_machine_is_one(const char *path);

/* Removes it; -EBUSY while a process is using the machine, or where that can't be told since it is
 * of another version or damaged, unless forced. */
int sim_machine_remove(const char *path, int force, struct error *err);

/* How NVML answers for a card. Programs that use it go on, whatever happens. */
enum sim_condition {
    SIM_CARD_OK = 0,
    SIM_CARD_LOST,  /* NVML_ERROR_GPU_IS_LOST */
    SIM_CARD_HANGS, /* no answer until it is in another condition */
};

struct sim_gpu_view {
    struct sim_gpu_spec spec;
    uint64_t used_bytes; /* by living processes */
    int64_t busy_ns;     /* time with a kernel running, since the machine was made */
    enum sim_condition condition;
    bool mig; /* in MIG mode */
};

struct sim_process_view {
    pid_t pid;
    uint64_t used_bytes[SIM_MAX_GPUS];
    uint64_t managed_bytes[SIM_MAX_GPUS]; /* pages that are there, not in the above */
    uint64_t claimed_bytes[SIM_MAX_GPUS]; /* of managed memory, by the device it was made on */
    uint64_t peak_bytes[SIM_MAX_GPUS];
    int64_t busy_ns[SIM_MAX_GPUS]; /* time with a kernel of this process running */
    uint64_t launches[SIM_MAX_GPUS];
};

struct sim_view {
    int64_t now_ns; /* the host's clock: CLOCK_MONOTONIC, unless it is stopped */
    struct sim_driver_spec driver;
    unsigned gpu_count;
    struct sim_gpu_view gpus[SIM_MAX_GPUS];
    unsigned process_count;
    struct sim_process_view processes[SIM_MAX_PROCESSES];
};

/*
 * One consistent picture, advanced to now; processes that have died are cleared first, as a driver
 * does. The struct is large: keep it off the stack. -ENOENT, -EINVAL (not a machine), with err set.
 */
int sim_machine_view(const char *path, struct sim_view *ret_view, struct error *err);

/* What befalls a card at once, in this order; zeros change nothing. */
struct sim_fault {
    bool has_condition;
    enum sim_condition condition;    /* SIM_CARD_OK also clears what a reset clears */
    uint64_t corrected, uncorrected; /* so many more ECC errors, and an event for each kind */
    bool has_action;
    unsigned action; /* NVML_RECOVERY_..., and its event */
    bool has_xid;
    uint64_t xid;
    bool has_compute_mode;
    unsigned compute_mode; /* NVML_COMPUTE_... */
    bool has_mig, mig;     /* MIG mode, at once, whoever uses the card */
};

/* -EINVAL: no such card; -EBUSY: MIG mode can't end while there are instances; else as
 * sim_machine_view(). */
int sim_machine_fault(const char *path, unsigned gpu, const struct sim_fault *fault,
                      struct error *err);

/*
 * For exact tests: stops the machine's clock. From then on its time is what sim_clock_step() makes
 * of it, which also wakes those who wait for it. -EINVAL when the clock runs, or would go back.
 */
int sim_clock_stop(const char *path, struct error *err);
int sim_clock_step(const char *path, int64_t ns, struct error *err);
