/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/side.h"

#include "base/util.h"

/* Between two looks nothing is known of a longer time. */
#define STALE_NS (20 * NS_PER_MS)

/* So much, and a sixth of what was charged, may be chance: gaps between kernels, and what was
 * charged before it ran or after. (A quarter let 65 of 60 % pass beside a stream that waits.) */
#define CHANCE_NS 50e6
#define CHANCE_PART 1.18

/* So much may be chance, and what is paid for before it runs; beyond it, so much is full doubt. */
#define DOUBT_LEAST_NS 50e6
#define DOUBT_NS 100e6
#define DOUBT_PART 1.06 /* of what was busy: chance would add up */
#define ALONE 0.99      /* of the time on the device */

double side_doubt(const struct side *side)
{
    return MAX(side->doubt_ns - DOUBT_LEAST_NS, 0.0) / DOUBT_NS;
}

double side_look(struct side *side, bool busy, int64_t charged_ns, double on_device, double sure,
                 int64_t now_ns)
{
    const int64_t passed_ns = now_ns - side->looked_ns;
    const bool is_known = side->looked_ns && passed_ns < STALE_NS;
    const double busy_ns = (double)passed_ns * on_device * (side->was_busy + busy) / 2;
    const double paid_ns = (double)(charged_ns - side->charged_ns);
    double open_ns = side->open_ns;

    if (is_known && on_device > ALONE)
        side->doubt_ns = MIN(MAX(side->doubt_ns + paid_ns - DOUBT_PART * busy_ns, 0.0),
                             DOUBT_LEAST_NS + DOUBT_NS);
    if (is_known)
        open_ns = MAX(open_ns + busy_ns * sure - CHANCE_PART * paid_ns, -CHANCE_NS);
    *side =
        (struct side){now_ns, charged_ns, busy, open_ns < CHANCE_NS ? open_ns : 0, side->doubt_ns};
    return open_ns < CHANCE_NS ? 0 : open_ns;
}
