/* SPDX-License-Identifier: Apache-2.0 */

/* Terms, stepped by hand. kube-scheduler's default lease: 15 s, renewed every 2 s. */

#include "cluster/term.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define S INT64_C(1000000000)
#define DAY (INT64_C(20000) * 86400 * S) /* the time of day when the monotonic clock began */

static const struct term_options options = {.host = "us", .bind_ns = 3 * S};

static struct lease lease_of(const char *holder, uint64_t transitions, int64_t acquired_ns,
                             int64_t renewed_ns)
{
    return (struct lease){.holder = holder,
                          .transitions = transitions,
                          .acquired_wall_ns = DAY + acquired_ns,
                          .renewed_wall_ns = DAY + renewed_ns,
                          .duration_ns = 15 * S};
}

/* A look that takes no time, at a clock that was never set. */
static enum term_change see(struct term *term, struct lease lease, int64_t now_ns)
{
    return term_see(term, &lease, now_ns, now_ns, DAY + now_ns);
}

static bool may_send(const struct term *term, int64_t now_ns)
{
    return term_may_send(term, now_ns, DAY + now_ns);
}

/* Ours since long, with a look every second from 0 s to 4 s. */
static void begin(struct term *term)
{
    term_init(term, &options, 0);
    assert_int_equal(see(term, lease_of("us_1", 7, -1000 * S, -S), 0), TERM_BEGAN);
    assert_int_equal(see(term, lease_of("us_1", 7, -1000 * S, S), 2 * S), TERM_UNCHANGED);
    assert_false(term_should_list(term, 4 * S - 1)); /* what a process before this one sent */
    assert_false(may_send(term, 4 * S));
    assert_true(term_should_list(term, 4 * S));
    assert_false(term_should_list(term, 4 * S));
    assert_false(may_send(term, 4 * S));
    assert_int_equal(see(term, lease_of("us_1", 7, -1000 * S, 3 * S), 4 * S), TERM_UNCHANGED);
    assert_true(term_listed(term));
    assert_false(term_listed(term));
    assert_true(may_send(term, 4 * S));
}

static void test_nothing_is_sent_when_the_renewal_is_old(void **state)
{
    struct term term;

    (void)state;
    begin(&term); /* renewed after 2 s, seen at 4 s */
    assert_true(may_send(&term, 12 * S - 1));
    assert_false(may_send(&term, 12 * S));
    assert_string_equal(term_why_not(&term), "the lease was not renewed in time");
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, 12 * S), 14 * S - 1),
                     TERM_UNCHANGED);
    assert_true(may_send(&term, 14 * S - 1)); /* the same term goes on */
    assert_false(may_send(&term, 14 * S));    /* it may be as old as the look before */
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, 14 * S), 15 * S), TERM_UNCHANGED);
    assert_true(may_send(&term, 15 * S));
}

/* It may have been released since, and taken by one who did not see the renewal. */
static void test_after_a_late_renewal_nothing_is_sent_for_a_while(void **state)
{
    struct term term;

    (void)state;
    begin(&term); /* renewed after 2 s, seen at 4 s */
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, 13 * S), 14 * S), TERM_UNCHANGED);
    for (int64_t at = 15; at < 29; at++) {
        assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, at * S), at * S),
                         TERM_UNCHANGED);
        assert_false(may_send(&term, at * S));
    }
    assert_true(may_send(&term, 29 * S));

    /* The first renewal that was seen is of unknown age: then the times written in both tell. */
    for (int64_t apart = 11; apart <= 12; apart++) {
        term_init(&term, &options, 0);
        assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, -5 * S), S), TERM_BEGAN);
        assert_true(term_should_list(&term, 4 * S));
        assert_true(term_listed(&term));
        assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, (apart - 5) * S), 8 * S),
                         TERM_UNCHANGED);
        assert_int_equal(may_send(&term, 8 * S), apart == 11);
    }
}

/* Of a lease that was handed back after so many transitions. */
static struct lease handed_back(struct lease lease, uint64_t after)
{
    lease.handed_back = true;
    lease.handed_back_after = after;
    return lease;
}

