/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inside of the simulated libcuda.so.1: what one process has of the machine.
 *
 * Handles are numbers, not addresses: kind, index in the machine's pool, generation. A stale or
 * invented one is found out without touching memory. Two locks, taken in this order: guest.lock for
 * what only this process knows (primary contexts, modules, addresses), then the machine's. A third,
 * guest.function_lock, is held for a moment to look up a function, with no other taken inside it.
 */

#include <pthread.h>
#include <stdbool.h>

/* generate.py's table of functions declares them its own way. */
#ifndef GUEST_FUNCTIONS_ONLY
#include "driver/cuda.h"
#include "simdriver/model.h"

enum {
    GUEST_STACK = 64,  /* contexts pushed by a thread */
    GUEST_THREAD = 16, /* contexts in which a thread uses its own default stream */
};

struct guest_primary {
    uint32_t context; /* 0 while inactive */
    unsigned users;
    unsigned flags;
};

struct guest {
    uint32_t ready;    /* cuInit() succeeded, and this is no forked child since */
    uint32_t captures; /* that go on */
    bool blocking;     /* CUDA_LAUNCH_BLOCKING: a launch returns when the kernel has ended */
    bool eager;        /* CUDA_MODULE_LOADING, or the machine's */
    bool may_fault;    /* a kernel was launched that will */
    uint32_t queues;   /* of a context */
    struct sim *sim;
    pthread_mutex_t lock, function_lock;
    unsigned device_count;
    unsigned devices[SIM_MAX_GPUS];   /* CUdevice to the machine's index */
    uint64_t instances[SIM_MAX_GPUS]; /* which instance that was when the process began; 0: none */
    struct guest_primary primaries[SIM_MAX_GPUS]; /* by CUdevice */
    /* By context, under the machine's lock: what it is charged for, and its pieces of at most half
     * a granule, which share granules. */
    uint64_t charged_bytes[SIM_CONTEXTS];
    uint64_t small_bytes[SIM_CONTEXTS];
    uint64_t small_own_bytes[SIM_CONTEXTS]; /* of what the driver takes for itself */
    uint32_t spare_streams[SIM_CONTEXTS];   /* ended ones, whose memory is the next ones' */
    unsigned users[SIM_CONTEXTS];           /* of one that is no primary context */
};

extern struct guest guest;

struct guest_thread {
    uint64_t id; /* from 1 on, never used again; 0: not named yet */
    CUstreamCaptureMode capture_mode;
    unsigned depth;
    CUcontext stack[GUEST_STACK];
    unsigned stream_count;
    struct {
        uint32_t context, context_gen, stream;
    } streams[GUEST_THREAD];
};

extern __thread struct guest_thread guest_thread;

/* Whether a kernel of this process was at an address that is none. */
static inline bool guest_is_faulted(void)
{
    return __atomic_load_n(&guest.sim->state->processes[guest.sim->slot].faulted, __ATOMIC_ACQUIRE);
}

