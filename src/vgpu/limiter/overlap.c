/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/overlap.h"

#include "base/util.h"

/* Of the sums, what the next measurement leaves. */
#define KEPT 0.98
#define KEPT_LONGER 0.995
/* So much longer than alone by chance, or for what the host does; and so much where the device is
 * filled, though those behind a measured one are held up by that. */
#define FREE_PART 0.6
#define FILLED_PART 0.85

static double length_of(struct interval interval)
{
    return MAX(interval.end_ms - interval.start_ms, 0.0);
}

static struct interval common(struct interval one, struct interval other)
{
    return (struct interval){MAX(one.start_ms, other.start_ms), MIN(one.end_ms, other.end_ms)};
}

double cover_open(const struct cover *cover, struct interval interval)
{
    double open_ms = length_of(interval);

    for (unsigned i = 0; i < OVERLAP_COVERS; i++)
        open_ms -= length_of(common(cover->list[i], interval));
    return MAX(open_ms, 0.0);
}

struct interval cover_rest(const struct cover *cover, struct interval interval)
{
    struct interval rest = interval;

    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        const struct interval *other = &cover->list[i];

        if (other->start_ms <= interval.start_ms)
            rest.start_ms = MAX(rest.start_ms, other->end_ms);
        if (other->end_ms >= interval.end_ms)
            rest.end_ms = MIN(rest.end_ms, other->start_ms);
    }
    return rest;
}

double cover_take(struct cover *cover, struct interval interval)
{
    double open_ms = cover_open(cover, interval);
    struct interval *oldest = &cover->list[0];

    if (interval.end_ms <= interval.start_ms)
        return 0;
    /* Those that it touches become one, so that nothing is counted twice. */
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        struct interval *other = &cover->list[i];

        if (other->end_ms <= other->start_ms || other->end_ms < interval.start_ms ||
            other->start_ms > interval.end_ms)
            continue;
        interval.start_ms = MIN(interval.start_ms, other->start_ms);
        interval.end_ms = MAX(interval.end_ms, other->end_ms);
        *other = (struct interval){0};
    }
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        if (cover->list[i].end_ms < oldest->end_ms)
            oldest = &cover->list[i];
    }
    *oldest = interval;
    return open_ms;
}

/* From when on the cover has nothing, and until when. */
static struct interval next_gap(const struct cover *cover, struct interval interval)
{
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        const struct interval *other = &cover->list[i];

        if (other->start_ms <= interval.start_ms && other->end_ms > interval.start_ms)
            return next_gap(cover, (struct interval){other->end_ms, interval.end_ms});
    }
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        if (cover->list[i].start_ms > interval.start_ms)
            interval.end_ms = MIN(interval.end_ms, cover->list[i].start_ms);
    }
    return interval;
}

double cover_take_beside(struct cover *cover, const struct cover *other, struct interval interval)
{
    struct interval gap = {interval.start_ms, interval.start_ms};
    double open_ms = 0;

    do {
        gap = next_gap(other, (struct interval){gap.end_ms, interval.end_ms});
        open_ms += cover_take(cover, gap);
    } while (gap.end_ms < interval.end_ms);
    return open_ms;
}

void cover_move(struct cover *cover, double later_ms)
{
    for (unsigned i = 0; i < OVERLAP_COVERS; i++) {
        cover->list[i].start_ms -= later_ms;
        cover->list[i].end_ms -= later_ms;
    }
}

void overlap_move(struct overlap *overlap, double later_ms)
{
    cover_move(&overlap->always, later_ms);
    cover_move(&overlap->shorts, later_ms);
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
