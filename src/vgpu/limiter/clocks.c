/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/clocks.h"

#include <math.h>

#include "base/util.h"

/* What is done is seen so much later at the best: a thread wakes, and asks. */
#define SEEN_NS 20e3
/* Until then the host may not be told of it. */
#define TELLING_NS 20e3

/* Of so many in a span one is seen soon. */
#define SEEN_LEAST 4

/* As many bounds that are hardly apart are no chance; for so long. */
#define SURE 3
#define SURE_NS NS_PER_S

/* What slopes of the promptest probes, one span after the other, may differ by; as many make a
 * drift, which chance hardly does; and what no clock does. */
#define SLOPES_ALIKE 20e-6
#define SLOPES_AGREE 2
#define DRIFT_MOST 0.1

/* A probe bounds better by so much than what is left of the former bound: they agree where they are
 * hardly apart. */
static void note_prompt(struct clocks *clocks, double better_ns, int64_t now_ns)
{
    if (better_ns > CLOCKS_PROMPT_NS || now_ns - clocks->most.agreed_at_ns > SURE_NS)
        clocks->most.agreed = 0;
    if (better_ns > -CLOCKS_PROMPT_NS) {
        clocks->most.agreed++;
        clocks->most.agreed_at_ns = now_ns;
    }
    clocks->most.ahead_ns -= MAX(better_ns, 0.0);
}

/* True when it is sure how far the clocks are apart: prompt is what was so in this span. */
static bool end_span(struct clocks *clocks)
{
    double slope = (clocks->drift.ahead_ns - clocks->drift.before_ns) /
                   (clocks->drift.ahead_at_ns - clocks->drift.before_at_ns);
    bool alike = fabs(slope - clocks->drift.slope) < SLOPES_ALIKE && fabs(slope) < DRIFT_MOST;

    clocks->drift.agreed = alike && clocks->drift.before_at_ns > 0 ? clocks->drift.agreed + 1 : 0;
    clocks->drift.slope = slope;
    clocks->drift.before_ns = clocks->drift.ahead_ns;
    clocks->drift.before_at_ns = clocks->drift.ahead_at_ns;
    if (clocks->drift.agreed < SLOPES_AGREE)
        return false;
    clocks->drift.part = slope;
    return true;
}

static void learn_drift(struct clocks *clocks, double ahead_ns, int64_t now_ns)
{
    const double at_ns = (double)now_ns;
    const bool is_over = now_ns - clocks->drift.since_ns >= CLOCKS_SPAN_NS;

    if (clocks->drift.since_ns && is_over && end_span(clocks))
        clocks->most.ahead_ns =
            MAX(clocks->most.ahead_ns,
                clocks->drift.ahead_ns + clocks->drift.part * (at_ns - clocks->drift.ahead_at_ns));
    if (!clocks->drift.since_ns || is_over)
        clocks->drift.since_ns = now_ns;
    else if (ahead_ns >= clocks->drift.ahead_ns)
        return;
    clocks->drift.ahead_ns = ahead_ns;
    clocks->drift.ahead_at_ns = at_ns;
}

/* To another moment. */
static void move_most(struct clocks *clocks, double host_ns, int64_t now_ns)
{
    if (!clocks->most.is_known)
        clocks->most.ahead_ns = CLOCKS_DRIFT * host_ns + CLOCKS_PROMPT_NS;
    else
        clocks->most.ahead_ns +=
            (CLOCKS_DRIFT + clocks->drift.part) * (double)(now_ns - clocks->most.at_ns);
    clocks->most.is_known = true;
    clocks->most.at_ns = now_ns;
}

double clocks_late_ns(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns)
{
    const double ahead_ns = device_ns - host_ns;
    double late_ns;

    move_most(clocks, host_ns, now_ns);
    learn_drift(clocks, ahead_ns, now_ns);
    note_prompt(clocks, clocks->most.ahead_ns - ahead_ns, now_ns);
    late_ns = ahead_ns - clocks->most.ahead_ns;
    return late_ns < CLOCKS_PROMPT_NS ? 0 : late_ns;
}

void clocks_note_unseen(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns)
{
    move_most(clocks, host_ns, now_ns);
    if (clocks->most.agreed < SURE)
        clocks->most.ahead_ns = MIN(clocks->most.ahead_ns, device_ns - host_ns + TELLING_NS);
}

void clocks_note_seen(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns)
{
    const double ahead_ns = device_ns - host_ns;
    struct clocks_seen *seen = &clocks->seen;

    if (now_ns - seen->since_ns >= CLOCKS_SPAN_NS) {
        seen->before =
            now_ns - seen->since_ns < 2 * CLOCKS_SPAN_NS ? seen->now : (struct clocks_span){0};
        seen->now = (struct clocks_span){0};
        seen->since_ns = now_ns;
    }
    if (!seen->now.count++ || ahead_ns > seen->now.ahead_ns)
        seen->now.ahead_ns = ahead_ns;
}

void clocks_move(struct clocks *clocks, double device_ns, double host_ns)
{
    clocks->most.ahead_ns += host_ns - device_ns;
    clocks->seen.now.ahead_ns += host_ns - device_ns;
    clocks->seen.before.ahead_ns += host_ns - device_ns;
    clocks->drift.since_ns = 0;
    clocks->drift.before_at_ns = 0;
}

static double ahead_ns(const struct clocks *clocks)
{
    const struct clocks_span *now = &clocks->seen.now, *before = &clocks->seen.before;
    double seen_ns;

    if (clocks->most.agreed >= SURE || before->count < SEEN_LEAST)
        return clocks->most.ahead_ns;
    seen_ns = now->count ? MAX(now->ahead_ns, before->ahead_ns) : before->ahead_ns;
    /* Where the bounds contradict, they drift faster than is known, and this one is newer. */
    return seen_ns > clocks->most.ahead_ns ? seen_ns + SEEN_NS
                                           : MIN(clocks->most.ahead_ns, seen_ns + SEEN_NS);
}

double clocks_device_ns(const struct clocks *clocks, double host_ns)
{
    return clocks->most.is_known ? host_ns + ahead_ns(clocks) : 1e30;
}

double clocks_guess_ns(const struct clocks *clocks, double host_ns)
{
    return clocks->most.is_known ? host_ns + ahead_ns(clocks) : host_ns;
}

double clocks_host_ns(const struct clocks *clocks, double device_ns)
{
    return clocks->most.is_known ? device_ns - ahead_ns(clocks) : -1e15;
}
