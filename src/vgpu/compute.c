/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/compute.h"

#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "region/bucket.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

#define COUNT_NS 4e6         /* without a limit one launch is measured in so long */
#define COUNTED_MOST 4096    /* launches for one */
#define COUNTED_FIRST 4      /* and before it is known how often the program launches */
#define CREDIT_SLEEP_NS 1000 /* the least that is worth a system call */
#define WAIT_TRIES 4
#define ENDING_PAUSE_NS 50000
#define ENDING_TRIES 200
#define ADMIT_TRIES 1000

/* Streams share queues of the device, eight unless set otherwise: a probe in one that a program's
 * kernels keep busy waits for them, and the next goes into another. */
enum {
    IDLE_STREAMS = 8,
};

/* One context's. Never unmapped: a thread may be on its way into one. Used again for another
 * context when its own is gone. */
struct compute_row {
    pthread_mutex_t lock; /* everything below; never held while waiting */
    CUcontext context;    /* NULL: free, but where one is ending */
    CUcontext ending;     /* the driver was asked to end it, and has not answered */
    CUcontext looked_in;  /* what others than who launches in it make current: see looked_in().
                             Without a context: a green one's row, for the next of that one's */
    bool whole_ending;    /* of a green one: its primary context is */
    unsigned long long id;
    struct vgpu_device *device;
    CUstream idle_streams[IDLE_STREAMS];
    unsigned idle_count, idle_at;
    struct limiter limiter;
};

static struct {
    pthread_mutex_t lock; /* over changes of the table */
    _Atomic(struct compute_row *) rows[CONTEXTS_MAX];
    _Atomic unsigned count;
} compute = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Atomic int captures;
static _Atomic int joins; /* threads that make a stream wait for an event, perhaps a captured one */

/* Held by who puts something into a stream that is captured, and so goes uncharged; alone by who
 * ends a capture. */
static pthread_rwlock_t capturing = PTHREAD_RWLOCK_INITIALIZER;

__thread struct launch_cache launch_cache;
__thread int compute_uncounted;

/* The thread's last row, while no context has come or gone. */
static __thread struct {
    unsigned epoch;
    CUcontext context;
    struct compute_row *row;
} last __attribute__((tls_model("initial-exec")));

void limiters_after_fork(void)
{
    (void)pthread_mutex_init(&compute.lock, NULL);
    for (unsigned i = 0; i < atomic_load(&compute.count); i++)
        atomic_store(&compute.rows[i], NULL);
    atomic_store(&compute.count, 0);
    atomic_store(&captures, 0);
    atomic_store(&joins, 0);
    (void)pthread_rwlock_init(&capturing, NULL);
    launch_cache = (struct launch_cache){0};
    last.epoch = 0;
    watch_after_fork();
}

/* The driver, as the limiter sees it */

/* The calling thread inside a context, disturbing nobody's capture. */
struct inside {
    bool pushed, relaxed;
    CUstreamCaptureMode mode;
};

static struct inside enter(CUcontext context)
{
    struct inside inside = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    CUcontext current = NULL;

    inside.relaxed = REAL(cuThreadExchangeStreamCaptureMode) &&
                     REAL(cuThreadExchangeStreamCaptureMode)(&inside.mode) == CUDA_SUCCESS;
    (void)REAL(cuCtxGetCurrent)(&current);
    inside.pushed = current != context && REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
    return inside;
}

static void leave(struct inside *inside)
{
    CUcontext popped;

    if (inside->pushed)
        (void)REAL(cuCtxPopCurrent_v2)(&popped);
    if (inside->relaxed)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&inside->mode);
}

/*
 * A green context may be current to one thread at a time, and is a part of the device's primary
 * one: we look into its streams from there, but for its default stream, which only its own thread
 * can name.
 */
static CUcontext looked_in(CUstream stream, CUcontext context)
{
    CUcontext primary = NULL;
    CUgreenCtx green = NULL;

    if (!HAS(cuStreamGetCtx_v2) ||
        REAL(cuStreamGetCtx_v2)(stream, &primary, &green) != CUDA_SUCCESS || !green || !primary)
        return context;
    return primary;
}

