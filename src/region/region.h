/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shared region: one file that all processes of a container map, and that the node reads.
 *
 * Its first part has HAMi-core 1.2's exact bytes, so that HAMi's monitor and an old HAMi-core can
 * share the file. From offset 2,011,136 on follows our extension: what decides (the ledger's words,
 * the compute bucket) and who the processes are. HAMi's own fields are kept as a mirror for its
 * readers; they are written after the fact and decide nothing.
 *
 * A slot is a process. It is claimed at the first CUDA call and belongs to the process until it
 * dies: nobody has to say goodbye, so nothing is lost when somebody can't. Life is told by locks on
 * bytes beyond the file's end, which the kernel gives back: a record lock, which names its process
 * to readers, and a lock of the open file, which lasts until the process dies or becomes another
 * program, whatever it opens and closes. Where both were lost the process' identity tells. Whoever
 * claims a slot, is refused memory, or reads, settles dead slots first.
 *
 * The tenant can write every byte here: nothing read from the region is used as an index, a size or
 * an address without a check, and a reader outside never maps it (see view.h).
 */

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/proc.h"

enum {
    REGION_DEVICES = 16,
    REGION_SLOTS = 1024,
    REGION_SHARES = 4096,
    REGION_UUID_SIZE = 96,
};

#define REGION_MAGIC 19920718
#define REGION_MAJOR 1
#define REGION_MINOR 2
#define REGION_BASE_SIZE 2008952u
#define REGION_EXT_OFFSET 2011136u /* the next page after the byte that HAMi-core clears */
#define REGION_EXT_MAGIC UINT64_C(0x31747865494d4148) /* "HAMIext1" */
#define REGION_EXT_VERSION 1

/* HAMi-core 1.2, x86-64 and arm64: offsets asserted in region.c. */

struct region_memory {
    uint64_t context_size;
    uint64_t module_size;
    uint64_t data_size;
    uint64_t offset;
    uint64_t total;
    uint64_t unused[3];
};

struct region_utilisation {
    uint64_t dec_util;
    uint64_t enc_util;
    uint64_t sm_util;
    uint64_t unused[3];
};

enum {
    REGION_STATUS_DEAD = 0,
    REGION_STATUS_RUNNING = 1,
    REGION_STATUS_SUSPENDED = 2,
};

struct region_slot {
    _Atomic int32_t pid; /* in the container; 0: free */
    _Atomic int32_t host_pid;
    struct region_memory used[REGION_DEVICES];
    _Atomic uint64_t monitor_used[REGION_DEVICES];
    struct region_utilisation util[REGION_DEVICES];
    _Atomic int32_t status;
    int32_t padding;
    _Atomic uint64_t seqlock;
    uint64_t unused[2];
};

struct region_base {
    _Atomic int32_t magic;
    uint32_t major_version;
    uint32_t minor_version;
    _Atomic int32_t sm_init_flag;
    _Atomic uint64_t owner_pid;
    sem_t sem;
    uint64_t device_count;
    char uuids[REGION_DEVICES][REGION_UUID_SIZE];
    _Atomic uint64_t limit[REGION_DEVICES];    /* bytes; 0: none */
    _Atomic uint64_t sm_limit[REGION_DEVICES]; /* percent */
    struct region_slot slots[REGION_SLOTS];
    _Atomic int32_t slot_count; /* index of the last slot in use, plus 1 */
    _Atomic int32_t utilization_switch;
    _Atomic int32_t recent_kernel;
    int32_t priority;
    _Atomic uint64_t last_kernel_time; /* Unix seconds */
    sem_t sem_postinit;
};

/* Our extension. Groups that are written together have a cache line of their own. */

#define CACHE_LINE 64

enum {
    REGION_PARTS = 8,  /* kinds of kernels, by their length */
    REGION_WAITS = 10, /* ranges of how long a launch waited: see REGION_WAIT_MS */
};

