/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One thread per process, asleep unless work that is limited or counted goes on. It takes in
 * measurements, of programs too that wait for completion and launch nothing meanwhile, and sends
 * the probes.
 */

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "vgpu/compute.h"
#include "vgpu/overhead.h"
#include "vgpu/vgpu.h"

#define PAUSE_MAX_NS INT64_C(2500000)
#define PAUSE_MIN_NS INT64_C(625000)

static _Atomic bool running;

static void *watch(void *unused)
{
    int64_t active_ns = clock_now_ns();

    (void)unused;
    /* This thread's sleeps only: its answers are to be read when they are due. */
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (int64_t now_ns = active_ns; now_ns - active_ns < NS_PER_S; now_ns = clock_now_ns()) {
        int64_t due_ns = now_ns + PAUSE_MAX_NS;
        struct timespec pause = {0};

        if (compute_tick(now_ns, &due_ns))
            active_ns = now_ns;
        pause.tv_nsec = MAX(due_ns - clock_now_ns(), PAUSE_MIN_NS);
        (void)nanosleep(&pause, NULL);
        vgpu_refresh();
        overhead_tick();
    }
    atomic_store(&running, false);
    return NULL;
}

/* The guest's signals are none of the thread's business. */
void watch_start(void)
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

void watch_after_fork(void)
{
    atomic_store(&running, false);
}
