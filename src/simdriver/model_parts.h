/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the model's files have in common (model.h); nobody else's. */

#include "simdriver/model.h"

static inline unsigned sim_stream_device(const struct sim_state *s, uint32_t stream)
{
    return s->contexts[s->streams[stream].context].device;
}

/* model.c: streams. */

/*
 * Whether any stream of the context runs, and the earliest end of a kernel, in the context's time:
 * INT64_MAX when they all wait for flags. Done when nobody gets on any more.
 */
bool sim_context_run(struct sim_state *s, uint32_t context, int64_t now_ns, int64_t *ret_earliest);
bool sim_stream_head_is_done(const struct sim_state *s, uint32_t stream);

/* model_device.c: the device's queue of contexts. */

void sim_context_queue(struct sim_state *s, uint32_t context);
void sim_context_unqueue(struct sim_state *s, uint32_t context);

/* model_wait.c: a stream waits for what its head, the op, says. */

bool sim_wait_is_over(const struct sim_state *s, const struct sim_op *op);
void sim_stream_block(struct sim_state *s, uint32_t stream, const struct sim_op *op);
void sim_stream_unblock(struct sim_state *s, uint32_t stream, uint32_t target);
/* After the target did an op: those whose wait is over can run. */
void sim_wake_waiters(struct sim_state *s, uint32_t target);

bool sim_value_is_there(const struct sim_state *s, const struct sim_op *op);
void sim_value_write(struct sim_state *s, const struct sim_op *op);
void sim_value_watch(struct sim_state *s, uint32_t stream, const struct sim_op *op);
void sim_value_unwatch(struct sim_state *s, uint32_t stream);
/* After it was written, a semaphore's in all its copies. */
void sim_wake_watchers(struct sim_state *s, uint32_t value);

/* All copies of a semaphore's counter are so much at least. After a wait for it is over: a binary
 * one is not signalled any more. */
void sim_semaphore_raise(struct sim_state *s, uint32_t value, uint64_t to);
void sim_semaphore_take(struct sim_state *s, const struct sim_op *op);

/* model_queue.c: a stream's head is held back by its hardware queue. */

/* Whether the head, which has not started, must let another stream's op go first. */
bool sim_stream_is_behind(const struct sim_state *s, uint32_t stream);
void sim_stream_hold(struct sim_state *s, uint32_t stream);
void sim_stream_unhold(struct sim_state *s, uint32_t stream);
