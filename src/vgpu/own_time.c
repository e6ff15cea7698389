/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The C library's own time. A program may have a clock of its own, or a library that is loaded
 * before us may (libfaketime): one that stands still would keep launches waiting for ever, one that
 * runs fast would give more than the share. These are hidden, so that all of libvgpu calls them.
 */

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vgpu/real.h"

typedef int (*clock_fn)(clockid_t clock, struct timespec *ret);
typedef int (*sleep_fn)(const struct timespec *pause, struct timespec *ret_left);

static int find_clock(clockid_t clock, struct timespec *ret);
static int find_sleep(const struct timespec *pause, struct timespec *ret_left);

static _Atomic(clock_fn) libc_clock = find_clock;
static _Atomic(sleep_fn) libc_sleep = find_sleep;

static int find_clock(clockid_t clock, struct timespec *ret)
{
    clock_fn found = (clock_fn)elf_find("libc.so.6", "clock_gettime");

    if (!found)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    atomic_store_explicit(&libc_clock, found, memory_order_relaxed);
    return found(clock, ret);
}

static int find_sleep(const struct timespec *pause, struct timespec *ret_left)
{
    sleep_fn found = (sleep_fn)elf_find("libc.so.6", "nanosleep");

    if (!found)
        return (int)syscall(SYS_nanosleep, pause, ret_left);
    atomic_store_explicit(&libc_sleep, found, memory_order_relaxed);
    return found(pause, ret_left);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    return atomic_load_explicit(&libc_clock, memory_order_relaxed)(clock, ret);
}

int nanosleep(const struct timespec *pause, struct timespec *ret_left)
{
    return atomic_load_explicit(&libc_sleep, memory_order_relaxed)(pause, ret_left);
}
