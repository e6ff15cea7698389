/* SPDX-License-Identifier: Apache-2.0 */
#include "region/card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/check_lease.h"
#include "base/util.h"

#define T0 (1000 * NS_PER_S)

static char folder[] = "/tmp/hami-test-card-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* Each look is later than the last, so that nothing is remembered. */
static bool is_wanted_at(struct card *card, int64_t now_ns)
{
    atomic_store(&card->looked_ns, 0);
    return card_is_wanted(card, now_ns);
}

static int set_up(void **state)
{
    struct card *cards = calloc(3, sizeof(*cards));

    *state = cards;
    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    assert_non_null(mkdtemp(folder));
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};

        assert_int_equal(card_make_cell(path_of(name)), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};

        assert_int_equal(card_open(&cards[i], path_of(name), folder), 0);
    }
    return 0;
}

static int tear_down(void **state)
{
    struct card *cards = *state;
    char command[256];

    for (unsigned i = 0; i < 3; i++)
        card_close(&cards[i]);
    free(cards);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void who_wants_the_card_is_seen_by_the_others_for_a_while(void **state)
{
    struct card *cards = *state;

    assert_false(is_wanted_at(&cards[0], T0));
    card_want(&cards[1], T0);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_true(is_wanted_at(&cards[2], T0 + CARD_WANT_NS - 1));
    assert_false(is_wanted_at(&cards[1], T0)); /* its own wish is not another's */
    assert_false(is_wanted_at(&cards[0], T0 + CARD_WANT_NS));
    /* Said again before it is over, it goes on. */
    card_want(&cards[1], T0 + CARD_WANT_NS - 1);
    assert_true(is_wanted_at(&cards[0], T0 + CARD_WANT_NS + 1));
}

static void who_wanted_it_lately_is_known_for_longer(void **state)
{
    struct card *cards = *state;

    const int64_t until = T0 + CARD_WANT_NS;

    assert_false(is_wanted_at(&cards[0], T0));
    assert_true(card_idle_ns(&cards[0], T0) == INT64_MAX);
    card_want(&cards[1], T0);
    assert_true(is_wanted_at(&cards[0], T0) && card_idle_ns(&cards[0], T0) == 0);
    assert_false(is_wanted_at(&cards[0], until + 5));
    assert_int_equal(card_idle_ns(&cards[0], until + 5), 5);
    assert_true(card_idle_ns(&cards[0], until + CARD_LATELY_NS) == INT64_MAX);
}

static void what_was_read_holds_for_a_moment(void **state)
{
    struct card *cards = *state;

    assert_false(card_is_wanted(&cards[0], T0));
    card_want(&cards[1], T0);
    assert_false(card_is_wanted(&cards[0], T0 + CARD_LOOK_NS - 1));
    assert_true(card_is_wanted(&cards[0], T0 + CARD_LOOK_NS));
}

static void cells_that_come_and_go_are_found(void **state)
{
    struct card *cards = *state, fourth = {.own = NULL};

    assert_int_equal(card_make_cell(path_of("d")), 0);
    assert_int_equal(card_open(&fourth, path_of("d"), folder), 0);
    card_want(&fourth, T0);
    assert_false(is_wanted_at(&cards[0], T0));
    card_look_around(&cards[0]);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_int_equal(unlink(path_of("d")), 0);
    card_look_around(&cards[0]);
    assert_false(is_wanted_at(&cards[0], T0));
    card_close(&fourth);
}

/* Each says that the card is not idle, or nothing; none ends a reader. */
static void a_cell_that_its_owner_damaged_harms_nobody(void **state)
{
    struct card *cards = *state;

    assert_int_equal(truncate(path_of("b"), 3), 0);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_int_equal(truncate(path_of("b"), 0), 0);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_int_equal(truncate(path_of("b"), CARD_CELL_SIZE), 0);
    assert_false(is_wanted_at(&cards[0], T0));
    atomic_store(&cards[2].own->magic, 1);
    assert_true(is_wanted_at(&cards[0], T0));
    atomic_store(&cards[2].own->magic, CARD_CELL_MAGIC);
    atomic_store(&cards[2].own->wanted_until_ns, INT64_MAX); /* another boot's */
    assert_false(is_wanted_at(&cards[0], T0));
}

static void what_cannot_be_read_is_wanted(void **state)
{
    struct card *cards = *state, alone = {.own = NULL}, unknown = {.own = NULL};

    (void)close(cards[0].others[0].cell.fd);
    assert_true(is_wanted_at(&cards[0], T0));
    card_look_around(&cards[0]);
    assert_false(is_wanted_at(&cards[0], T0));

    assert_int_equal(symlink("a", path_of("link")), 0);
    card_look_around(&cards[0]);
    assert_true(is_wanted_at(&cards[0], T0));

    assert_true(is_wanted_at(&unknown, T0));
    card_want(&unknown, T0);
    assert_int_equal(card_open(&alone, path_of("c"), NULL), 0);
    assert_true(is_wanted_at(&alone, T0));
    card_close(&alone);
    assert_true(card_open(&alone, path_of("none"), folder) < 0);
    /* Who could not look around at all would know of no other. */
    assert_int_equal(card_open(&alone, path_of("c"), "/nowhere"), -ENOENT);
    assert_int_equal(card_open(&alone, path_of("c"), "/tmp"), -ESTALE);
    assert_null(alone.own);
    assert_int_equal(truncate(path_of("c"), 8), 0);
    assert_true(card_open(&alone, path_of("c"), folder) < 0);
}

static void a_lease_that_another_has_of_the_cell_does_not_keep_its_owner_out(void **state)
{
    struct card card = {.own = NULL};
    pid_t pid;

    (void)state;
    assert_int_equal(card_make_cell(path_of("d")), 0);
    pid = lease_start(path_of("d"));
    if (!pid) {
        (void)puts("skipped: there are no leases of files in /tmp");
        skip();
    }
    assert_int_equal(card_open(&card, path_of("d"), folder), 0);
    lease_end(pid);
    card_close(&card);
}

static void another_folder_in_its_place_does_not_make_the_card_idle(void **state)
{
    struct card *cards = *state;

    card_want(&cards[1], T0);
    assert_int_equal(mkdir(path_of("fake"), 0700), 0);
    (void)snprintf(cards[0].folder, sizeof(cards[0].folder), "%s", path_of("fake"));
    card_look_around(&cards[0]);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_true(is_wanted_at(&cards[0], T0 + CARD_WANT_NS));
    COPY_TEXT(cards[0].folder, "/proc/self");
    card_look_around(&cards[0]);
    assert_true(is_wanted_at(&cards[0], T0 + CARD_WANT_NS));
}

/* A container that starts again gets a new cell, and what is left of the old one keeps its own. */
static void a_new_cell_leaves_the_old_one_alone(void **state)
{
    struct card *cards = *state;

    assert_int_equal(card_make_cell(path_of("b")), 0);
    card_want(&cards[1], T0);
    assert_int_equal(atomic_load(&cards[1].own->wanted_until_ns), T0 + CARD_WANT_NS);
    card_look_around(&cards[0]);
    assert_false(is_wanted_at(&cards[0], T0));
}

enum {
    THREADS = 4,
    ROUNDS = 2000,
};

struct reading {
    struct card *cards;
    unsigned number;
};

/* The first looks around, the others look; all want. */
static void *use_card(void *argument)
{
    const struct reading *reading = argument;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t now_ns = T0 + i * CARD_LOOK_NS;

        if (!reading->number && i % 16 == 0)
            card_look_around(&reading->cards[0]);
        (void)card_is_wanted(&reading->cards[0], now_ns);
        card_want(&reading->cards[reading->number % 2], now_ns);
    }
    return NULL;
}