/* CUDA_SUCCESS once cuInit() succeeded; CUDA_ERROR_ILLEGAL_ADDRESS after such a kernel. */
static inline CUresult guest_check(void)
{
    if (!__atomic_load_n(&guest.ready, __ATOMIC_ACQUIRE))
        return CUDA_ERROR_NOT_INITIALIZED;
    return guest_is_faulted() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* An output that the driver clears before all else, once it is initialised: also where the call
 * fails. */
#define GUEST_CLEAR(output)                                                                        \
    do {                                                                                           \
        if ((output) && __atomic_load_n(&guest.ready, __ATOMIC_ACQUIRE))                           \
            *(output) = 0;                                                                         \
    } while (0)

/* For what goes on after that: it tells of a device, makes a context current, or ends one. */
static inline CUresult guest_pass_fault(CUresult checked)
{
    return checked == CUDA_ERROR_ILLEGAL_ADDRESS ? CUDA_SUCCESS : checked;
}

/* cuInit() succeeded, and the device exists. */
CUresult guest_check_device(CUdevice device);

/* As guest_check(), and a living context is current: its index, also after a fault. */
CUresult guest_current(uint32_t *ret_context);

/* Where a handle that was one is an error in the kinder mode; in the other one this is the end. */
void guest_meet_stale(void);

/* The index of a living context of this process. */
bool guest_find_context(CUcontext handle, uint32_t *ret_context);

/* Whether a context of this process is there. It stays so as long as guest.lock, or the machine's,
 * is held: contexts end under both. */
bool guest_context_is_ours(uint32_t context);

CUcontext guest_context_handle(uint32_t context);
CUcontext guest_primary_handle(CUdevice device);
CUdevice guest_primary_device(CUcontext handle); /* -1: of no primary context */

static inline struct sim_state *guest_state(void)
{
    return guest.sim->state;
}

static inline struct sim_context *guest_context(uint32_t context)
{
    return &guest.sim->state->contexts[context];
}

/*
 * Under the machine's lock: the stream of a handle, NULL being the thread's own default stream if
 * per_thread, else the legacy one; these are made when first used. CUDA_ERROR_INVALID_HANDLE,
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult guest_find_stream(CUstream handle, bool per_thread, uint32_t context,
                           uint32_t *ret_stream);
CUstream guest_stream_handle(uint32_t stream);

/* Under the machine's lock. A stream with a handle: takes memory, unless one that was destroyed
 * left some to its context. 0: there is no room. */
uint32_t guest_stream_new(uint32_t context, unsigned flags, int priority);

/* The priorities of streams, which are told and change nothing; those beyond are the nearest. */
enum {
    GUEST_PRIORITY_LEAST = 0,
    GUEST_PRIORITY_GREATEST = -5,
};

/* Under the machine's lock. What stands for another process' event is found as that one, while it
 * is there; guest_find_own_event() finds it itself. */
bool guest_find_event(CUevent handle, uint32_t *ret_event);
bool guest_find_own_event(CUevent handle, uint32_t *ret_event);
CUevent guest_event_handle(uint32_t event, uint32_t gen);

/*
 * Locks the machine, moves the context's device on to now, and finds the stream. On failure nothing
 * is locked.
 */
CUresult guest_enter_stream(CUstream handle, bool per_thread, uint32_t *ret_stream);

/* Waits, if the stream is full, and appends. Locked before and after. */
CUresult guest_append(uint32_t stream, struct sim_op *op);

/* As guest_append(), of a kernel, and counts it. */
CUresult guest_launch(uint32_t stream, struct sim_op *op);

/* A kernel as a graph has it, its code loaded: a function in its own context, a kernel that has
 * none in the given one. No lock held. */
struct graph_node;
CUresult guest_make_kernel(const CUDA_KERNEL_NODE_PARAMS *params, uint32_t context,
                           struct graph_node *ret_node);

/* An event's record, or a wait for it, as a graph has it; false: it is none. No lock held. */
bool guest_make_event(CUevent handle, CUgraphNodeType type, struct graph_node *ret_like);

/* The setting of memory as a graph has it. */
struct sim_op guest_make_copy(const CUDA_MEMSET_NODE_PARAMS *to, uint32_t context);
struct sim_op guest_make_set(const CUDA_MEMSET_NODE_PARAMS *params, uint32_t context);

/* Sleeps to an estimated moment, the machine unlocked. What may fault is done earlier then. */
void guest_sleep(int64_t until_ns);

/* Waits until a stream has done so many ops; then guest_check(). Locked before, unlocked after. */
CUresult guest_wait(uint32_t stream, uint64_t seq, int64_t work_ns);

/* More, or less, of a context's memory, in pieces as they were asked for. False: there is no room.
 */
bool guest_charge(uint32_t context, uint64_t bytes);
bool guest_charge_locked(uint32_t context, uint64_t bytes);
void guest_discharge(uint32_t context, uint64_t bytes);
void guest_discharge_locked(uint32_t context, uint64_t bytes);
/* For the context itself, its heaps, its code. */
bool guest_charge_own(uint32_t context, uint64_t bytes);
bool guest_charge_own_locked(uint32_t context, uint64_t bytes); /* with the machine's lock */
void guest_discharge_own(uint32_t context, uint64_t bytes);

/* The host has waited for some work: pools give back what they need not keep. No lock held. */
void guest_pools_waited(void);

/* Frees what a pool gave out, as if all work with it were done; false when no pool did. Where what
 * a pool gave out begins that an address lies in. No lock held. */
bool guest_pool_free(uint64_t address);
bool guest_pool_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes);

/* Where memory is. */
struct guest_place {
    unsigned device; /* on which it is, or is counted */
    bool on_host;    /* it takes nothing of a device */
    bool managed;    /* it moves: it is where it is touched, or prefetched to, */
    int preferred;   /* and best at this place: see guest_managed_add() */
};

/* Whether memory can be of such a pool, and where it is then. */
CUresult guest_pool_place(const CUmemPoolProps *props, struct guest_place *ret);

/* The pool that gave it out, as a program knows it, and of which device it is, SIM_DEVICES for the
 * host's; NULL: none did. No lock held. */
CUmemoryPool guest_pool_of(uint64_t address, unsigned *ret_device);

/*
 * Under the machine's lock. Frees what cuMemAlloc gave out: false when it is nothing of that kind.
 * For one context, ends all holds on what is shared between processes: see cuda_ipc.c.
 */
bool guest_free_locked(uint64_t address);
void guest_ipc_drop(uint32_t context);

/*
 * Under the machine's lock, as well: of managed memory. Whether an address lies in some; it is
 * freed, false when it is none; a kernel touches what an address lies in; all of a context's is
 * freed.
 */
uint64_t guest_managed_make(uint64_t bytes, uint32_t context); /* 0: there is no memory for it */
bool guest_managed_has(uint64_t address);
bool guest_has(uint64_t address); /* any memory of a device */
/* No lock held. The host's is what is mapped of it, and what its pools gave out. */
enum guest_kind {
    GUEST_NOTHING,
    GUEST_DEVICE,
    GUEST_HOST,
    GUEST_HOST_POOL,
};
enum guest_kind guest_kind_of(uint64_t address);
bool guest_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes); /* the piece of it */
bool guest_managed_free(uint64_t address);
void guest_managed_touch(uint64_t address, unsigned device);
void guest_managed_drop(uint32_t context);

