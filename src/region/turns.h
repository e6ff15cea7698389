/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who of a container's processes launches next, where the bucket does not have enough for all of
 * them: the one that was served least, in device time, so that each gets the same share whatever
 * the length of its kernels. A process that wants nothing keeps nobody waiting, and saves nothing
 * up; one that wants little saves up a few kernels.
 *
 * Beside it stands what a process was charged for work that is not known to be done. If it dies,
 * its work goes with it, and the bucket gets the charge back, less the time in which the work may
 * have run.
 *
 * A word of a turn is written by its own process (or whoever settles it), without a lock. Times are
 * CLOCK_MONOTONIC, amounts nanoseconds of device time.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

/* A process is not held up for less than this. */
#define TURNS_SLACK_NS INT64_C(1000000)

/* A process that wanted the device a moment ago, and is between two launches, still wants it. */
#define TURNS_WANT_NS INT64_C(2000000)

/* Wants the device now and for TURNS_WANT_NS after until_ns. */
void turns_want(struct region *region, unsigned device, int64_t now_ns, int64_t until_ns);

/* Wants nothing any more, at once. */
void turns_pause(struct region *region, unsigned device, int64_t now_ns);

/* Whether nobody who wants the device, too, was served less. slots: how many there are at most. */
bool turns_is_ours(struct region *region, unsigned device, int64_t now_ns);

void turns_serve(struct region *region, unsigned device, int64_t amount_ns);

/*
 * One of the process' contexts was charged amount_ns for unfinished work, which had no more of the
 * device than the time since since_ns; before_ns is what it said last. What a process was charged
 * is the sum over its contexts. Their time counts from when the first of them had such work, until
 * only one has: a process with several contexts at work gets less back.
 */
void turns_owe(struct region *region, unsigned device, int64_t before_ns, int64_t amount_ns,
               int64_t since_ns);

/*
 * Drops what the container owes beyond what any debt may be. Not what it was charged for unfinished
 * work: of that some may be given back, which would else be taken off what others ran meanwhile and
 * nobody was charged for.
 */
void turns_limit_debt(struct region *region, unsigned device, int64_t now_ns);

/* Drops what the container owes, but for the same: what was used was idle, and costs nobody. */
void turns_forgive(struct region *region, unsigned device, int64_t now_ns);

/* For a dead process: gives the bucket back what its work can't have used any more. */
void turns_settle(struct region_ext *ext, unsigned slot, unsigned device, int64_t now_ns);
