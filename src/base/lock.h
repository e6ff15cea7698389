/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Locks for code that runs in a program's own threads. A thread that the program cancels
 * (pthread_cancel) ends in the next call that may wait for something outside: open() and read(),
 * and what the driver and NVML call. It takes the locks along that it holds, and all who want them
 * later would wait for ever. So a thread that holds one of these is not cancelled until it has
 * given back the last.
 *
 * A lock under which nothing outside is called does without, and costs less.
 */

#include <pthread.h>
#include <stdbool.h>

/* From the first to the last of as many calls the thread is not cancelled. For what is held in
 * other ways than by the locks below. */
void lock_hold_cancel(void);
void lock_release_cancel(void);

void lock_mutex(pthread_mutex_t *mutex);
bool lock_try_mutex(pthread_mutex_t *mutex);
void unlock_mutex(pthread_mutex_t *mutex);

void lock_read(pthread_rwlock_t *lock);
void lock_write(pthread_rwlock_t *lock);
void unlock_rwlock(pthread_rwlock_t *lock);

/*
 * For what a program must not keep half done, as memory beyond its limit that is about to be given
 * back: a signal's handler of its own could stop the thread in it, for ever. From the first call to
 * the last release the thread is not cancelled, and no signal reaches it but those that faults
 * raise, which what is called may rely on, and libc's own two, which threads that it makes need.
 * From lock_hold_faults() on, when nobody else is called any more, none does: a fault then ends the
 * program. Three or four system calls. For rare paths. False, and nothing is held: the kernel does
 * not block them for this program.
 */
bool lock_hold_signals(void);
void lock_hold_faults(void);
void lock_release_signals(void);
