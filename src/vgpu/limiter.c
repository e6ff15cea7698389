/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter.h"

#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "vgpu/bucket.h"
#include "vgpu/contexts.h"
#include "vgpu/launch_cache.h"
#include "vgpu/limiter_state.h"
#include "vgpu/limiters.h"
#include "vgpu/real.h"

_Atomic int limiter_captures;

__thread struct launch_cache launch_cache;

/* By the context's number. Made once, never unmapped: a thread may be on its way into one. */
static struct {
    pthread_mutex_t lock;
    _Atomic(struct limiter *) rows[CONTEXTS_MAX];
    unsigned end;
} limiters = {.lock = PTHREAD_MUTEX_INITIALIZER};

void limiters_after_fork(void)
{
    (void)pthread_mutex_init(&limiters.lock, NULL);
    for (unsigned i = 0; i < limiters.end; i++)
        atomic_store(&limiters.rows[i], NULL);
    limiters.end = 0;
    atomic_store(&limiter_captures, 0);
    launch_cache = (struct launch_cache){0};
    probes_after_fork();
}

double limiter_random(struct limiter *limiter)
{
    limiter->random ^= limiter->random << 13;
    limiter->random ^= limiter->random >> 7;
    limiter->random ^= limiter->random << 17;
    return (double)(limiter->random >> 11) / 9007199254740992.0;
}

void limiter_charge(struct limiter *limiter, int64_t amount_ns)
{
    uint32_t rate = atomic_load_explicit(&limiter->device->rate, memory_order_relaxed);

    if (rate)
        bucket_charge(limiter->compute, rate, amount_ns);
}

static struct limiter *new_limiter(unsigned number, struct vgpu_device *device)
{
    const size_t kernels = KERNELS * sizeof(struct kernel_cost);
    size_t size = sizeof(struct limiter) + kernels;
    struct limiter *limiter;

    limiter = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (limiter == MAP_FAILED)
        return NULL;