/* 1 and 2 are the names of the legacy and the per-thread default stream. */
static bool has_name(CUstream stream)
{
    return (uintptr_t)stream > 2;
}

static bool is_out_of_sight(const struct compute_row *row, const struct launch *where)
{
    CUcontext current = NULL;

    return row->looked_in != row->context && !has_name(where->stream) &&
           (REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current != row->context);
}

static bool is_capturing(const struct launch *launch)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = CUDA_SUCCESS;

    if (launch->per_thread && HAS(cuStreamIsCapturing_ptsz))
        result = REAL(cuStreamIsCapturing_ptsz)(launch->stream, &status);
    else if (HAS(cuStreamIsCapturing))
        result = REAL(cuStreamIsCapturing)(launch->stream, &status);
    /* The legacy stream while a blocking one is captured: nothing may be done in it. */
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void compute_hold_captures(void)
{
    (void)pthread_rwlock_rdlock(&capturing);
}

void compute_end_captured(void)
{
    (void)pthread_rwlock_unlock(&capturing);
}

bool compute_begin_captured(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!atomic_load_explicit(&captures, memory_order_relaxed))
        return false;
    compute_hold_captures();
    if (per_thread && HAS(cuStreamIsCapturing_ptsz))
        (void)REAL(cuStreamIsCapturing_ptsz)(stream, &status);
    else if (HAS(cuStreamIsCapturing))
        (void)REAL(cuStreamIsCapturing)(stream, &status);
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return true;
    compute_end_captured();
    return false;
}

