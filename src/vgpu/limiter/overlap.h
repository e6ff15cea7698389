/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels on several streams run side by side, and a moment in which two of ours run is charged
 * once. Pure: no clock, no driver.
 *
 *   kernels that are measured each time: when they ran is remembered (the cover), and of a new one
 *   only that is charged in which no earlier one ran
 *
 *   kernels that are measured by lot: a moment is charged to that kernel of those that run which
 * was launched first. Marks in the other streams, recorded before the launch, say how long what was
 *   launched earlier still ran; from then on the time is the kernel's own
 *
 * A stream that is not done may wait instead, for a value or another device, and run nothing. So
 * for kernels that are measured each time only such marks count where what is before them has
 * begun, and others for no longer than was charged for short kernels. That so much of what is short
 * goes unpaid is seen in side.h, and then it is measured each time, too.
 */

#include <stdbool.h>

enum {
    OVERLAP_COVERS = 16,
};

/* On the device's clock, in ms since a moment that is the same for all. */
struct interval {
    double start_ms, end_ms;
};

struct overlap {
    struct interval cover[OVERLAP_COVERS];
    double length_ns, own_ns; /* moving sums over what was measured by lot; */
    double beside_ns; /* of it, of shapes of which is known what they take alone, beside others, */
    double longer_ns; /* and how much longer they took than alone */
};

/* The part of an interval that was not covered, in ms; covers it. */
double overlap_take(struct overlap *overlap, struct interval interval);

/* All times are against another moment from now on. */
void overlap_forget(struct overlap *overlap);

/* What was one kernel's own of its length. */
void overlap_note(struct overlap *overlap, double length_ns, double own_ns);

/* A kernel that ran beside others before it for so long, and took so much longer than alone. */
void overlap_note_longer(struct overlap *overlap, double beside_ns, double longer_ns);

/*
 * How far kernels fill the device, in 0..1. With 0 those that run side by side take no longer than
 * alone; with 1 as long together as one after the other: each runs for its share, among those
 * before it and those behind it, so that it takes longer by what it ran beside the former. What is
 * charged is the same in both, but for what our recording holds up, which then ran beside others
 * for less time.
 */
double overlap_filled(const struct overlap *overlap);

/* Of short kernels' lengths what is their own, in 0..1. */
double overlap_factor(const struct overlap *overlap);
