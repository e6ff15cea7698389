/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The heaps of contexts, the stacks of their threads among them, as limits and launches make them
 * grow. A context has a stack for each thread that its device can run at once. A launch of a kernel
 * that needs a larger one makes the driver take what is missing: the limit reads so from then on,
 * and only cuCtxSetLimit() lowers it. So it is known before what a launch will take, and that is
 * refused beyond the memory limit.
 */

#include "vgpu/overhead.h"
#include "vgpu/vgpu.h"

/* Of a launch, from heaps_begin_launch() to heaps_end_launch(). */
struct heap_growth {
    struct overhead overhead;
    unsigned context;
    bool grows;
};

/*
 * Before and after the driver's call that launches a function which was not seen before in the
 * current context. An error is the launch's answer. The growth is all zeros before.
 */
CUresult heaps_begin_launch(struct heap_growth *growth, const void *function);
void heaps_end_launch(struct heap_growth *growth, bool launched);

void heaps_after_fork(void);
