/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What launches cost, by function and shape: what is expected of the next one, and how often it has
 * to be measured. Pure: no clock, no driver.
 *
 * A launch is charged its shape's mean. Whether it is measured is drawn by lot, so that a program
 * can't foresee it; what a measurement differs from the charge is then charged in the name of all
 * launches that the lot passed over, by one over the lot's chance. What is charged is therefore
 * right on average whatever decides how long a kernel runs (its parameters, the data, the program's
 * malice); the model only keeps the corrections small. The chance of a shape grows with the root
 * mean square of what it took, which for a given number of measurements makes the sum of the
 * corrections vary least (Neyman's allocation). From COSTS_ALWAYS_NS on every launch is measured.
 *
 * Where launches come seldom each is measured (limiter.c, PACE_PART).
 *
 * A shape whose kernels differ much in length is measured more often still where launches are held
 * for their share and come so seldom that this costs little (cost_skew_ns()): else what is charged
 * is off by a point or more by chance.
 *
 * Until a shape was measured often, its root mean square says little of kernels that are seldom and
 * long: the first one that is measured would be charged for many more launches than there were. So
 * the chance falls with the number of measurements n, as 16/n, until that is 512: of the first m
 * launches the square root of 32 m are measured, up to some 8,000 launches.
 */

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/limiter/launch.h"

/* A kernel of this length is worth two events each time: they cost it less than one percent. */
#define COSTS_ALWAYS_NS 250e3

/* One measurement in so much expected device time: two events of some 0.8 us of the host's time
 * each add 0.3 %. */
#define COSTS_GAP_NS 500e3

/* Charged for a launch that nothing is known of; it is measured. */
#define COSTS_FIRST_NS 30e3

/* Nothing takes less: launching an empty kernel occupies the device for about a microsecond. */
#define COSTS_LEAST_NS 1e3

enum {
    COSTS_LINES = 4096,
};

struct cost {
    const void *function; /* NULL: free */
    uint32_t grid[3];
    uint32_t block[3];
    unsigned measured; /* how often */
    unsigned unseen;   /* launches while nothing is known */
    double mean_ns;    /* charged for a launch */
    double square;     /* mean of what was measured, squared: ns^2 */
    float alone_ns;    /* mean where nothing of ours ran before it in other streams; 0: not known */
};

struct costs {
    struct cost lines[COSTS_LINES];
};

/* The line of a launch, made if it is new. A full neighbourhood gives up the one measured least. */
struct cost *costs_of(struct costs *costs, const struct launch *launch);

/* Charged for a launch, in ns. */
double cost_expected(const struct cost *cost);

/* Known well enough that most launches need not be measured. */
bool cost_is_known(const struct cost *cost);

/* Measured each time. */
bool cost_is_long(const struct cost *cost);

/* What a launch uses up of the thread's risk: see lot.h. 0 where it is measured anyway. */
double cost_risk_ns(const struct costs *costs, const struct cost *cost);

/* The mean square by the mean: as long as a kernel where all are alike, and the longer the more
 * they differ. Of a shape that is known. */
static inline double cost_skew_ns(const struct cost *cost)
{
    return cost->square / cost->mean_ns;
}

/* Longer than measurements of this shape are as a rule: others' slices may lie within it. */
bool cost_is_doubtful(const struct cost *cost, double length_ns);

/* What it took where nothing of ours ran beside it as it began. */
void cost_learn_alone(struct cost *cost, double length_ns);

/* Learns from one measurement. True when the charge has changed by more than a twentieth. */
bool costs_learn(struct costs *costs, struct cost *cost, double length_ns);
