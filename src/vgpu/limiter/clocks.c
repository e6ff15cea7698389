/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/clocks.h"

#include <math.h>

#include "base/util.h"

/* What is done is seen so much later at the best: a thread wakes, and asks. */
#define SEEN_NS 20e3

/* As many bounds that are hardly apart are no chance; for so long. */
#define SURE 3
#define SURE_NS NS_PER_S

/* What slopes of the promptest probes, one span after the other, may differ by; as many make a
 * drift, which chance hardly does; and what no clock does. */
#define SLOPES_ALIKE 20e-6
#define SLOPES_AGREE 2
#define DRIFT_MOST 0.1

/* A bound that is better by so much than what is left of the former one: they agree where they are
 * hardly apart. */
static void note_bound(struct clocks_bound *bound, double better_ns, double ahead_ns,
                       double apart_ns, int64_t now_ns)
{
    if (!bound->is_known || better_ns > apart_ns || now_ns - bound->agreed_at_ns > SURE_NS)
        bound->agreed = 0;
    if (!bound->is_known || better_ns > -apart_ns) {
        bound->agreed++;
        bound->agreed_at_ns = now_ns;
    }
    if (!bound->is_known || better_ns > 0)
        bound->ahead_ns = ahead_ns;
    bound->is_known = true;
    bound->at_ns = now_ns;
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

double clocks_late_ns(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns)
{
    const double ahead_ns = device_ns - host_ns;
    double late_ns;

    if (clocks->most.is_known)
        clocks->most.ahead_ns +=
            (CLOCKS_DRIFT + clocks->drift.part) * (double)(now_ns - clocks->most.at_ns);
    learn_drift(clocks, ahead_ns, now_ns);
    if (!clocks->most.is_known)
        clocks->most = (struct clocks_bound){.is_known = true,
                                             .ahead_ns = CLOCKS_DRIFT * host_ns + CLOCKS_PROMPT_NS};
    note_bound(&clocks->most, clocks->most.ahead_ns - ahead_ns, ahead_ns, CLOCKS_PROMPT_NS, now_ns);
    late_ns = ahead_ns - clocks->most.ahead_ns;
    return late_ns < CLOCKS_PROMPT_NS ? 0 : late_ns;
}

void clocks_note_seen(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns)
{
    const double ahead_ns = device_ns - host_ns;

    if (clocks->least.is_known)
        clocks->least.ahead_ns +=
            (clocks->drift.part - CLOCKS_DRIFT) * (double)(now_ns - clocks->least.at_ns);
    note_bound(&clocks->least, ahead_ns - clocks->least.ahead_ns, ahead_ns, SEEN_NS, now_ns);
}

void clocks_move(struct clocks *clocks, double device_ns, double host_ns)
{
    clocks->most.ahead_ns += host_ns - device_ns;
    clocks->least.ahead_ns += host_ns - device_ns;
    clocks->drift.since_ns = 0;
    clocks->drift.before_at_ns = 0;
}

static double ahead_ns(const struct clocks *clocks)
{
    if (clocks->most.agreed >= SURE || clocks->least.agreed < SURE)
        return clocks->most.ahead_ns;
    /* Where the bounds contradict, they drift faster than is known, and this one is newer. */
    if (clocks->least.ahead_ns > clocks->most.ahead_ns)
        return clocks->least.ahead_ns + SEEN_NS;
    return MIN(clocks->most.ahead_ns, clocks->least.ahead_ns + SEEN_NS);
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
