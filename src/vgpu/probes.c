/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One thread per process, asleep unless limited work is going on. Every 10 ms or so, more often
 * while others use the device, it records an event on an idle stream of the context: that completes
 * at once if the context is on the device, and at its next slice if it is not. At random moments
 * this samples the fraction of time that is ours. It also looks after measurements of programs that
 * wait for completion and launch nothing meanwhile.
 */

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "vgpu/bucket.h"
#include "vgpu/limiter_state.h"
#include "vgpu/limiters.h"
#include "vgpu/real.h"

#define ANSWER_NS 30000
#define PROMPT_NS 10000 /* a probe that was this late on the device had to wait for it */
#define SHARP_NS 6000   /* recorded within this, the host's time of it is good enough to tell */
#define CHANCE 0.01     /* what is this unlikely is not chance */
#define BUSY_NS (20 * NS_PER_MS)
#define PAUSE_MAX_NS (PROBE_GAP_NS / 4) /* between two looks at what is going on */
#define PAUSE_MIN_NS (PROBE_GAP_NS / 16)

static _Atomic bool running;

static void note_sample(struct limiter *limiter, bool on)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        struct sample *sample = &limiter->samples[i];

        if (sample->state == SAMPLE_PENDING && sample->settle && sample->kernel) {
            sample->on += on;
            sample->off += !on;
        }
    }
}

static void note_probe(struct limiter *limiter, bool on)
{
    struct region_compute *compute = limiter->compute;

    atomic_fetch_add_explicit(on ? &compute->probes_on : &compute->probes_off, 1,
                              memory_order_relaxed);
    limiter->contended += ((on ? 0.0 : 1.0) - limiter->contended) / 32;
    if (limiter->settling) {
        double weight = MAX(1.0 / (limiter->probes + 8), 1.0 / 64);

        limiter->on_device += ((on ? 1.0 : 0.0) - limiter->on_device) * weight;
        limiter->probes += limiter->probes < 1000;
        note_sample(limiter, on);
    }

    /* So long a run of "on" that the fraction so far does not explain it: the others have left. */
    limiter->run_chance = on ? limiter->run_chance * limiter->on_device : 1;
    if (limiter->run_chance < CHANCE) {
        limiter->on_device = 1;
        limiter->run_chance = 1;
    }
}

/* Records the probe; true when its answer must be looked at in a moment. */
static bool probe(struct limiter *limiter, int64_t now_ns)
{
    if (!limiter->probe_event)
        limiter->probe_event = samples_event();
    if (!limiter->probe_event || !limiter->probe_stream || limiter->probe_out ||
        now_ns < limiter->probe_ns || atomic_load(&limiter_captures))
        return false;
    limiter->probe_recorded_ns = clock_now_ns();
    limiter->probe_out =
        REAL(cuEventRecord)(limiter->probe_event, limiter->probe_stream) == CUDA_SUCCESS;
    limiter->probe_sharp = clock_now_ns() - limiter->probe_recorded_ns < SHARP_NS;
    return limiter->probe_out;
}

/*
 * A short absence may be over by the time that the answer is read. The event's own time tells it:
 * later than that of the promptest probes, it had to wait.
 */
static bool was_prompt(struct limiter *limiter)
{
    double late_ns;
    float ms;

    if (!limiter->base ||
        REAL(cuEventElapsedTime)(&ms, limiter->base, limiter->probe_event) != CUDA_SUCCESS)
        return true;
    late_ns = (double)ms * 1e6 - (double)(limiter->probe_recorded_ns - limiter->base_ns);
    limiter->probe_least_ns = MIN(limiter->probe_least_ns, late_ns);
    return late_ns - limiter->probe_least_ns < PROMPT_NS;
}

/* A probe during which the host was held up tells nothing, whatever its answer. */
static void answer(struct limiter *limiter, int64_t now_ns)
{
    double gap = (double)PROBE_GAP_NS * (0.5 + limiter_random(limiter));

    /* What is off by chance goes with the root of their number; alone there is no chance in it. */
    if (limiter->contended > 0.03)
        gap /= 4;
    if (limiter->probe_sharp)
        note_probe(limiter,
                   REAL(cuEventQuery)(limiter->probe_event) == CUDA_SUCCESS && was_prompt(limiter));
    limiter->probe_ns = now_ns + (int64_t)gap;
}

static bool busy(const struct limiter *limiter, int64_t now_ns)
{
    return limiter->pending > 0 || now_ns - limiter->last_launch_ns < BUSY_NS;
}

void probes_tick(struct limiter *limiter, int64_t now_ns)
{
    const struct timespec moment = {.tv_nsec = ANSWER_NS};
    bool out;

    (void)pthread_mutex_lock(&limiter->lock);
    if (limiter->dead || !busy(limiter, now_ns) || atomic_load(&limiter_captures)) {
        (void)pthread_mutex_unlock(&limiter->lock);
        return;
    }
    samples_poll(limiter, now_ns);
    /* One that was off is done by now, or still waits for its slice. */
    if (limiter->probe_out && REAL(cuEventQuery)(limiter->probe_event) != CUDA_ERROR_NOT_READY)
        limiter->probe_out = false;
    out = probe(limiter, now_ns);
    (void)pthread_mutex_unlock(&limiter->lock);
    if (!out)
        return;

    (void)nanosleep(&moment, NULL);
    (void)pthread_mutex_lock(&limiter->lock);
    if (!limiter->dead)
        answer(limiter, clock_now_ns());
    (void)pthread_mutex_unlock(&limiter->lock);
}

static void *watch(void *unused)
{
    int64_t active_ns = clock_now_ns();

    (void)unused;
    /* This thread's sleeps only: its answers are to be read when they are due. */
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (int64_t now_ns = active_ns; now_ns - active_ns < NS_PER_S; now_ns = clock_now_ns()) {
        int64_t due_ns = now_ns + PAUSE_MAX_NS;
        struct timespec pause = {0};

        if (limiters_tick(now_ns, &due_ns))
            active_ns = now_ns;
        pause.tv_nsec = MAX(due_ns - clock_now_ns(), PAUSE_MIN_NS);
        (void)nanosleep(&pause, NULL);
        vgpu_refresh();
    }
    atomic_store(&running, false);
    return NULL;
}

/* The guest's signals are none of the thread's business. */
void probes_start(void)
{
    sigset_t all, before;
    pthread_t thread;

    if (atomic_load_explicit(&running, memory_order_relaxed) || atomic_exchange(&running, true))
        return;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch, NULL) == 0)
        (void)pthread_detach(thread);
    else
        atomic_store(&running, false);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void probes_after_fork(void)
{
    atomic_store(&running, false);
}
