/* SPDX-License-Identifier: Apache-2.0 */
#include "region/orphans.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "region/ledger.h"

enum {
    DEVICE = 1,
    MAKER = 3,
    USER = 5,
    OTHER = 6,
    FREE = 9,
    LIMIT = 1000,
};

/* Where a settler is killed next: after so many points. */
static jmp_buf killed;
static unsigned points_left;

void ledger_point(enum ledger_point point, unsigned slot, bool discharge)
{
    (void)point;
    (void)slot;
    (void)discharge;
    if (points_left && --points_left == 0)
        longjmp(killed, 1);
}

static struct region_ext *new_ext(void)
{
    struct region_ext *ext = NULL;

    assert_int_equal(posix_memalign((void **)&ext, CACHE_LINE, sizeof(*ext)), 0);
    memset(ext, 0, sizeof(*ext));
    return ext;
}

static void begin(struct region_ext *ext, unsigned slot, uint64_t imports)
{
    atomic_store(&ext->slots[slot].imports, imports);
    atomic_store(&ext->explains[slot][DEVICE].lent, 0);
    atomic_store(&ext->slots[slot].pid, (int32_t)slot + 100);
}

static void charge(struct region_ext *ext, unsigned slot, uint64_t units, int64_t lent)
{
    assert_int_equal(ledger_charge(ext, slot, DEVICE, units, LIMIT), LEDGER_CHARGED);
    orphans_lend(ext, slot, DEVICE, lent);
}

/* As region_settle() does of one that died. */
static void settle(struct region_ext *ext, unsigned slot)
{
    orphans_recover(ext, DEVICE);
    orphans_settle(ext, slot, DEVICE);
    atomic_store(&ext->slots[slot].pid, 0);
    (void)orphans_release(ext, DEVICE, FREE);
}

static bool release(struct region_ext *ext)
{
    return orphans_release(ext, DEVICE, FREE);
}

static void take_over(struct region_ext *ext, unsigned slot, uint64_t units)
{
    uint32_t round = orphans_round(ext, DEVICE);

    assert_int_equal(ledger_charge(ext, slot, DEVICE, units, LEDGER_UNITS_MAX), LEDGER_CHARGED);
    orphans_note_seen(ext, slot, DEVICE, round);
}

static void what_was_lent_stays_until_those_who_may_have_it_are_charged(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    begin(ext, MAKER, 0);
    begin(ext, USER, 1);
    begin(ext, OTHER, 2);
    charge(ext, MAKER, 300, 200);
    settle(ext, MAKER);
    assert_int_equal(ledger_total(ext, DEVICE), 200);
    assert_int_equal(orphans_units(ext, DEVICE), 200);
    assert_int_equal(ledger_held(ext, MAKER, DEVICE), 0);
    take_over(ext, USER, 200);
    assert_false(release(ext));
    assert_int_equal(ledger_total(ext, DEVICE), 400); /* twice for a moment, not less than once */
    take_over(ext, OTHER, 0);
    assert_true(release(ext));
    assert_int_equal(ledger_total(ext, DEVICE), 200);
    assert_int_equal(orphans_units(ext, DEVICE), 0);
    assert_false(release(ext));
    free(ext);
}

static void without_anybody_who_may_have_it_nothing_stays(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    begin(ext, MAKER, 3); /* its own are none */
    begin(ext, USER, 0);
    charge(ext, MAKER, 300, 200);
    charge(ext, USER, 50, 50);
    settle(ext, MAKER);
    assert_int_equal(ledger_total(ext, DEVICE), 50);
    free(ext);
}

static void who_holds_nothing_any_more_or_died_is_not_waited_for(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    begin(ext, MAKER, 0);
    begin(ext, USER, 1);
    begin(ext, OTHER, 1);
    charge(ext, MAKER, 200, 200);
    settle(ext, MAKER);
    atomic_store(&ext->slots[USER].imports, 0);
    assert_false(release(ext));
    settle(ext, OTHER);
    assert_int_equal(ledger_total(ext, DEVICE), 0);
    free(ext);
}