    (void)REAL(cuCtxGetCurrent)(&limiter->context);
    limiter->device = device;
    limiter->compute = &vgpu.region.ext->devices[device->index].compute;
    limiter->kernels = (struct kernel_cost *)(limiter + 1);
    limiter->on_device = 1;
    limiter->run_chance = 1;
    limiter->cover_long = 1;
    limiter->overhead_ns = -1;
    limiter->generation = 1;
    limiter->random = (uint64_t)clock_now_ns() ^ (uint64_t)number << 32;
    (void)pthread_mutex_init(&limiter->lock, NULL);
    if (REAL(cuStreamCreate)(&limiter->probe_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        limiter->probe_stream = NULL;
    else
        samples_calibrate(limiter);
    return limiter;
}

struct limiter *limiters_current(void)
{
    unsigned number = context_current();
    struct vgpu_device *device;
    struct limiter *limiter;

    if (!number)
        return NULL;
    limiter = atomic_load_explicit(&limiters.rows[number], memory_order_acquire);
    if (limiter)
        return limiter;

    device = vgpu_current_device();
    if (!device)
        return NULL;
    (void)pthread_mutex_lock(&limiters.lock);
    limiter = atomic_load(&limiters.rows[number]);
    if (!limiter && (limiter = new_limiter(number, device))) {
        atomic_store_explicit(&limiters.rows[number], limiter, memory_order_release);
        limiters.end = MAX(limiters.end, number + 1);
    }
    (void)pthread_mutex_unlock(&limiters.lock);
    return limiter;
}

bool limiters_tick(int64_t now_ns, int64_t *due_ns)
{
    bool any = false;

    for (unsigned i = 0; i < limiters.end; i++) {
        struct limiter *limiter = atomic_load(&limiters.rows[i]);

        if (!limiter || limiter->dead)
            continue;
        any |= now_ns - limiter->last_launch_ns < NS_PER_S;
        if (REAL(cuCtxSetCurrent)(limiter->context) == CUDA_SUCCESS)
            probes_tick(limiter, now_ns);
        if (limiter->probe_ns > now_ns)
            *due_ns = MIN(*due_ns, limiter->probe_ns);
    }
    return any;
}

/* The events die with the context. Threads that wait see "dead" and stop waiting. */
void limiter_forget(CUcontext context)
{
    for (unsigned i = 0; i < limiters.end; i++) {
        struct limiter *limiter = atomic_load(&limiters.rows[i]);

        if (!limiter || limiter->context != context)
            continue;
        (void)pthread_mutex_lock(&limiter->lock);
        limiter->dead = true;
        (void)pthread_mutex_unlock(&limiter->lock);
        bucket_wake(limiter->compute);
        atomic_store(&limiters.rows[i], NULL);
    }
    launch_cache.epoch = 0;
}

void limiter_forget_stream(CUstream stream)
{
    for (unsigned i = 0; i < limiters.end; i++) {
        struct limiter *limiter = atomic_load(&limiters.rows[i]);

        if (!limiter)
            continue;
        (void)pthread_mutex_lock(&limiter->lock);
        windows_forget_stream(limiter, stream);
        (void)pthread_mutex_unlock(&limiter->lock);
    }
}

static bool is_capturing(const struct launch *launch)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (launch->per_thread)
        (void)REAL(cuStreamIsCapturing_ptsz)(launch->stream, &status);
    else
        (void)REAL(cuStreamIsCapturing)(launch->stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static int64_t outstanding(const struct limiter *limiter)
{
    return limiter->issued_ns - limiter->done_ns;
}

/* Lets go of the lock while waiting. */
static void sleep_until(struct limiter *limiter, int64_t until_ns)
{
    int64_t began = clock_now_ns();

    (void)pthread_mutex_unlock(&limiter->lock);
    bucket_sleep(limiter->compute, until_ns);
    atomic_fetch_add_explicit(&limiter->compute->delayed_ns, (uint64_t)(clock_now_ns() - began),
                              memory_order_relaxed);
    (void)pthread_mutex_lock(&limiter->lock);
}

/* The bucket's turn. True when it was waited for, and everything has to be looked at again. */
static bool wait_for_balance(struct limiter *limiter, const struct kernel_cost *kernel,
                             uint32_t rate, int64_t now_ns, int64_t balance)
{
    struct region_compute *compute = limiter->compute;
    int64_t until;

    if (balance <= 0) {
        atomic_store_explicit(&compute->gate, 1, memory_order_relaxed);
        windows_close(limiter, (double)launch_cache.credit_ns, now_ns);
    }
    if (!atomic_load_explicit(&compute->gate, memory_order_relaxed))
        return false;
    if (balance >= BUCKET_QUANTUM_NS) {
        atomic_store_explicit(&compute->gate, 0, memory_order_relaxed);
        return false;
    }

    until = now_ns + (BUCKET_QUANTUM_NS - balance) * BUCKET_ONE / rate;
    /* A long kernel's measurement may change the balance any time. */
    if (limiter->settling)
        until = MIN(until, now_ns + MAX(2 * NS_PER_MS, (int64_t)(kernel->cost_ns / 4)));
    sleep_until(limiter, until);
    return true;
}

/* Too much on its way, or a first launch that is being measured: how long to wait before looking
 * again. */
static int64_t completion_nap(const struct limiter *limiter, const struct kernel_cost *kernel,
                              int64_t balance)
{
    int64_t excess = outstanding(limiter) - OUTSTANDING_MAX_NS - balance;

    if (!limiter->pending)
        return 0;
    if (!kernel->measured && kernel->unseen)
        return 100 * NS_PER_US;
    if (excess <= 0 || (double)outstanding(limiter) <= 1.01 * kernel->cost_ns)
        return 0;
    return MAX(50 * NS_PER_US, MIN(excess, NS_PER_MS));
}

/* Waits until this launch may go. Returns whether it had to wait. */
static bool wait_for_turn(struct limiter *limiter, const struct kernel_cost *kernel)
{
    int64_t deadline = 0, now, nap, balance;
    bool waited = false;
    uint32_t rate;

    for (;; waited = true) {
        now = clock_now_ns();
        samples_poll(limiter, now);
        rate = atomic_load_explicit(&limiter->device->rate, memory_order_relaxed);
        if (!rate || limiter->dead)
            return waited;
        bucket_set_rate(limiter->compute, rate, now);
        balance = bucket_balance(limiter->compute, rate, now);
        if (wait_for_balance(limiter, kernel, rate, now, balance)) {
            vgpu_refresh();
            continue;
        }

        nap = completion_nap(limiter, kernel, balance);
        if (!nap)
            return waited;
        if (!deadline)
            deadline = now + MAX(WAIT_MAX_NS, (int64_t)(2 * kernel->cost_ns));
        if (now >= deadline) {
            atomic_fetch_add_explicit(&limiter->compute->waits_cut, 1, memory_order_relaxed);
            limiter->done_ns = limiter->issued_ns;
            return waited;
        }
        sleep_until(limiter, now + nap);
    }
}

static double cost_of(const struct limiter *limiter, const struct kernel_cost *kernel,
                      int64_t now_ns)
{
    if (!kernel->measured)
        return (double)FIRST_COST_NS;
    return kernel->cost_ns * (kernel->raw_ns >= (double)LONG_NS ? limiter->cover_long
                                                                : windows_factor(limiter, now_ns));
}

/* Charges this launch, and for short ones some more, which the thread then spends without looking.
 */
static int64_t pay(struct limiter *limiter, const struct kernel_cost *kernel, double cost,
                   int64_t now_ns)
{
    bool is_short = kernel->measured && kernel->raw_ns < (double)LONG_NS;
    int64_t need = (int64_t)cost, more = 0;

    if (launch_cache.credit_ns >= need) {
        launch_cache.credit_ns -= need;
        return need;
    }
    if (is_short && need < THREAD_CREDIT_NS)
        more = THREAD_CREDIT_NS - THREAD_CREDIT_NS % need - need;
    limiter_charge(limiter, need + more - launch_cache.credit_ns);
    atomic_fetch_add_explicit(&limiter->compute->raw_ns, (int64_t)kernel->cost_ns,
                              memory_order_relaxed);
    limiter->issued_ns += need + more - launch_cache.credit_ns;
    windows_charge(limiter,
                   (double)(need + more - launch_cache.credit_ns) *
                       (kernel->cost_ns / MAX(cost, 1.0)),
                   now_ns);
    launch_cache.credit_ns = more;
    return need;
}

static bool stream_is_idle(const struct launch *launch)
{
    return (launch->per_thread && REAL(cuStreamQuery_ptsz)
                ? REAL(cuStreamQuery_ptsz)(launch->stream)
                : REAL(cuStreamQuery)(launch->stream)) == CUDA_SUCCESS;
}

/* A measurement of a short kernel is worth taking where its start is sharp. */
static bool wants_sample(const struct limiter *limiter, const struct kernel_cost *kernel,
                         const struct launch *launch, int64_t now_ns)
{
    bool due = kernel->measured < 3 || kernel->raw_ns >= (double)LONG_NS ||
               now_ns >= limiter->next_sample_ns ||
               (!limiter->pending && outstanding(limiter) > OUTSTANDING_MAX_NS);

    if (!due || atomic_load(&limiter_captures))
        return false;
    return kernel->cost_ns >= 100e3 || !kernel->measured || outstanding(limiter) > 8000 ||
           now_ns - limiter->last_sample_ns > 20 * NS_PER_MS || stream_is_idle(launch);
}

/* What the guest's readers look at: that work is going on, and since when. */
static void note_activity(const struct limiter *limiter)
{
    struct region_base *base = vgpu.region.base;
    uint64_t now = (uint64_t)time(NULL);

    (void)limiter;
    if (atomic_load_explicit(&base->recent_kernel, memory_order_relaxed) >= 0 &&
        atomic_load_explicit(&base->recent_kernel, memory_order_relaxed) != 2)
        atomic_store_explicit(&base->recent_kernel, 2, memory_order_relaxed);
    if (atomic_load_explicit(&base->last_kernel_time, memory_order_relaxed) != now)
        atomic_store_explicit(&base->last_kernel_time, now, memory_order_relaxed);
}

static void remember_cost(const struct limiter *limiter, const struct launch *launch,
                          const struct kernel_cost *kernel, double cost)
{
    unsigned at = launch_cache_slot(launch);

    /* Long ones are measured each time, and unknown ones go one by one. */
    if (!kernel->measured || kernel->raw_ns >= (double)LONG_NS)
        return;
    launch_cache.costs[at].function = launch->function;
    for (unsigned i = 0; i < 3; i++) {
        launch_cache.costs[at].grid[i] = launch->grid[i];
        launch_cache.costs[at].block[i] = launch->block[i];
    }
    launch_cache.costs[at].cost_ns = (int64_t)cost;
    (void)limiter;
}

/* The thread's cache belongs to one limiter, and to the costs of one generation. */
static void enter_cache(struct limiter *limiter)
{
    unsigned now = contexts_epoch();
    unsigned generation = atomic_load_explicit(&limiter->generation, memory_order_relaxed);

    if (launch_cache.limiter == limiter && launch_cache.epoch == now &&
        launch_cache.generation == generation)
        return;
    if (launch_cache.limiter != limiter)
        launch_cache.credit_ns = 0;
    for (unsigned i = 0; i < LAUNCH_CACHE; i++)
        launch_cache.costs[i].function = NULL;
    launch_cache.limiter = limiter;
    launch_cache.epoch = now;
    launch_cache.generation = generation;
}

static void admit_locked(struct limiter *limiter, const struct launch *launch,
                         struct ticket *ticket)
{
    struct kernel_cost *kernel = samples_cost(limiter, launch);
    int64_t now;
    double cost;

    if (wait_for_turn(limiter, kernel))
        atomic_fetch_add_explicit(&limiter->compute->launches_delayed, 1, memory_order_relaxed);
    kernel = samples_cost(limiter, launch);
    now = clock_now_ns();
    cost = cost_of(limiter, kernel, now);
    ticket->limiter = limiter;
    ticket->kernel = kernel;
    ticket->paid_ns = pay(limiter, kernel, cost, now);
    kernel->unseen++;
    limiter->last_launch_ns = now;
    windows_use_stream(limiter, launch, now);
    enter_cache(limiter);
    remember_cost(limiter, launch, kernel, cost);

    if (!wants_sample(limiter, kernel, launch, now))
        return;
    if (kernel->raw_ns < (double)LONG_NS && windows_wanted(limiter, now))
        windows_open(limiter, launch,
                     (double)(ticket->paid_ns + launch_cache.credit_ns) *
                         (kernel->cost_ns / MAX(cost, 1.0)),
                     now);
    ticket->sample = samples_begin(limiter, kernel, launch, now);
    ticket->recorded_ns = clock_now_ns();
}

void limiter_admit(const struct launch *launch, struct ticket *ticket)
{
    struct limiter *limiter;

    *ticket = (struct ticket){0};
    if (atomic_load(&limiter_captures) && is_capturing(launch))
        return;
    vgpu_refresh();
    limiter = limiters_current();
    if (!limiter || !atomic_load_explicit(&limiter->device->rate, memory_order_relaxed) ||
        !atomic_load_explicit(&vgpu.region.base->utilization_switch, memory_order_relaxed))
        return;

    probes_start();
    note_activity(limiter);
    (void)pthread_mutex_lock(&limiter->lock);
    if (!limiter->dead)
        admit_locked(limiter, launch, ticket);
    (void)pthread_mutex_unlock(&limiter->lock);
}

/* If the start ran before the kernel was queued, the host's time between the two is in the
 * measurement. */
static int64_t host_gap(const struct ticket *ticket)
{
    if (REAL(cuEventQuery)(ticket->sample->start) != CUDA_SUCCESS)
        return 0;
    return clock_now_ns() - ticket->recorded_ns;
}

void limiter_launched(const struct launch *launch, struct ticket *ticket, CUresult result)
{
    struct limiter *limiter = ticket->limiter;

    if (!limiter || (!ticket->sample && result == CUDA_SUCCESS))
        return;

    (void)pthread_mutex_lock(&limiter->lock);
    if (limiter->dead) {
        (void)pthread_mutex_unlock(&limiter->lock);
        return;
    }
    if (result != CUDA_SUCCESS) {
        limiter_charge(limiter, -ticket->paid_ns);
        limiter->issued_ns -= ticket->paid_ns;
        ticket->kernel->unseen -= ticket->kernel->unseen > 0;
        if (ticket->sample)
            samples_cancel(limiter, ticket->sample);
    } else {
        ticket->sample->paid_ns = ticket->paid_ns;
        samples_end(limiter, ticket->sample, launch, host_gap(ticket));
    }
    (void)pthread_mutex_unlock(&limiter->lock);
}
