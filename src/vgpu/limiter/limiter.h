/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Holding a container to its share of a device's time.
 *
 * Each launch is charged its cost, as measured for its function and shape, to the bucket that the
 * container's processes share (region/bucket.h). It waits while the bucket is in debt. The parts,
 * each the only one that writes its state:
 *
 *   clocks.h    the device's clock against the host's
 *   costs.h     what launches cost, and how often they have to be measured
 *   gang.h      devices that wait for one another
 *   lot.h       drawing which ones are
 *   overlap.h   our streams side by side: no moment is charged twice
 *   presence.h  slices of others within a measurement
 *   share.h     what the process, and its container, may use
 *   samples.h   measurements on their way: pairs of events around a launch
 *   side.h      whether what runs in several streams is paid for
 *   streams.h   which streams are in use
 *   tails.h     streams that are busy with what nobody measured
 *   limiter.h   when a launch may go, and what it pays
 *
 * All waiting is before a launch, and never for the launch's own unfinished work: that may be
 * waiting for this very launch, as kernels that exchange data do. A launch waits
 *
 *   - while the bucket is in debt (gate), or that of a device which is bound to this one
 *     (gang.h), or another process of the container was served less (region/turns.h), unless it
 *     fits beside a kernel of ours that is running anyway (gate.c), and but for CREDIT_NS where a
 *     kernel of ours runs longer than was expected, and for PATIENCE_NS where a stream of ours is
 *     busy with what was not measured;
 *   - while more than OUTSTANDING_NS of charged work may be in queues, or a first launch is being
 *     measured, but for COMPLETION_NS at most; where it can't be measured at all, for FULL_NS, and
 *     then it is refused.
 *
 *   - while a container of higher priority has work on the card; and while such a one is about,
 *     until little of what was launched is left, lest it waits for a queue (rank.c).
 *
 * No clock, no driver: time and events come through struct limiter_gpu, so that a test can step
 * them (limiter_trace_test.c). No system call, but that a launch which is held reads the other
 * containers' cells of the card (region/card.h). A limiter belongs to a context of the process and
 * is used under its owner's lock, which is never held while waiting.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"
#include "vgpu/limiter/clocks.h"
#include "vgpu/limiter/costs.h"
#include "vgpu/limiter/gang.h"
#include "vgpu/limiter/launch.h"
#include "vgpu/limiter/lot.h"
#include "vgpu/limiter/overlap.h"
#include "vgpu/limiter/presence.h"
#include "vgpu/limiter/samples.h"
#include "vgpu/limiter/share.h"
#include "vgpu/limiter/side.h"
#include "vgpu/limiter/streams.h"
#include "vgpu/limiter/tails.h"

/* From limiter_begin() to limiter_end(). */
struct ticket {
    struct sample *sample; /* NULL: nothing to be measured */
    int64_t paid_ns;
    int64_t recorded_ns;
    int64_t called_ns; /* host clock, right before the driver's call */

    /* Right after the call, by limiter_returned(): */
    int64_t returned_ns;   /* host clock */
    int64_t end_took_ns;   /* host time that recording the end took */
    bool was_on, was_over; /* the start had run; all in its stream was done */
    bool is_recorded;      /* the end is */
};

/* A thread's own credit, and the costs that it has seen: what makes an ordinary launch cheap. */
enum {
    LAUNCH_CACHE = 64,
    LAUNCH_STREAMS = 32,
    LAUNCH_STREAM_TRIES = 4,
};

struct launch_cache {
    unsigned epoch;      /* of the contexts; 0: empty */
    unsigned generation; /* of the limiter's costs */
    struct limiter *limiter;
    double credit_ns;    /* paid, and not launched for yet */
    double advance_ns;   /* paid at once, the next time; it grows */
    struct share *share; /* that the credit was paid from */
    double risk_ns;      /* until the next measurement: see lot.h */
    unsigned launches;   /* since the limiter last saw this thread */
    int uncounted;       /* without a limit: launches that one of them stands for */
    struct {
        const void *function;
        uint32_t grid[3];
        uint32_t block[3];
        double cost_ns, risk_ns;
    } costs[LAUNCH_CACHE];
    uint64_t streams[LAUNCH_STREAMS]; /* launch_stream_key() of those known; 0: none */
    unsigned next_stream;             /* the try whose place the next one gets, if all are taken */
    bool is_hidden;                   /* it launches into streams that can't be looked at */
};

static inline uint64_t launch_stream_key(const struct launch *launch)
{
    return ((uint64_t)(uintptr_t)launch->stream << 1 | launch->per_thread) + 1;
}

/* Where the i-th try finds it. */
static inline unsigned launch_stream_slot(uint64_t key, unsigned i)
{
    return ((unsigned)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 59) + i) % LAUNCH_STREAMS;
}