static void threads_share_a_card(void **state)
{
    struct reading readings[THREADS];
    pthread_t threads[THREADS];
    struct card *cards = *state;

    for (unsigned i = 0; i < THREADS; i++) {
        readings[i] = (struct reading){cards, i};
        assert_int_equal(pthread_create(&threads[i], NULL, use_card, &readings[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(is_wanted_at(&cards[0], T0 + ROUNDS * CARD_LOOK_NS));
    assert_int_equal(cards[0].count, 2);
}

static void of_too_many_none_is_missed(void **state)
{
    struct card *cards = *state;
    char name[8];

    for (unsigned i = 0; i < CARD_CELLS; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i);
        assert_int_equal(card_make_cell(path_of(name)), 0);
    }
    card_look_around(&cards[0]);
    assert_true(is_wanted_at(&cards[0], T0));
    assert_int_equal(unlink(path_of("m0")), 0);
    assert_int_equal(unlink(path_of("m1")), 0);
    card_look_around(&cards[0]);
    assert_false(is_wanted_at(&cards[0], T0));
}

/* Another priority than the others': "p" in the name, and its share. */
static void open_ranked(struct card *card, const char *name, int priority, unsigned cores)
{
    char file[64];

    assert_true(card_cell_name(file, sizeof(file), name, priority, cores));
    assert_int_equal(card_make_cell(path_of(file)), 0);
    assert_int_equal(card_open_ranked(card, path_of(file), folder, true, priority), 0);
}

static bool yields_at(struct card *card, int64_t now_ns)
{
    int64_t until_ns;

    atomic_store(&card->rank_looked_ns, now_ns - CARD_LOOK_NS);
    return card_yields(card, now_ns, 0, &until_ns);
}

static void who_is_of_higher_priority_goes_first(void **state)
{
    struct card *cards = *state, high = {.own = NULL};
    int64_t until_ns = 0;

    open_ranked(&high, "h", 0, 0);
    card_look_around(&cards[0]);
    card_want(&high, T0);
    card_want(&cards[0], T0);
    assert_false(yields_at(&cards[0], T0));
    card_claim(&high, T0, T0, T0 + NS_PER_MS);
    assert_true(yields_at(&cards[0], T0));
    assert_false(yields_at(&cards[0], T0 + NS_PER_MS));
    assert_false(yields_at(&high, T0)); /* and not the other way round */
    card_claim(&cards[0], T0, T0, T0 + NS_PER_MS);
    assert_false(yields_at(&high, T0));
    assert_false(yields_at(&cards[1], T0)); /* it has not looked around */
    card_look_around(&cards[1]);
    assert_true(yields_at(&cards[1], T0));
    assert_true(cards[0].has_betters && !cards[0].has_lessers);
    assert_true(high.has_lessers && !high.has_betters);

    /* What was launched before it came holds it up by as much, and the switches. */
    card_claim(&high, T0 + NS_PER_S, T0 + NS_PER_S, T0 + NS_PER_S + 4 * NS_PER_MS);
    atomic_store(&cards[0].rank_looked_ns, 0);
    assert_true(card_yields(&cards[0], T0 + NS_PER_S, T0 + NS_PER_S + 2 * NS_PER_MS, &until_ns));
    assert_true(until_ns >= T0 + NS_PER_S + 6 * NS_PER_MS);
    assert_true(until_ns <= T0 + NS_PER_S + 7 * NS_PER_MS);
    card_close(&high);
}

/* A thread that is held while it looks: by then nobody knows what others want. */
static void a_look_that_is_held_up_is_none(void **state)
{
    struct card *cards = *state, high = {.own = NULL};
    int64_t until_ns = 0;

    open_ranked(&high, "h", 0, 0);
    card_look_around(&cards[0]);
    assert_false(is_wanted_at(&cards[0], T0));
    assert_false(yields_at(&cards[0], T0));
    (void)pthread_mutex_lock(&cards[0].lock);
    assert_false(card_is_wanted(&cards[0], T0 + CARD_STALE_NS / 2));
    assert_false(card_yields(&cards[0], T0 + CARD_STALE_NS / 2, 0, &until_ns));
    assert_true(card_is_wanted(&cards[0], T0 + CARD_STALE_NS));
    assert_true(card_yields(&cards[0], T0 + CARD_STALE_NS, 0, &until_ns));
    assert_true(until_ns > T0 + CARD_STALE_NS);
    (void)pthread_mutex_unlock(&cards[0].lock);
    assert_false(card_is_wanted(&cards[0], T0 + CARD_STALE_NS));
    assert_false(card_yields(&cards[0], T0 + CARD_STALE_NS, 0, &until_ns));
    card_close(&high);
}

/* As a tenant's cell that only root may read any more, or that has a lease on it. */
static void a_cell_that_is_closed_hides_no_other(void **state)
{
    struct card *cards = *state, high = {.own = NULL};
    char name[8];

    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof(name), "c%u", i);
        assert_int_equal(symlink("nowhere", path_of(name)), 0);
    }
    open_ranked(&high, "h", 0, 0);
    for (unsigned i = 20; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "c%u", i);
        assert_int_equal(symlink("nowhere", path_of(name)), 0);
    }
    card_look_around(&cards[0]);
    card_want(&high, T0);
    card_claim(&high, T0, T0, T0 + NS_PER_MS);
    assert_true(yields_at(&cards[0], T0));
    assert_true(
        is_wanted_at(&cards[0], T0 + NS_PER_S)); /* whether the closed ones want it is not known */
    card_close(&high);
}

