/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the tests of the limiter's parts, each alone, have in common: launches, and a GPU that says
 * what a test has set. As a whole limiter_trace_test.c judges them.
 */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "vgpu/limiter/samples.h"

#define assert_near(is, wanted, within)                                                            \
    assert_true(fabs((double)(is) - (double)(wanted)) <= (within))

/* A shape of its own for each function and number of blocks. */
struct launch launch_of(uintptr_t function, uint32_t blocks);

/* A GPU's functions, and what they say of all streams and events. */
extern struct fake_stream {
    bool is_idle, is_done, joins, is_captured;
    unsigned recorded;
} fake_stream;
extern int64_t fake_now_ns;

int64_t fake_now(void *gpu);
void *fake_no_event(void *gpu); /* there are no more */
bool fake_record(void *gpu, void *event, const struct launch *where);
enum event_state fake_query(void *gpu, void *event);
bool fake_stream_is_idle(void *gpu, const struct launch *where);
bool fake_asks_others(void *gpu);
bool fake_is_captured(void *gpu, const struct launch *where);
