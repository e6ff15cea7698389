/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Time, as nanoseconds of CLOCK_MONOTONIC. It does not run while the machine is suspended. */

#include <stdint.h>
#include <time.h>

static inline int64_t clock_read_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t clock_now_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

/* Cheaper, and up to 10 ms behind. */
static inline int64_t clock_coarse_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

enum {
    CLOCK_UTC_SIZE = 24,
};

/* The year 2200, in seconds since 1970: what others write is read as no later, since nanoseconds
 * can't be counted far beyond. */
#define CLOCK_LATEST_S INT64_C(7258118400)

/* As Kubernetes writes it: "2026-01-31T12:00:00Z". Returns to; a time beyond the year 9999 is "".
 */
static inline const char *clock_format_utc(time_t seconds, char to[static CLOCK_UTC_SIZE])
{
    struct tm utc;

    if (!gmtime_r(&seconds, &utc) || !strftime(to, CLOCK_UTC_SIZE, "%Y-%m-%dT%H:%M:%SZ", &utc))
        to[0] = '\0';
    return to;
}

static inline struct timespec clock_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / INT64_C(1000000000),
                             .tv_nsec = ns % INT64_C(1000000000)};
}