/* The upper ends of all but the last, which has none. */
#define REGION_WAIT_MS                                                                             \
    {                                                                                              \
        1, 5, 10, 25, 50, 100, 250, 1000, 5000                                                     \
    }

/* A compute bucket and its counters, shared by the container's processes: see region/bucket.h. */
struct region_compute {
    _Alignas(CACHE_LINE) _Atomic int64_t zero_ns; /* the time at which the balance is zero */
    _Atomic uint64_t rate;                        /* that zero_ns is expressed in, 1/65536 */
    _Alignas(CACHE_LINE) _Atomic uint32_t gate;   /* 1: closed until the balance is worth opening */
    _Atomic uint32_t wake;                        /* futex: bumped when waiters should look again */
    _Atomic int64_t longest_ns;                   /* of the recent kernels */
    _Alignas(CACHE_LINE) _Atomic int64_t raw_ns;  /* all charges, before scaling */
    _Atomic int64_t charged_ns;                   /* all charges, after scaling */
    _Atomic uint64_t launches_delayed;
    _Atomic uint64_t delayed_ns;
    _Atomic uint64_t samples;
    _Atomic uint64_t probes_on;
    _Atomic uint64_t probes_off;
    _Atomic uint64_t waits_cut;
    _Alignas(CACHE_LINE) _Atomic uint64_t waits[REGION_WAITS]; /* launches that waited so long */
    _Atomic int64_t doubted_until_ns; /* streams were busy, nobody knows with what: see tails.h */
    _Atomic int64_t credit_until_ns;  /* until then nothing goes on credit beside large debts */
    uint64_t reserved[4];             /* for the monitor's hints */
};

/* What a device's launches do that those on others may wait for: see vgpu/limiter/gang.h. Times and
 * amounts in ns. */
struct region_gang {
    _Atomic int64_t until_ns;      /* it is held together with others that are bound */
    _Atomic int64_t late_since_ns; /* what it runs takes too long; 0: it does not */
    _Atomic int64_t late_ns;       /* and was last seen to then */
    _Atomic int64_t held_since_ns; /* launches are held since, and none went; 0: none is */
    _Atomic int64_t held_ns;       /* in all, before that */
    _Atomic int64_t gone_ns;       /* launched for since all that are bound were let go */
};

/* What is charged to nobody's account: see orphans.h. */
struct region_orphans {
    _Atomic uint64_t units;
    _Atomic uint64_t waiting; /* of them, for this round to be seen: */
    _Atomic uint32_t since;
    _Atomic uint32_t round; /* the one under way */
    _Atomic uint64_t step;  /* what is being done, */
    _Atomic uint64_t after; /* and how many units there are after that */
};

struct region_ext_device {
    _Alignas(
        CACHE_LINE) _Atomic uint64_t word; /* what is charged, and by whom last: see ledger.h */
    _Alignas(CACHE_LINE) _Atomic uint64_t refusals;
    struct region_compute compute;
    _Atomic uint64_t context_units; /* what a context was measured to take; 0: not measured yet */
    /* What part of the time of kernels, by their length, was ours of late, in 1/65536; 0: not
     * known. For processes that begin: see vgpu/limiter/presence.h. */
    _Atomic uint32_t parts[2][REGION_PARTS];
    struct region_gang gang;
    struct region_orphans orphans;
    uint64_t reserved[4];
};

/* One process' account of one device: see ledger.h. */
struct region_account {
    _Atomic uint64_t op;
    _Atomic uint64_t used;
    _Atomic uint64_t done;
};

struct region_ext_slot {
    _Alignas(CACHE_LINE) _Atomic int32_t pid; /* 0: free. Written after the rest of the identity */
    _Atomic uint32_t pid_namespace;
    _Atomic uint64_t start_ticks;
    _Atomic uint64_t imports; /* pieces of memory that it got from other processes, and holds */
    _Atomic uint64_t pinned;  /* bytes of the host's memory that the driver keeps in place for it */
    _Atomic uint64_t spilled; /* bytes of its accounts that the card had no room for */
    uint64_t reserved[2];
    struct region_account accounts[REGION_DEVICES];
};

