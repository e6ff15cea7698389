/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

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
