/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/guest.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "simdriver/green.h"

/* A handle: kind in bits 44 to 46, generation in 24 to 43, index in 4 to 23. */
enum handle_kind {
    HANDLE_CONTEXT = 1,
    HANDLE_PRIMARY, /* lasts over resets, as the driver's does; the index is the CUdevice's */
    HANDLE_STREAM,
    HANDLE_EVENT,
};

#define CONNECTIONS_MAX 32 /* of CUDA_DEVICE_MAX_CONNECTIONS */
#define GEN_MASK 0xfffffu
#define INDEX_MASK 0xfffffu

struct guest guest = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .function_lock = PTHREAD_MUTEX_INITIALIZER,
};
__thread struct guest_thread guest_thread;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool was_ready_before_fork;

static void *make_handle(enum handle_kind kind, uint32_t index, uint32_t gen)
{
    return (void *)((uintptr_t)kind << 44 | (uintptr_t)(gen & GEN_MASK) << 24 |
                    (uintptr_t)index << 4);
}

static bool is_handle(const void *handle, enum handle_kind kind)
{
    return (uintptr_t)handle >> 44 == (uintptr_t)kind && ((uintptr_t)handle & 15) == 0;
}

static uint32_t handle_index(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> 4) & INDEX_MASK;
}

static uint32_t handle_gen(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> 24) & GEN_MASK;
}

/* Whether an object of a pool is there, of this process, and of the handle's generation. */
static bool is_ours(const void *handle, uint32_t owner, uint32_t gen)
{
    return owner == (uint32_t)guest.sim->slot + 1 && (gen & GEN_MASK) == handle_gen(handle);
}

/* A real driver's handles are addresses, and it takes most of them at their word. */
void guest_meet_stale(void)
{
    if (!guest.sim || guest_state()->header.driver.stale_handles != SIM_STALE_HANDLES_CRASH)
        return;
    (void)raise(SIGSEGV);
    abort();
}

/* Initialisation */

/* The child has the parent's memory, but nothing on the GPUs. */
static void after_fork(void)
{
    guest.ready = false;
    guest.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    guest.function_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(&guest_thread, 0, sizeof(guest_thread));
}

static void end_thread(void *unused)
{
    (void)unused;
    if (guest_check() != CUDA_SUCCESS)
        return;

    (void)sim_lock(guest.sim);
    guest_drop_thread_captures();
    for (unsigned i = 0; i < guest_thread.stream_count; i++) {
        uint32_t context = guest_thread.streams[i].context;
        uint32_t stream = guest_thread.streams[i].stream;

        if (guest_context(context)->gen == guest_thread.streams[i].context_gen &&
            guest_context(context)->owner == (uint32_t)guest.sim->slot + 1) {
            guest_drop_capture(stream);
            sim_stream_free(guest_state(), stream);
        }
    }
    guest_thread.stream_count = 0;
    sim_unlock(guest.sim);
}

void guest_name_thread(void)
{
    static uint64_t last;

    if (guest_thread.id)
        return;
    guest_thread.id = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    (void)pthread_setspecific(thread_key, &guest_thread);
}

static void prepare_once(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork);
    (void)pthread_key_create(&thread_key, end_thread);
}

static long environment_number(const char *name)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 10) : 0;
}

static uint64_t instance_of(unsigned device)
{
    if (device < SIM_MAX_GPUS)
        return 0;
    return sim_is_device(guest_state(), device)
               ? sim_instance(guest_state(), device)->compute_number
               : UINT64_MAX;
}

