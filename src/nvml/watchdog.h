/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Asks NVML again and again, from a thread, since a call may block for long or for ever in a driver
 * that hangs. On a libuv loop.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct watchdog_ops {
    void (*begin)(void *data); /* in the loop, before ask(); may be NULL */
    void (*ask)(void *data);   /* in the thread */
    void (*done)(void *data);  /* in the loop, after ask(), even after watchdog_stop() */
    void (*late)(void *data);  /* in the loop, once ask() has taken late_periods */
};

struct watchdog_options {
    const struct watchdog_ops *ops;
    void *data;
    unsigned first_ms; /* until the first period */
    unsigned period_ms;
    unsigned late_periods;
};

/* Its owner's storage, which lasts until the loop has closed its handle. */
struct watchdog {
    struct watchdog_options options;
    uv_timer_t timer;
    uv_work_t work;
    bool asking, ending;
    bool again;       /* ask() is called once more, right after */
    unsigned periods; /* that began while the thread was in ask() */
};

void watchdog_start(struct watchdog *watchdog, uv_loop_t *loop,
                    const struct watchdog_options *options);

/* Asks now, or once more as soon as the thread is back from ask(). */
void watchdog_hurry(struct watchdog *watchdog);

bool watchdog_is_late(const struct watchdog *watchdog);

/*
 * Waits for the thread for a second. A thread that hangs in the
 * driver can be neither ended nor joined, and exit() would try to join it: then this ends the
 * process.
 */
void watchdog_stop(struct watchdog *watchdog);
