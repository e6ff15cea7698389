/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether what runs side by side is paid for. A stream that is not done may run nothing: it may
 * wait for a copy, a host function, a value in memory, another device. What is launched into others
 * meanwhile passes for what ran beside it (overlap.h), and is charged to nobody. So the time in
 * which streams are busy is held against what is charged, which comes to the same in the long run
 * where they run kernels. Pure: no clock, no driver.
 */

#include <stdbool.h>
#include <stdint.h>

struct side {
    int64_t looked_ns; /* 0: not of late */
    int64_t charged_ns;
    bool was_busy;
    double open_ns;  /* busy, and not charged for */
    double doubt_ns; /* charged, and not busy: see side_doubt() */
};

/*
 * A look at moments that the program does not choose. busy: whether any stream of several is;
 * charged_ns: to the process so far, in all; on_device: the part of the time in which the context
 * is on the device, and in 0..1 how sure that is: so much of what is busy counts. Returns for how
 * much longer streams were busy than was charged, in ns, once that can't be chance, and begins
 * anew; else 0.
 */
double side_look(struct side *side, bool busy, int64_t charged_ns, double on_device, double sure,
                 int64_t now_ns);

/* How doubtful it is that streams are busy for as long as is charged, in 0..1: 0.15 s less is 1.
 * Looks while others had the device say nothing of it. */
double side_doubt(const struct side *side);