/* One process' turn at one device, and what it was charged for unfinished work: see turns.h. */
struct region_turn {
    _Atomic int64_t served_ns;
    _Atomic int64_t wanted_until_ns;
    _Atomic int64_t unsettled_ns;
    _Atomic int64_t since_ns;
};

/* Memory that a process lets others have by a handle: see shares.h. */
struct region_share {
    _Atomic uint32_t owner; /* its slot, plus 1; 0: free */
    uint32_t reserved;
    _Atomic uint64_t handle;  /* a hash of it */
    _Atomic uint64_t address; /* in its owner */
};

enum region_launch_kind {
    REGION_LAUNCH_KERNEL = 0,
    REGION_LAUNCH_COOPERATIVE,
    REGION_LAUNCH_GRAPH,
    REGION_LAUNCH_KINDS,
};

/* What the library did to one process' launches on one device, for people: see vgpu/explain.h. */
struct region_explain {
    _Alignas(CACHE_LINE) _Atomic uint64_t launches[REGION_LAUNCH_KINDS];
    _Atomic uint64_t throttled; /* of them, that waited */
    _Atomic uint64_t throttled_ns;
    _Atomic uint64_t own_ns; /* of our code, an estimate from samples */
    _Atomic int64_t busy_ns; /* of the device's time, charged */
    _Atomic uint64_t lent;   /* none of the above: units that others may have (orphans.h) */
};

/* Why a process was refused something on a device. The first three are vgpu_kind's. */
enum region_refusal {
    REGION_REFUSAL_DATA = 0,    /* no room within the limit: for what a program allocates, */
    REGION_REFUSAL_CONTEXT,     /* for a context, */
    REGION_REFUSAL_CODE,        /* for code and heaps */
    REGION_REFUSAL_IMPORT,      /* memory that nobody of the container made: HAMI_IMPORTS */
    REGION_REFUSAL_UNACCOUNTED, /* what is not accounted for: HAMI_UNACCOUNTED */
    REGION_REFUSAL_REASONS,
};

struct region_refusals {
    _Atomic uint32_t by_reason[7];
    _Atomic uint32_t seen_round; /* no refusal: see orphans.h */
};

struct region_ext {
    _Atomic uint64_t magic;
    uint32_t version;
    uint32_t size;
    _Atomic uint64_t unaccounted_refused; /* calls of entry points that are not accounted for yet */
    _Atomic uint64_t unaccounted_allowed;
    /* Written under the lock of the base while the file is opened. */
    _Alignas(
        CACHE_LINE) uint64_t boot;  /* hash of the boot that the clocks in here are of; 0: none */
    _Atomic uint64_t ruled_by_file; /* 1: a limits file ruled whoever opened it */
    _Atomic uint64_t gang_closed;   /* 1: devices that are bound are held (struct region_gang) */
    uint64_t reserved[53];
    struct region_ext_device devices[REGION_DEVICES];
    struct region_ext_slot slots[REGION_SLOTS];
    struct region_turn turns[REGION_SLOTS]
                            [REGION_DEVICES];  /* not in the first files of version 1 */
    struct region_share shares[REGION_SHARES]; /* nor are these */
    struct region_explain explains[REGION_SLOTS][REGION_DEVICES];  /* nor these */
    struct region_refusals refusals[REGION_SLOTS][REGION_DEVICES]; /* nor these */
};

/* What a file of version 1 has at least: it grows when a newer library opens it. */
#define REGION_EXT_LEAST offsetof(struct region_ext, turns)

#define REGION_SIZE (REGION_EXT_OFFSET + sizeof(struct region_ext))

/* Bytes that are locked and never written: the slot table's, the measuring of contexts', the one
 * for what may have to be undone, and two a slot (slots.h). */
