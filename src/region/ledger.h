/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ledger: how much device memory a container has taken, checked and charged in one atomic step
 * across its processes, and right again whatever instruction a process was killed at. No lock.
 *
 * A device has one 64-bit word, units:34 | slot:10 | sequence:20, of 512 bytes a unit: what all
 * have charged, and whose change was the last. Each process has an account (struct region_account):
 *
 *   op    delta:44 | sequence:20   the change it is about to make
 *   used  units:34 | 0:10 | sequence:20   what it owns, and its last finished change
 *   done  sequence                 the last change known to have reached the word
 *
 * A change writes op, then, in a loop, sees to it that the previous winner's "done" says that its
 * change reached the word, and swaps the word; then it writes "done" itself, which others find
 * written as a rule, and "used". Killed before the swap,
 * nothing happened. Killed after it, the word itself or "done" carries op's sequence, and whoever
 * settles the account finishes "used" from op. A refusal takes op back, so that sequences count
 * finished changes only and stay within one of each other.
 *
 * One thread at a time may use one account; a process keeps its own lock for that.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

#define LEDGER_UNIT 512u
#define LEDGER_UNITS_MAX ((UINT64_C(1) << 34) - 1)

enum ledger_outcome {
    LEDGER_CHARGED = 1,
    LEDGER_REFUSED, /* it would exceed the limit */
};

/* Bytes in whole units, rounded up; more than LEDGER_UNITS_MAX when they don't fit. */
static inline uint64_t ledger_units(uint64_t bytes)
{
    return bytes / LEDGER_UNIT + (bytes % LEDGER_UNIT != 0);
}

/*
 * Adds units to a slot's account of a device, unless the sum of all accounts would exceed limit (in
 * units; LEDGER_UNITS_MAX for none). O(1), no system call.
 */
enum ledger_outcome ledger_charge(struct region_ext *ext, unsigned slot, unsigned device,
                                  uint64_t units, uint64_t limit);

/* Takes them off again. More than is there takes all there is. */
void ledger_discharge(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units);

/* What all processes, dead ones included, have charged, in units. */
uint64_t ledger_total(const struct region_ext *ext, unsigned device);

/* What one account holds, in units. */
uint64_t ledger_held(const struct region_ext *ext, unsigned slot, unsigned device);

/*
 * Finishes the last change of a dead process' account, then discharges it. Only one settler of a
 * slot at a time (region_settle() sees to that); a settler that is killed is repeated by the next.
 */
void ledger_settle(struct region_ext *ext, unsigned slot, unsigned device);

/* The same, but leaves it up to so many units. */
void ledger_settle_to(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units);

/* What the account of a dead process, or of none, has from now on; the word stays. Only after it
 * was settled. */
void ledger_set_held(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units);

/*
 * Points at which a test wants to kill. Nothing in a build without LEDGER_POINTS.
 */
enum ledger_point {
    LEDGER_POINT_OP_WRITTEN,
    LEDGER_POINT_HELPED,
    LEDGER_POINT_SWAPPED,
    LEDGER_POINT_MARKED,
    LEDGER_POINT_SETTLING,
    LEDGER_POINT_SETTLED_OP,
    LEDGER_POINT_ORPHANS_FORESEEN, /* of orphans.h, from here on */
    LEDGER_POINT_ORPHANS_BEGUN,
    LEDGER_POINT_ORPHANS_COUNTED,
    LEDGER_POINT_ORPHANS_MOVED,
    LEDGER_POINT_ORPHANS_SEEN,
    LEDGER_POINT_ORPHANS_FETCHED,
    LEDGER_POINT_ORPHANS_UNCOUNTED,
    LEDGER_POINT_ORPHANS_DRAINED,
    LEDGER_POINT_COUNT,
};

#ifdef LEDGER_POINTS
extern void ledger_point(enum ledger_point point, unsigned slot, bool discharge);
#define LEDGER_POINT(point, slot, discharge) ledger_point(LEDGER_POINT_##point, slot, discharge)
#else
#define LEDGER_POINT(point, slot, discharge) ((void)0)
#endif
