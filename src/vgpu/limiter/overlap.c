/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/overlap.h"

#include <string.h>

#include "base/util.h"

/* Of the sums, what the next measurement leaves. */
#define KEPT 0.98

double overlap_take(struct overlap *overlap, struct interval interval)
{
    double open_ms = interval.end_ms - interval.start_ms;
    struct interval *oldest = &overlap->cover[0];

    if (open_ms <= 0)
        return 0;
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        const struct interval *cover = &overlap->cover[i];
        double start_ms = MAX(cover->start_ms, interval.start_ms);
        double end_ms = MIN(cover->end_ms, interval.end_ms);

        if (end_ms > start_ms)
            open_ms -= end_ms - start_ms;
    }

    /* Those that it touches become one, so that nothing is counted twice. */
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        struct interval *cover = &overlap->cover[i];

        if (cover->end_ms <= cover->start_ms || cover->end_ms < interval.start_ms ||
            cover->start_ms > interval.end_ms)
            continue;
        interval.start_ms = MIN(interval.start_ms, cover->start_ms);
        interval.end_ms = MAX(interval.end_ms, cover->end_ms);
        *cover = (struct interval){0};
    }
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        if (overlap->cover[i].end_ms < oldest->end_ms)
            oldest = &overlap->cover[i];
    }
    *oldest = interval;
    return MAX(open_ms, 0.0);
}

void overlap_forget(struct overlap *overlap)
{
    memset(overlap->cover, 0, sizeof(overlap->cover));
}

void overlap_note(struct overlap *overlap, double length_ns, double own_ns)
{
    overlap->length_ns = overlap->length_ns * KEPT + length_ns;
    overlap->own_ns = overlap->own_ns * KEPT + own_ns;
}

double overlap_factor(const struct overlap *overlap)
{
    return overlap->length_ns > 0 ? overlap->own_ns / overlap->length_ns : 1;
}