CUresult compute_stream_device(CUstream stream, bool per_thread, struct vgpu_device **ret_device)
{
    CUcontext context = NULL;
    struct inside inside;
    CUdevice device = -1;
    CUresult result;

    if (per_thread && HAS(cuStreamGetCtx_ptsz))
        result = REAL(cuStreamGetCtx_ptsz)(stream, &context);
    else
        result = REAL(cuStreamGetCtx)(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    inside = enter(looked_in(stream, context));
    result = REAL(cuCtxGetDevice)(&device);
    leave(&inside);
    *ret_device = result == CUDA_SUCCESS ? vgpu_device(device) : NULL;
    return result == CUDA_SUCCESS && !*ret_device ? CUDA_ERROR_INVALID_DEVICE : result;
}

static int64_t gpu_now(void *gpu)
{
    (void)gpu;
    return clock_now_ns();
}

static void *gpu_event(void *gpu)
{
    CUevent event;

    (void)gpu;
    return REAL(cuEventCreate)(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? event : NULL;
}

static bool gpu_record(void *gpu, void *event, const struct launch *where)
{
    const struct compute_row *row = gpu;

    if (!where)
        return row->idle_count &&
               REAL(cuEventRecord)(event, row->idle_streams[row->idle_at]) == CUDA_SUCCESS;
    if (is_out_of_sight(row, where) || is_capturing(where))
        return false;
    return (where->per_thread && REAL(cuEventRecord_ptsz)
                ? REAL(cuEventRecord_ptsz)(event, where->stream)
                : REAL(cuEventRecord)(event, where->stream)) == CUDA_SUCCESS;
}

static enum event_state gpu_query(void *gpu, void *event)
{
    CUresult result = REAL(cuEventQuery)(event);

    (void)gpu;
    if (result == CUDA_SUCCESS)
        return EVENT_DONE;
    return result == CUDA_ERROR_NOT_READY ? EVENT_NOT_YET : EVENT_BROKEN;
}

static bool gpu_elapsed(void *gpu, void *from, void *to, double *ret_ms)
{
    float ms;

    (void)gpu;
    if (REAL(cuEventElapsedTime)(&ms, from, to) != CUDA_SUCCESS)
        return false;
    *ret_ms = (double)ms;
    return true;
}

static bool gpu_is_idle(void *gpu, const struct launch *where)
{
    if (is_out_of_sight(gpu, where) || is_capturing(where))
        return true;
    if (where->per_thread && HAS(cuStreamQuery_ptsz))
        return REAL(cuStreamQuery_ptsz)(where->stream) == CUDA_SUCCESS;
    return REAL(cuStreamQuery) && REAL(cuStreamQuery)(where->stream) == CUDA_SUCCESS;
}

static bool gpu_asks_others(void *gpu)
{
    (void)gpu;
    return atomic_load(&joins) == 0;
}

static bool gpu_is_captured(void *gpu, const struct launch *where)
{
    (void)gpu;
    return is_capturing(where);
}

static int64_t gpu_wait(void *gpu, void *event)
{
    int64_t least_ns = INT64_MAX;

    for (unsigned i = 0; i < WAIT_TRIES; i++) {
        int64_t began_ns = clock_now_ns();

        if (!gpu_record(gpu, event, NULL) || REAL(cuEventSynchronize)(event) != CUDA_SUCCESS)
            return 0;
        least_ns = MIN(least_ns, clock_now_ns() - began_ns);
    }
    return least_ns;
}

static const struct limiter_gpu real_gpu = {
    .now_ns = gpu_now,
    .make_event = gpu_event,
    .record = gpu_record,
    .query = gpu_query,
    .elapsed_ms = gpu_elapsed,
    .is_idle = gpu_is_idle,
    .asks_others = gpu_asks_others,
    .is_captured = gpu_is_captured,
    .wait_ns = gpu_wait,
};

/* Rows */

static unsigned long long id_of(CUcontext context)
{
    unsigned long long id = 0;

    if (HAS(cuCtxGetId))
        (void)REAL(cuCtxGetId)(context, &id);
    return id;
}

/* With the table's lock held; the row is nobody's. */
static void begin_row(struct compute_row *row, CUcontext context, CUcontext seen_in,
                      struct vgpu_device *device)
{
    struct inside inside;

    /* What was made for another green context is the primary one's, and still there. */
    if (row->looked_in) {
        (void)pthread_mutex_lock(&row->lock);
        row->id = id_of(context);
        row->context = context;
        (void)pthread_mutex_unlock(&row->lock);
        return;
    }
    inside = enter(seen_in);
    (void)pthread_mutex_lock(&row->lock);
    memset(&row->limiter, 0, sizeof(row->limiter));
    row->id = id_of(context);
    row->looked_in = seen_in;
    row->device = device;
    row->idle_count = row->idle_at = 0;
    while (row->idle_count < IDLE_STREAMS &&
           REAL(cuStreamCreate)(&row->idle_streams[row->idle_count], CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS)
        row->idle_count++;
    limiter_init(&row->limiter, &real_gpu, row, &device->share,
                 (uint64_t)clock_now_ns() ^ (uint64_t)(uintptr_t)row);
    row->context = context;
    (void)pthread_mutex_unlock(&row->lock);
    leave(&inside);
}

/* One that nobody has, and that is looked at in this context, or in none. */
static struct compute_row *free_row(CUcontext looked_in)
{
    unsigned count = atomic_load(&compute.count);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        if (!row->context && !row->ending && row->looked_in == looked_in)
            return row;
    }
    return NULL;
}

static struct compute_row *new_row(CUcontext context, CUcontext seen_in)
{
    struct compute_row *row = context != seen_in ? free_row(seen_in) : NULL;
    unsigned count = atomic_load(&compute.count);

    row = row ? row : free_row(NULL);
    if (row)
        return row;
    if (count == CONTEXTS_MAX)
        return NULL;
    row = mmap(NULL, sizeof(*row), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (row == MAP_FAILED)
        return NULL;
    (void)pthread_mutex_init(&row->lock, NULL);
    atomic_store(&compute.rows[count], row);
    atomic_store(&compute.count, count + 1);
    return row;
}

static void end_row(struct compute_row *row)
{
    (void)pthread_mutex_lock(&row->lock);
    row->context = row->looked_in = NULL;
    row->whole_ending = false;
    row->idle_count = 0;
    limiter_abandon(&row->limiter);
    (void)pthread_mutex_unlock(&row->lock);
    bucket_wake(row->limiter.compute);
}

typedef void (*part_fn)(struct compute_row *row);

/* The rows of a primary context's green ones, those that are kept as well. */
static void each_part(CUcontext primary, part_fn then)
{
    unsigned count = atomic_load(&compute.count);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        if (row->looked_in == primary && row->context != primary && !row->ending)
            then(row);
    }
}

static void leave_alone(struct compute_row *row)
{
    (void)pthread_mutex_lock(&row->lock);
    row->whole_ending = true;
    (void)pthread_mutex_unlock(&row->lock);
}

static void look_again(struct compute_row *row)
{
    (void)pthread_mutex_lock(&row->lock);
    row->whole_ending = false;
    (void)pthread_mutex_unlock(&row->lock);
}

static struct compute_row *find_ending(CUcontext context)
{
    unsigned count = atomic_load_explicit(&compute.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        if (row->ending == context)
            return row;
    }
    return NULL;
}

static struct compute_row *find_row(CUcontext context)
{
    unsigned count = atomic_load_explicit(&compute.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        if (row->context == context)
            return row;
    }
    return NULL;
}

/* With the table's lock held, which is let go of meanwhile: whether the context lives is not known
 * while the driver is at it. A refusal comes at once. */
static void wait_for_ending(CUcontext context)
{
    const struct timespec moment = {.tv_nsec = ENDING_PAUSE_NS};

    for (unsigned i = 0; i < ENDING_TRIES && find_ending(context); i++) {
        (void)pthread_mutex_unlock(&compute.lock);
        (void)nanosleep(&moment, NULL);
        (void)pthread_mutex_lock(&compute.lock);
    }
}

static struct vgpu_device *device_of(CUcontext context)
{
    struct inside inside = enter(context);
    struct vgpu_device *device = vgpu_current_device();

    leave(&inside);
    return device;
}

/* The row of a context, made at its first launch; NULL when there can't be one. */
static struct compute_row *row_of(CUcontext context, CUstream stream)
{
    unsigned epoch = contexts_epoch();
    struct vgpu_device *device;
    struct compute_row *row;
    CUcontext seen_in;

    if (last.row && last.epoch == epoch && last.context == context)
        return last.row;

    (void)pthread_mutex_lock(&compute.lock);
    wait_for_ending(context);
    row = find_row(context);
    /* The handle is a new context's: the old one ended unseen. */
    if (row && row->id != id_of(context)) {
        end_row(row);
        row = NULL;
    }
    seen_in = row ? row->looked_in : looked_in(stream, context);
    if (!row && (device = device_of(seen_in)) && (row = new_row(context, seen_in)))
        begin_row(row, context, seen_in, device);
    (void)pthread_mutex_unlock(&compute.lock);
    last.row = row;
    last.epoch = epoch;
    last.context = context;
    return row;
}

/* The context in which a launch into a stream runs; NULL when there is none. */
static CUcontext context_of(const struct launch *launch)
{
    CUcontext context = NULL;

    if (has_name(launch->stream) && REAL(cuStreamGetCtx) &&
        REAL(cuStreamGetCtx)(launch->stream, &context) == CUDA_SUCCESS && context)
        return context;
    return REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

/* Launches */

/* By which name functions are known to have been launched. */
static CUcontext launched_in(CUcontext context)
{
    return atomic_load(&contexts_live) > 1 ? context : NULL;
}

bool compute_was_launched(const struct launch *launch)
{
    return code_was_launched(launch->function, launched_in(context_of(launch)));
}

/* What the guest's readers look at: that work is going on, and since when. */
static void note_activity(void)
{
    struct region_base *base = vgpu.region.base;
    uint64_t now = (uint64_t)time(NULL);

    int32_t recent = atomic_load_explicit(&base->recent_kernel, memory_order_relaxed);

    /* Below 0 it is a monitor's word, which may come any moment. */
    if (recent >= 0 && recent != 2)
        (void)atomic_compare_exchange_strong(&base->recent_kernel, &recent, 2);
    if (atomic_load_explicit(&base->last_kernel_time, memory_order_relaxed) != now)
        atomic_store_explicit(&base->last_kernel_time, now, memory_order_relaxed);
}

/* Lets go of the lock. False when the context ended meanwhile. */
static bool sleep_until(struct compute_row *row, CUcontext context, int64_t until_ns)
{
    struct region_compute *words = row->limiter.compute;
    int64_t began_ns = clock_now_ns();

    (void)pthread_mutex_unlock(&row->lock);
    if (until_ns - began_ns > CREDIT_SLEEP_NS)
        bucket_sleep(words, until_ns);
    atomic_fetch_add_explicit(&words->delayed_ns, (uint64_t)(clock_now_ns() - began_ns),
                              memory_order_relaxed);
    vgpu_refresh();
    (void)pthread_mutex_lock(&row->lock);
    return row->context == context;
}

/* With the lock held; false when the context ended meanwhile. */
static bool wait_for_turn(struct compute_row *row, CUcontext context, const struct launch *launch,
                          struct waiting *waiting)
{
    struct region_compute *words = row->limiter.compute;
    int64_t until_ns, began_ns = 0;

    while (!limiter_may_go(&row->limiter, &launch_cache, launch, waiting, &until_ns)) {
        began_ns = began_ns ? began_ns : clock_now_ns();
        if (!sleep_until(row, context, until_ns))
            return false;
    }
    if (!began_ns)
        return true;
    atomic_fetch_add_explicit(&words->launches_delayed, 1, memory_order_relaxed);
    began_ns = clock_now_ns() - began_ns;
    atomic_fetch_add_explicit(&words->waits[region_wait_range(began_ns)], 1, memory_order_relaxed);
    explain_wait(&row->device->share, began_ns);
    return true;
}

/* How many launches the thread may make before the next is looked at. */
static int until_next_count(const struct limiter *limiter)
{
    double launches = COUNT_NS / MAX(limiter->pace.mean_ns, COUNT_NS / COUNTED_MOST);

    return limiter->pace.mean_ns > 0 ? 1 + (int)launches : COUNTED_FIRST;
}

/* A launch that no limit holds: one of many is measured. */
static void count(struct compute_row *row, const struct launch *launch,
                  struct compute_ticket *ticket)
{
    int passed = MAX(launch_cache.uncounted - compute_uncounted, 1);

    explain_launches(&row->device->share, (unsigned)passed, (enum region_launch_kind)launch->kind);
    limiter_count(&row->limiter, &launch_cache, launch, (unsigned)passed, &ticket->ticket);
    compute_uncounted = launch_cache.uncounted = until_next_count(&row->limiter);
}

/* False when the context ended meanwhile, or may have. */
static bool admit_locked(struct compute_row *row, CUcontext context, const struct launch *launch,
                         struct compute_ticket *ticket)
{
    struct waiting waiting = {0};

    if (row->context != context || !wait_for_turn(row, context, launch, &waiting))
        return false;
    if (share_is_limited(&row->device->share) || share_is_ranked(&row->device->share)) {
        explain_launches(&row->device->share, launch_cache.launches + 1,
                         (enum region_launch_kind)launch->kind);
        limiter_begin(&row->limiter, &launch_cache, launch, &waiting, &ticket->ticket);
        launch_cache.epoch =
            atomic_load_explicit(&captures, memory_order_relaxed) ? 0 : contexts_epoch();
    } else if (atomic_load_explicit(&vgpu.limited_compute, memory_order_relaxed) &&
               --compute_uncounted > 0) {
        explain_other(launch->kind);
        return true; /* the share is switched off for now */
    } else {
        count(row, launch, ticket);
    }
    ticket->row = row;
    return true;
}

/* Of a context without a row: what the driver says if it has ended, else that there is no room. */
static CUresult refuse_launch(void)
{
    CUdevice device;
    CUresult result = REAL(cuCtxGetDevice)(&device);

    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static CUresult admit(CUcontext context, const struct launch *launch, struct compute_ticket *ticket)
{
    struct compute_row *row = row_of(context, launch->stream);
    struct inside inside;
    bool admitted;

    if (!row)
        return atomic_load(&vgpu.limited_compute) ? refuse_launch() : CUDA_SUCCESS;
    inside = enter(has_name(launch->stream) ? row->looked_in : context);
    (void)pthread_mutex_lock(&row->lock);
    admitted = admit_locked(row, context, launch, ticket);
    (void)pthread_mutex_unlock(&row->lock);
    leave(&inside);
    return admitted ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static bool begin_captured(const struct launch *launch)
{
    if (!atomic_load_explicit(&captures, memory_order_relaxed))
        return false;
    compute_hold_captures();
    if (is_capturing(launch))
        return true;
    compute_end_captured();
    return false;
}

CUresult compute_admit(const struct launch *launch, struct compute_ticket *ticket)
{
    CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    int64_t began_ns = explain_begin();
    CUcontext context;

    ticket->row = NULL;
    ticket->context = NULL;
    ticket->own_ns = 0;
    ticket->captured = vgpu_mode() == VGPU_ON && begin_captured(launch);
    if (vgpu_mode() != VGPU_ON || ticket->captured)
        return CUDA_SUCCESS;
    vgpu_refresh();
    (void)context_current(); /* one that was made unseen is known from now on */
    context = context_of(launch);
    if (!context)
        return CUDA_SUCCESS; /* the driver says so itself */

    ticket->context = context;
    watch_start();
    note_activity();
    /* A context that the driver refused to end is there again. */
    for (unsigned i = 0; i < ADMIT_TRIES && result == CUDA_ERROR_CONTEXT_IS_DESTROYED; i++) {
        result = admit(context, launch, ticket);
        if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
            last.epoch = 0;
    }
    ticket->own_ns = explain_admitted(began_ns);
    return result;
}

static void end_launch(const struct launch *launch, struct compute_ticket *ticket, CUresult result)
{
    struct compute_row *row = ticket->row;
    struct inside inside;

    code_launched(launch->function, launched_in(ticket->context), result == CUDA_SUCCESS);
    if (!row || (!ticket->ticket.sample && result == CUDA_SUCCESS))
        return;

    inside = enter(has_name(launch->stream) ? row->looked_in : ticket->context);
    (void)pthread_mutex_lock(&row->lock);
    if (row->context == ticket->context)
        limiter_end(&row->limiter, launch, &ticket->ticket, result == CUDA_SUCCESS);
    (void)pthread_mutex_unlock(&row->lock);
    leave(&inside);
}

void compute_launched(const struct launch *launch, struct compute_ticket *ticket, CUresult result)
{
    int64_t began_ns = ticket->row && ticket->own_ns ? clock_now_ns() : 0;

    if (ticket->captured)
        compute_end_captured();
    end_launch(launch, ticket, result);
    if (began_ns)
        explain_end(&ticket->row->device->share, ticket->own_ns + clock_now_ns() - began_ns);
}

/* With the table's lock held. The context is still there, and so are its events. */
static void settle_row(struct compute_row *row)
{
    struct inside inside = enter(row->looked_in);

    (void)pthread_mutex_lock(&row->lock);
    limiter_settle(&row->limiter);
    (void)pthread_mutex_unlock(&row->lock);
    leave(&inside);
}

static void forget_thread(void)
{
    launch_cache.epoch = 0;
    last.epoch = 0;
}

/* Threads that wait see that the context is not there and stop. What is on its way stays, for the
 * driver may refuse. */
void compute_ending(CUcontext context)
{
    struct compute_row *row;

    (void)pthread_mutex_lock(&compute.lock);
    row = find_row(context);
    if (row && row->id == id_of(context))
        settle_row(row);
    if (row) {
        (void)pthread_mutex_lock(&row->lock);
        row->ending = context;
        row->context = NULL;
        (void)pthread_mutex_unlock(&row->lock);
        bucket_wake(row->limiter.compute);
    }
    each_part(context, leave_alone);
    (void)pthread_mutex_unlock(&compute.lock);
    forget_thread();
}

/* The events die with the context. */
void compute_ended(CUcontext context, bool gone)
{
    struct compute_row *row, *met;

    (void)pthread_mutex_lock(&compute.lock);
    row = find_ending(context);
    met = find_row(context); /* by a launch meanwhile, or another context of the same handle */
    if (row) {
        (void)pthread_mutex_lock(&row->lock);
        row->ending = NULL;
        row->context = gone || met ? NULL : context;
        (void)pthread_mutex_unlock(&row->lock);
        if (!row->context && row->looked_in == context)
            end_row(row);
        if (gone && met && met->id == row->id)
            end_row(met);
    }
    each_part(context, gone ? end_row : look_again);
    (void)pthread_mutex_unlock(&compute.lock);
    forget_thread();
}

void compute_forget_stream(CUstream stream)
{
    unsigned count = atomic_load(&compute.count);
    struct inside inside;

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        (void)pthread_mutex_lock(&row->lock);
        if (row->looked_in) {
            inside = enter(row->looked_in);
            limiter_forget_stream(&row->limiter, stream);
            leave(&inside);
        }
        (void)pthread_mutex_unlock(&row->lock);
    }
}

/* With its lock held; NULL when nothing is measured in the stream's context. */
struct compute_row *compute_capture_begins(CUstream stream)
{
    const struct launch where = {.stream = stream};
    CUcontext context = vgpu_mode() == VGPU_ON ? context_of(&where) : NULL;
    struct compute_row *row = context ? find_row(context) : NULL;

    if (!row)
        return NULL;
    (void)pthread_mutex_lock(&row->lock);
    if (row->context == context)
        return row;
    (void)pthread_mutex_unlock(&row->lock);
    return NULL;
}

/* While a capture is open each launch is looked at: one in a captured stream runs nothing. */
void compute_capture_began(struct compute_row *row, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&captures, 1);
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    if (row)
        (void)pthread_mutex_unlock(&row->lock);
}

/* Who looks holds the row's lock: it is done before we go on, or sees us. The lock is not held
 * while the driver is called, for a queue that is full keeps the caller until there is room. */
bool compute_join_begins(CUstream stream)
{
    struct compute_row *row;

    if (!atomic_load(&captures))
        return false;
    atomic_fetch_add(&joins, 1);
    row = compute_capture_begins(stream);
    if (row)
        (void)pthread_mutex_unlock(&row->lock);
    return true;
}

void compute_join_ended(bool began)
{
    if (began)
        atomic_fetch_sub(&joins, 1);
}

void compute_capture_ends(void)
{
    (void)pthread_rwlock_wrlock(&capturing);
}

void compute_capture_ended(bool ended)
{
    int open = atomic_load(&captures);

    (void)pthread_rwlock_unlock(&capturing);
    while (ended && open > 0 && !atomic_compare_exchange_weak(&captures, &open, open - 1))
        ;
}

/* The thread */

/* Where a row is looked after, with its lock held: what was launched in a green context may go on
 * after its end. NULL: nowhere. */
static CUcontext tended_in(const struct compute_row *row)
{
    return row->ending || row->whole_ending ? NULL : row->looked_in;
}

/* False when there was nothing to look after. */
static bool tick_row(struct compute_row *row, int64_t now_ns)
{
    const struct timespec moment = {.tv_nsec = LIMITER_ANSWER_NS};
    CUcontext context;
    struct inside inside;
    bool out = false, busy;

    (void)pthread_mutex_lock(&row->lock);
    context = tended_in(row);
    busy = context && limiter_is_busy(&row->limiter, now_ns);
    if (context)
        limiter_rest(&row->limiter, !busy);
    if (busy) {
        inside = enter(context);
        limiter_poll(&row->limiter);
        row->idle_at = row->limiter.presence.voided % MAX(row->idle_count, 1u);
        out = limiter_probe(&row->limiter);
        leave(&inside);
    }
    (void)pthread_mutex_unlock(&row->lock);
    if (!out)
        return busy;

    (void)nanosleep(&moment, NULL);
    (void)pthread_mutex_lock(&row->lock);
    if (tended_in(row) == context) {
        inside = enter(context);
        limiter_probe_answer(&row->limiter);
        leave(&inside);
    }
    (void)pthread_mutex_unlock(&row->lock);
    return busy;
}

bool compute_tick(int64_t now_ns, int64_t *ret_due_ns)
{
    unsigned count = atomic_load(&compute.count);
    bool any = false;

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute.rows[i]);

        if (!row->context && !row->looked_in)
            continue;
        any |= now_ns - row->limiter.last_launch_ns < NS_PER_S;
        any |= tick_row(row, now_ns);
        if (row->limiter.probe.due_ns > now_ns)
            *ret_due_ns = MIN(*ret_due_ns, row->limiter.probe.due_ns);
    }
    return any;
}
