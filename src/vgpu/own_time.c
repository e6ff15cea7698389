/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The C library's own time. A program may have a clock of its own, or a library that is loaded
 * before us may (libfaketime): one that stands still would keep launches waiting for ever, one that
 * runs fast would give more than the share. These are hidden, so that all of libvgpu calls them.
 *
 * The C library reads the processor's counter. A thread may have that fault (PR_SET_TSC in
 * prctl(2)), and a handler of the program's answer what it likes. So once a millisecond the kernel
 * is asked as well: whether it is so, from when on nobody else is asked; and what time it is,
 * beyond which by a millisecond no time is believed.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
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

#define BELIEVED_NS INT64_C(1000000)

static _Atomic int64_t believed_until_ns; /* of the monotonic clocks */
static _Atomic bool is_trapped;

static int64_t ns_of(const struct timespec *time)
{
    return (int64_t)time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

/* Whether the thread's reads of the counter fault. Where the kernel can't say so they can't; on
 * x86 it can. */
static bool faults_by_counter(void)
{
    int mode = 0;
#ifdef __x86_64__
    const bool can_say = true;
#else
    const bool can_say = false;
#endif

    return syscall(SYS_prctl, PR_GET_TSC, &mode, 0, 0, 0) == 0 ? mode != PR_TSC_ENABLE : can_say;
}

static bool is_monotonic(clockid_t clock)
{
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
}

/* A program may have that refused (seccomp(2)): time stands still for it. */
static int ask_kernel(clockid_t clock, struct timespec *ret)
{
    const int64_t believed_ns = atomic_load_explicit(&believed_until_ns, memory_order_relaxed);
    struct timespec now = {0};
    bool told = syscall(SYS_clock_gettime, clock, &now) == 0 && ns_of(&now);

    if (told && is_monotonic(clock))
        atomic_store_explicit(&believed_until_ns, ns_of(&now) + BELIEVED_NS, memory_order_relaxed);
    if (!told && is_monotonic(clock))
        now = clock_timespec(believed_ns);
    *ret = now;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int result;

    if (atomic_load_explicit(&is_trapped, memory_order_relaxed))
        return ask_kernel(clock, ret);
    result = atomic_load_explicit(&libc_clock, memory_order_relaxed)(clock, ret);
    if (result != 0 || !is_monotonic(clock) ||
        ns_of(ret) <= atomic_load_explicit(&believed_until_ns, memory_order_relaxed))
        return result;
    if (faults_by_counter())
        atomic_store_explicit(&is_trapped, true, memory_order_relaxed);
    return ask_kernel(clock, ret);
}

int nanosleep(const struct timespec *pause, struct timespec *ret_left)
{
    return atomic_load_explicit(&libc_sleep, memory_order_relaxed)(pause, ret_left);
}
