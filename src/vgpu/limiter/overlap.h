/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels on several streams run side by side, and a moment in which two of ours run is charged
 * once. Pure: no clock, no driver.
 *
 *   kernels that are measured each time: when they ran is remembered (a cover), and of a new one
 *   only that is charged in which no earlier one ran
 *
 *   kernels that are measured by lot: a moment is charged to that kernel of those that are not done
 * which was launched first. Marks in the other streams, recorded before the launch, say how long
 *   what was launched earlier was not done; from then on the time is the kernel's own
 *
 * What is not done need not run: beside other contexts it may wait for our next slice (presence.h).
 * But then nothing else of ours begins meanwhile.
 *
 * A stream may also wait, for a value or another device, and run nothing. So for kernels that are
 * measured each time only such marks count where what is before them has begun, and others for no
 * more moments than were charged for short kernels, each for all that ran in it. That so much of
 * what is short goes unpaid is seen in side.h, and then it is measured each time, too.
 */

#include <stdbool.h>

enum {
    OVERLAP_COVERS = 16,
};

/* On the device's clock, in ms since a moment that is the same for all. */
struct interval {
    double start_ms, end_ms;
};

struct cover {
    struct interval list[OVERLAP_COVERS]; /* the latest; they don't touch */
};

/* The part of an interval that is not covered, in ms; 0 of one that ends before it starts. */
double cover_open(const struct cover *cover, struct interval interval);
/* An interval without what is covered of its beginning and its end; it may be empty. */
struct interval cover_rest(const struct cover *cover, struct interval interval);
/* As cover_open(); covers it. */
double cover_take(struct cover *cover, struct interval interval);
/* As cover_take() but for what another cover has of it. */
double cover_take_beside(struct cover *cover, const struct cover *other, struct interval interval);
/* Its times are against a moment from now on that is so much later. */
void cover_move(struct cover *cover, double later_ms);

struct overlap {
    struct cover always;      /* in which kernels ran that are measured each time; */
    struct cover shorts;      /* moments of such that were charged for short kernels beside them; */
    double length_ns, own_ns; /* moving sums over what was measured by lot; */
    double beside_ns; /* of it, of shapes of which is known what they take alone, beside others, */
    double longer_ns; /* and how much longer they took than alone */
};

/* All times are against a moment from now on that is so much later. */
void overlap_move(struct overlap *overlap, double later_ms);

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