static void test_after_a_lease_that_was_handed_back_there_is_nothing_to_wait_for(void **state)
{
    static const struct {
        uint64_t after;
        bool seen_empty, waits;
    } cases[] = {{7, false, false}, {7, true, false}, {6, false, true},
                 {6, true, true},   {8, false, true}, {8, true, true}};
    struct term term;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        term_init(&term, &options, 0);
        assert_int_equal(see(&term, lease_of("them_1", 7, -1000 * S, 9 * S), 10 * S),
                         TERM_UNCHANGED);
        if (cases[i].seen_empty)
            assert_int_equal(
                see(&term, handed_back(lease_of("", 7, -1000 * S, 9 * S), cases[i].after), 11 * S),
                TERM_UNCHANGED);
        assert_int_equal(
            see(&term, handed_back(lease_of("us_1", 8, 12 * S, 12 * S), cases[i].after), 12 * S),
            TERM_BEGAN);
        if (term_should_list(&term, 12 * S) == cases[i].waits)
            fail_msg("case %zu", i);
    }
    /* The first look, soon after it was taken. */
    for (uint64_t after = 6; after < 9; after++) {
        term_init(&term, &options, 0);
        assert_int_equal(see(&term, handed_back(lease_of("us_1", 8, 4 * S, 4 * S), after), 5 * S),
                         TERM_BEGAN);
        assert_int_equal(term_should_list(&term, 5 * S), after == 7);
    }
}

static void test_a_word_that_comes_late_ends_the_wait(void **state)
{
    struct lease lease = lease_of("us_1", 8, 12 * S, 12 * S);
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("them_1", 7, -1000 * S, 9 * S), 10 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease, 12 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 13 * S));
    assert_int_equal(see(&term, handed_back(lease, 6), 13 * S), TERM_UNCHANGED);
    assert_false(term_should_list(&term, 13 * S));
    lease.renewed_wall_ns += S;
    assert_int_equal(see(&term, handed_back(lease, 7), 14 * S), TERM_SETTLED);
    assert_int_equal(see(&term, handed_back(lease, 7), 15 * S), TERM_UNCHANGED);
    assert_true(term_should_list(&term, 15 * S));
    assert_int_equal(see(&term, handed_back(lease, 7), 16 * S), TERM_UNCHANGED);

    /* It is none about what this host's former scheduler sent. */
    term_init(&term, &options, 0);
    lease = lease_of("us_1", 8, S, S);
    assert_int_equal(see(&term, lease, 2 * S), TERM_BEGAN);
    assert_int_equal(see(&term, handed_back(lease, 7), 3 * S), TERM_SETTLED);
    assert_false(term_should_list(&term, 4 * S - 1));
    assert_true(term_should_list(&term, 4 * S));
}

static void test_the_last_word(void **state)
{
    static const struct {
        const char *holder;
        uint64_t transitions;
        int64_t said; /* -1: nothing */
        enum term_word word;
    } cases[] = {
        {"us_1", 7, -1, TERM_HANDS_BACK}, {"us_1", 7, 6, TERM_HANDS_BACK},
        {"us_1", 8, 7, TERM_HANDS_BACK},  {"us_1", 9, 7, TERM_LEAVES},
        {"us_1", 6, 7, TERM_LEAVES},      {"", 7, -1, TERM_HANDS_BACK},
        {"", 7, 6, TERM_HANDS_BACK},      {"", 7, 7, TERM_HAS_SAID},
        {"", 8, 7, TERM_LEAVES},          {"", 8, -1, TERM_LEAVES},
        {"them_1", 8, -1, TERM_SAYS},     {"them_1", 8, 6, TERM_SAYS},
        {"them_1", 8, 7, TERM_LEAVES},    {"them_1", 9, -1, TERM_LEAVES},
        {"them_1", 7, -1, TERM_LEAVES},   {"us_2", 8, -1, TERM_SAYS},
    };
    struct lease lease;
    struct term term;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&term);
        lease = lease_of(cases[i].holder, cases[i].transitions, 0, 0);
        if (cases[i].said >= 0)
            lease = handed_back(lease, (uint64_t)cases[i].said);
        if (term_last_word(&term, &lease) != cases[i].word)
            fail_msg("case %zu", i);
    }
    /* Taken again by the kube-scheduler beside us, and again. */
    begin(&term);
    for (uint64_t transitions = 7; transitions < 10; transitions++) {
        lease = lease_of("us_1", transitions, 0, 0);
        assert_int_equal(term_last_word(&term, &lease), TERM_HANDS_BACK);
        lease = handed_back(lease_of("", transitions, 0, 0), transitions);
        assert_int_equal(term_last_word(&term, &lease), TERM_HAS_SAID);
    }
}