/* By a program that closes all descriptors, and has files of its own under their numbers then. */
static void put_over(const struct card *card, int other)
{
    for (unsigned i = 0; i < card->count; i++)
        assert_int_equal(dup2(other, card->others[i].cell.fd), card->others[i].cell.fd);
}

static void files_of_the_program_under_our_numbers_are_left_alone(void **state)
{
    struct card *cards = *state;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), numbers[2];

    assert_int_equal(cards[2].count, 2);
    for (unsigned i = 0; i < 2; i++)
        numbers[i] = cards[2].others[i].cell.fd;
    put_over(&cards[2], null);
    assert_true(is_wanted_at(&cards[2], T0)); /* nobody knows */
    card_look_around(&cards[2]);
    assert_false(is_wanted_at(&cards[2], T0));
    put_over(&cards[2], null);
    card_close(&cards[2]);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(fcntl(numbers[i], F_GETFD), 0);
}

/* More descriptors than these can't be had. Returns how many could before. */
static rlim_t allow_files(rlim_t count)
{
    struct rlimit limit;
    rlim_t before;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    before = limit.rlim_cur;
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void hide_folder(bool hidden)
{
    char other[sizeof(folder) + 8];

    (void)snprintf(other, sizeof(other), "%s.hidden", folder);
    assert_int_equal(hidden ? rename(folder, other) : rename(other, folder), 0);
}

static void cells_stay_known_where_nobody_can_look_around(void **state)
{
    struct card *cards = *state, high = {.own = NULL};
    rlim_t most = 0;

    open_ranked(&high, "h", 0, 0);
    card_look_around(&cards[0]);
    for (unsigned way = 0; way < 2; way++) {
        const int64_t now_ns = T0 + way * NS_PER_S;

        if (way == 0)
            most = allow_files(3);
        else
            hide_folder(true);
        card_look_around(&cards[0]);
        assert_true(is_wanted_at(&cards[0], now_ns)); /* others may have come */
        assert_false(yields_at(&cards[0], now_ns));
        card_want(&high, now_ns);
        card_claim(&high, now_ns, now_ns, now_ns + NS_PER_MS);
        assert_true(yields_at(&cards[0], now_ns));
        assert_false(yields_at(&cards[0], now_ns + NS_PER_MS)); /* it says itself when it is done */
        if (way == 0)
            (void)allow_files(most);
        else
            hide_folder(false);
        card_look_around(&cards[0]);
        assert_false(is_wanted_at(&cards[0], now_ns + CARD_WANT_NS));
    }
    card_close(&high);
}

/* Without its descriptor too, nobody can tell what a cell says. */
static void who_cannot_be_asked_goes_first_for_its_share_until_its_cell_is_gone(void **state)
{
    struct card *cards = *state, high = {.own = NULL};
    int64_t yielded = 0, looks = 0;
    rlim_t most;

    open_ranked(&high, "h", 0, 30);
    card_look_around(&cards[0]);
    for (unsigned i = 0; i < cards[0].count; i++) {
        if (cards[0].others[i].priority == 0)
            assert_int_equal(close(cards[0].others[i].cell.fd), 0);
    }
    most = allow_files(3);
    card_look_around(&cards[0]);
    for (int64_t now_ns = T0; now_ns < T0 + 20 * NS_PER_S; now_ns += NS_PER_MS / 2) {
        yielded += yields_at(&cards[0], now_ns);
        looks++;
    }
    (void)allow_files(most);
    assert_true(yielded > looks * 38 / 100);
    assert_true(yielded < looks * 42 / 100);
    card_close(&high);
    assert_int_equal(unlink(path_of("h.0.30")), 0);
    card_look_around(&cards[0]);
    assert_false(yields_at(&cards[0], T0 + 21 * NS_PER_S));
}

/* From the beginning: its name alone is known. */
static void a_cell_that_could_never_be_opened_has_its_priority(void **state)
{
    struct card *cards = *state;
    rlim_t most;
    int next;

    assert_int_equal(card_make_cell(path_of("h.0.0")), 0);
    next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(next);
    most = allow_files((rlim_t)next + 1); /* the folder takes it */
    card_look_around(&cards[0]);
    (void)allow_files(most);
    assert_true(yields_at(&cards[0], T0));
    card_look_around(&cards[0]);
    assert_false(yields_at(&cards[0], T0 + NS_PER_S));
}

static void a_claim_for_ever_is_not_believed(void **state)
{
    struct card *cards = *state, high = {.own = NULL};

    open_ranked(&high, "h", 0, 0);
    card_look_around(&cards[0]);
    card_want(&high, T0);
    card_claim(&high, T0, T0, T0 + 60 * NS_PER_S);
    assert_true(yields_at(&cards[0], T0));
    assert_false(yields_at(&cards[0], T0 + CARD_CLAIM_NS + 1)); /* unless it is said again */
    atomic_store(&high.own->busy_until_ns, INT64_MAX);
    assert_false(yields_at(&cards[0], T0));
    atomic_store(&high.own->busy_until_ns, T0 + NS_PER_MS);
    atomic_store(&high.own->busy_since_ns, INT64_MIN);
    assert_false(yields_at(&cards[0], T0));
    card_close(&high);
}

static void who_always_claims_to_have_work_gets_its_share_and_10_points(void **state)
{
    struct card *cards = *state, liar = {.own = NULL};
    int64_t yielded = 0, looks = 0;

    open_ranked(&liar, "l", 0, 30);
    card_look_around(&cards[0]);
    for (int64_t now_ns = T0; now_ns < T0 + 20 * NS_PER_S; now_ns += NS_PER_MS / 2) {
        card_want(&liar, now_ns);
        card_claim(&liar, now_ns, now_ns, now_ns + CARD_CLAIM_NS);
        yielded += yields_at(&cards[0], now_ns);
        looks++;
        if (looks % 500 == 0)
            card_look_around(&cards[0]); /* which forgets nothing of it */
    }
    assert_true(yielded > looks * 38 / 100);
    assert_true(yielded < looks * 42 / 100);
    card_close(&liar);
}

static void claim_all(struct card *const *claiming, unsigned count, int64_t now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        card_want(claiming[i], now_ns);
        card_claim(claiming[i], now_ns, now_ns, now_ns + NS_PER_MS);
    }
}

