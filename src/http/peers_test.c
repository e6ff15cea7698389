/* SPDX-License-Identifier: Apache-2.0 */

/* Which connection gives way; how long a slow one is waited for, tests/scheduler/peers.py. */

#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "base/check.h"
#include "http/internal.h"

/* The rest of the server is not here. */
void server_go_on_accepting(struct http_server *server)
{
    (void)server;
}

static struct http_server server;
static struct peer peers[CONNECTIONS_MAX];

/* No descriptor: shutting it down fails, which is nobody's business. */
static void add(size_t number, bool loopback)
{
    peers[number] = (struct peer){0};
    peer_add(&server, &peers[number], -1, loopback);
}

static size_t count_ended(void)
{
    size_t count = 0;

    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        count += peers[i].ended;
    return count;
}

static int set_up(void **state)
{
    (void)state;
    server = (struct http_server){0};
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        peers[i] = (struct peer){0};
    return 0;
}

static void beyond_their_number_the_idlest_from_elsewhere_goes(void **state)
{
    (void)state;
    add(0, true);
    for (size_t i = 1; i <= ELSEWHERE_KEPT; i++)
        add(i, false);
    assert_int_equal(count_ended(), 0);
    peer_used(&server, &peers[1]);
    peers[2].awaited = 1;
    add(200, false);
    assert_int_equal(count_ended(), 1);
    assert_true(peers[3].ended);
    assert_int_equal(server.elsewhere_count, ELSEWHERE_KEPT);

    /* This machine's own don't make room for others, nor need any yet. */
    add(201, true);
    assert_int_equal(count_ended(), 1);
    assert_false(peers[0].ended);

    /* One that has ended and then goes leaves no room twice. */
    peer_remove(&server, &peers[3]);
    assert_int_equal(server.elsewhere_count, ELSEWHERE_KEPT);
    peer_remove(&server, &peers[4]);
    assert_int_equal(server.elsewhere_count, ELSEWHERE_KEPT - 1);
    add(202, false);
    assert_int_equal(count_ended(), 1);
    add(203, false);
    assert_true(peers[5].ended);
}

static void this_machines_own_give_way_last(void **state)
{
    (void)state;
    add(0, true);
    add(1, true);
    add(2, false);
    for (size_t i = 3; i < CONNECTIONS_KEPT; i++)
        add(i, true);
    assert_int_equal(count_ended(), 0);
    assert_int_equal(server.kept_count, CONNECTIONS_KEPT);
    add(CONNECTIONS_KEPT, true);
    assert_true(peers[2].ended);
    add(CONNECTIONS_KEPT + 1, true);
    assert_true(peers[0].ended);
    assert_false(peers[1].ended);
    assert_int_equal(count_ended(), 2);
    assert_int_equal(server.kept_count, CONNECTIONS_KEPT);
    assert_int_equal(server.peer_count, CONNECTIONS_KEPT + 2);
}

static void while_all_are_awaited_nobody_goes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELSEWHERE_KEPT; i++) {
        add(i, false);
        peers[i].awaited = 1;
    }
    add(ELSEWHERE_KEPT, false);
    assert_int_equal(count_ended(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(beyond_their_number_the_idlest_from_elsewhere_goes, set_up),
        cmocka_unit_test_setup(this_machines_own_give_way_last, set_up),
        cmocka_unit_test_setup(while_all_are_awaited_nobody_goes, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