static void test_a_process_that_stood_still_sends_nothing(void **state)
{
    struct term term;
    struct lease old = lease_of("us_1", 7, -1000 * S, 5 * S);

    (void)state;
    begin(&term);
    /* Stopped between asking and reading the answer, and before sending. */
    assert_int_equal(term_see(&term, &old, 6 * S, 60 * S, DAY + 60 * S), TERM_UNCHANGED);
    assert_false(may_send(&term, 60 * S));
}

static void test_a_clock_that_was_set_counts_against_it(void **state)
{
    struct term term;

    (void)state;
    begin(&term);
    assert_false(term_may_send(&term, 5 * S, DAY + 3600 * S));
    assert_false(term_may_send(&term, 5 * S, DAY - 3600 * S));
    assert_true(term_may_send(&term, 5 * S, DAY + 5 * S));
    /* The clock is set back by as much as the machine stood still: only the other clock shows
     * it. */
    assert_false(term_may_send(&term, 60 * S, DAY + 5 * S));
    /* Renewed by the clock as it is now. */
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, -3600 * S), 6 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, -3598 * S), 7 * S), TERM_UNCHANGED);
    assert_true(term_may_send(&term, 8 * S, DAY - 3597 * S));
}

static void test_the_first_look_does_not_tell_how_old_a_renewal_is(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, 0), 0), TERM_BEGAN);
    assert_true(term_should_list(&term, 5 * S));
    assert_true(term_listed(&term));
    assert_false(may_send(&term, 5 * S));
    assert_true(term_age_ns(&term, 5 * S, DAY + 5 * S) == INT64_MAX);
    assert_int_equal(see(&term, lease_of("us_1", 7, -1000 * S, 5 * S), 6 * S), TERM_UNCHANGED);
    assert_true(may_send(&term, 6 * S));
}

static void test_a_scheduler_that_takes_an_expired_lease_has_nothing_to_wait_for(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 18 * S), 19 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 20 * S), 21 * S), TERM_UNCHANGED);
    assert_false(may_send(&term, 22 * S));
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 20 * S), 34 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 8, 35 * S, 35 * S), 35 * S), TERM_BEGAN);
    assert_true(term_should_list(&term, 35 * S));
    assert_true(term_listed(&term));
    assert_true(may_send(&term, 35 * S));
}

static void test_a_scheduler_that_takes_a_released_lease_waits_for_the_former_leader(void **state)
{
    struct lease released = {.holder = "", .transitions = 7, .duration_ns = S};
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 18 * S), 19 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 20 * S), 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, released, 21 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 8, 22 * S, 22 * S), 22 * S), TERM_BEGAN);
    /* It may have renewed it until then, may send for 10 s after that, and that settles in 4 s. */
    assert_false(term_should_list(&term, 35 * S - 1));
    assert_true(term_should_list(&term, 35 * S));
}

/* Only a late renewal of ours counts: another holder's says nothing of us. */
static void test_a_late_renewal_of_others_silences_nobody(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 0), 0), TERM_UNCHANGED);
    for (int64_t at = 1; at <= 3; at++)
        assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, at * 20 * S), at * 20 * S),
                         TERM_UNCHANGED);
    assert_int_equal(see(&term, handed_back(lease_of("us_1", 8, 61 * S, 61 * S), 7), 61 * S),
                     TERM_BEGAN);
    assert_true(term_should_list(&term, 61 * S));
    assert_true(term_listed(&term));
    assert_true(may_send(&term, 61 * S));
}