static void equals_take_turns_beside_one_of_higher_priority(void **state)
{
    enum { TURNS = 500 };
    struct card *cards = *state, high = {.own = NULL};
    struct card *const equals[] = {&cards[0], &cards[1]};
    const int64_t turn_ns = 8 * NS_PER_MS, from_ns = T0 / turn_ns * turn_ns;
    unsigned yielded[2] = {0};

    for (unsigned i = 0; i < 2; i++)
        card_look_around(equals[i]);
    claim_all(equals, 2, from_ns);
    assert_false(yields_at(&cards[0], from_ns) || yields_at(&cards[1], from_ns));

    open_ranked(&high, "h", 0, 0);
    card_want(&high, from_ns);
    for (unsigned i = 0; i < 2; i++) {
        card_look_around(equals[i]);
        (void)yields_at(equals[i], from_ns); /* it is seen that there is one */
    }
    for (int64_t now_ns = from_ns + NS_PER_MS; now_ns < from_ns + TURNS * turn_ns;
         now_ns += turn_ns / 4) {
        bool first, second;

        claim_all(equals, 2, now_ns);
        first = yields_at(&cards[0], now_ns);
        second = yields_at(&cards[1], now_ns);
        assert_true(first != second);
        yielded[0] += first;
        yielded[1] += second;
    }
    assert_true(abs((int)yielded[0] - (int)yielded[1]) < 4 * TURNS / 5);

    /* Who has nothing keeps nobody waiting. */
    for (int64_t now_ns = T0 + 8 * NS_PER_S; now_ns < T0 + 9 * NS_PER_S; now_ns += turn_ns / 4) {
        claim_all(equals, 1, now_ns);
        assert_false(yields_at(&cards[0], now_ns));
    }
    card_close(&high);
}

