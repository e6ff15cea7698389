/* SPDX-License-Identifier: Apache-2.0 */

/* Refused pods that kube-scheduler must be made to try again. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static size_t to_requeue(struct fixture *fixture, int64_t now_ns, struct cluster_pod_name *ret_pods)
{
    return cluster_requeue(fixture->cluster, now_ns, fixture->arena, ret_pods, 1);
}

static void test_a_pod_not_asked_for_again_is_requeued(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "three", 700, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(to_requeue(fixture, 9 * SECOND, pods), 0);
    assert_false(answer.again);
    assert_int_equal(fixture_filter(fixture, "three", 700, 0, &answer), CLUSTER_REFUSED);
    assert_true(answer.again);

    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(to_requeue(fixture, 10 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 11 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
    assert_string_equal(pods[0].name, "two");
    assert_string_equal(pods[0].namespace, "default");
    assert_int_equal(fixture_filter(fixture, "three", 700, 11 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "two", 600, 11 * SECOND, &answer), CLUSTER_REFUSED);
    assert_false(answer.again);
    assert_int_equal(to_requeue(fixture, 20 * SECOND, pods), 0);

    cluster_expire(fixture->cluster, 80 * SECOND);
    assert_int_equal(to_requeue(fixture, 80 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 81 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
    assert_int_equal(to_requeue(fixture, 90 * SECOND, pods), 0);

    assert_int_equal(fixture_filter(fixture, "four", 2000, 90 * SECOND, &answer), CLUSTER_REFUSED);
    fixture_add_node(fixture->cluster, "b", 3000);
    assert_int_equal(to_requeue(fixture, 91 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 92 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "four");
}

static void test_a_refusal_after_devices_came_free_is_no_repetition(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_answer answer;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations);
    assert_int_equal(fixture_filter(fixture, "large", 2000, 0, &answer), CLUSTER_REFUSED);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(fixture_filter(fixture, "large", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_false(answer.again);
    assert_int_equal(fixture_filter(fixture, "large", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_true(answer.again);
}

/* A bind that the watch shows frees nothing, nor does a reservation that is made again. */
static void test_no_pod_is_requeued_where_nothing_came_free(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "one", 600, SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, "one", SECOND, &annotations), 0);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    fixture_show(fixture, "one", &annotations);
    assert_int_equal(to_requeue(fixture, 2 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 3 * SECOND, pods), 0);
    assert_int_equal(fixture_filter(fixture, "two", 600, 3 * SECOND, &answer), CLUSTER_REFUSED);
    assert_true(answer.again);

    assert_int_equal(fixture_filter(fixture, "small", 300, 4 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "small", 200, 4 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(to_requeue(fixture, 5 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 6 * SECOND, pods), 1);
}

/* kube-scheduler tries every pod again within that time: a pod that it does not ask about is
 * gone. */
static void test_a_pod_not_asked_for_in_minutes_is_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;

    assert_int_equal(fixture_filter(fixture, "one", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "two", 2000, 100 * SECOND, &answer), CLUSTER_REFUSED);
    fixture_add_node(fixture->cluster, "b", 3000);
    assert_int_equal(to_requeue(fixture, 400 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 401 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
}

/* Kubernetes' names are shorter than what is kept of them. */
static void test_a_name_that_cant_be_is_not_kept(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;
    char name[601];

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(fixture_filter(fixture, name, 2000, 0, &answer), CLUSTER_REFUSED);
    fixture_add_node(fixture->cluster, "b", 3000);
    assert_int_equal(to_requeue(fixture, SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 3 * SECOND, pods), 0);
    name[200] = '\0';
    assert_int_equal(fixture_filter(fixture, name, 4000, 4 * SECOND, &answer), CLUSTER_REFUSED);
    fixture_add_node(fixture->cluster, "b", 5000);
    assert_int_equal(to_requeue(fixture, 5 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 7 * SECOND, pods), 1);
    assert_string_equal(pods[0].name, name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_a_pod_not_asked_for_again_is_requeued),
        FIXTURE_TEST(test_a_refusal_after_devices_came_free_is_no_repetition),
        FIXTURE_TEST(test_no_pod_is_requeued_where_nothing_came_free),
        FIXTURE_TEST(test_a_pod_not_asked_for_in_minutes_is_forgotten),
        FIXTURE_TEST(test_a_name_that_cant_be_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