static void what_comes_later_waits_for_the_next_round(void **state)
{
    struct region_ext *ext = new_ext();
    uint32_t round;

    (void)state;
    begin(ext, USER, 1);
    begin(ext, MAKER, 0);
    charge(ext, MAKER, 200, 200);
    settle(ext, MAKER);
    round = orphans_round(ext, DEVICE);
    begin(ext, MAKER, 0);
    charge(ext, MAKER, 30, 30);
    settle(ext, MAKER);
    assert_int_equal(orphans_round(ext, DEVICE), round);
    take_over(ext, USER, 200);
    assert_true(release(ext));
    assert_int_equal(orphans_units(ext, DEVICE), 30);
    assert_int_equal(orphans_round(ext, DEVICE), round + 1);
    assert_false(release(ext));
    take_over(ext, USER, 30);
    assert_true(release(ext));
    assert_int_equal(ledger_total(ext, DEVICE), 230);
    free(ext);
}

static void no_more_stays_than_was_charged(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    begin(ext, USER, 1);
    begin(ext, MAKER, 0);
    charge(ext, MAKER, 100, 5000);
    settle(ext, MAKER);
    assert_int_equal(ledger_total(ext, DEVICE), 100);
    begin(ext, OTHER, 0);
    charge(ext, OTHER, 100, -7);
    settle(ext, OTHER);
    assert_int_equal(ledger_total(ext, DEVICE), 100);
    free(ext);
}

static void rounds_may_wrap(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    atomic_store(&ext->devices[DEVICE].orphans.round, UINT32_MAX);
    orphans_note_seen(ext, USER, DEVICE, UINT32_MAX);
    begin(ext, USER, 1);
    begin(ext, MAKER, 0);
    charge(ext, MAKER, 100, 100);
    settle(ext, MAKER);
    assert_int_equal(orphans_round(ext, DEVICE), 0);
    assert_int_equal(orphans_units(ext, DEVICE), 100);
    take_over(ext, USER, 100);
    assert_true(release(ext));
    free(ext);
}

/* What is charged, and that accounts and orphans are its sum. */
static uint64_t sum(const struct region_ext *ext)
{
    uint64_t held = orphans_units(ext, DEVICE);

    for (unsigned i = 0; i < REGION_SLOTS; i++)
        held += ledger_held(ext, i, DEVICE);
    assert_int_equal(held, ledger_total(ext, DEVICE));
    return held;
}

/* Settles, and is killed after so many points; false: it came to its end. */
static bool settle_until(struct region_ext *ext, unsigned slot, unsigned points)
{
    if (setjmp(killed))
        return true;
    points_left = points;
    settle(ext, slot);
    points_left = 0;
    return false;
}

static struct region_ext *new_death(bool seen)
{
    struct region_ext *ext = new_ext();

    begin(ext, USER, 1);
    begin(ext, OTHER, 0);
    begin(ext, MAKER, 0);
    charge(ext, OTHER, 40, 0);
    charge(ext, MAKER, 300, 200);
    settle(ext, MAKER);
    begin(ext, MAKER, 0);
    charge(ext, MAKER, 100, 60);
    if (seen)
        take_over(ext, USER, 200);
    return ext;
}

static void a_killed_settler_loses_nothing(void **state)
{
    unsigned deaths = 0;

    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        for (unsigned first = 1; first; first++) {
            for (unsigned second = 1;; second++) {
                struct region_ext *ext = new_death(seen);
                bool was_killed = settle_until(ext, MAKER, first), again;

                /* OTHER's, what the first one lent, and the second one. */
                assert_true(ledger_total(ext, DEVICE) >= 40 + 200 + 60);
                again = was_killed && settle_until(ext, MAKER, second);
                assert_true(ledger_total(ext, DEVICE) >= 40 + 200 + 60);
                settle(ext, MAKER);
                take_over(ext, USER, seen ? 60 : 260);
                (void)release(ext);
                take_over(ext, USER, 0); /* the round that began then */
                (void)release(ext);
                assert_int_equal(sum(ext), 40 + 260);
                deaths += was_killed + again;
                free(ext);
                if (!was_killed)
                    first = UINT32_MAX;
                if (!again)
                    break;
            }
        }
    }
    assert_true(deaths > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_lent_stays_until_those_who_may_have_it_are_charged),
        cmocka_unit_test(without_anybody_who_may_have_it_nothing_stays),
        cmocka_unit_test(who_holds_nothing_any_more_or_died_is_not_waited_for),
        cmocka_unit_test(what_comes_later_waits_for_the_next_round),
        cmocka_unit_test(no_more_stays_than_was_charged),
        cmocka_unit_test(rounds_may_wrap),
        cmocka_unit_test(a_killed_settler_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
