/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One thread per process, from the first work that is limited or counted on. It takes in
 * measurements, of programs too that wait for completion and launch nothing meanwhile, and sends
 * the probes; where nothing goes on, no memory of other processes is held, and nothing that was
 * given back may be held by them, it sleeps until somebody launches. It stays, since another one
 * may not be made later: the program may have come to its limit of threads, or forbidden itself to
 * make any. When the program exits, the driver comes to its end by handlers of its own: from then
 * on the thread does nothing any more. Without it nobody would charge what a process runs until it
 * ends: so where there is a limit and it can't be, nothing is launched.
 */

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "vgpu/compute.h"
#include "vgpu/hidden.h"
#include "vgpu/vgpu.h"

#define PAUSE_MAX_NS INT64_C(2500000)
#define PAUSE_MIN_NS INT64_C(100000)
#define ROUND_NS INT64_C(625000) /* at the least, between looks at all else */
#define PAUSE_IDLE_NS (100 * NS_PER_MS)

#define EXIT_WAIT_MS 100 /* of a driver that does not answer, which must not keep a program */

#define STACK_BYTES (1 << 20)

enum state {
    STATE_NONE = 0,
    STATE_RESTS, /* it sleeps, or will if it finds nothing once more */
    STATE_LOOKS,
};

static _Atomic enum state state;
static _Atomic bool ending;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER; /* over changes of the state */
static pthread_cond_t waking = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER; /* held while the driver may be called */

/* False once the program exits: the driver is not to be called. */
static bool begin_work(void)
{
    (void)pthread_mutex_lock(&work);
    if (!atomic_load(&ending))
        return true;
    (void)pthread_mutex_unlock(&work);
    return false;
}

static void end_work(void)
{
    (void)pthread_mutex_unlock(&work);
}

/* Registered after the driver's own handler, so it runs before that. */
static void end_watch(void)
{
    const struct timespec pause = {.tv_nsec = NS_PER_MS};

    atomic_store(&ending, true);
    /* Nobody looks after what threads launch on what they paid. */
    atomic_fetch_add(&contexts_epoch_now, 1);
    for (unsigned i = 0; i < EXIT_WAIT_MS; i++) {
        if (pthread_mutex_trylock(&work) == 0) {
            end_work();
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* Looks after launches, and again as often as they need it until it is time for all else. False
 * once the program exits. */
static bool look_after_launches(bool *ret_active)
{
    const int64_t begun_ns = clock_now_ns();
    int64_t now_ns = begun_ns, due_ns;

    *ret_active = false;
    do {
        struct timespec pause = {0};

        if (!begin_work())
            return false;
        due_ns = now_ns + PAUSE_MAX_NS;
        *ret_active |= compute_tick(now_ns, &due_ns);
        end_work();
        /* What others made, and leave behind when they die, is to be charged to us; what they have
         * of ours, and let go of, no more. */
        if (!*ret_active && (virtual_has_imports() || hidden_waits())) {
            *ret_active = true;
            due_ns = now_ns + PAUSE_IDLE_NS;
        }
        pause.tv_nsec = MAX(due_ns - clock_now_ns(), PAUSE_MIN_NS);
        (void)nanosleep(&pause, NULL);
        now_ns = clock_now_ns();
    } while (now_ns - begun_ns < ROUND_NS);
    return true;
}

/* False once the program exits. Whether anything went on is told in ret_active. */
static bool look(bool *ret_active)
{
    if (!look_after_launches(ret_active) || !begin_work())
        return false;
    (void)vgpu_refresh();
    hidden_tick();
    if (atomic_load(&vgpu.mode) == VGPU_ON)
        explain_tick(clock_now_ns());
    end_work();
    return true;
}

static void note_state(enum state now)
{
    lock_mutex(&starting);
    atomic_store(&state, now);
    unlock_mutex(&starting);
}

static void sleep_until_woken(void)
{
    if (atomic_load(&vgpu.mode) == VGPU_ON)
        explain_rest();
    lock_mutex(&starting);
    while (atomic_load(&state) == STATE_RESTS)
        (void)pthread_cond_wait(&waking, &starting);
    unlock_mutex(&starting);
}

/* The signal that libc cancels threads by: whoever sends it ends this one in its next sleep,
 * whether it may be cancelled or not. libc's own functions do not block it. */
static void be_uncancelled(void)
{
    static const uint64_t signal = UINT64_C(1) << (32 - 1); /* SIGCANCEL; 33 is for setuid() */

    (void)syscall(SYS_rt_sigprocmask, SIG_BLOCK, &signal, NULL, sizeof(signal));
}

/* Before it sleeps it says so, and looks once more: who launches either sees that, or is seen. */
static void *watch(void *unused)
{
    int64_t active_ns = clock_now_ns(), now_ns;
    bool is_active, rests = false;

    (void)unused;
    be_uncancelled();
    /* This thread's sleeps only: its answers are to be read when they are due. */
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    while (now_ns = clock_now_ns(), look(&is_active)) {
        if (is_active) {
            active_ns = now_ns;
            rests = false;
        } else if (rests) {
            sleep_until_woken();
            active_ns = clock_now_ns();
            rests = false;
        } else if (now_ns - active_ns >= NS_PER_S) {
            rests = true;
        } else {
            continue;
        }
        note_state(rests ? STATE_RESTS : STATE_LOOKS);
    }
    return NULL;
}

/* 0 bytes: as large as the program has its own. */
static bool create_thread(size_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    bool created;

    if (pthread_attr_init(&attributes) != 0)
        return false;
    if (stack_bytes)
        (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    created = pthread_create(&thread, &attributes, watch, NULL) == 0;
    (void)pthread_attr_destroy(&attributes);
    return created;
}

/* The guest's signals are none of the thread's business, nor is how large it has its stacks, unless
 * its thread-local variables need that. */
static bool start_thread(void)
{
    static bool registered;
    sigset_t all, before;
    bool started;

    if (!registered)
        registered = atexit(end_watch) == 0;
    if (!registered)
        return false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    started = create_thread(STACK_BYTES) || create_thread(0);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started && atomic_load(&vgpu.limited_compute))
        vgpu_say(VGPU_WORD_THREAD,
                 "no thread can be made to look after launches (memory, or a limit of "
                 "processes?): nothing is launched until one can");
    return started;
}

CUresult watch_start(void)
{
    bool is_there;

    if (atomic_load(&ending))
        return CUDA_ERROR_DEINITIALIZED;
    if (atomic_load(&state) == STATE_LOOKS)
        return CUDA_SUCCESS;
    lock_mutex(&starting);
    is_there = atomic_load(&state) != STATE_NONE || start_thread();
    if (is_there)
        atomic_store(&state, STATE_LOOKS);
    (void)pthread_cond_signal(&waking);
    unlock_mutex(&starting);
    return is_there ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void watch_after_fork(void)
{
    (void)pthread_mutex_init(&work, NULL);
    (void)pthread_mutex_init(&starting, NULL);
    (void)pthread_cond_init(&waking, NULL);
    atomic_store(&state, STATE_NONE);
}
