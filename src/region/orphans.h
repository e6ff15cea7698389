/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory that a process gave others and died: it is charged to nobody's account and still to the
 * container, as an orphan, until all who may have it were charged what NVML counts for them. Then,
 * or when nobody has any memory of another process, it is given back. Never is less charged than
 * there is; for a moment it may be charged twice.
 *
 * Rounds tell when that is. A device's round goes up when memory was let go of. Who holds
 * memory of others notes the round that it saw before it asked NVML, once it was charged
 * for all that NVML said; as long as one has not seen the round, nothing is given back. One
 * that NVML does not list on the device, or that is stopped, sees none. What is let go of
 * meanwhile waits for the next round, so that there always is an end to one.
 *
 * What a process lends is in its slot: its shared memory, what it gave back and others may have,
 * and what it was charged for memory of others. The ledger's word goes on to count orphans: so
 * accounts and orphans are its sum.
 *
 * All but the questions is done with the slot table's lock. Whoever takes it finishes what one that
 * was killed there had begun.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

/* The process of that slot lends so many more units on the device, or fewer. */
void orphans_lend(struct region_ext *ext, unsigned slot, unsigned device, int64_t units);

/* What others may have when that process dies. */
uint64_t orphans_lent(const struct region_ext *ext, unsigned slot, unsigned device);

uint64_t orphans_units(const struct region_ext *ext, unsigned device);

/* Begins a round and returns it; the one that is under way. */
uint32_t orphans_begin_round(struct region_ext *ext, unsigned device);
uint32_t orphans_round(const struct region_ext *ext, unsigned device);

/* That process was charged for all that it held when this round was under way. */
void orphans_note_seen(struct region_ext *ext, unsigned slot, unsigned device, uint32_t round);
bool orphans_has_seen(const struct region_ext *ext, unsigned slot, unsigned device, uint32_t round);

/* Whether all who hold memory of others have, but for the process of a slot (-1: none). */
bool orphans_all_have_seen(const struct region_ext *ext, unsigned device, uint32_t round,
                           int but_slot);

/* Finishes what somebody died over. */
void orphans_recover(struct region_ext *ext, unsigned device);

/* Settles a dead process' account: what it lent becomes an orphan. May be done again. */
void orphans_settle(struct region_ext *ext, unsigned slot, unsigned device);

/* Gives back what nobody can have any more, through the account of a slot that is free. True when
 * there was some. */
bool orphans_release(struct region_ext *ext, unsigned device, unsigned free_slot);
