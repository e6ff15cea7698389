/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "region/bucket.h"
#include "vgpu/compute_row.h"
#include "vgpu/graph_homes.h"
#include "vgpu/real.h"

#define COUNT_NS 4e6         /* without a limit one launch is measured in so long */
#define COUNTED_MOST 4096    /* launches for one */
#define COUNTED_FIRST 4      /* and before it is known how often the program launches */
#define CREDIT_SLEEP_NS 1000 /* the least that is worth a system call */
#define ADMIT_TRIES 1000
#define AWAITED_MOST_NS BUCKET_DEBT_MAX_NS

__thread struct launch_cache launch_cache;
__thread int compute_uncounted;

static __thread unsigned costs_epoch; /* of the contexts, when its cached costs were; 0: never */

/* What compute_pays() pays with, for all that the thread knows. */
static __thread struct last_paid {
    CUcontext context;
    int64_t since_ns; /* host clock */
    unsigned epoch;   /* of launch_cache */
} last_paid;

static pthread_key_t thread_key; /* the row that the thread's cache belongs to */
static bool has_thread_key;

void limiters_after_fork(void)
{
    compute_rows_after_fork();
    compute_captures_after_fork();
    launch_cache = (struct launch_cache){0};
    /* Another thread, which is not there, may have the row's lock. */
    if (has_thread_key)
        (void)pthread_setspecific(thread_key, NULL);
    watch_after_fork();
    heaps_after_fork();
}

/* What the thread paid in advance is the container's again. */
static void end_thread(void *of)
{
    struct compute_row *row = of;

    (void)pthread_mutex_lock(&row->lock);
    if (launch_cache.limiter == &row->limiter)
        limiter_end_thread(&row->limiter, &launch_cache);
    (void)pthread_mutex_unlock(&row->lock);
}

static void make_thread_key(void)
{
    has_thread_key = pthread_key_create(&thread_key, end_thread) == 0;
}

/* Before the thread pays for the first time, or for the first time in another context. */
static void note_thread(struct compute_row *row)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (launch_cache.limiter == &row->limiter)
        return;
    (void)pthread_once(&once, make_thread_key);
    if (has_thread_key)
        (void)pthread_setspecific(thread_key, row);
}

/* Launches */

/* By which name functions are known to have been launched. */
static CUcontext launched_in(CUcontext context)
{
    return atomic_load(&contexts_live) > 1 ? context : NULL;
}

