/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a simulated GPU does with its time. All under the machine's lock.
 *
 * Streams are FIFO. The heads of all streams of a context run together, each at full speed while
 * they fill no more multiprocessors than there are, else all slowed alike. One context has the GPU
 * at a time; the others that have work wait in a queue, and a slice later the next one gets it. A
 * context without work gives its slice up at once. Kernels stop and go on at the ends of slices. An
 * event's record, and a wait that is over, take no time, but like a kernel they are reached only
 * when they head their stream and their context has the GPU; but the record of an event without a
 * time is done at once in a stream that has nothing else to do.
 *
 * While others wait the device looks after the context on it as long as a kernel waits behind one
 * that runs. Once none does the device turns from it: what is enqueued in the context from then on
 * it sees as the context's next slice begins.
 *
 * A context's streams are dealt out to its hardware queues in turn. Streams of one queue start
 * their ops in the order in which these were enqueued: one that can't start yet, as it waits for
 * another stream or for the op before it, holds up the other streams behind it.
 *
 * A kernel may wait for a flag, which another one posts: it runs, and takes its part of the
 * multiprocessors, until then. A stream may wait for a value, which another one writes: it takes
 * nothing meanwhile.
 *
 * Nothing runs by itself: whoever looks moves the device on from its last moment to now. Each op
 * costs one step and one pass over the context's running streams, each slice one step while two
 * contexts compete, idle time nothing.
 *
 * A context's own clock advances by the work that each of its kernels got done; so a kernel's end
 * is one number, fixed when it comes to the head of its stream, whatever happens to the others.
 */

#include "simdriver/state.h"

#define SIM_WORK_SCALE 1024 /* units of a context's clock in a nanosecond */

/* One device, and all when a stream of one waits for another's. */
void sim_advance(struct sim_state *s, unsigned device, int64_t now_ns);
void sim_advance_all(struct sim_state *s, int64_t now_ns);

/* Ops that wait or run, and the first of them. */
static inline uint64_t sim_stream_pending(const struct sim_stream *stream)
{
    return stream->tail - stream->head;
}

static inline const struct sim_op *sim_stream_head(const struct sim_state *s, uint32_t stream)
{
    return &s->rings[stream][s->streams[stream].head % SIM_RING];
}

/* Whether the device sees the stream's op at its context's next slice only. */
static inline bool sim_op_is_late(const struct sim_state *s, uint32_t stream, uint64_t seq)
{
    uint64_t seen = s->contexts[s->streams[stream].context].seen;

    return seen && s->rings[stream][seq % SIM_RING].order > seen;
}

/* The number of a word of a process' memory that ops may wait for and write; -1: there are too
 * many. It stays until the process ends. */
int sim_value_at(struct sim_state *s, uint64_t program, uint64_t address);

/*
 * Appends an op, after what the legacy stream's order implies. The stream has less than SIM_DEPTH
 * pending and its device is at now. op->order is filled in.
 */
void sim_enqueue(struct sim_state *s, uint32_t stream, struct sim_op *op);

/* Appends to the legacy stream waits for all blocking streams of its context. */
void sim_join_legacy(struct sim_state *s, uint32_t legacy);

/*
 * No earlier than the returned time, and in most cases just then, will the stream have done seq
 * ops, of which work_ns (of all that was ever enqueued) is the work.
 */
int64_t sim_estimate(const struct sim_state *s, uint32_t stream, uint64_t seq, int64_t work_ns);

/* Used by the pools: takes a stream, a context off the device, whatever they hold. */
void sim_stream_detach(struct sim_state *s, uint32_t stream);
void sim_context_detach(struct sim_state *s, uint32_t context);

/* How many of a stream's waits are for a stream of another device. */
uint32_t sim_stream_crossing(const struct sim_state *s, uint32_t stream);

/* Of the stream's hardware queue, the stream whose op is the next to start; 0: none. */
uint32_t sim_queue_front(const struct sim_state *s, uint32_t stream);

/* Whether the stream's head is a kernel that has nothing left to do but to wait for its flag. */
bool sim_stream_spins(const struct sim_state *s, uint32_t stream);

/* Looks at the stream's head again after it changed. */
void sim_stream_settle(struct sim_state *s, uint32_t stream);
