/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Priority among containers of a card (region/card.h). Who has others of another priority beside it
 * says with each launch until when it expects to have work; those of lower priority launch nothing
 * meanwhile. While it has none they launch, one after the other, but only so much that what is left
 * on the device when it comes is the kernel that runs and AHEAD_NS of others.
 */

#include "base/util.h"
#include "vgpu/limiter/internal.h"

/* On the device beside the kernel that is launched next: what a sleeping thread's timer is late
 * by, so that the device does not become idle meanwhile. */
#define AHEAD_NS INT64_C(50000)

/* Expectations are off; after so long the device is seen to have nothing left: sooner where it was
 * late, since others of the same priority have it in turn, and what is launched then piles up. */
#define CHECK_NS INT64_C(1000000)
#define CHECK_LEAST_NS INT64_C(200000)
#define CHECK_PAUSE_NS INT64_C(30000)
#define LATE_NS INT64_C(200000)         /* and a quarter: others had the card */
#define CHECK_MOST_NS INT64_C(10000000) /* it may be waiting for this very launch */

/* A pause that is as short as this, from a kernel's end to the next launch, is nobody else's. Of
 * longer ones a sixteenth is kept, and no more than that. */
#define PAUSE_NS INT64_C(100000)
#define PAUSE_PART 16
#define PAUSE_MEMORY 16 /* launches */

/* Who waits keeps his turn until his thread has looked again: its timer is late. */
#define WAKE_NS INT64_C(150000)

#define MORE_PART                                                                                  \
    32 /* of the work is claimed beyond what is expected: if it is not enough, the                 \
          other's next kernel gets a whole slice of the device */

static int64_t kept_pause_ns(const struct limiter *limiter)
{
    const double gap_ns = limiter->ahead.gap_ns;

    if (gap_ns <= (double)PAUSE_NS)
        return PAUSE_NS;
    return MIN((int64_t)(gap_ns / PAUSE_PART), PAUSE_NS);
}

void limiter_claim(struct limiter *limiter, int64_t now_ns)
{
    const int64_t until_ns = limiter->ahead.until_ns, since_ns = limiter->ahead.since_ns;

    if (until_ns > now_ns)
        card_claim(&limiter->share->card, now_ns, since_ns,
                   until_ns + (until_ns - since_ns) / MORE_PART + kept_pause_ns(limiter));
}

void limiter_claim_next(struct limiter *limiter, int64_t now_ns, int64_t until_ns)
{
    if (share_has_betters(limiter->share))
        card_claim(&limiter->share->card, now_ns, now_ns, until_ns + WAKE_NS);
}

/* Nothing was left of what was launched before. */
static void begin_work(struct limiter *limiter, int64_t now_ns)
{
    double gap_ns = (double)MIN(now_ns - limiter->ahead.until_ns, NS_PER_S);

    limiter->ahead.gap_ns += (gap_ns - limiter->ahead.gap_ns) / PAUSE_MEMORY;
    limiter->ahead.since_ns = limiter->ahead.until_ns = now_ns;
}

void limiter_expect(struct limiter *limiter, double price_ns, int64_t now_ns)
{
    if (!share_is_ranked(limiter->share))
        return;
    if (now_ns >= limiter->ahead.until_ns)
        begin_work(limiter, now_ns);
    limiter->ahead.until_ns += (int64_t)price_ns;
    limiter->ahead.expected_ns += price_ns;
    limiter_claim(limiter, now_ns);
}

static bool is_idle(struct limiter *limiter, const struct launch *launch)
{
    struct launch others[STREAMS];
    unsigned count = limiter_beside(limiter, launch, 0, others);

    for (unsigned i = 0; i < count; i++) {
        if (!limiter->ops->is_idle(limiter->gpu, &others[i]))
            return false;
    }
    return limiter->ops->is_idle(limiter->gpu, launch);
}

/*
 * After others had the card, or seem to: one launch at a time, until one is done as soon as it is
 * expected to be. Who launches more while the other still has work gets a slice of the device for
 * it, and holds the other up.
 */
static bool goes_alone(struct limiter *limiter, const struct launch *launch, int64_t now_ns,
                       int64_t *ret_until_ns)
{
    const int64_t late_ns = now_ns - limiter->ahead.until_ns;
    bool late;

    if (limiter->ahead.until_ns > now_ns) {
        *ret_until_ns = limiter->ahead.until_ns;
        return false;
    }
    if (!is_idle(limiter, launch)) {
        *ret_until_ns = now_ns + CHECK_PAUSE_NS;
        return false;
    }
    limiter->ahead.checked_ns = now_ns;
    limiter->ahead.patience_ns = 0;
    late = late_ns > LATE_NS + (int64_t)(limiter->ahead.expected_ns / 4);
    limiter->ahead.check_ns =
        late ? CHECK_LEAST_NS : MIN(4 * MAX(limiter->ahead.check_ns, CHECK_LEAST_NS), CHECK_NS);
    limiter->ahead.alone = late || limiter->ahead.expected_ns == 0;
    limiter->ahead.expected_ns = 0;
    return true;
}

/* What runs may be waiting for this very launch: it goes in the end, and the next one later. */
static bool is_patient(struct limiter *limiter, struct waiting *waiting, int64_t now_ns)
{
    int64_t *patience_ns = &limiter->ahead.patience_ns;

    if (!waiting->completion_until_ns) {
        *patience_ns = MAX(*patience_ns, CHECK_MOST_NS);
        waiting->completion_until_ns = MAX(now_ns, limiter->ahead.until_ns) + *patience_ns;
    }
    if (now_ns < waiting->completion_until_ns)
        return true;
    *patience_ns = MIN(*patience_ns * 4, NS_PER_S);
    return false;
}

bool limiter_is_short(struct limiter *limiter, const struct launch *launch, const struct cost *cost,
                      struct waiting *waiting, int64_t now_ns, int64_t *ret_until_ns)
{
    const bool unknown = !cost->measured && cost->unseen;

    if (!is_patient(limiter, waiting, now_ns))
        return true;
    if (unknown || limiter->ahead.alone ||
        now_ns - limiter->ahead.checked_ns >= limiter->ahead.check_ns)
        return goes_alone(limiter, launch, now_ns, ret_until_ns);
    *ret_until_ns = limiter->ahead.until_ns - AHEAD_NS;
    return limiter->ahead.until_ns - now_ns <= AHEAD_NS;
}

void limiter_was_held(struct limiter *limiter, struct waiting *waiting)
{
    limiter->ahead.alone = true;
    limiter->ahead.expected_ns = 0;
    waiting->completion_until_ns = 0;
}