/* And so, of memory that a pool has, which is of no context, and claimed on a device. It is best at
 * a place: an ordinal, or one of those below. False: there is no memory for it. */
enum {
    GUEST_PLACE_HOST = -1, /* CU_DEVICE_CPU */
    GUEST_PLACE_NONE = -2, /* CU_DEVICE_INVALID */
};
bool guest_managed_add(uint64_t address, uint64_t bytes, unsigned device, int preferred);
void guest_managed_remove(uint64_t address);

/* And so, of what is mapped of external memory; and all of a context is freed. */
bool guest_external_free(uint64_t address);
void guest_external_drop(uint32_t context);

/* And so: whether an address is where a resource of GL is mapped; all of a context end. */
bool guest_graphics_has(uint64_t address);
void guest_graphics_drop(uint32_t context);

/* And so, of what graphs allocated and left over: freed, false when it is none; where it lies. */
bool guest_graph_free(uint64_t address);
bool guest_graph_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes);

/* And so: all arrays of a context end. */
void guest_array_drop(uint32_t context);

/*
 * And so: a mipmapped array over so much memory of others, of which it takes none. It has the hold,
 * and is destroyed as others are; or, with 0, is lent: until guest_array_end(), which nobody else
 * does. CUDA_ERROR_INVALID_VALUE: it has no such shape, or is larger. An array's level 0.
 */
CUresult guest_array_over(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels,
                          uint64_t bytes, uint32_t context, uint32_t hold, CUmipmappedArray *ret);
CUresult guest_array_level(CUmipmappedArray mipmap, unsigned level, CUarray *ret);
void guest_array_end(CUmipmappedArray mipmap);

/* And so: the hold that a handle of memory that is mapped stands for. */
bool guest_find_hold(uint64_t handle, uint32_t *ret_hold);
uint64_t guest_hold_handle(uint32_t hold);

/* And so: a hold of this process may have ended; what was bound to its multicast object is not. */
void guest_multicast_settle(void);

/* Under the machine's lock, before and after: if a handle is of a multicast object, waits until all
 * its devices have joined. */
void guest_multicast_wait(uint64_t handle);

/* guest.lock held: forgets a context's modules; gives it the libraries that are loaded eagerly. */
void guest_drop_modules(uint32_t context);
CUresult guest_add_libraries(uint32_t context);

/* The stack of the context of that generation is at least so large for each thread, if there is
 * room. CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_CONTEXT_IS_DESTROYED. */
CUresult guest_grow_stack(uint32_t context, uint32_t gen, uint64_t bytes);

/* Until all that was put into the context is done. */
void guest_wait_context(uint32_t context);

/* Gives the thread its id, and sees to it that what is the thread's ends with it. */
void guest_name_thread(void);

/*
 * As guest_check(), and no capture forbids a call that might synchronise or allocate. One that does
 * is invalid from then on, and the call must do nothing.
 */
CUresult guest_check_safe(void);

/* As guest_current(), and so. */
CUresult guest_current_safe(uint32_t *ret_context);

/*
 * Under the machine's lock, all below. CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and the captures are
 * invalid unless this only asks, when the stream is a legacy one and a blocking stream of its
 * context is captured.
 */
CUresult guest_check_legacy(uint32_t stream, bool ask);

/* A stream, an event, a whole context that is captured can't be waited for, or asked whether it is
 * done: the errors of that, and the captures are invalid. */
CUresult guest_check_wait(uint32_t stream);
CUresult guest_check_event(uint32_t event);
CUresult guest_check_context_wait(uint32_t context);

/* Makes a node of what was put into a stream that is captured. */
bool guest_is_capturing(uint32_t stream);
CUresult guest_capture(uint32_t stream, const struct sim_op *op);
CUresult guest_capture_node(uint32_t stream, const struct graph_node *like);
struct graph *guest_capture_graph(uint32_t stream);

/*
 * A record or a wait with its flags, as far as a capture is concerned; where none is, it is still
 * to be done. An event that is recorded anew, or gone, is no captured one any more.
 */
CUresult guest_capture_record(uint32_t stream, uint32_t event, unsigned flags, bool *ret_captured);
CUresult guest_capture_wait(uint32_t stream, uint32_t event, unsigned flags, bool *ret_captured);
void guest_uncapture_event(uint32_t event);

/* The end of a stream, and of this thread, for the captures that began there. */
void guest_drop_capture(uint32_t stream);
void guest_drop_thread_captures(void);

/* Puts a record of an event, a wait for its last one, into a stream. */
CUresult guest_record(uint32_t stream, uint32_t event);
CUresult guest_wait_event(uint32_t stream, uint32_t event);

/* The devices by CUDA_VISIBLE_DEVICES (NULL: all) and, as far as it names instances,
 * NVIDIA_VISIBLE_DEVICES. Returns the count. */
unsigned guest_visible_devices(const struct sim_state *s, const char *text, const char *handed,
                               unsigned *ret_devices);
#endif

/* In the order of driver_entries. */
extern void (*const guest_functions[])(void);
