/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The limiters of this process, one per context. */

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/limiter.h"

/* The calling thread's context's limiter, made at its first launch; NULL when there is no context.
 */
struct limiter *limiters_current(void);

/*
 * Looks after every limiter; false when none had anything to do. Moves due_ns to an earlier time
 * when a probe is due by then. For the probing thread.
 */
bool limiters_tick(int64_t now_ns, int64_t *due_ns);
