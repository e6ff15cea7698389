/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state file: one fixed structure that every process of the simulated machine maps, under one
 * robust lock. Private to this folder.
 *
 * Anybody may be killed at any instruction. What cannot be told from other fields is therefore
 * changed by one store (a stream's head and tail, a sum of bytes); lists, counts and totals are
 * derived, and the next to take the lock derives them again (sim_repair()). Index 0 of every pool
 * stands for "none", so that a file of zeros is an empty machine.
 *
 * A process holds a POSIX record lock on the byte of its slot behind the structure for as long as
 * it lives: how the others see it die, whatever pid namespace they are in. The kernel drops that
 * lock when the process closes any descriptor of the file, so a descriptor once opened stays open.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/proc.h"
#include "simdriver/machine.h"

enum {
    SIM_CONTEXTS = 4096,
    SIM_STREAMS = 4096,
    SIM_EVENTS = 1 << 18,
    SIM_DEPTH = 1024,    /* ops a stream holds before the launching call waits */
    SIM_RING = 2 * 1024, /* with room for the implied waits of the legacy stream */
    SIM_FLAGS = 1024,    /* that kernels wait for and post */
    SIM_VALUES = 1024,   /* that streams wait for and write, semaphores among them */
    SIM_BUCKETS = 64,
    SIM_PHYSICALS = 1 << 16, /* pieces of memory that are mapped */
    SIM_HOLDS = 1 << 16,
    SIM_EXPORTS = 4096,
    SIM_ALIGN = 512,       /* device memory is counted in units of this */
    SIM_EVENTS_KEPT = 256, /* of NVML's; what a reader is further behind with is lost */
};

#define SIM_MAGIC UINT64_C(0x31656e696d696168) /* "haimine1" */
#define SIM_VERSION 15
#define SIM_BUCKET_NS (NS_PER_S / 32)

/* Busy time of the last two seconds, in a ring of buckets. */
struct sim_history {
    int64_t last; /* number of the newest bucket written, time / SIM_BUCKET_NS */
    uint32_t busy_ns[SIM_BUCKETS];
};

struct sim_usage {
    uint64_t used_bytes;     /* but what is mapped */
    uint64_t physical_bytes; /* derived: of what is mapped, what is counted for this process */
    uint64_t
        managed_bytes; /* pages of managed memory that are on the device: no process' to NVML */
    uint64_t claimed_bytes; /* of managed memory, wherever it is, made in contexts of the device */
    uint64_t peak_bytes;
    uint64_t launches;
    int64_t busy_ns;
    struct sim_history history;
};

/* A word of a process' memory that its streams wait for and write. The rest is not backed. Or its
 * copy of a semaphore's counter: see shared_semaphore.h. */
struct sim_value {
    uint64_t program;  /* whose: struct sim_process; 0: nobody's */
    uint64_t address;  /* a multiple of 8 */
    uint64_t dev, ino; /* a semaphore's file; 0: it is a word */
    uint64_t value;
    uint32_t watchers; /* derived: streams, by next_waiter */
};

struct sim_process {
    uint32_t in_use;
    struct proc_identity who;
    int32_t host_pid; /* in the machine's pid namespace; 0: not known yet */
    uint64_t program; /* differs after an exec */
    uint32_t faulted; /* a kernel of its was at an address that is none */
    struct sim_usage usage[SIM_DEVICES];
};

enum sim_op_kind {
    SIM_OP_KERNEL = 1,
    SIM_OP_RECORD, /* stamps an event */
    SIM_OP_WAIT,   /* for a stream to have done a number of ops */
    SIM_OP_WAIT_VALUE,
    SIM_OP_WRITE_VALUE,
};

/* How an op looks at, or writes, its value. */
enum {
    SIM_VALUE_GEQ = 0, /* as CU_STREAM_WAIT_VALUE_ has them */
    SIM_VALUE_EQ,
    SIM_VALUE_AND,
    SIM_VALUE_NOR,
    SIM_VALUE_WAYS = 3,
    SIM_VALUE_WIDE = 4,  /* all 64 bits of it; else 32, */
    SIM_VALUE_UPPER = 8, /* the upper ones */
    /* A semaphore's, instead of all that: shared_semaphore.h. */
    SIM_VALUE_TIMELINE = 16,
    SIM_VALUE_BINARY = 32,
};

/* What a kernel has to do with the flag that is its target. */
enum sim_op_role {
    SIM_ROLE_NONE = 0,
    SIM_ROLE_WAITS,   /* ends no earlier than it could take one of the flag's posts */
    SIM_ROLE_POSTS,   /* posts the flag as it ends */
    SIM_ROLE_TOUCHES, /* of a module's kernel only: managed memory, as it is launched */
    SIM_ROLE_COUNTS,  /* and so: a condition of a graph down */
    SIM_ROLE_FAULTS,  /* its process is at fault as it ends */
};

struct sim_op {
    uint64_t order;  /* machine-wide, by time of enqueueing; also the stamp of a record */
    uint64_t seq;    /* wait: the number of ops that stream must have done; with values: the one to
                        compare with, or to write */
    int64_t work_ns; /* kernel */
    uint32_t target; /* record: the event; wait: the stream; kernel: the flag; the value's number */
    uint32_t gen;    /* wait: that stream's generation; kernel: enum sim_op_role; SIM_VALUE_ */
    uint32_t weight; /* kernel: multiprocessors it fills; wait: 1 if for another device; record: 1
                        if the event has no time */
    uint32_t kind;   /* enum sim_op_kind */
};

enum sim_stream_state {
    SIM_STREAM_IDLE = 0, /* nothing queued */
    SIM_STREAM_READY,    /* the head can run when the context has the GPU */
    SIM_STREAM_BLOCKED,  /* the head waits for another stream */
    SIM_STREAM_QUEUED,   /* the head is behind another stream's in their hardware queue */
    SIM_STREAM_WATCHING, /* the head waits for a value */
    SIM_STREAM_LATE,     /* the device sees the head as the context's next slice begins */
};

struct sim_stream {
    uint32_t owner; /* slot of the process + 1; 0: free */
    uint32_t gen;
    uint32_t next_free;
    uint32_t context;
    uint32_t flags;
    uint32_t queue; /* hardware queue of the context */
    uint32_t dying; /* destroyed; ends when it has run dry */

    uint64_t head, tail;  /* ops done, ops enqueued */
    uint64_t last_kernel; /* the last op, counted from 1, that is one */
    int64_t done_ns, enqueued_ns;
    uint64_t took;          /* the op, counted from 1, that took a post of its flag */
    uint64_t started;       /* the op, counted from 1, that finish belongs to */
    int64_t finish;         /* when the head kernel ends, in the context's own time */
    uint64_t joined;        /* ops of the legacy stream already waited for; in it: unused */
    uint64_t legacy_joined; /* ops of this one that the legacy stream already waits for */

    /* Derived. */
    uint32_t state;
    uint32_t prev, next;  /* in the context's ready list */
    uint32_t sibling;     /* in the context's list of streams */
    uint32_t waiters;     /* streams blocked on this one, by next_waiter */
    uint32_t next_waiter; /* there, or of a value */
};

struct sim_context {
    uint32_t owner;
    uint32_t gen;
    uint32_t next_free;
    uint32_t device;
    uint32_t legacy; /* its legacy default stream, or 0 */
    uint32_t queues; /* hardware queues, among which its streams are dealt out in turn */
    uint32_t dealt;  /* streams so far */
    int64_t clock; /* its own time: runs while its kernels run, slower when they share; 1/1024 ns */
    uint64_t seen; /* order of the last op that the device sees before the context's next slice,
                      once it has turned from the context (model.h); else 0 */

    /* Derived. */
    uint32_t queued; /* stands in the device's queue */
    uint32_t next;   /* there */
    uint32_t ready_first, ready_last;
    uint32_t streams;
    uint32_t held;   /* streams that stand in a hardware queue behind another */
    uint64_t weight; /* sum over the heads */
};

/* In the flags of one that stands for another process': its stream is that event, and its
 * generation that one's. */
#define SIM_EVENT_OPENED (UINT32_C(1) << 31)

struct sim_event {
    uint32_t owner;
    uint32_t gen;
    uint32_t next_free;
    uint32_t context;
    uint32_t flags;
    uint32_t stream, stream_gen; /* where it was recorded last */
    uint64_t seq;                /* done when that stream has done so many */
    uint64_t stamp;              /* of that record; 0: never recorded */
    int64_t work_ns;             /* of that stream, up to it */
    int64_t time_ns;             /* when it was reached; 0: not yet */
};

/*
 * Memory that is mapped (cuMemCreate): a piece of it lives while any process has a hold on it or it
 * is exported. It is counted for the process that made it while the first hold is there; then for
 * one that has another, once no descriptor of it is open.
 */
struct sim_physical {
    uint32_t owner; /* for which it is counted */
    uint32_t gen;
    uint32_t next_free;
    uint32_t users;  /* derived: holds and exports */
    uint32_t hold;   /* its owner's, by which it is counted; 0: that one is gone */
    uint32_t device; /* SIM_DEVICES: on the host */
    uint32_t location_type;
    int32_t location_node; /* of the host */
    uint32_t handle_types;
    uint32_t compression, rdma, usage;
    uint32_t team;     /* of a multicast object: devices that it waits for */
    uint32_t joined;   /* a bit for each that came */
    uint32_t unlisted; /* only dma-bufs keep it: NVML counts it for nobody */
    uint32_t reserved;
    uint64_t bytes;
};

/* What one handle of a process holds: it was given out so often, and so many mappings are of it. */
struct sim_hold {
    uint32_t owner;
    uint32_t gen;
    uint32_t next_free;
    uint32_t physical;
    uint32_t handles, maps;
};

/* A file descriptor that stands for memory, while it is open anywhere: see physical.c. */
struct sim_export {
    uint32_t owner;
    uint32_t gen;
    uint32_t next_free;
    uint32_t physical;
    int32_t fd; /* the owner's, by which it sees that the other one is closed */
    uint32_t dma_buf;
    uint64_t ino;
};

struct sim_device {
    uint64_t used_bytes; /* derived */
    int64_t now_ns;
    int64_t busy_ns;
    struct sim_history history;
    uint32_t current; /* the context that has the GPU, or 0 */
    uint32_t last;    /* the one that had it last */
    int64_t slice_end_ns;
    int64_t switched_ns; /* until then the change of context takes the GPU */

    /* Derived. */
    uint32_t first, end; /* queue of the contexts that wait for their turn */
};

struct sim_pool {
    uint32_t high; /* indices up to it were ever used */
    uint32_t free; /* derived */
};

/* An event of NVML's. */
struct sim_card_event {
    uint64_t type; /* NVML_EVENT_... */
    uint64_t data;
    uint32_t gpu;
};

/* How a card is, as NVML tells. */
struct sim_health {
    uint32_t condition; /* enum sim_condition */
    uint32_t compute_mode;
    uint32_t mig, mig_pending;       /* the mode, and what it is after a reset */
    uint32_t action;                 /* NVML_RECOVERY_... */
    uint32_t accounting;             /* NVML's, of processes: 1 on */
    uint64_t corrected, uncorrected; /* ECC errors since it was last well */
    uint64_t corrected_ever, uncorrected_ever;
};

/*
 * A GPU instance, at the memory slice where it begins. Once it has its compute instance, which is
 * all of it, it is a device (mig.h).
 */
struct sim_instance {
    uint32_t in_use;
    uint32_t has_compute;
    uint32_t profile;         /* number in the table of profiles */
    uint64_t number;          /* machine-wide, of the GPU instance; handles name it */
    uint64_t compute_number;  /* of the compute instance */
    struct sim_gpu_spec spec; /* of the device, while has_compute */
};

struct sim_header {
    uint64_t magic;
    uint32_t version;
    uint32_t gpu_count;
    uint64_t size;
    uint32_t pid_namespace; /* in which the machine was made: the host's */
    struct sim_driver_spec driver;
    struct sim_gpu_spec gpus[SIM_MAX_GPUS];
};

struct sim_state {
    struct sim_header header; /* constant */

    pthread_mutex_t lock;
    uint32_t stopped;   /* the clock is a test's to step */
    uint32_t steps;     /* futex: changes at every step */
    int64_t clock_ns;   /* the host's time, while stopped */
    int64_t checked_ns; /* when the living were last counted */
    uint64_t orders;    /* the last struct sim_op.order given out */
    uint32_t
        crossed; /* derived: waits enqueued for a stream of another device, a flag or a value */
    uint32_t flags[SIM_FLAGS]; /* posts that nobody took yet */
    struct sim_value values[SIM_VALUES];
    uint32_t slots; /* processes up to it were ever used */

    uint32_t bell;                                 /* futex: changes with every event of a card */
    uint64_t card_events;                          /* so far */
    struct sim_card_event recent[SIM_EVENTS_KEPT]; /* by their number, round and round */
    struct sim_health health[SIM_MAX_GPUS];

    struct sim_pool context_pool, stream_pool, event_pool;
    struct sim_pool physical_pool, hold_pool, export_pool;
    struct sim_device devices[SIM_DEVICES];
    uint64_t instances_made; /* GPU instances and compute instances, ever */
    struct sim_instance instances[SIM_MAX_GPUS][SIM_MIG_STARTS];
    struct sim_process processes[SIM_MAX_PROCESSES];
    struct sim_context contexts[SIM_CONTEXTS];
    struct sim_stream streams[SIM_STREAMS];
    struct sim_event events[SIM_EVENTS];
    struct sim_op rings[SIM_STREAMS][SIM_RING];
    struct sim_physical physicals[SIM_PHYSICALS];
    struct sim_hold holds[SIM_HOLDS];
    struct sim_export exports[SIM_EXPORTS];
};

/* The devices that there may be: numbers below it, of which sim_is_device() says which there are.
 */
static inline unsigned sim_device_end(const struct sim_state *s)
{
    if (!__atomic_load_n(&s->instances_made, __ATOMIC_ACQUIRE))
        return s->header.gpu_count;
    return SIM_MAX_GPUS + s->header.gpu_count * SIM_MIG_STARTS;
}

static inline struct sim_instance *sim_instance(struct sim_state *s, unsigned device)
{
    unsigned place = device - SIM_MAX_GPUS;

    return &s->instances[place / SIM_MIG_STARTS][place % SIM_MIG_STARTS];
}

static inline bool sim_is_device(const struct sim_state *s, unsigned device)
{
    unsigned place = device - SIM_MAX_GPUS;

    if (device < SIM_MAX_GPUS)
        return device < s->header.gpu_count;
    return device < SIM_DEVICES &&
           s->instances[place / SIM_MIG_STARTS][place % SIM_MIG_STARTS].has_compute;
}

/* What a device is like; for one that is gone, what it was like. */
static inline const struct sim_gpu_spec *sim_spec_of(const struct sim_state *s, unsigned device)
{
    unsigned place = device - SIM_MAX_GPUS;

    if (device < SIM_MAX_GPUS)
        return &s->header.gpus[device];
    return &s->instances[place / SIM_MIG_STARTS][place % SIM_MIG_STARTS].spec;
}

/* The GPU that a device is, or is a part of. */
static inline unsigned sim_gpu_of(unsigned device)
{
    return device < SIM_MAX_GPUS ? device : (device - SIM_MAX_GPUS) / SIM_MIG_STARTS;
}

static inline unsigned sim_instance_device(unsigned gpu, unsigned start)
{
    return SIM_MAX_GPUS + gpu * SIM_MIG_STARTS + start;
}

/* A machine as this process has it: for ever, once opened. */
struct sim {
    struct sim_state *state;
    int fd;
    int slot; /* of this process, or -1 */
    struct proc_identity self;
    uint64_t dev, ino; /* the file's identity */
    char path[256];
    struct sim *next;
};

/*
 * The machine of this path, opened at most once a process. -ENOENT, -EINVAL (no machine, or of
 * another version), with err set.
 */
int sim_open(const char *path, struct sim **ret_sim, struct error *err);

/* Its file, under none of the numbers that are printed to. A descriptor, or -1 with errno. */
int sim_open_file(const char *path);

/* Whether the file begins as a machine of any version does. */
bool sim_has_magic(int fd);

/* Maps a descriptor's file; checks size and header. The descriptor stays the caller's. */
int sim_map(int fd, struct sim_state **ret_state, struct error *err);
void sim_unmap(struct sim_state *state);

/*
 * Makes room on the disk for a part of the state that is used for the first time: the file is
 * sparse, and a store that finds its disk full is SIGBUS. False: there is none, which one line on
 * standard error says. A kernel before 5.14 is not asked, and the answer is true.
 */
bool sim_reserve(void *part, size_t size);

/* Takes a slot for this process. -EAGAIN when all are taken. Once a process. */
int sim_join(struct sim *sim, struct error *err);

/*
 * Takes the lock, repairs if its last owner died with it, now and then looks who else died, and
 * returns the time on the GPUs' clock.
 */
int64_t sim_lock(struct sim *sim);
void sim_unlock(struct sim *sim);

/*
 * The time on the GPUs' clock, by which everything in the state goes, and on the host's: the two
 * differ by the drift.
 */
int64_t sim_now(const struct sim_state *s);
int64_t sim_host_now(const struct sim_state *s);

/* Whether every option has a value that sim_driver_set() could have given it. */
bool sim_driver_is_sane(const struct sim_driver_spec *driver);

/* Unlocked: sleeps to a time of the GPUs' clock, or until it is worth looking again. */
void sim_sleep_until(const struct sim *sim, int64_t time_ns);

/* Under the lock: clears what dead processes left, wherever it is. */
void sim_sweep(struct sim *sim);

/* The same for those with anything on this GPU: all that who asks about it can see. Each process
 * that is asked after is a system call. */
void sim_sweep_gpu(struct sim *sim, unsigned gpu);

/* Under the lock: the pid of a living process as this one sees it; 0 when it does not. */
pid_t sim_pid(struct sim *sim, unsigned slot);

/*
 * Under the lock: the pid of a living process as the host sees it. Who can't tell his own, and was
 * not seen from there yet, has a number that no process can have.
 */
pid_t sim_host_pid(struct sim *sim, unsigned slot);

/* Under the lock: derives everything derived anew. */
void sim_repair(struct sim_state *s);

/* Under the lock: makes room for bytes (a multiple of SIM_ALIGN); false when there is none. */
bool sim_charge(struct sim *sim, unsigned device, uint64_t bytes);
void sim_discharge(struct sim *sim, unsigned device, uint64_t bytes);

/* Under the lock: whether there is room for bytes, the dead cleared away if need be. */
bool sim_make_room(struct sim *sim, unsigned device, uint64_t bytes);

/* Under the lock: managed pages of this process come to a device, as many as there is room for, and
 * are gone from it. Returns how many bytes came. */
uint64_t sim_managed_come(struct sim *sim, unsigned device, uint64_t bytes);
void sim_managed_go(struct sim *sim, unsigned device, uint64_t bytes);

/* All that is counted for a process on a device. */
static inline uint64_t sim_used_bytes(const struct sim_usage *usage)
{
    return usage->used_bytes + usage->physical_bytes;
}

/* Under the lock. New objects are empty; 0 when the pool is used up. */
uint32_t sim_context_new(struct sim_state *s, unsigned slot, unsigned device, uint32_t queues);
uint32_t sim_stream_new(struct sim_state *s, uint32_t context, unsigned flags);
uint32_t sim_event_new(struct sim_state *s, uint32_t context, unsigned flags);
void sim_event_free(struct sim_state *s, uint32_t event);

/* Ends when its work is done, at once if there is none. */
void sim_stream_free(struct sim_state *s, uint32_t stream);

/* With its streams, their work, and its events. Its memory is the caller's to discharge. */
void sim_context_free(struct sim_state *s, uint32_t context);

void sim_history_add(struct sim_history *history, int64_t from_ns, int64_t to_ns);

/* Busy time of the window's last whole buckets, and the time they span. */
int64_t sim_history_sum(const struct sim_history *history, int64_t now_ns, int64_t window_ns,
                        int64_t *ret_span_ns);