/* Whether the launch's stream is known to the limiter. */
static inline __attribute__((always_inline)) bool
launch_cache_knows_stream(const struct launch_cache *cache, const struct launch *launch)
{
    uint64_t key = launch_stream_key(launch);

    for (unsigned i = 0; i < LAUNCH_STREAM_TRIES; i++) {
        if (cache->streams[launch_stream_slot(key, i)] == key)
            return true;
    }
    return false;
}

static inline unsigned launch_cache_slot(const struct launch *launch)
{
    uint64_t hash = (uint64_t)(uintptr_t)launch->function + launch->grid[0] * 31u +
                    launch->grid[1] * 17u + launch->block[0];

    return (unsigned)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

_Static_assert(LAUNCH_CACHE == 64 && LAUNCH_STREAMS == 32, "six and five bits of the hashes");

static inline bool launch_cache_has(const struct launch_cache *cache, unsigned at,
                                    const struct launch *launch)
{
    return cache->costs[at].function == launch->function &&
           cache->costs[at].grid[0] == launch->grid[0] &&
           cache->costs[at].grid[1] == launch->grid[1] &&
           cache->costs[at].grid[2] == launch->grid[2] &&
           cache->costs[at].block[0] == launch->block[0] &&
           cache->costs[at].block[1] == launch->block[1] &&
           cache->costs[at].block[2] == launch->block[2];
}

/* Pays for a launch that needs neither to wait nor to be measured: the fast way. The caller has
 * seen to it that the cache is that of the launch's context. */
static inline __attribute__((always_inline)) bool launch_cache_pays(struct launch_cache *cache,
                                                                    const struct launch *launch)
{
    unsigned at = launch_cache_slot(launch);

    if (!launch_cache_knows_stream(cache, launch) || !launch_cache_has(cache, at, launch) ||
        cache->credit_ns < cache->costs[at].cost_ns || cache->risk_ns < cache->costs[at].risk_ns)
        return false;
    cache->credit_ns -= cache->costs[at].cost_ns;
    cache->risk_ns -= cache->costs[at].risk_ns;
    cache->launches++;
    return true;
}

/* One launch's wait; zero before the first limiter_may_go(). */
struct waiting {
    int64_t entered_ns; /* 0: it had to wait since */
    int64_t since_ns;   /* when it was asked first */
    bool on_credit;
    bool rides;                  /* it goes beside a kernel that runs anyway */
    int64_t completion_until_ns; /* waits for completions no longer */
};

struct limiter {
    const struct limiter_gpu *ops;
    void *gpu;
    struct share *share;
    struct region_compute *compute; /* the container's, of the device */

    _Atomic unsigned generation; /* of the costs: caches of another are stale */
    struct costs costs;
    struct samples samples;
    struct overlap overlap;
    struct clocks clocks;
    struct presence presence;
    struct lot lot;
    struct streams streams;
    struct tails tails;
    struct side side;
    struct gang_wait wait;

    bool draws_lots;    /* some launches are not measured: any may be missed */
    bool rests;         /* nobody looks until the next launch comes by */
    double doubt_ns;    /* as the caches have it: what streams were busy with, unseen, of late */
    int64_t charged_ns; /* to this process, in all */
    int64_t told_ns;    /* the most of that since those who wait were woken */
    double shorts_ns;   /* charged for what is not measured each time, and long kernels not spared
                           for it yet */
    int64_t issued_ns;  /* charged by this process */
    int64_t done_ns;    /* of it, known to be done */
    int64_t owed_ns;    /* of what is not, as it was published last */
    double uncounted;   /* launches that are counted, and which the next measurement stands for */
    int64_t last_launch_ns;
    int64_t drawn_ns;  /* when a launch was last let go that need not be measured, */
    int64_t long_ns;   /* or one whose kernel may outlast a slice */
    int64_t held_ns;   /* when a launch was last held for its share or its turn */
    int64_t record_ns; /* what recording an event takes the host, at the least; 0: not known yet */
    int64_t wait_ns;   /* what waiting for an empty stream takes; 0: not known yet */

    struct {
        int64_t due_ns; /* when a launch may go although a kernel of ours is overdue; 0: none is */
        int64_t gap_ns;
        int64_t behind_due_ns;                /* and one behind it, in its own stream; */
        int64_t behind_gap_ns;                /* of what may be long */
        unsigned behind;                      /* that went so since nothing was owed */
        int64_t unseen_due_ns, unseen_gap_ns; /* the same where what runs was not measured */
        int64_t ranked_ns; /* charged when no other of higher priority had used the card lately */
    } credit;

    struct {
        double length_ns, charged_ns; /* moving sums over those that went beside a kernel */
        int64_t noted_ns;
    } rides;

    struct {
        double mean_ns; /* of wall time, a launch */
        unsigned launches;
        int64_t since_ns;
    } pace;

    struct {
        int64_t until_ns;    /* what was launched is expected to be done then: see rank.c */
        int64_t since_ns;    /* when the first of it was launched */
        int64_t checked_ns;  /* nothing was left of it then */
        int64_t check_ns;    /* until the next check */
        int64_t patience_ns; /* with what does not end */
        double expected_ns;  /* launched since */
        bool alone;          /* one launch at a time */
        double gap_ns;       /* mean, until the next launch */
    } ahead;

    struct {
        bool out;
        bool counts; /* recorded at a random moment, not to see when a slice begins */
        enum probe_work work;
        bool late;  /* found off the device, and not answered yet */
        bool stale; /* recorded before the base was */
        int64_t due_ns;
        int64_t recorded_ns;
        int64_t asked_ns; /* it was not done yet then */
        int64_t took_ns;  /* the host, to record it */
    } probe;
};

/* A limiter in zeroed memory. What the pointers point to must outlive it. The seed is any number.
 */
void limiter_init(struct limiter *limiter, const struct limiter_gpu *ops, void *gpu,
                  struct share *share, uint64_t seed);

/*
 * Whether a launch may go now. If not, it is asked again at until_ns, or when the bucket wakes
 * those who wait.
 */
bool limiter_may_go(struct limiter *limiter, const struct launch_cache *cache,
                    const struct launch *launch, struct waiting *waiting, int64_t *ret_until_ns);

/* Charges a launch that may go; begins its measurement if it is to be measured. False when it is
 * and can't be, for all places are taken: then it must not go. */
bool limiter_begin(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   const struct waiting *waiting, struct ticket *ticket);

/* After limiter_begin(): what was launched began before that, and runs. Its end is not recorded. */
void limiter_began(struct limiter *limiter, const struct ticket *ticket, int64_t since_ns);

/* Where nothing is limited: measures a launch that stands for as many, for those who read. */
void limiter_count(struct limiter *limiter, struct launch_cache *cache, const struct launch *launch,
                   unsigned launches, struct ticket *ticket);

/*
 * Around the driver's call, as close to it as can be, where the launch is measured. Neither waits
 * for the limiter's lock, which others may hold for long: they touch nothing but the ticket and the
 * driver's events. The caller sees to it that the context does not end in limiter_returned().
 */
void limiter_calls(const struct limiter *limiter, struct ticket *ticket);
void limiter_returned(const struct limiter *limiter, const struct launch *launch,
                      struct ticket *ticket);

/* After the driver's call, and limiter_returned(). A launch that failed is given back. */
void limiter_end(struct limiter *limiter, const struct ticket *ticket, bool launched);

/* Whether there is anything to look after: measurements on their way, streams that are busy, or
 * launches of late. Changes nothing. */
bool limiter_is_busy(const struct limiter *limiter, int64_t now_ns);

/* At each tick: whether the helper thread rests, or looks after the limiter. Where it begins to
 * rest, caches go stale, so that each thread's next launch comes by. */
void limiter_rest(struct limiter *limiter, bool rests);

/* Takes in measurements that are done. */
void limiter_poll(struct limiter *limiter);

/* At each tick, at a moment that the program does not choose: whether its streams are busy with
 * what nobody paid for. */
void limiter_look(struct limiter *limiter);

/* When the next tick is due, on the host's clock: soon while a kernel of ours runs beside others,
 * no longer than they have the device, lest a slice of ours begins unseen; and as a probe is. */
int64_t limiter_due_ns(struct limiter *limiter);

/*
 * One look at whether the context is on the device, when it is due (probe.due_ns): records the
 * probe; if true, limiter_probe_answer() must follow after LIMITER_ANSWER_NS.
 */
#define LIMITER_ANSWER_NS 30000
bool limiter_probe(struct limiter *limiter);
void limiter_probe_answer(struct limiter *limiter);

/* A thread ends: what it paid and did not launch for is given back. The limiter is its cache's. */
void limiter_end_thread(struct limiter *limiter, struct launch_cache *cache);

/* Whether a launch into the stream is under way that is measured. */
bool limiter_launches_into(const struct limiter *limiter, const void *stream);

/* Before a stream ends. */
void limiter_forget_stream(struct limiter *limiter, const void *stream);

/* Takes in all measurements that are done: before the context ends. */
void limiter_settle(struct limiter *limiter);

/* Whatever was on its way is lost: the context is gone. What ran until now stays charged. */
void limiter_abandon(struct limiter *limiter);
