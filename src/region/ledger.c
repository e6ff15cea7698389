/* SPDX-License-Identifier: Apache-2.0 */
#include "region/ledger.h"

#include "base/util.h"

#define SEQUENCE_BITS 20
#define SEQUENCE_MASK ((UINT64_C(1) << SEQUENCE_BITS) - 1)
#define SLOT_BITS 10
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define UNITS_SHIFT (SEQUENCE_BITS + SLOT_BITS)

_Static_assert(REGION_SLOTS == 1 << SLOT_BITS, "every slot has a number in the word");

static uint64_t word_pack(uint64_t units, unsigned slot, uint64_t sequence)
{
    return units << UNITS_SHIFT | (uint64_t)slot << SEQUENCE_BITS | sequence;
}

static uint64_t word_units(uint64_t word)
{
    return word >> UNITS_SHIFT;
}

static unsigned word_slot(uint64_t word)
{
    return (unsigned)(word >> SEQUENCE_BITS & SLOT_MASK);
}

static uint64_t word_sequence(uint64_t word)
{
    return word & SEQUENCE_MASK;
}

static uint64_t op_pack(int64_t delta, uint64_t sequence)
{
    return (uint64_t)delta << SEQUENCE_BITS | sequence;
}

static int64_t op_delta(uint64_t op)
{
    return (int64_t)op >> SEQUENCE_BITS;
}

/* What is there plus delta, never below nothing: only a damaged region could ask for less. */
static uint64_t units_add(uint64_t units, int64_t delta)
{
    if (delta < 0 && (uint64_t)-delta > units)
        return 0;
    return units + (uint64_t)delta;
}

/*
 * Before a word is replaced, its winner's change is marked as done. The mark is made only if the
 * word still stood after the old mark was read: so the mark belongs to the same time as the word,
 * and a helper that slept can't put an old sequence over a newer one.
 */
static bool help_winner(struct region_ext *ext, unsigned device, uint64_t word)
{
    struct region_account *winner = &ext->slots[word_slot(word)].accounts[device];
    uint64_t done = atomic_load(&winner->done);

    if (atomic_load(&ext->devices[device].word) != word)
        return false;
    if (done != word_sequence(word))
        atomic_compare_exchange_strong(&winner->done, &done, word_sequence(word));
    return true;
}

/* Swaps the word. The account's op must already tell the change. */
static enum ledger_outcome apply_op(struct region_ext *ext, unsigned slot, unsigned device,
                                    uint64_t op, uint64_t limit)
{
    _Atomic uint64_t *target = &ext->devices[device].word;
    struct region_account *account = &ext->slots[slot].accounts[device];
    int64_t delta = op_delta(op);
    uint64_t word, held, next;

    for (;;) {
        word = atomic_load(target);
        next = units_add(word_units(word), delta);
        if (delta > 0 && next > limit)
            return LEDGER_REFUSED;
        if (!help_winner(ext, device, word))
            continue;
        LEDGER_POINT(HELPED, slot, delta < 0);
        if (atomic_compare_exchange_weak(target, &word, word_pack(next, slot, word_sequence(op))))
            break;
    }
    LEDGER_POINT(SWAPPED, slot, delta < 0);

    /* Its winner marks it as well, so that the next change has nobody to help as a rule: a helper
     * that slept compares with the mark before this one. */
    atomic_store_explicit(&account->done, word_sequence(op), memory_order_release);
    LEDGER_POINT(MARKED, slot, delta < 0);
    held = word_units(atomic_load_explicit(&account->used, memory_order_relaxed));
    atomic_store_explicit(&account->used, word_pack(units_add(held, delta), 0, word_sequence(op)),
                          memory_order_release);
    return LEDGER_CHARGED;
}

static enum ledger_outcome change(struct region_ext *ext, unsigned slot, unsigned device,
                                  int64_t delta, uint64_t limit)
{
    struct region_account *account = &ext->slots[slot].accounts[device];
    uint64_t before = atomic_load_explicit(&account->op, memory_order_relaxed);
    uint64_t op = op_pack(delta, (word_sequence(before) + 1) & SEQUENCE_MASK);
    enum ledger_outcome outcome;

    atomic_store_explicit(&account->op, op, memory_order_release);
    LEDGER_POINT(OP_WRITTEN, slot, delta < 0);
    outcome = apply_op(ext, slot, device, op, limit);
    if (outcome == LEDGER_REFUSED)
        atomic_store_explicit(&account->op, before, memory_order_release);
    return outcome;
}

enum ledger_outcome ledger_charge(struct region_ext *ext, unsigned slot, unsigned device,
                                  uint64_t units, uint64_t limit)
{
    if (units > LEDGER_UNITS_MAX)
        return LEDGER_REFUSED;
    if (!units)
        return LEDGER_CHARGED;
    return change(ext, slot, device, (int64_t)units, MIN(limit, LEDGER_UNITS_MAX));
}

void ledger_discharge(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units)
{
    uint64_t held = ledger_held(ext, slot, device);

    units = MIN(units, held);
    if (units)
        (void)change(ext, slot, device, -(int64_t)units, 0);
}

uint64_t ledger_total(const struct region_ext *ext, unsigned device)
{
    return word_units(atomic_load(&ext->devices[device].word));
}

uint64_t ledger_held(const struct region_ext *ext, unsigned slot, unsigned device)
{
    return word_units(atomic_load(&ext->slots[slot].accounts[device].used));
}

void ledger_set_held(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units)
{
    struct region_account *account = &ext->slots[slot].accounts[device];

    atomic_store(&account->used, word_pack(units, 0, word_sequence(atomic_load(&account->used))));
}

void ledger_settle(struct region_ext *ext, unsigned slot, unsigned device)
{
    ledger_settle_to(ext, slot, device, 0);
}

void ledger_settle_to(struct region_ext *ext, unsigned slot, unsigned device, uint64_t units)
{
    struct region_account *account = &ext->slots[slot].accounts[device];
    uint64_t op = atomic_load(&account->op);
    uint64_t used = atomic_load(&account->used);
    uint64_t held, word;

    LEDGER_POINT(SETTLING, slot, true);
    if (word_sequence(op) != word_sequence(used)) {
        /* The word is read before the mark: whoever replaces the word marks its winner first. */
        word = atomic_load(&ext->devices[device].word);
        if ((word_slot(word) == slot && word_sequence(word) == word_sequence(op)) ||
            atomic_load(&account->done) == word_sequence(op)) {
            held = units_add(word_units(used), op_delta(op));
            atomic_store(&account->used, word_pack(held, 0, word_sequence(op)));
        } else {
            atomic_store(&account->op, op_pack(0, word_sequence(used)));
        }
    }
    LEDGER_POINT(SETTLED_OP, slot, true);
    held = ledger_held(ext, slot, device);
    ledger_discharge(ext, slot, device, held - MIN(held, units));
}
