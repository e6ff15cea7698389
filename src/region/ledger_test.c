/* SPDX-License-Identifier: Apache-2.0 */
#include "region/ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static struct region_ext *new_ext(void)
{
    struct region_ext *ext = NULL;

    assert_int_equal(posix_memalign((void **)&ext, CACHE_LINE, sizeof(*ext)), 0);
    memset(ext, 0, sizeof(*ext));
    return ext;
}

static void bytes_round_up_to_units(void **state)
{
    (void)state;
    assert_int_equal(ledger_units(0), 0);
    assert_int_equal(ledger_units(1), 1);
    assert_int_equal(ledger_units(512), 1);
    assert_int_equal(ledger_units(513), 2);
    assert_true(ledger_units(SIZE_MAX) > LEDGER_UNITS_MAX);
}

static void a_charge_is_checked_against_everybodys_sum(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    assert_int_equal(ledger_charge(ext, 3, 0, 60, 100), LEDGER_CHARGED);
    assert_int_equal(ledger_charge(ext, 4, 0, 41, 100), LEDGER_REFUSED);
    assert_int_equal(ledger_charge(ext, 4, 0, 40, 100), LEDGER_CHARGED);
    assert_int_equal(ledger_charge(ext, 3, 0, 1, 100), LEDGER_REFUSED);
    assert_int_equal(ledger_charge(ext, 3, 0, 0, 100), LEDGER_CHARGED);
    assert_int_equal(ledger_charge(ext, 3, 1, 100, 100), LEDGER_CHARGED);
    assert_int_equal(ledger_total(ext, 0), 100);
    assert_int_equal(ledger_held(ext, 4, 0), 40);
    ledger_discharge(ext, 3, 0, 20);
    assert_int_equal(ledger_total(ext, 0), 80);
    assert_int_equal(ledger_held(ext, 3, 0), 40);
    free(ext);
}

static void nothing_underflows_or_overflows(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    ledger_discharge(ext, 1, 0, 5);
    assert_int_equal(ledger_total(ext, 0), 0);
    assert_int_equal(ledger_charge(ext, 1, 0, 10, LEDGER_UNITS_MAX), LEDGER_CHARGED);
    ledger_discharge(ext, 1, 0, 11);
    assert_int_equal(ledger_total(ext, 0), 0);
    assert_int_equal(ledger_charge(ext, 1, 0, LEDGER_UNITS_MAX + 1, UINT64_MAX), LEDGER_REFUSED);
    assert_int_equal(ledger_charge(ext, 1, 0, LEDGER_UNITS_MAX, UINT64_MAX), LEDGER_CHARGED);
    assert_int_equal(ledger_charge(ext, 2, 0, 1, UINT64_MAX), LEDGER_REFUSED);
    free(ext);
}

