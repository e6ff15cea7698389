/* SPDX-License-Identifier: Apache-2.0 */

/* The limiters: a row for each context that launches, from its first launch to its end. */

#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "region/bucket.h"
#include "vgpu/compute_row.h"
#include "vgpu/real.h"

/* The end of a stream waits for a launch no longer: that may block until its kernel ends. */
#define LAUNCH_PAUSE_NS 50000
#define LAUNCH_PAUSES 400

#define ENDING_PAUSE_NS 50000
#define ENDING_TRIES 200

struct compute_table compute_table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The thread's last row, while no context has come or gone. */
static __thread struct {
    unsigned epoch;
    CUcontext context;
    struct compute_row *row;
} last __attribute__((tls_model("initial-exec")));

void compute_forget_row(void)
{
    last.epoch = 0;
}

/* The stream that is about to end; the lock is held meanwhile. */
static _Atomic(CUstream) ending_stream;
static pthread_mutex_t one_ends = PTHREAD_MUTEX_INITIALIZER;

void compute_rows_after_fork(void)
{
    (void)pthread_mutex_init(&compute_table.lock, NULL);
    for (unsigned i = 0; i < atomic_load(&compute_table.count); i++)
        atomic_store(&compute_table.rows[i], NULL);
    atomic_store(&compute_table.count, 0);
    last.epoch = 0;
    (void)pthread_mutex_init(&one_ends, NULL);
    atomic_store(&ending_stream, NULL);
}

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
        lock_mutex(&row->lock);
        row->id = id_of(context);
        row->context = context;
        unlock_mutex(&row->lock);
        return;
    }
    inside = compute_enter(seen_in);
    lock_mutex(&row->lock);
    memset(&row->limiter, 0, sizeof(row->limiter));
    memset((void *)row->events, 0, sizeof(row->events));
    row->id = id_of(row->elsewhere ? seen_in : context);
    row->looked_in = seen_in;
    row->device = device;
    row->idle_count = row->idle_at = 0;
    compute_want_idle(row, 1);
    limiter_init(&row->limiter, &compute_gpu, row, &device->share,
                 (uint64_t)clock_now_ns() ^ (uint64_t)(uintptr_t)row);
    row->context = context;
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

void compute_want_idle(struct compute_row *row, unsigned count)
{
    while (row->idle_count < MIN(count, (unsigned)IDLE_STREAMS) &&
           REAL(cuStreamCreate)(&row->idle_streams[row->idle_count], CU_STREAM_NON_BLOCKING) ==
               CUDA_SUCCESS)
        row->idle_count++;
}

/* One that nobody has, and that is looked at in this context, or in none. */
static struct compute_row *free_row(CUcontext looked_in)
{
    unsigned count = atomic_load(&compute_table.count);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (!row->context && !row->ending && row->looked_in == looked_in)
            return row;
    }
    return NULL;
}

static struct compute_row *new_row(CUcontext context, CUcontext seen_in)
{
    struct compute_row *row = context != seen_in ? free_row(seen_in) : NULL;
    unsigned count = atomic_load(&compute_table.count);

    row = row ? row : free_row(NULL);
    if (row)
        return row;
    if (count == CONTEXTS_MAX)
        return NULL;
    row = mmap(NULL, sizeof(*row), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (row == MAP_FAILED)
        return NULL;
    (void)pthread_mutex_init(&row->lock, NULL);
    (void)pthread_rwlock_init(&row->lives, NULL);
    atomic_store(&compute_table.rows[count], row);
    atomic_store(&compute_table.count, count + 1);
    return row;
}

static void end_row(struct compute_row *row)
{
    lock_mutex(&row->lock);
    row->context = row->looked_in = NULL;
    row->whole_ending = false;
    row->idle_count = 0;
    row->elsewhere = false;
    limiter_abandon(&row->limiter);
    unlock_mutex(&row->lock);
    bucket_wake(row->limiter.compute);
}

typedef void (*part_fn)(struct compute_row *row);

/* The rows of a primary context's green ones, those that are kept as well. */
static void each_part(CUcontext primary, part_fn then)
{
    unsigned count = atomic_load(&compute_table.count);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (row->looked_in == primary && row->context != primary && !row->ending)
            then(row);
    }
}

static void leave_alone(struct compute_row *row)
{
    lock_write(&row->lives);
    lock_mutex(&row->lock);
    row->whole_ending = true;
    unlock_mutex(&row->lock);
    unlock_rwlock(&row->lives);
}

static void look_again(struct compute_row *row)
{
    lock_mutex(&row->lock);
    row->whole_ending = false;
    unlock_mutex(&row->lock);
}

static struct compute_row *find_ending(CUcontext context)
{
    unsigned count = atomic_load_explicit(&compute_table.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (row->ending == context)
            return row;
    }
    return NULL;
}

struct compute_row *compute_find_row(CUcontext context)
{
    unsigned count = atomic_load_explicit(&compute_table.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

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
        unlock_mutex(&compute_table.lock);
        (void)nanosleep(&moment, NULL);
        lock_mutex(&compute_table.lock);
    }
}

static struct compute_row *find_elsewhere(CUcontext context, const struct vgpu_device *device)
{
    unsigned count = atomic_load_explicit(&compute_table.count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (row->elsewhere && row->looked_in == context && row->device == device)
            return row;
    }
    return NULL;
}