static void an_equal_that_always_claims_gets_its_share_and_10_points(void **state)
{
    struct card *cards = *state, high = {.own = NULL}, liar = {.own = NULL};
    int64_t yielded = 0, looks = 0;

    open_ranked(&high, "h", 0, 0);
    open_ranked(&liar, "l", CARD_PRIORITY, 15);
    card_look_around(&cards[0]);
    for (int64_t now_ns = T0; now_ns < T0 + 20 * NS_PER_S; now_ns += NS_PER_MS / 2) {
        struct card *const liars[] = {&liar};

        card_want(&high, now_ns);
        claim_all(liars, 1, now_ns);
        yielded += yields_at(&cards[0], now_ns);
        looks++;
    }
    assert_true(yielded > looks * 20 / 100);
    assert_true(yielded < looks * 27 / 100);
    card_close(&liar);
    card_close(&high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_wants_the_card_is_seen_by_the_others_for_a_while,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_wanted_it_lately_is_known_for_longer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_was_read_holds_for_a_moment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cells_that_come_and_go_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cell_that_its_owner_damaged_harms_nobody, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_lease_that_another_has_of_the_cell_does_not_keep_its_owner_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_folder_in_its_place_does_not_make_the_card_idle,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_cell_leaves_the_old_one_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_share_a_card, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_of_higher_priority_goes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_look_that_is_held_up_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equals_take_turns_beside_one_of_higher_priority, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_equal_that_always_claims_gets_its_share_and_10_points,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cell_that_is_closed_hides_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_the_program_under_our_numbers_are_left_alone,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(cells_stay_known_where_nobody_can_look_around, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            who_cannot_be_asked_goes_first_for_its_share_until_its_cell_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cell_that_could_never_be_opened_has_its_priority, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_claim_for_ever_is_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_always_claims_to_have_work_gets_its_share_and_10_points,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_too_many_none_is_missed, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