static CUresult attach(void)
{
    const char *path = getenv("HAMI_SIM"), *loading = getenv("CUDA_MODULE_LOADING");
    struct error err = ERROR_INIT;
    long connections;
    int r;

    if (!path || !path[0]) {
        (void)fprintf(stderr, "simulated CUDA driver: HAMI_SIM is not set: name the state file "
                              "of a simulated machine in it (hamictl sim makes one)\n");
        return CUDA_ERROR_NO_DEVICE;
    }
    r = sim_open(path, &guest.sim, &err);
    if (r == 0)
        r = sim_join(guest.sim, &err);
    if (r < 0) {
        (void)fprintf(stderr, "simulated CUDA driver: HAMI_SIM=%s\n", err.text);
        return CUDA_ERROR_NO_DEVICE;
    }

    guest.queues = (uint32_t)guest_state()->header.driver.queues;
    connections = environment_number("CUDA_DEVICE_MAX_CONNECTIONS");
    if (connections >= 1 && connections <= CONNECTIONS_MAX)
        guest.queues = (uint32_t)connections;
    guest.eager = guest_state()->header.driver.loading == SIM_LOADING_EAGER;
    if (loading && strcmp(loading, "EAGER") == 0)
        guest.eager = true;
    if (loading && strcmp(loading, "LAZY") == 0)
        guest.eager = false;
    guest.blocking = environment_number("CUDA_LAUNCH_BLOCKING") > 0;
    (void)sim_lock(guest.sim);
    guest.device_count = guest_visible_devices(guest_state(), getenv("CUDA_VISIBLE_DEVICES"),
                                               getenv("NVIDIA_VISIBLE_DEVICES"), guest.devices);
    for (unsigned i = 0; i < guest.device_count; i++)
        guest.instances[i] = instance_of(guest.devices[i]);
    sim_unlock(guest.sim);
    return guest.device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

PUBLIC CUresult cuInit(unsigned int flags)
{
    CUresult r = CUDA_SUCCESS;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_once(&once, prepare_once);
    (void)pthread_mutex_lock(&guest.lock);
    if (!guest.ready && was_ready_before_fork)
        r = CUDA_ERROR_NOT_INITIALIZED;
    else if (!guest.ready)
        r = attach();
    if (r == CUDA_SUCCESS) {
        was_ready_before_fork = true;
        __atomic_store_n(&guest.ready, 1, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

/* Contexts */

/* An instance that was ended is no device any more, whatever is made in its place. */
CUresult guest_check_device(CUdevice device)
{
    CUresult r = guest_pass_fault(guest_check());

    if (r != CUDA_SUCCESS)
        return r;
    if (device < 0 || (unsigned)device >= guest.device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    return guest.instances[device] == instance_of(guest.devices[device])
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

static bool find_context(CUcontext handle, uint32_t *ret_context)
{
    uint32_t i = handle_index(handle);

    if (is_handle(handle, HANDLE_PRIMARY)) {
        if (i >= guest.device_count)
            return false;
        *ret_context = __atomic_load_n(&guest.primaries[i].context, __ATOMIC_ACQUIRE);
        return *ret_context != 0;
    }
    if (green_is_context(handle))
        return green_find(handle, ret_context);
    if (!is_handle(handle, HANDLE_CONTEXT) || i >= SIM_CONTEXTS)
        return false;
    if (!is_ours(handle, guest_context(i)->owner, guest_context(i)->gen))
        return false;
    *ret_context = i;
    return true;
}

bool guest_find_context(CUcontext handle, uint32_t *ret_context)
{
    if (find_context(handle, ret_context))
        return true;
    if (is_handle(handle, HANDLE_CONTEXT))
        guest_meet_stale();
    return false;
}

bool guest_context_is_ours(uint32_t context)
{
    return guest_context(context)->owner == (uint32_t)guest.sim->slot + 1;
}

CUcontext guest_context_handle(uint32_t context)
{
    return make_handle(HANDLE_CONTEXT, context, guest_context(context)->gen);
}

CUcontext guest_primary_handle(CUdevice device)
{
    return make_handle(HANDLE_PRIMARY, (uint32_t)device, 0);
}

CUdevice guest_primary_device(CUcontext handle)
{
    return is_handle(handle, HANDLE_PRIMARY) ? (CUdevice)handle_index(handle) : -1;
}

CUresult guest_current(uint32_t *ret_context)
{
    CUresult r = guest_check();

    if (guest_pass_fault(r) != CUDA_SUCCESS)
        return r;
    if (!guest_thread.depth || !guest_thread.stack[guest_thread.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!find_context(guest_thread.stack[guest_thread.depth - 1], ret_context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return r;
}

CUresult guest_current_safe(uint32_t *ret_context)
{
    CUresult r = guest_current(ret_context);

    return r == CUDA_SUCCESS ? guest_check_safe() : r;
}

/* Streams and events */

static CUresult legacy_stream(uint32_t context, uint32_t *ret_stream)
{
    struct sim_context *c = guest_context(context);

    if (!c->legacy)
        c->legacy = sim_stream_new(guest_state(), context, CU_STREAM_DEFAULT);
    *ret_stream = c->legacy;
    return c->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult thread_stream(uint32_t context, uint32_t *ret_stream)
{
    struct guest_thread *thread = &guest_thread;
    uint32_t gen = guest_context(context)->gen;
    unsigned at = 0;

    for (at = 0; at < thread->stream_count; at++) {
        if (thread->streams[at].context != context)
            continue;
        if (thread->streams[at].context_gen != gen)
            break;
        *ret_stream = thread->streams[at].stream;
        return CUDA_SUCCESS;
    }
    if (at == GUEST_THREAD)
        return CUDA_ERROR_OUT_OF_MEMORY;

    *ret_stream = sim_stream_new(guest_state(), context, CU_STREAM_DEFAULT);
    if (!*ret_stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    thread->streams[at].context = context;
    thread->streams[at].context_gen = gen;
    thread->streams[at].stream = *ret_stream;
    thread->stream_count = MAX(thread->stream_count, at + 1);
    guest_name_thread();
    return CUDA_SUCCESS;
}

CUresult guest_find_stream(CUstream handle, bool per_thread, uint32_t context, uint32_t *ret_stream)
{
    bool is_default = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    uint32_t i = handle_index(handle);
    CUresult r;

    /* Another thread may have ended the context since the caller asked which one it is. */
    if (is_default && !guest_context_is_ours(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (is_default && green_default_stream(context, &r, ret_stream))
        return r;
    if (handle == CU_STREAM_LEGACY || (!handle && !per_thread))
        return legacy_stream(context, ret_stream);
    if (handle == CU_STREAM_PER_THREAD || !handle)
        return thread_stream(context, ret_stream);
    if (!is_handle(handle, HANDLE_STREAM) || i >= SIM_STREAMS)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_ours(handle, guest_state()->streams[i].owner, guest_state()->streams[i].gen) ||
        guest_state()->streams[i].dying) {
        guest_meet_stale();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *ret_stream = i;
    return green_is_detached(i) ? CUDA_ERROR_STREAM_DETACHED : CUDA_SUCCESS;
}

CUstream guest_stream_handle(uint32_t stream)
{
    return make_handle(HANDLE_STREAM, stream, guest_state()->streams[stream].gen);
}

bool guest_find_own_event(CUevent handle, uint32_t *ret_event)
{
    uint32_t i = handle_index(handle);

    if (!is_handle(handle, HANDLE_EVENT) || i >= SIM_EVENTS)
        return false;
    if (!is_ours(handle, guest_state()->events[i].owner, guest_state()->events[i].gen)) {
        guest_meet_stale();
        return false;
    }
    *ret_event = i;
    return true;
}

bool guest_find_event(CUevent handle, uint32_t *ret_event)
{
    const struct sim_event *event, *other;

    if (!guest_find_own_event(handle, ret_event))
        return false;
    event = &guest_state()->events[*ret_event];
    if (!(event->flags & SIM_EVENT_OPENED))
        return true;
    other = &guest_state()->events[event->stream];
    *ret_event = event->stream;
    return other->owner && other->gen == event->stream_gen;
}

CUevent guest_event_handle(uint32_t event, uint32_t gen)
{
    return make_handle(HANDLE_EVENT, event, gen);
}

CUresult guest_enter_stream(CUstream handle, bool per_thread, uint32_t *ret_stream)
{
    struct sim_state *s;
    uint32_t context;
    int64_t now_ns;
    CUresult r;

    r = guest_current(&context);
    if (r != CUDA_SUCCESS)
        return r;

    s = guest_state();
    now_ns = sim_lock(guest.sim);
    r = guest_find_stream(handle, per_thread, context, ret_stream);
    if (r != CUDA_SUCCESS) {
        sim_unlock(guest.sim);
        return r;
    }
    sim_advance(s, s->contexts[s->streams[*ret_stream].context].device, now_ns);
    return CUDA_SUCCESS;
}

void guest_sleep(int64_t until_ns)
{
    if (guest.may_fault)
        until_ns = MIN(until_ns, sim_now(guest_state()) + NS_PER_MS);
    sim_sleep_until(guest.sim, until_ns);
}

/* Sleeps to a stream's estimated moment. False when the stream has gone meanwhile. */
static bool sleep_for(uint32_t stream, uint32_t gen, uint64_t seq, int64_t work_ns)
{
    struct sim_state *s = guest_state();
    struct sim_stream *st = &s->streams[stream];
    int64_t until_ns = sim_estimate(s, stream, seq, work_ns);
    int64_t now_ns;

    sim_unlock(guest.sim);
    guest_sleep(until_ns);
    now_ns = sim_lock(guest.sim);
    if (st->gen != gen || !st->owner || guest_is_faulted())
        return false;
    sim_advance(s, s->contexts[st->context].device, now_ns);
    return st->gen == gen && st->owner;
}

CUresult guest_append(uint32_t stream, struct sim_op *op)
{
    struct sim_state *s = guest_state();
    struct sim_stream *st = &s->streams[stream];
    uint32_t gen = st->gen;

    while (sim_stream_pending(st) >= SIM_DEPTH) {
        const struct sim_op *head = sim_stream_head(s, stream);

        if (!sleep_for(stream, gen, st->head + 1, st->done_ns + head->work_ns))
            return guest_is_faulted() ? CUDA_ERROR_ILLEGAL_ADDRESS
                                      : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    sim_enqueue(s, stream, op);
    return CUDA_SUCCESS;
}

CUresult guest_wait(uint32_t stream, uint64_t seq, int64_t work_ns)
{
    struct sim_stream *st = &guest_state()->streams[stream];
    uint32_t gen = st->gen;

    while (st->head < seq && sleep_for(stream, gen, seq, work_ns))
        ;
    sim_unlock(guest.sim);
    return guest_check();
}
