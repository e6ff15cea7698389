/* SPDX-License-Identifier: Apache-2.0 */
#include "region/orphans.h"

#include "base/util.h"
#include "region/ledger.h"

/*
 * What is under way, and by which slot's account: a step, which is one store, and beside it,
 * written before, how many orphans there are after it. Each part of a step may be done twice.
 */
enum step {
    STEP_NONE = 0,
    STEP_IN,    /* what the account has becomes an orphan */
    STEP_OUT,   /* orphans become the account's */
    STEP_DRAIN, /* which is discharged */
};

#define STEP_SHIFT 32

static uint64_t step_pack(enum step step, unsigned slot)
{
    return (uint64_t)step << STEP_SHIFT | slot;
}

static enum step step_kind(uint64_t word)
{
    return (enum step)(word >> STEP_SHIFT);
}

static unsigned step_slot(uint64_t word)
{
    return (unsigned)(word & (REGION_SLOTS - 1));
}

void orphans_lend(struct region_ext *ext, unsigned slot, unsigned device, int64_t units)
{
    atomic_fetch_add(&ext->explains[slot][device].lent, (uint64_t)units);
}

/* One thread's return of it may come before another one's lending. */
uint64_t orphans_lent(const struct region_ext *ext, unsigned slot, unsigned device)
{
    int64_t lent = (int64_t)atomic_load(&ext->explains[slot][device].lent);

    return (uint64_t)MAX(lent, INT64_C(0));
}

uint64_t orphans_units(const struct region_ext *ext, unsigned device)
{
    return atomic_load(&ext->devices[device].orphans.units);
}

uint32_t orphans_begin_round(struct region_ext *ext, unsigned device)
{
    return atomic_fetch_add(&ext->devices[device].orphans.round, 1) + 1;
}

uint32_t orphans_round(const struct region_ext *ext, unsigned device)
{
    return atomic_load(&ext->devices[device].orphans.round);
}

void orphans_note_seen(struct region_ext *ext, unsigned slot, unsigned device, uint32_t round)
{
    atomic_store(&ext->refusals[slot][device].seen_round, round);
}

bool orphans_has_seen(const struct region_ext *ext, unsigned slot, unsigned device, uint32_t round)
{
    return (int32_t)(atomic_load(&ext->refusals[slot][device].seen_round) - round) >= 0;
}

bool orphans_all_have_seen(const struct region_ext *ext, unsigned device, uint32_t round,
                           int but_slot)
{
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        const struct region_ext_slot *slot = &ext->slots[i];

        if ((int)i != but_slot && atomic_load(&slot->pid) && atomic_load(&slot->imports) &&
            !orphans_has_seen(ext, i, device, round))
            return false;
    }
    return true;
}

/* Steps */

static void begin_step(struct region_orphans *orphans, enum step step, unsigned slot,
                       uint64_t after)
{
    atomic_store(&orphans->after, after);
    LEDGER_POINT(ORPHANS_FORESEEN, slot, true);
    atomic_store(&orphans->step, step_pack(step, slot));
    LEDGER_POINT(ORPHANS_BEGUN, slot, true);
}

static void finish_in(struct region_ext *ext, unsigned slot, unsigned device)
{
    struct region_orphans *orphans = &ext->devices[device].orphans;

    atomic_store(&orphans->units, atomic_load(&orphans->after));
    LEDGER_POINT(ORPHANS_COUNTED, slot, true);
    ledger_set_held(ext, slot, device, 0);
    LEDGER_POINT(ORPHANS_MOVED, slot, true);
    atomic_store(&orphans->step, step_pack(STEP_NONE, 0));
}

static void drain(struct region_ext *ext, unsigned slot, unsigned device)
{
    ledger_settle(ext, slot, device);
    LEDGER_POINT(ORPHANS_DRAINED, slot, true);
    atomic_store(&ext->devices[device].orphans.step, step_pack(STEP_NONE, 0));
}

/* The account has nothing of its own. The amount is what there was less what is to be: set first,
 * while the number of orphans still tells what there was. */
static void finish_out(struct region_ext *ext, unsigned slot, unsigned device)
{
    struct region_orphans *orphans = &ext->devices[device].orphans;
    uint64_t before = atomic_load(&orphans->units), after = atomic_load(&orphans->after);

    if (before != after)
        ledger_set_held(ext, slot, device, before - MIN(before, after));
    LEDGER_POINT(ORPHANS_FETCHED, slot, true);
    atomic_store(&orphans->units, after);
    LEDGER_POINT(ORPHANS_UNCOUNTED, slot, true);
    atomic_store(&orphans->step, step_pack(STEP_DRAIN, slot));
    drain(ext, slot, device);
}

void orphans_recover(struct region_ext *ext, unsigned device)
{
    uint64_t word = atomic_load(&ext->devices[device].orphans.step);

    switch (step_kind(word)) {
    case STEP_IN:
        finish_in(ext, step_slot(word), device);
        break;
    case STEP_OUT:
        finish_out(ext, step_slot(word), device);
        break;
    case STEP_DRAIN:
        drain(ext, step_slot(word), device);
        break;
    case STEP_NONE:
    default:
        break;
    }
}

void orphans_settle(struct region_ext *ext, unsigned slot, unsigned device)
{
    struct region_orphans *orphans = &ext->devices[device].orphans;
    uint64_t units;

    ledger_settle_to(ext, slot, device, orphans_lent(ext, slot, device));
    units = ledger_held(ext, slot, device);
    if (!units)
        return;
    begin_step(orphans, STEP_IN, slot, atomic_load(&orphans->units) + units);
    finish_in(ext, slot, device);
}

/* All that there is waits for a new round. */
static void wait_for_round(struct region_ext *ext, unsigned device)
{
    struct region_orphans *orphans = &ext->devices[device].orphans;

    atomic_store(&orphans->waiting, 0);
    atomic_store(&orphans->since, orphans_begin_round(ext, device));
    atomic_store(&orphans->waiting, atomic_load(&orphans->units));
}

/* Killed in between, all waits for one more round. */
static bool release_waiting(struct region_ext *ext, unsigned device, unsigned free_slot)
{
    struct region_orphans *orphans = &ext->devices[device].orphans;
    uint64_t units = atomic_load(&orphans->units), waiting;

    if (!units)
        return false;
    if (!atomic_load(&orphans->waiting))
        wait_for_round(ext, device);
    if (!orphans_all_have_seen(ext, device, atomic_load(&orphans->since), -1))
        return false;
    waiting = MIN(atomic_exchange(&orphans->waiting, 0), units);
    LEDGER_POINT(ORPHANS_SEEN, free_slot, true);
    begin_step(orphans, STEP_OUT, free_slot, units - waiting);
    finish_out(ext, free_slot, device);
    return true;
}

/* What waited, and what came meanwhile, if nobody needs to see it. */
bool orphans_release(struct region_ext *ext, unsigned device, unsigned free_slot)
{
    bool released = release_waiting(ext, device, free_slot);

    return released && (release_waiting(ext, device, free_slot), true);
}