/* Whether that context is on its device says nothing of the other one: no probes are made. */
struct compute_row *compute_row_elsewhere(CUcontext context, struct vgpu_device *device)
{
    struct compute_row *row;

    lock_mutex(&compute_table.lock);
    wait_for_ending(context);
    row = find_elsewhere(context, device);
    if (row && row->id != id_of(context)) {
        end_row(row);
        row = NULL;
    }
    if (!row) {
        row = new_row(NULL, NULL);
        if (row) {
            row->elsewhere = true;
            begin_row(row, compute_name_elsewhere(row), context, device);
        }
    }
    unlock_mutex(&compute_table.lock);
    return row;
}

static struct vgpu_device *device_of(CUcontext context)
{
    struct inside inside = compute_enter(context);
    struct vgpu_device *device = vgpu_current_device();

    compute_leave(&inside);
    return device;
}

struct compute_row *compute_row_of(CUcontext context, CUstream stream)
{
    unsigned epoch = contexts_epoch();
    struct vgpu_device *device;
    struct compute_row *row;
    CUcontext seen_in;

    if (last.row && last.epoch == epoch && last.context == context)
        return last.row;

    lock_mutex(&compute_table.lock);
    wait_for_ending(context);
    row = compute_find_row(context);
    /* The handle is a new context's: the old one ended unseen. */
    if (row && row->id != id_of(context)) {
        end_row(row);
        row = NULL;
    }
    seen_in = row ? row->looked_in : compute_looked_in(stream, context);
    if (!row && (device = device_of(seen_in)) && (row = new_row(context, seen_in)))
        begin_row(row, context, seen_in, device);
    unlock_mutex(&compute_table.lock);
    last.row = row;
    last.epoch = epoch;
    last.context = context;
    return row;
}

CUcontext compute_context_of(const struct launch *launch)
{
    CUcontext context = NULL;
    CUresult result;

    if (compute_has_name(launch->stream) && HAS(cuStreamGetCtx))
        result = REAL(cuStreamGetCtx)(launch->stream, &context);
    else
        result = REAL(cuCtxGetCurrent)(&context);
    return result == CUDA_SUCCESS ? context : NULL;
}

/* With the table's lock held. The context is still there, and so are its events. */
static void settle_row(struct compute_row *row)
{
    struct inside inside = compute_enter(row->looked_in);

    lock_mutex(&row->lock);
    limiter_settle(&row->limiter);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

static void forget_thread(void)
{
    launch_cache.epoch = 0;
    last.epoch = 0;
}

static void settle_elsewhere(struct compute_row *row)
{
    if (row->elsewhere)
        settle_row(row);
}

/* Threads that wait see that the context is not there and stop. What is on its way stays, for the
 * driver may refuse. */
void compute_ending(CUcontext context)
{
    struct compute_row *row;

    lock_mutex(&compute_table.lock);
    row = compute_find_row(context);
    if (row && row->id == id_of(context))
        settle_row(row);
    if (row) {
        lock_write(&row->lives);
        lock_mutex(&row->lock);
        row->ending = context;
        row->context = NULL;
        unlock_mutex(&row->lock);
        unlock_rwlock(&row->lives);
        bucket_wake(row->limiter.compute);
    }
    each_part(context, settle_elsewhere);
    each_part(context, leave_alone);
    unlock_mutex(&compute_table.lock);
    forget_thread();
}

/* The events die with the context. */
void compute_ended(CUcontext context, bool gone)
{
    struct compute_row *row, *met;

    lock_mutex(&compute_table.lock);
    row = find_ending(context);
    met = compute_find_row(
        context); /* by a launch meanwhile, or another context of the same handle */
    if (row) {
        lock_mutex(&row->lock);
        row->ending = NULL;
        row->context = gone || met ? NULL : context;
        unlock_mutex(&row->lock);
        if (!row->context && row->looked_in == context)
            end_row(row);
        if (gone && met && met->id == row->id)
            end_row(met);
    }
    each_part(context, gone ? end_row : look_again);
    unlock_mutex(&compute_table.lock);
    forget_thread();
}

/* With the lock held: another thread is about to launch into the stream, or does. */
static void wait_for_launch(struct compute_row *row, CUstream stream)
{
    const struct timespec pause = {.tv_nsec = LAUNCH_PAUSE_NS};

    for (unsigned i = 0; i < LAUNCH_PAUSES && limiter_launches_into(&row->limiter, stream); i++) {
        unlock_mutex(&row->lock);
        (void)nanosleep(&pause, NULL);
        lock_mutex(&row->lock);
    }
}

void compute_forget_stream(CUstream stream)
{
    unsigned count = atomic_load(&compute_table.count);
    struct inside inside;

    lock_mutex(&one_ends);
    atomic_store(&ending_stream, stream);
    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        lock_mutex(&row->lock);
        wait_for_launch(row, stream);
        if (row->looked_in) {
            inside = compute_enter(row->looked_in);
            limiter_forget_stream(&row->limiter, stream);
            compute_leave(&inside);
        }
        unlock_mutex(&row->lock);
    }
}

bool compute_await_end(struct compute_row *row, CUstream stream)
{
    if (!stream || stream != atomic_load(&ending_stream))
        return false;
    unlock_mutex(&row->lock);
    lock_mutex(&one_ends);
    unlock_mutex(&one_ends);
    lock_mutex(&row->lock);
    return true;
}

void compute_forgot_stream(void)
{
    atomic_store(&ending_stream, NULL);
    unlock_mutex(&one_ends);
}