/* By whom, and when, the first look does not show. */
static void test_a_lease_that_was_found_released_is_waited_for(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("", 7, -1000 * S, 18 * S), 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 8, 22 * S, 22 * S), 22 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 34 * S - 1));
    assert_true(term_should_list(&term, 34 * S));
    /* Found so, and taken and released by others before it was ours. */
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("", 7, -1000 * S, 18 * S), 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("", 8, 30 * S, 30 * S), 40 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 9, 41 * S, 41 * S), 41 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 54 * S - 1));
    assert_true(term_should_list(&term, 54 * S));
}

/* A holder that came and went leaves one transition more, and nobody. */
static void test_a_lease_released_by_a_holder_that_was_not_seen(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 19 * S), 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 19 * S), 34 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("", 8, 36 * S, 36 * S), 36 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 9, 37 * S, 37 * S), 37 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 50 * S - 1));
    assert_true(term_should_list(&term, 50 * S));
}

static void test_a_deleted_lease_ends_the_term_and_is_waited_for(void **state)
{
    struct term term;

    (void)state;
    begin(&term);
    assert_int_equal(term_see(&term, NULL, 5 * S, 5 * S, DAY + 5 * S), TERM_ENDED);
    assert_false(may_send(&term, 5 * S));
    assert_int_equal(term_see(&term, NULL, 6 * S, 6 * S, DAY + 6 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 0, 7 * S, 7 * S), 7 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 19 * S - 1));
    assert_true(term_should_list(&term, 19 * S));
}

static void test_a_lease_lost_and_won_again_is_a_new_term(void **state)
{
    struct term term;

    (void)state;
    begin(&term);
    assert_int_equal(see(&term, lease_of("other_1", 8, 20 * S, 20 * S), 20 * S), TERM_ENDED);
    assert_string_equal(term_why_not(&term),
                        "this scheduler is not the leader: the lease is not its kube-scheduler's");
    assert_int_equal(see(&term, lease_of("other_1", 8, 20 * S, 20 * S), 39 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 9, 40 * S, 40 * S), 40 * S), TERM_BEGAN);
    assert_false(may_send(&term, 40 * S));
    assert_true(term_should_list(&term, 40 * S));
    /* Between two looks it had another holder. */
    assert_int_equal(see(&term, lease_of("us_1", 11, 43 * S, 43 * S), 43 * S), TERM_BEGAN);
    assert_false(term_listed(&term)); /* that list began before */
    assert_false(may_send(&term, 43 * S));
    assert_false(term_should_list(&term, 57 * S - 1));
    assert_int_equal(see(&term, lease_of("us_1", 11, 43 * S, 43 * S), 59 * S), TERM_UNCHANGED);
    /* The kube-scheduler beside us was started anew. */
    assert_int_equal(see(&term, lease_of("us_2", 12, 60 * S, 60 * S), 60 * S), TERM_BEGAN);
    assert_true(term_should_list(&term, 60 * S));
}

static void test_a_scheduler_that_did_not_look_does_not_know_the_last_renewal(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(see(&term, lease_of("other_1", 7, -1000 * S, 20 * S), 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 8, 59 * S, 59 * S), 60 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 74 * S - 1));
    assert_true(term_should_list(&term, 74 * S));
}

static void test_a_holder_that_came_and_went_between_two_looks_is_waited_for(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 0);
    assert_int_equal(term_see(&term, NULL, 20 * S, 20 * S, DAY + 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 2, 21 * S, 21 * S), 21 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 35 * S - 1));
    assert_true(term_should_list(&term, 35 * S));

    term_init(&term, &options, 0);
    assert_int_equal(term_see(&term, NULL, 20 * S, 20 * S, DAY + 20 * S), TERM_UNCHANGED);
    assert_int_equal(see(&term, lease_of("us_1", 0, 21 * S, 21 * S), 21 * S), TERM_BEGAN);
    assert_true(term_should_list(&term, 21 * S)); /* the first lease there is */
}

