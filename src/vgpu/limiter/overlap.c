/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/overlap.h"

#include <string.h>

#include "base/util.h"

/* Of the sums, what the next measurement leaves. */
#define KEPT 0.98
#define KEPT_LONGER 0.995
/* So much longer than alone by chance, or for what the host does; and so much where the device is
 * filled, though those behind a measured one are held up by that. */
#define FREE_PART 0.6
#define FILLED_PART 0.85

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

void overlap_note_longer(struct overlap *overlap, double beside_ns, double longer_ns)
{
    overlap->beside_ns = overlap->beside_ns * KEPT_LONGER + beside_ns;
    overlap->longer_ns = overlap->longer_ns * KEPT_LONGER + longer_ns;
}

double overlap_filled(const struct overlap *overlap)
{
    double part = overlap->beside_ns > 0 ? overlap->longer_ns / overlap->beside_ns : 0;

    return MIN(MAX((part - FREE_PART) / (FILLED_PART - FREE_PART), 0.0), 1.0);
}

double overlap_factor(const struct overlap *overlap)
{
    return overlap->length_ns > 0 ? overlap->own_ns / overlap->length_ns : 1;
}
