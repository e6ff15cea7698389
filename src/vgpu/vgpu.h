/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libvgpu.so, from the inside.
 *
 * It is a guest in somebody's process: it never exits, aborts, prints to stdout, installs a signal
 * handler or changes the process' state, it needs nothing but libc, and it does nothing before the
 * first CUDA or NVML call. Where it can't do its work it says so once on stderr and refuses GPU
 * memory: a container is never silently unlimited.
 */

/* clang-format off */
/*
 * lookups    real.c the driver's and NVML's own functions, hooks.S where ours are; elf.c libc's own
 *            dlsym, which ours hides, own_time.c its own clock; resolve.c dlsym, dlvsym,
 *            cuGetProcAddress give out our functions for the driver's; entry.S calls whose
 *            arguments or caller must stay as they are
 * limits     source.c where they come from; attach.c attaching to the region, devices, fork;
 *            account.c charges; say.c words on stderr
 * memory     allocations.c what this process holds, by handle; grant.c an allocation on its way,
 *            pages.c what it takes; memory.c linear memory; arrays.c arrays; managed.c managed
 *            memory, managed_variables.c, prefetch.c; host.c the host's; ipc.c what processes share
 *            by handles; external.c other interfaces' memory
 * mapped     virtual.c memory that is made apart from its addresses; virtual_map.c where it is
 *            mapped; virtual_share.c, dma_buf.c who else has it, given.c until when; references.c
 *            how often it is held; bound.c what holds it beside
 * pools      pools.c what they have; pool_make.c the program's, pool_host.c ours on the host;
 *            pool_alloc.c what is allocated of them; pool_share.c pools of several processes
 * graphs     graphs.c what is made executable; graph_nodes.c, graph_walk.c, graph_demand.c,
 *            graph_homes.c what it is made of, takes, and where it runs; graph_launch.c launches
 *            that allocate
 * contexts   contexts.c, context_make.c, context_end.c, primary.c, green.c; checkpoint.c processes
 *            that come back; modules.c, code.c code; heaps.c heaps and stacks; hidden.c, overhead.c
 *            what the driver takes for itself, usage.c what NVML says of it
 * answers    query.c, pointer.c what a program may see; nvml.c, nvml_usage.c NVML, nvml_fixed.c
 *            what has one answer
 * compute    launch.c launches; captures.c, capturing.c what is captured; transfer.c setting memory
 *            and copies; explain.c what is told of them; stream_make.c streams; compute.c,
 *            compute_rows.c, compute_spread.c, watch.c the limiters of this process; compute_gpu.c
 *            the driver as they see it, events.c what they measure by; limiter/ the compute share
 */
/* clang-format on */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "driver/cuda.h"
#include "driver/nvml.h"
#include "region/limits.h"
#include "region/region.h"
#include "vgpu/limiter/share.h"

/* How the process stands to its container's region. */
enum vgpu_mode {
    VGPU_DETACHED = 0, /* no CUDA call yet, or a forked child */
    VGPU_OFF,          /* nothing is limited and nobody asked for accounts */
    VGPU_ON,
    VGPU_DENIED, /* there are limits, and they can't be enforced */
};

struct vgpu_device {
    CUdevice handle;
    char uuid[48];
    bool granted;   /* named by the limits, or nothing is named */
    unsigned index; /* in the region */
    uint64_t physical_bytes;
    pthread_mutex_t lock;           /* one thread at a time in this process' account */
    _Atomic uint64_t limit_units;   /* LEDGER_UNITS_MAX: none */
    uint64_t own_units;             /* charged by this process, whatever the region says of it */
    _Atomic unsigned contexts;      /* of this process, that live */
    _Atomic uint64_t managed_units; /* managed memory and the host's: NVML counts it for nobody */
    struct share share;             /* of compute */
};

struct vgpu {
    _Atomic int mode;
    _Atomic bool limited_compute; /* any device has a compute limit */
    _Atomic bool allow_unaccounted;
    _Atomic bool allow_imports;
    _Atomic int managed;         /* enum limits_managed */
    _Atomic bool oversubscribed; /* the card need not have room for what the limit has */
    _Atomic bool region_lost; /* its file was removed or replaced: a second ledger may have begun */
    _Atomic bool limits_lost; /* nobody knows what they are by now */
    struct region region;
    unsigned device_count;
    struct vgpu_device devices[REGION_DEVICES];
};

extern struct vgpu vgpu;

/*
 * Brings the process to a definite mode, attaching if the driver is initialised. Returns the mode;
 * VGPU_DETACHED while the driver is not initialised. Fast when attached.
 */
enum vgpu_mode vgpu_attach(void);

