/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Asks each second, in a thread, who uses the node's cards, holds it against the containers, which
 * are looked at right after that (bypass.h has the rule), and writes the host's pids into slots. It
 * needs the pids of the whole machine and NVML: the monitor's pod has hostPID for this and for
 * nothing else. Where it lacks them it says so and looks at nothing.
 */

#include <uv.h>

#include "base/error.h"
#include "monitor/bypass.h"
#include "nvml/watchdog.h"

struct compare;

struct compare_options {
    const char *driver_root; /* NULL: where drivers usually are */
    const char *procfs;      /* in place of "/proc", for tests; NULL */
    /*
     * In the loop, each time that the driver was asked: looks at the containers. visitor is to see
     * them; NULL where the driver did not tell who uses the cards. Returns 0 once it saw all, or a
     * negative errno with err set.
     */
    int (*look)(void *data, const struct containers_visitor *visitor, struct error *err);
    /* In the loop, after each look that was well: the cases are good for this call. */
    void (*done)(void *data, struct bypass *bypass, const struct bypass_look *look);
    void *data;
};

/* How it stands. */
struct compare_state {
    bool up;           /* the last look was made, in time */
    int64_t looked_ns; /* 0: none yet */
    struct error why;  /* not up */
};

/* NULL: no memory. */
struct compare *compare_new(uv_loop_t *loop, const struct compare_options *options);
/* Stops looking. The object lasts until the loop has ended. */
void compare_stop(struct compare *compare);
void compare_free(struct compare *compare);

/* Whether the driver is being asked: no look comes before it has answered. */
bool compare_is_asking(const struct compare *compare);

void compare_read_state(const struct compare *compare, struct compare_state *ret_state);

/* "/proc", or what stands for it. */
const char *compare_procfs(const struct compare *compare);