bool compute_was_launched(const struct launch *launch)
{
    return code_was_launched(launch->function, launched_in(compute_context_of(launch)));
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

    unlock_mutex(&row->lock);
    if (until_ns - began_ns > CREDIT_SLEEP_NS)
        bucket_sleep(words, until_ns);
    atomic_fetch_add_explicit(&words->delayed_ns, (uint64_t)(clock_now_ns() - began_ns),
                              memory_order_relaxed);
    (void)vgpu_refresh();
    lock_mutex(&row->lock);
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

/* Of functions that the thread knows to be launched already. */
static void forget_costs(void)
{
    launch_cache.epoch = costs_epoch = 0;
}

/* They are looked at once more when contexts or functions have gone. */
static void drop_stale_costs(unsigned epoch)
{
    if (costs_epoch == epoch)
        return;
    for (unsigned i = 0; i < LAUNCH_CACHE; i++)
        launch_cache.costs[i].function = NULL;
    costs_epoch = epoch;
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

    do {
        if (row->context != context || !wait_for_turn(row, context, launch, &waiting))
            return false;
    } while (compute_await_end(row, launch->stream));
    if (share_is_limited(&row->device->share) || share_is_ranked(&row->device->share)) {
        const unsigned epoch = contexts_epoch();

        drop_stale_costs(epoch);
        explain_launches(&row->device->share, launch_cache.launches + 1,
                         (enum region_launch_kind)launch->kind);
        note_thread(row);
        if (!limiter_begin(&row->limiter, &launch_cache, launch, &waiting, &ticket->ticket)) {
            ticket->refused = CUDA_ERROR_OUT_OF_MEMORY;
            return true;
        }
        launch_cache.epoch =
            atomic_load_explicit(&compute_captures, memory_order_relaxed) ? 0 : epoch;
        last_paid = (struct last_paid){context, row->limiter.last_launch_ns, launch_cache.epoch};
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

/* The context to be in for a launch: default streams are those of the one that is current. */
static CUcontext entered_for(const struct compute_row *row, CUcontext context,
                             const struct launch *launch)
{
    return compute_has_name(launch->stream) || row->elsewhere ? row->looked_in : context;
}

bool compute_admit_row(struct compute_row *row, CUcontext context, const struct launch *launch,
                       struct compute_ticket *ticket)
{
    struct inside inside = compute_enter(entered_for(row, context, launch));
    bool admitted;

    lock_mutex(&row->lock);
    admitted = admit_locked(row, context, launch, ticket);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
    return admitted;
}

static CUresult admit(CUcontext context, const struct launch *launch, struct compute_ticket *ticket)
{
    struct compute_row *row = compute_row_of(context, launch->stream);

    if (!row)
        return atomic_load(&vgpu.limited_compute) ? refuse_launch() : CUDA_SUCCESS;
    if (!compute_admit_row(row, context, launch, ticket))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return ticket->refused;
}

/* Whether the driver may have run what it gives an error for: most of a list or graph, or a kernel
 * that broke down while its launch waited for its end. */
static bool may_have_run(const struct compute_ticket *ticket, CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
        return true;
    default:
        return ticket->is_list ||
               (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
    }
}

/* What is asked of the driver at once, before the row's lock is waited for. */
static void note_return(struct compute_row *row, const struct launch *launch,
                        struct compute_ticket *ticket)
{
    lock_read(&row->lives);
    if (row->context == ticket->context)
        limiter_returned(&row->limiter, launch, &ticket->ticket);
    unlock_rwlock(&row->lives);
}

static void end_launch(const struct launch *launch, struct compute_ticket *ticket, CUresult result)
{
    struct compute_row *row = ticket->row;
    struct inside inside;
    bool has_run = may_have_run(ticket, result);

    if (!row || (!ticket->ticket.sample && has_run))
        return;

    inside = compute_enter(entered_for(row, ticket->context, launch));
    note_return(row, launch, ticket);
    lock_mutex(&row->lock);
    if (row->context == ticket->context)
        limiter_end(&row->limiter, &ticket->ticket, has_run);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

/* What a launch takes beside its time. It is given back what it paid if that exceeds the limit. */
static CUresult admit_growth(const struct launch *launch, struct compute_ticket *ticket)
{
    const CUcontext context = ticket->context;
    struct inside inside;
    CUresult result;

    if (launch->is_transfer || launch->kind == REGION_LAUNCH_GRAPH ||
        code_was_launched(launch->function, launched_in(context)))
        return CUDA_SUCCESS;
    inside = compute_enter(compute_looked_in(launch->stream, context));
    result = heaps_begin_launch(&ticket->growth, launch->function);
    compute_leave(&inside);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    code_found_function(); /* to ask may have loaded it */
    end_launch(launch, ticket, result);
    ticket->row = NULL;
    forget_costs();
    return result;
}

static bool begin_captured(const struct launch *launch)
{
    if (!atomic_load_explicit(&compute_captures, memory_order_relaxed))
        return false;
    compute_hold_captures();
    if (compute_is_capturing(launch))
        return true;
    compute_end_captured();
    return false;
}

CUresult compute_begin_watch(void)
{
    CUresult result = watch_start();

    return atomic_load(&vgpu.limited_compute) ? result : CUDA_SUCCESS;
}

CUresult compute_admit_in(CUcontext context, const struct launch *launch,
                          struct compute_ticket *ticket)
{
    CUresult watched = compute_begin_watch(), result = CUDA_ERROR_CONTEXT_IS_DESTROYED;

    *ticket = (struct compute_ticket){.context = context};
    if (watched != CUDA_SUCCESS)
        return watched;
    note_activity();
    /* A context that the driver refused to end is there again. */
    for (unsigned i = 0; i < ADMIT_TRIES && result == CUDA_ERROR_CONTEXT_IS_DESTROYED; i++) {
        result = admit(context, launch, ticket);
        if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
            compute_forget_row();
    }
    if (result != CUDA_SUCCESS)
        return result;
    /* It may have waited for so long that the thread sleeps, or the program has come to its end. */
    watched = compute_begin_watch();
    if (watched == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    end_launch(launch, ticket, watched);
    ticket->row = NULL;
    return watched;
}

/* The driver would say so itself. But until it looks, a signal's handler may have made a context
 * current, or a stream of that handle in any, in which nobody would pay. */
CUresult compute_without_context(const struct launch *launch)
{
    bool has_name = compute_has_name(launch->stream) && HAS(cuStreamGetCtx);
    CUcontext context;
    CUresult result;

    if (!atomic_load(&vgpu.limited_compute))
        return CUDA_SUCCESS;
    result =
        has_name ? REAL(cuStreamGetCtx)(launch->stream, &context) : REAL(cuCtxGetCurrent)(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return has_name ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult compute_admit(const struct launch *launch, struct compute_ticket *ticket)
{
    int64_t began_ns = explain_begin();
    CUcontext context;
    CUresult result;

    *ticket = (struct compute_ticket){0};
    if (vgpu_gives_nothing()) /* one that was made unseen is known from now on */
        return CUDA_ERROR_OUT_OF_MEMORY;
    ticket->captured = vgpu_mode() == VGPU_ON && begin_captured(launch);
    if (ticket->captured)
        ticket->passed_ns = clock_now_ns();
    if (vgpu_mode() != VGPU_ON || ticket->captured)
        return CUDA_SUCCESS;
    (void)vgpu_refresh();
    context = compute_context_of(launch);
    if (!context)
        return compute_without_context(launch);
    result = compute_admit_in(context, launch, ticket);
    if (result == CUDA_SUCCESS)
        result = admit_growth(launch, ticket);
    if (!compute_has_name(launch->stream))
        ticket->passed_ns = clock_now_ns();
    ticket->own_ns = explain_admitted(began_ns);
    if (ticket->row)
        limiter_calls(&ticket->row->limiter, &ticket->ticket);
    return result;
}

void compute_wait(struct compute_row *row, CUcontext context, const struct launch *launch)
{
    struct inside inside = compute_enter(entered_for(row, context, launch));
    struct waiting waiting = {0};

    lock_mutex(&row->lock);
    if (row->context == context)
        (void)wait_for_turn(row, context, launch, &waiting);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
}

/* A kernel is in the graph that is captured, and will run here. */
static void found_captured(const struct launch *launch, CUresult result)
{
    CUcontext context;
    struct inside inside;

    if (!graph_homes_matter() || result != CUDA_SUCCESS || launch->is_transfer ||
        launch->kind == REGION_LAUNCH_GRAPH)
        return;
    context = compute_context_of(launch);
    inside = compute_enter(compute_looked_in(launch->stream, context));
    graph_homes_found_function(launch->function);
    compute_leave(&inside);
}

/* Whether a launch went elsewhere than was looked at before the driver was called: its capture was
 * lost since, or another context is current. In the call the program's own handlers of signals may
 * run, and its other threads do. */
static bool went_elsewhere(const struct launch *launch, const struct compute_ticket *ticket,
                           CUresult result)
{
    if (!ticket->passed_ns || !may_have_run(ticket, result))
        return false;
    return ticket->captured ? !compute_is_capturing(launch)
                            : compute_context_of(launch) != ticket->context;
}

/* For as long as a debt lasts at most: what waits for this very thread would never end. */
static void await_idle(struct compute_row *row, CUcontext context, const struct launch *launch)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    const int64_t until_ns = clock_now_ns() + AWAITED_MOST_NS;

    while (row->context == context && !compute_gpu.is_idle(row, launch) &&
           compute_stream_is_sound(launch) && clock_now_ns() < until_ns)
        (void)nanosleep(&pause, NULL);
}

/* It is paid for as what can't be measured, for as long as its stream is busy since it was called
 * for: the caller waits until then, and for the turn that it had not waited for. */
void compute_pay_late(const struct launch *launch, int64_t since_ns)
{
    const struct waiting waiting = {.on_credit = true};
    CUcontext context = compute_context_of(launch);
    struct compute_row *row = context ? compute_row_of(context, launch->stream) : NULL;
    struct ticket ticket = {0};
    struct inside inside;

    if (!row || compute_begin_watch() != CUDA_SUCCESS)
        return;
    lock_hold_cancel();
    inside = compute_enter(entered_for(row, context, launch));
    lock_mutex(&row->lock);
    note_thread(row);
    launch_cache.epoch = 0;
    if (row->context == context &&
        limiter_begin(&row->limiter, &launch_cache, launch, &waiting, &ticket))
        limiter_began(&row->limiter, &ticket, since_ns);
    unlock_mutex(&row->lock);
    await_idle(row, context, launch);
    ticket.returned_ns = clock_now_ns();
    lock_mutex(&row->lock);
    if (row->context == context)
        limiter_end(&row->limiter, &ticket, true);
    unlock_mutex(&row->lock);
    compute_leave(&inside);
    lock_release_cancel();
    compute_wait(row, context, launch);
}

void compute_launched(const struct launch *launch, struct compute_ticket *ticket, CUresult result)
{
    int64_t began_ns = ticket->row && ticket->own_ns ? clock_now_ns() : 0;
    bool is_elsewhere = went_elsewhere(launch, ticket, result);

    if (ticket->captured) {
        found_captured(launch, result);
        compute_end_captured();
    }
    code_launched(launch->function, ticket->context ? launched_in(ticket->context) : CODE_ELSEWHERE,
                  result == CUDA_SUCCESS && !is_elsewhere);
    end_launch(launch, ticket, result);
    heaps_end_launch(&ticket->growth, result == CUDA_SUCCESS && !is_elsewhere);
    if (is_elsewhere)
        compute_pay_late(launch, ticket->passed_ns);
    if (began_ns)
        explain_end(&ticket->row->device->share, ticket->own_ns + clock_now_ns() - began_ns);
}

/* Where the handler has launched as well, that is not known any more, and this one is taken to have
 * gone with those. */
void compute_strayed(const struct launch *launch, unsigned epoch, CUresult result)
{
    const struct compute_ticket ticket = {
        .context = last_paid.epoch == epoch ? last_paid.context : NULL,
        .passed_ns = last_paid.since_ns,
    };

    if (went_elsewhere(launch, &ticket, result))
        compute_pay_late(launch, ticket.passed_ns);
}

CUresult compute_begin(const struct launch *launch, struct compute_flight *flight)
{
    bool limited;

    (void)vgpu_mode();
    limited = atomic_load_explicit(&vgpu.limited_compute, memory_order_relaxed);
    flight->goes = limited ? compute_pays(launch) : compute_passes(launch);
    flight->epoch = flight->goes && limited ? launch_cache.epoch : 0;
    return flight->goes ? CUDA_SUCCESS : compute_admit(launch, &flight->ticket);
}

CUresult compute_end(const struct launch *launch, struct compute_flight *flight, CUresult result)
{
    if (!flight->goes)
        compute_launched(launch, &flight->ticket, result);
    else if (flight->epoch && compute_may_stray(launch, flight->epoch))
        compute_strayed(launch, flight->epoch, result);
    return result;
}

/* The thread */

/* Where a row is looked after, with its lock held: what was launched in a green context may go on
 * after its end. NULL: nowhere. */
static CUcontext tended_in(const struct compute_row *row)
{
    return row->ending || row->whole_ending ? NULL : row->looked_in;
}

/* False when there was nothing to look after. */
static bool tick_row(struct compute_row *row, int64_t now_ns, int64_t *due_ns)
{
    const struct timespec moment = {.tv_nsec = LIMITER_ANSWER_NS};
    CUcontext context;
    struct inside inside;
    bool out = false, busy;

    lock_mutex(&row->lock);
    context = tended_in(row);
    busy = context && limiter_is_busy(&row->limiter, now_ns);
    if (context)
        limiter_rest(&row->limiter, !busy);
    if (busy) {
        inside = compute_enter(context);
        limiter_poll(&row->limiter);
        limiter_look(&row->limiter);
        compute_want_idle(row, 1 + row->limiter.presence.voided);
        row->idle_at = row->limiter.presence.voided % MAX(row->idle_count, 1u);
        out = !row->elsewhere && limiter_probe(&row->limiter);
        *due_ns = MIN(*due_ns, limiter_due_ns(&row->limiter));
        compute_leave(&inside);
    }
    unlock_mutex(&row->lock);
    if (!out)
        return busy;

    (void)nanosleep(&moment, NULL);
    lock_mutex(&row->lock);
    if (tended_in(row) == context) {
        inside = compute_enter(context);
        limiter_probe_answer(&row->limiter);
        compute_leave(&inside);
    }
    unlock_mutex(&row->lock);
    return busy;
}

bool compute_tick(int64_t now_ns, int64_t *ret_due_ns)
{
    unsigned count = atomic_load(&compute_table.count);
    bool any = false;

    for (unsigned i = 0; i < count; i++) {
        struct compute_row *row = atomic_load(&compute_table.rows[i]);

        if (!row->context && !row->looked_in)
            continue;
        any |= now_ns - row->limiter.last_launch_ns < NS_PER_S;
        any |= tick_row(row, now_ns, ret_due_ns);
    }
    return any;
}
