/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/tell.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/util.h"
#include "kube/check_server.h"
#include "kube/notice.h"
#include "monitor/process.h"

#define CARD "GPU-a"

static unsigned notices;

void notice_write(struct kube_client *kube, const struct notice *notice)
{
    (void)kube;
    assert_string_equal(notice->name, "one");
    notices++;
}

const struct pod_name *pod_names_find(const struct pod_names *names, const char *uid)
{
    static const struct pod_name one = {.namespace = "ns", .name = "one"};
    static const struct pod_name exempt = {.namespace = "kube-system", .name = "dcgm"};

    (void)names;
    if (strcmp(uid, "unknown") == 0)
        return NULL;
    return strcmp(uid, "exempt") == 0 ? &exempt : &one;
}

int process_kill(const char *procfs, pid_t pid, uint64_t start_ticks)
{
    (void)procfs;
    (void)pid;
    (void)start_ticks;
    fail();
    return 0;
}

/* What lasts, or nothing. */
static struct bypass bypass;
static struct tell *tell;

static int begin(void **state)
{
    const struct tell_options options = {.node_name = "node-1", .exempt = "gpu,kube-system"};

    (void)state;
    memset(&server, 0, sizeof(server));
    notices = 0;
    memset(&bypass, 0, sizeof(bypass));
    tell = tell_new(&options);
    return tell ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    tell_free(tell);
    return 0;
}

static void add_case(const char *uid)
{
    struct bypass_case *item = &bypass.cases[bypass.count++];

    *item = (struct bypass_case){.kind = BYPASS_NO_SLOT, .lasts = true};
    COPY_TEXT(item->pod_uid, uid);
    COPY_TEXT(item->uuid, CARD);
}

static void act(unsigned second)
{
    const struct bypass_look look = {.now_ns = (1000 + (int64_t)second) * NS_PER_S};

    tell_act(tell, &bypass, &look);
}

static bool says(const char *word)
{
    return strstr(server.body, word) != NULL;
}

static void the_condition_is_true_until_a_minute_was_calm(void **state)
{
    (void)state;
    act(0);
    assert_int_equal(server.writes, 1);
    assert_true(says("\"status\":\"False\""));
    answer(200);
    add_case("u");
    act(1);
    assert_int_equal(server.writes, 2);
    assert_true(says("\"status\":\"True\"") && says("pod ns/one: process 0 holds"));
    answer(200);
    act(10);
    bypass.cases[0].lasts = false;
    act(11);
    act(69);
    assert_int_equal(server.writes, 2);
    act(70);
    assert_int_equal(server.writes, 3);
    assert_true(says("\"status\":\"False\""));
    answer(200);
    act(200);
    assert_int_equal(server.writes, 3);
    assert_int_equal(notices, 1);
}

static void a_write_that_failed_is_made_again_after_a_while(void **state)
{
    (void)state;
    act(0);
    act(1); /* it is under way */
    assert_int_equal(server.writes, 1);
    answer(500);
    act(4);
    assert_int_equal(server.writes, 1);
    act(5);
    assert_int_equal(server.writes, 2);
    answer(200);
    act(100);
    assert_int_equal(server.writes, 2);
}

static void pods_that_are_exempt_or_unknown_are_left_alone(void **state)
{
    struct tell_case cases[4];
    struct tell_counts counts;

    (void)state;
    add_case("exempt");
    add_case("unknown");
    act(0);
    assert_true(says("\"status\":\"False\""));
    assert_int_equal(tell_read(tell, cases, ARRAY_SIZE(cases), &counts), 0);
    assert_int_equal(counts.found[BYPASS_NO_SLOT], 0);
    assert_int_equal(notices, 0);
    answer(200);
    add_case("u");
    act(1);
    assert_true(says("\"status\":\"True\""));
    assert_int_equal(tell_read(tell, cases, ARRAY_SIZE(cases), &counts), 1);
    assert_string_equal(cases[0].pod, "one");
    assert_int_equal(counts.found[BYPASS_NO_SLOT], 1);
    assert_int_equal(notices, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_condition_is_true_until_a_minute_was_calm, begin, end),
        cmocka_unit_test_setup_teardown(a_write_that_failed_is_made_again_after_a_while, begin,
                                        end),
        cmocka_unit_test_setup_teardown(pods_that_are_exempt_or_unknown_are_left_alone, begin, end),
    };

    return cmocka_run_group_tests_name("tell", tests, NULL, NULL);
}