#define REGION_LOCK_TABLE (INT64_C(1) << 40)
#define REGION_LOCK_MEASURE (REGION_LOCK_TABLE + 1)
#define REGION_LOCK_TRY (REGION_LOCK_TABLE + 2)
#define REGION_LOCK_SLOTS (REGION_LOCK_TABLE + 4096)
#define REGION_LOCK_HELD (REGION_LOCK_TABLE + 8192) /* not of the first libraries of version 1 */

/* A process' hold on a region. Zero it before region_open(). One per process and file. */
struct region {
    struct region_base *base;
    struct region_ext *ext;
    int fd;    /* its open file has the locks; a program may close it */
    void *pin; /* keeps that open file then */
    dev_t dev;
    ino_t ino;
    pthread_mutex_t
        lock; /* among the process' threads; files' record locks don't tell them apart */
    struct proc_identity self;
    int slot; /* ours, or -1 */
    char path[1024];
};

/*
 * Opens the file, making and initialising it if needed, and maps it. Follows no symbolic link,
 * accepts nothing but a regular file, waits no longer than two seconds for whoever is initialising
 * it. Returns 0 or a negative errno with err set: -EPROTO when the file is something else or of
 * another version, -ENOSPC when there is no room for all of it, -ETIMEDOUT.
 */
int region_open(struct region *region, const char *path, struct error *err);

/*
 * As region_open(), for a file that was made for us: it must be there, and of this inode number
 * unless that is 0. -ENOENT, -ESTALE.
 */
int region_open_made(struct region *region, const char *path, uint64_t inode, struct error *err);

/* Whether the file was removed, or another took its name: new processes would begin a second one.
 * Two system calls. */
bool region_is_lost(const struct region *region);

/* For tests and tools that end before their process does. libvgpu never calls it. */
void region_close(struct region *region);

/*
 * Takes a slot for the calling process (region->slot), after settling dead ones. Bounded: two
 * seconds at worst, microseconds as a rule. A slot is free once its process is dead and nobody
 * holds its lock: a child that was made without fork handlers holds its dead parent's lock until it
 * ends. -EUSERS when all 1,024 slots are taken, -ETIMEDOUT, -ESTALE when our descriptor is closed
 * and the file can't be opened again.
 */
int region_claim(struct region *region, struct error *err);

/* Whether no other process has a slot. Those that died and were not settled yet count. */
bool region_is_alone(const struct region *region);

/* In a forked child: what was the parent's slot is not ours. Async-signal-safe. */
void region_after_fork(struct region *region);

/*
 * Settles every dead slot: finishes what it was doing, gives back what it held, frees it; and what
 * dead processes left to others, as far as nobody can have it any more (orphans.h). When another
 * process is at it, waits for it at most 50 ms. Returns how often something was given back, or a
 * negative errno.
 */
int region_settle(struct region *region);

/*
 * Keeps other processes from measuring a first context at the same time; waits for one that does
 * for at most two seconds.
 * Returns 0 or a negative errno; unlocked by region_measured(), or by the process' death.
 */
int region_measure(struct region *region);
void region_measured(struct region *region);

/* The same for other processes that do what may exceed the limit for a moment, before it is undone.
 */
int region_try(struct region *region);
void region_tried(struct region *region);

/* Opens the file again if the program closed our descriptor, and takes our locks then. One system
 * call if it did not. With the process' lock held. */
void region_refresh(struct region *region);

/* Takes what the program may have made us lose: the descriptor, the locks. To be called now and
 * then, so that readers can see the process' pid again. */
void region_keep(struct region *region);

/* The device of this UUID, added if there is room: its index, or -ENOSPC. */
int region_device(struct region *region, const char *uuid);

/* As region_device(), for a device whose place is known: index i has this UUID from now on. */
void region_set_device(struct region *region, unsigned index, const char *uuid);

/* Which range a wait is in. */
unsigned region_wait_range(int64_t ns);
