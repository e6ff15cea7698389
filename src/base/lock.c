/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/glibc.h"

static __thread struct {
    unsigned depth;
    int before;
} held __attribute__((tls_model("initial-exec")));

void lock_hold_cancel(void)
{
    if (held.depth++ == 0)
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held.before);
}

void lock_release_cancel(void)
{
    int ours;

    if (--held.depth == 0)
        (void)pthread_setcancelstate(held.before, &ours);
}

void lock_mutex(pthread_mutex_t *mutex)
{
    lock_hold_cancel();
    (void)pthread_mutex_lock(mutex);
}

bool lock_try_mutex(pthread_mutex_t *mutex)
{
    lock_hold_cancel();
    if (pthread_mutex_trylock(mutex) == 0)
        return true;
    lock_release_cancel();
    return false;
}

void unlock_mutex(pthread_mutex_t *mutex)
{
    (void)pthread_mutex_unlock(mutex);
    lock_release_cancel();
}

void lock_read(pthread_rwlock_t *lock)
{
    lock_hold_cancel();
    (void)pthread_rwlock_rdlock(lock);
}

void lock_write(pthread_rwlock_t *lock)
{
    lock_hold_cancel();
    (void)pthread_rwlock_wrlock(lock);
}

void unlock_rwlock(pthread_rwlock_t *lock)
{
    (void)pthread_rwlock_unlock(lock);
    lock_release_cancel();
}

/* Signals */

static __thread struct {
    unsigned depth;
    uint64_t before;
} signals __attribute__((tls_model("initial-exec")));

#define SIGNAL_BIT(number) (UINT64_C(1) << ((number)-1))

static const uint64_t of_faults = SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) |
                                  SIGNAL_BIT(SIGILL) | SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS);

/* By which libc cancels threads, and changes all threads' user: a thread that is made meanwhile
 * inherits what is blocked, and who changes the user later would wait for it for ever. */
static const uint64_t of_libc = SIGNAL_BIT(32) | SIGNAL_BIT(33);

/* By the system call: libc leaves out its own two, and a program may send those as well. */
static void set_mask(int how, uint64_t mask, uint64_t *ret_before)
{
    (void)syscall(SYS_rt_sigprocmask, how, &mask, ret_before, sizeof(mask));
}

/* A program may have the kernel answer as if it had done so (seccomp(2)); but what a call that is
 * let through writes it can't choose. Real-time signals are not looked at: emulators keep some for
 * themselves. */
static bool is_held(uint64_t mask)
{
    static const uint64_t looked_at =
        (SIGNAL_BIT(32) - 1) & ~(SIGNAL_BIT(SIGKILL) | SIGNAL_BIT(SIGSTOP));
    uint64_t now = 0;

    (void)syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, sizeof(now));
    return !(mask & looked_at & ~now);
}

bool lock_hold_signals(void)
{
    const uint64_t mask = ~(of_faults | of_libc);

    lock_hold_cancel();
    if (signals.depth++ > 0)
        return true;
    set_mask(SIG_BLOCK, mask, &signals.before);
    if (is_held(mask))
        return true;
    lock_release_signals();
    return false;
}

void lock_hold_faults(void)
{
    set_mask(SIG_BLOCK, of_faults | of_libc, NULL);
}

void lock_release_signals(void)
{
    if (--signals.depth == 0)
        set_mask(SIG_SETMASK, signals.before, NULL);
    lock_release_cancel();
}