static inline enum vgpu_mode vgpu_mode(void)
{
    int mode = atomic_load_explicit(&vgpu.mode, memory_order_acquire);

    return mode == VGPU_DETACHED ? vgpu_attach() : (enum vgpu_mode)mode;
}

/* Opens the region and reads the limits without taking a slot: enough for NVML's questions. */
bool vgpu_open_region(void);

/* The limits in force; valid after vgpu_open_region() or vgpu_attach() said so. */
const struct limits *vgpu_limits(void);

/* Reads the limits again if they changed; looks at most every 50 ms. What clock_coarse_ns() says.
 */
int64_t vgpu_refresh(void);

/* The device of an ordinal, or of the calling thread's current context; NULL when there is none. */
struct vgpu_device *vgpu_device(CUdevice handle);
struct vgpu_device *vgpu_current_device(void);
/* The same where there is a context, or the driver is asked next: quicker where there is one
 * device. */
static inline struct vgpu_device *vgpu_likely_device(void)
{
    return vgpu.device_count == 1 ? &vgpu.devices[0] : vgpu_current_device();
}
/*
 * Whether nothing may be made in the calling thread's current context, or run there: it can't be
 * held to limits (contexts.h), or there are limits and they can't be enforced. Who is asked for
 * either then answers that there is no memory, whatever would be made. False where none is current.
 */
bool vgpu_gives_nothing(void);
/* The current device, for who is about to take memory of it: NULL where nothing is to be accounted.
 * An error is the answer: that, or there is no context, since a signal's handler could make one
 * current before the driver looks. */
CUresult vgpu_find_granted(struct vgpu_device **ret_device);

/* One line on stderr, once per process and kind. */
enum vgpu_word {
    VGPU_WORD_DENIED,
    VGPU_WORD_LIMITS,
    VGPU_WORD_REGION,
    VGPU_WORD_DRIVER,
    VGPU_WORD_UNACCOUNTED,
    VGPU_WORD_HIDDEN,
    VGPU_WORD_CONTEXT,
    VGPU_WORD_CONTEXTS,
    VGPU_WORD_IMPORT,
    VGPU_WORD_MANAGED,
    VGPU_WORD_SPILL,
    VGPU_WORD_THREAD,
    VGPU_WORD_STACK,
    VGPU_WORD_COUNT,
};
void vgpu_say(enum vgpu_word word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Charges and discharges this process' account of a device. vgpu_charge() settles dead processes
 * before it gives a refusal; the kind is for HAMi's mirror.
 */
enum vgpu_kind {
    VGPU_DATA,
    VGPU_CONTEXT,
    VGPU_MODULE,
};
bool vgpu_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
/* The same, where a refusal is not the answer yet: it is not counted, or with the other then. Just
 * after vgpu_refresh() the second one is enough. */
bool vgpu_try_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
bool vgpu_try_charge_now(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
void vgpu_count_refusal(const struct vgpu_device *device, enum region_refusal reason);
/* For what is there already, whatever the limit. */
void vgpu_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
void vgpu_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
/* What is charged as of one kind is of the other from now on. */
void vgpu_recharge(struct vgpu_device *device, enum vgpu_kind from, enum vgpu_kind to,
                   uint64_t units);

/*
 * A call whose memory is not accounted for: whether it is refused, as the limits say. One that is
 * not refused is not limited. Counts it, and says so with the word, once.
 */
bool vgpu_refuses(enum vgpu_word word, const char *name, const char *why);

/* Whether this process holds memory that another one made; so many more of it, or fewer. */
bool virtual_has_imports(void);
void virtual_count_imports(int64_t more);

/* Around the driver's call: it counts from before, since its maker may die meanwhile. And on which
 * device it is, NULL: nobody knows. */
void virtual_begin_import(void);
void virtual_end_import(const struct vgpu_device *device, bool made);

/* Whether it holds any, and had some on that device. */
bool virtual_has_imports_on(const struct vgpu_device *device);

/* The device of memory that was imported, NULL: nobody knows. */
const struct vgpu_device *virtual_device_at(CUdeviceptr ptr);

/* So many more units of this process' that others may have if it dies, or fewer: noted before they
 * may, and taken off once it is charged no more for them (region/orphans.h). */
void vgpu_lend(const struct vgpu_device *device, int64_t units);

/* What all living processes of the container hold, in bytes; settles dead ones. */
uint64_t vgpu_used_bytes(unsigned region_index);

/* Called in a forked child for each part that keeps state. */
void allocations_after_fork(void);
void pages_after_fork(void);
void contexts_after_fork(void);
void virtual_after_fork(void);
void ipc_after_fork(void);
void dma_bufs_after_fork(void);
void given_after_fork(void);
void managed_after_fork(void);
void limiters_after_fork(void);