/* Every state in which a process can die, by hand: what the ledger must say after settling. */
static void a_dead_process_is_settled_exactly_once(void **state)
{
    /* The last change of slot 7, +5 units on top of 10, was killed here: */
    static const struct {
        const char *name;
        bool op_written, swapped, marked, replaced, used_written;
    } cases[] = {
        {"before anything", false, false, false, false, false},
        {"intention written", true, false, false, false, false},
        {"word swapped", true, true, false, false, false},
        {"word swapped, and swapped again by another", true, true, false, true, false},
        {"word swapped and marked", true, true, true, false, false},
        {"word swapped and marked, and swapped again by another", true, true, true, true, false},
        {"finished", true, true, true, false, true},
        {"finished, and swapped again by another", true, true, true, true, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct region_ext *ext = new_ext();
        struct region_account *account = &ext->slots[7].accounts[2];
        uint64_t op, used, done, word;

        print_message("%s\n", cases[i].name);
        assert_int_equal(ledger_charge(ext, 7, 2, 10, 100), LEDGER_CHARGED);
        assert_int_equal(ledger_charge(ext, 8, 2, 30, 100), LEDGER_CHARGED);
        op = account->op, used = account->used, done = account->done;
        word = ext->devices[2].word;
        assert_int_equal(ledger_charge(ext, 7, 2, 5, 100), LEDGER_CHARGED);
        if (!cases[i].op_written)
            account->op = op;
        if (!cases[i].swapped)
            ext->devices[2].word = word;
        if (!cases[i].marked)
            account->done = done;
        if (!cases[i].used_written)
            account->used = used;
        if (cases[i].replaced)
            assert_int_equal(ledger_charge(ext, 9, 2, 1, 100), LEDGER_CHARGED);

        ledger_settle(ext, 7, 2);
        assert_int_equal(ledger_total(ext, 2), cases[i].replaced ? 31 : 30);
        assert_int_equal(ledger_held(ext, 7, 2), 0);
        ledger_settle(ext, 7, 2);
        assert_int_equal(ledger_total(ext, 2), cases[i].replaced ? 31 : 30);

        /* The slot's next owner starts clean. */
        assert_int_equal(ledger_charge(ext, 7, 2, 3, 100), LEDGER_CHARGED);
        assert_int_equal(ledger_held(ext, 7, 2), 3);
        free(ext);
    }
}

static void refusals_do_not_use_up_sequences(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    assert_int_equal(ledger_charge(ext, 1, 0, 10, 10), LEDGER_CHARGED);
    /* One turn of the sequence. If refusals counted, the next change would look finished already.
     */
    for (unsigned i = 0; i < 1u << 20; i++)
        assert_int_equal(ledger_charge(ext, 1, 0, 1, 10), LEDGER_REFUSED);
    ledger_settle(ext, 1, 0);
    assert_int_equal(ledger_total(ext, 0), 0);
    free(ext);
}

static void sequences_may_wrap(void **state)
{
    struct region_ext *ext = new_ext();

    (void)state;
    for (unsigned i = 0; i < (1u << 20) + 3; i++) {
        assert_int_equal(ledger_charge(ext, 1, 0, 7, 10), LEDGER_CHARGED);
        ledger_discharge(ext, 1, 0, 7);
    }
    assert_int_equal(ledger_charge(ext, 1, 0, 7, 10), LEDGER_CHARGED);
    ledger_settle(ext, 1, 0);
    assert_int_equal(ledger_total(ext, 0), 0);
    free(ext);
}

enum {
    THREADS = 32,
    STEPS = 20000,
    LIMIT = 2000,
};

struct worker {
    struct region_ext *ext;
    unsigned slot;
    uint64_t held;
    bool over;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    unsigned seed = worker->slot;

    for (int i = 0; i < STEPS; i++) {
        uint64_t units = (uint64_t)(rand_r(&seed) % 200) + 1;

        if (ledger_charge(worker->ext, worker->slot, 0, units, LIMIT) == LEDGER_CHARGED)
            worker->held += units;
        if (ledger_total(worker->ext, 0) > LIMIT)
            worker->over = true;
        if (rand_r(&seed) % 2 && worker->held) {
            units = (uint64_t)rand_r(&seed) % worker->held + 1;
            ledger_discharge(worker->ext, worker->slot, 0, units);
            worker->held -= units;
        }
    }
    return NULL;
}

/* Threads stand for processes, so that ThreadSanitizer sees them. Every fourth "dies" and is
 * settled. */
static void threads_as_slots_never_exceed_and_end_at_what_they_hold(void **state)
{
    struct region_ext *ext = new_ext();
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t sum = 0;

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.ext = ext, .slot = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(workers[i].over);
        assert_int_equal(ledger_held(ext, i, 0), workers[i].held);
        if (i % 4 == 0)
            ledger_settle(ext, i, 0);
        else
            sum += workers[i].held;
    }
    assert_int_equal(ledger_total(ext, 0), sum);
    for (unsigned i = 0; i < THREADS; i++)
        ledger_settle(ext, i, 0);
    assert_int_equal(ledger_total(ext, 0), 0);
    free(ext);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_round_up_to_units),
        cmocka_unit_test(a_charge_is_checked_against_everybodys_sum),
        cmocka_unit_test(nothing_underflows_or_overflows),
        cmocka_unit_test(a_dead_process_is_settled_exactly_once),
        cmocka_unit_test(refusals_do_not_use_up_sequences),
        cmocka_unit_test(sequences_may_wrap),
        cmocka_unit_test(threads_as_slots_never_exceed_and_end_at_what_they_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