static void test_a_lease_that_was_ours_before_we_looked(void **state)
{
    struct term term;

    (void)state;
    term_init(&term, &options, 100 * S);
    assert_int_equal(see(&term, lease_of("us_1", 7, 99 * S, 99 * S), 100 * S), TERM_BEGAN);
    /* Another holder may have had it until 99 s. */
    assert_false(term_should_list(&term, 113 * S - 1));
    assert_true(term_should_list(&term, 113 * S));

    term_init(&term, &options, 100 * S);
    assert_int_equal(see(&term, lease_of("us_1", 7, 500 * S, 500 * S), 100 * S), TERM_BEGAN);
    assert_false(term_should_list(&term, 114 * S - 1)); /* acquired in the future: not known when */
    assert_true(term_should_list(&term, 114 * S));
}

static void test_the_holder_of_a_lease(void **state)
{
    static const char *const others[] = {"", "u_1", "usa_1", "us-1_1", "them_1", "US_1", "_us"};
    static const char *const ours[] = {"us_1", "us", "us_"};
    struct term term;

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        term_init(&term, &options, 0);
        assert_int_equal(see(&term, lease_of(others[i], 0, 0, 0), 0), TERM_UNCHANGED);
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        term_init(&term, &options, 0);
        assert_int_equal(see(&term, lease_of(ours[i], 0, 0, 0), 0), TERM_BEGAN);
    }
}

static void test_a_lease_too_short_for_a_binding_is_never_used(void **state)
{
    struct lease lease = lease_of("us_1", 7, -1000 * S, 0);
    struct term term;

    (void)state;
    lease.duration_ns = 4 * S;
    term_init(&term, &options, 0);
    (void)see(&term, lease, 0);
    lease.renewed_wall_ns += S;
    (void)see(&term, lease, S);
    assert_true(term_should_list(&term, 100 * S));
    assert_true(term_listed(&term));
    assert_false(may_send(&term, S));
    assert_string_equal(term_why_not(&term),
                        "the lease is too short for the time that a Binding may take");
}

static void test_without_an_election_only_the_process_before_is_waited_for(void **state)
{
    const struct term_options alone = {.bind_ns = 3 * S};
    struct term term;

    (void)state;
    term_init(&term, &alone, 100 * S);
    assert_false(term_should_list(&term, 104 * S - 1));
    assert_true(term_should_list(&term, 104 * S));
    assert_false(may_send(&term, 104 * S));
    assert_true(term_listed(&term));
    assert_true(may_send(&term, 104 * S));
    assert_true(may_send(&term, 1000000 * S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_sent_when_the_renewal_is_old),
        cmocka_unit_test(test_after_a_late_renewal_nothing_is_sent_for_a_while),
        cmocka_unit_test(test_after_a_lease_that_was_handed_back_there_is_nothing_to_wait_for),
        cmocka_unit_test(test_a_word_that_comes_late_ends_the_wait),
        cmocka_unit_test(test_the_last_word),
        cmocka_unit_test(test_a_process_that_stood_still_sends_nothing),
        cmocka_unit_test(test_a_clock_that_was_set_counts_against_it),
        cmocka_unit_test(test_the_first_look_does_not_tell_how_old_a_renewal_is),
        cmocka_unit_test(test_a_scheduler_that_takes_an_expired_lease_has_nothing_to_wait_for),
        cmocka_unit_test(test_a_scheduler_that_takes_a_released_lease_waits_for_the_former_leader),
        cmocka_unit_test(test_a_late_renewal_of_others_silences_nobody),
        cmocka_unit_test(test_a_lease_that_was_found_released_is_waited_for),
        cmocka_unit_test(test_a_lease_released_by_a_holder_that_was_not_seen),
        cmocka_unit_test(test_a_deleted_lease_ends_the_term_and_is_waited_for),
        cmocka_unit_test(test_a_lease_lost_and_won_again_is_a_new_term),
        cmocka_unit_test(test_a_scheduler_that_did_not_look_does_not_know_the_last_renewal),
        cmocka_unit_test(test_a_holder_that_came_and_went_between_two_looks_is_waited_for),
        cmocka_unit_test(test_a_lease_that_was_ours_before_we_looked),
        cmocka_unit_test(test_the_holder_of_a_lease),
        cmocka_unit_test(test_a_lease_too_short_for_a_binding_is_never_used),
        cmocka_unit_test(test_without_an_election_only_the_process_before_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
