/* SPDX-License-Identifier: Apache-2.0 */

/* Reservations: from a filter's decision to the bound pod. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "cluster/state.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static void test_a_decision_holds_its_devices(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_string_equal(answer.node, "a");
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(answer.failed_count, 2);
    assert_string_equal(answer.failed[0].reason, "1/1 CardInsufficientMemory");
    assert_string_equal(answer.failed[1].reason, "the node is not known");
    assert_string_equal(answer.summary, "no available node, 2 nodes do not meet: 1/1 "
                                        "CardInsufficientMemory, 1/2 nodes have no devices");
}

static void test_a_pod_that_is_asked_for_again_gives_back_first(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 2);
}

static void test_a_reservation_ends_and_is_renewed_where_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "late", 300, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 1);
    assert_int_equal(fixture_bind(fixture, "one", 62 * SECOND, &annotations), 0);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 2);
}

static void test_a_reservation_that_ended_is_lost_to_the_next_pod(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "late", 700, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, "one", 62 * SECOND, &annotations), -ENOSPC);
    assert_int_equal(fixture_bind(fixture, "one", 62 * SECOND, &annotations), -ENOENT);
}

static void
test_a_reservation_that_ended_is_not_renewed_beside_others_against_its_policy(void **state)
{
    const struct text_pair alone = {KEY_DEVICE_POLICY, "mutex"};
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_answer answer;

    assert_int_equal(fixture_filter_noted(fixture, "one", 100, &alone, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "two", 100, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, "one", 62 * SECOND, &annotations), -ENOSPC);
}

static void test_a_bind_needs_its_decision(void **state)
{
    struct fixture *fixture = *state;
    const struct cluster_bind elsewhere = {"default", "one", "one", "b"};
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(fixture_bind(fixture, "one", 0, &annotations), -ENOENT);
    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(
        cluster_bind(fixture->cluster, &elsewhere, 0, 0, fixture->arena, &annotations, NULL),
        -ENOENT);
    assert_int_equal(fixture_bind(fixture, "one", 0, &annotations), 0);
    assert_int_equal(fixture_bind(fixture, "one", 0, &annotations), -EBUSY);
    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), -EBUSY);
    assert_string_equal(text_pairs_get(&annotations, KEY_NODE), "a");
    assert_string_equal(text_pairs_get(&annotations, NVIDIA_ALLOCATED_KEY), "GPU-a,NVIDIA,600,0:;");
    assert_string_equal(text_pairs_get(&annotations, NVIDIA_TO_ALLOCATE_KEY),
                        "GPU-a,NVIDIA,600,0:;");
    assert_string_equal(text_pairs_get(&annotations, KEY_BIND_PHASE), BIND_PHASE_ALLOCATING);
    assert_string_equal(text_pairs_get(&annotations, KEY_BIND_TIME), "1700000000");
}

static void test_a_bind_that_failed_gives_back_and_one_unknown_does_not(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    cluster_expire(fixture->cluster, 100000 * SECOND);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    cluster_bound(fixture->cluster, "one", CLUSTER_NOT_BOUND, 0);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_PLACED);
}

static void test_a_watched_pod_takes_the_place_of_its_reservation(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations); /* before the answer to the bind */
    cluster_bound(fixture->cluster, "one", CLUSTER_NOT_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 0);
    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), -EBUSY);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(fixture_filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_a_bound_pod_that_a_later_list_does_not_show_is_gone(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    fixture_list(fixture->cluster);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
}

static void test_a_bound_pod_that_the_watch_does_not_show_is_asked_about(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct cluster_pod_name unseen[2];
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_list(fixture->cluster); /* it came and went */
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 5 * SECOND);
    assert_int_equal(cluster_unseen(fixture->cluster, 34 * SECOND, fixture->arena, unseen, 2), 0);
    cluster_expire(fixture->cluster, 1000 * SECOND);
    assert_int_equal(fixture_filter(fixture, "two", 600, 34 * SECOND, &answer), CLUSTER_REFUSED);
    assert_int_equal(cluster_unseen(fixture->cluster, 35 * SECOND, fixture->arena, unseen, 2), 1);
    assert_string_equal(unseen[0].uid, "one");
    assert_string_equal(unseen[0].namespace, "default");
    assert_string_equal(unseen[0].name, "one");
    assert_int_equal(cluster_unseen(fixture->cluster, 64 * SECOND, fixture->arena, unseen, 2), 0);
    assert_int_equal(cluster_unseen(fixture->cluster, 65 * SECOND, fixture->arena, unseen, 2), 1);
    cluster_gone(fixture->cluster, "one");
    assert_int_equal(fixture_filter(fixture, "two", 600, 66 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_unseen(fixture->cluster, 999 * SECOND, fixture->arena, unseen, 2), 0);
}

static void test_a_pod_that_the_watch_shows_is_not_asked_about(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name unseen[2];
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    fixture_show(fixture, "one", &annotations);
    assert_int_equal(cluster_unseen(fixture->cluster, 99 * SECOND, fixture->arena, unseen, 2), 0);
    cluster_gone(fixture->cluster, "one"); /* the answer to an older question */
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
}

static void test_a_pod_found_after_an_unknown_bind_holds_what_it_says(void **state)
{
    struct fixture *fixture = *state;
    struct text_pair others[] = {{KEY_NODE, "a"}, {NVIDIA_ALLOCATED_KEY, "GPU-a,NVIDIA,200,0:;"}};
    const struct text_pairs none = {0}, given = {others, 2};
    struct pod pod = {.namespace = "default", .name = "one", .uid = "one", .resource_version = "3"};
    struct cluster_answer answer;
    struct text_pairs annotations;
    bool ours;

    fixture_start_bind(fixture, "one", &annotations);
    pod.annotations = annotations;
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_true(ours);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    cluster_delete_pod(fixture->cluster, "one");

    fixture_start_bind(fixture, "one", &annotations);
    pod.annotations = given;
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_false(ours);
    assert_int_equal(fixture_filter(fixture, "two", 800, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "three", 1, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "two", 5000, 0, &answer), CLUSTER_REFUSED);
    cluster_delete_pod(fixture->cluster, "one");

    fixture_start_bind(fixture, "one", &annotations);
    pod.annotations = none; /* bound by another scheduler */
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_false(ours);
    assert_int_equal(fixture_filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_a_new_term_begins_with_what_the_next_list_shows(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    assert_int_equal(fixture_filter(fixture, "reserved", 400, 0, &answer), CLUSTER_PLACED);
    cluster_begin_term(fixture->cluster);
    assert_int_equal(fixture_filter(fixture, "two", 401, 0, &answer), CLUSTER_REFUSED);
    cluster_begin(fixture->cluster, CLUSTER_PODS);
    fixture_show(fixture, "one", &annotations);
    cluster_complete(fixture->cluster, CLUSTER_PODS);
    assert_int_equal(fixture_filter(fixture, "two", 401, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_bind(fixture, "reserved", 0, &annotations), -ENOENT);
    cluster_delete_pod(fixture->cluster, "one");

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    cluster_begin_term(fixture->cluster);
    fixture_list(fixture->cluster);
    assert_int_equal(fixture_filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_a_decision_of_a_former_term_is_not_renewed(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    cluster_expire(fixture->cluster, 61 * SECOND);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 0);
    cluster_begin_term(fixture->cluster);
    fixture_list(fixture->cluster);
    assert_int_equal(fixture_bind(fixture, "one", 62 * SECOND, &annotations), -ENOENT);
}

static void test_nothing_is_decided_before_all_is_read(void **state)
{
    struct fixture *fixture = *state;
    const struct cluster_options options = {.vendors = &fixture->vendors};
    struct cluster *whole = fixture->cluster;
    struct cluster_answer answer;

    fixture->cluster = cluster_new(&options);
    cluster_begin(fixture->cluster, CLUSTER_NODES);
    fixture_add_node(fixture->cluster, "a", 1000);
    cluster_complete(fixture->cluster, CLUSTER_NODES);
    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), -EAGAIN);
    cluster_free(fixture->cluster);
    fixture->cluster = whole;
}

/* nvidia.com/gpu: 0 names a resource of ours, so kube-scheduler leaves the bind to us. */
static void test_a_pod_that_asks_for_no_device_is_bound_wherever_it_goes(void **state)
{
    struct fixture *fixture = *state;
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = "plain",
        .uid = "plain",
        .resource_version = "1",
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };
    struct text_pairs annotations;
    struct cluster_answer answer;

    assert_int_equal(
        cluster_filter(fixture->cluster, &pod, fixture_nodes, 2, 0, fixture->arena, &answer, NULL),
        CLUSTER_NOT_OURS);
    assert_int_equal(fixture_bind(fixture, "plain", SECOND, &annotations), 0);
    assert_int_equal(annotations.count, 0);
    cluster_bound(fixture->cluster, "plain", CLUSTER_NOT_BOUND, 0);
    cluster_begin_term(fixture->cluster);
    assert_int_equal(fixture_bind(fixture, "plain", 2 * SECOND, &annotations), 0);
    cluster_bound(fixture->cluster, "plain", CLUSTER_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
    assert_int_equal(fixture_bind(fixture, "plain", 100 * SECOND, &annotations), -ENOENT);
}

/* The grant of a decision, and the same as it is read from the annotations. */
static void test_a_grant_of_several_vendors_is_the_same_in_any_order(void **state)
{
    const struct device_vendor one = {.word = "one"}, two = {.word = "two"};
    const struct text_pairs none = {0};
    struct place_share shares[] = {
        {.vendor = &one, .uuid = "a", .usage = {.tasks = 1, .memory_bytes = 100}},
        {.vendor = &two, .uuid = "a", .usage = {.tasks = 1, .memory_bytes = 200}},
    };
    struct place_share turned[] = {shares[1], shares[0]};
    struct place_usage usage = {.count = 2, .shares = shares};
    struct grant *grant = grant_new(&usage, &none, ""), *same, *other;

    usage.shares = turned;
    same = grant_new(&usage, &none, "");
    turned[0].usage.memory_bytes++;
    other = grant_new(&usage, &none, "");
    assert_true(grant_is_same(grant, same));
    assert_false(grant_is_same(grant, other));
    grant_free(grant);
    grant_free(same);
    grant_free(other);
    (void)state;
}

static void test_a_filter_that_names_no_nodes_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct resource limits[1] = {{.name = "nvidia.com/gpu", .text = ""}};
    const struct container container = {
        .name = "c", .has_resources = true, .has_limits = true, .limits = {limits, 1}};
    const struct pod pod = {
        .namespace = "default",
        .name = "p",
        .uid = "p",
        .resource_version = "1",
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };
    struct cluster_answer answer;

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    assert_int_equal(
        cluster_filter(fixture->cluster, &pod, NULL, 0, 0, fixture->arena, &answer, NULL),
        CLUSTER_REFUSED);
    assert_int_equal(answer.failed_count, 0);
}

/* Whether ranks order nodes as their names do. */
static void check_ranks(const struct cluster *cluster)
{
    for (const struct cluster_node *a = cluster->nodes; a; a = a->hh.next) {
        for (const struct cluster_node *b = cluster->nodes; b; b = b->hh.next) {
            if (a->exists && b->exists)
                assert_int_equal(strcmp(a->place->name, b->place->name) < 0,
                                 a->place->rank < b->place->rank);
        }
    }
}

/* One by one into ever smaller gaps, many at once, and some that go. */
static void test_nodes_that_come_are_ranked_by_name(void **state)
{
    struct fixture *fixture = *state;
    struct cluster *cluster = fixture->cluster;
    char name[64] = "n";

    for (int i = 0; i < 40; i++) {
        (void)snprintf(name + strlen(name), sizeof(name) - strlen(name), i % 2 ? "a" : "b");
        fixture_add_node(cluster, name, 1000);
        nodes_rank(cluster);
        check_ranks(cluster);
    }
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i * 37u % 100);
        fixture_add_node(cluster, name, 1000);
        if (i == 20 || i == 25 || i == 60) {
            nodes_rank(cluster);
            check_ranks(cluster);
            cluster_delete_node(cluster, "m0");
            cluster_delete_node(cluster, "nb");
        }
    }
    fixture_add_node(cluster, "nb", 1000);
    nodes_rank(cluster);
    check_ranks(cluster);
    assert_int_equal(cluster->unranked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_a_decision_holds_its_devices),
        FIXTURE_TEST(test_a_pod_that_is_asked_for_again_gives_back_first),
        FIXTURE_TEST(test_a_reservation_ends_and_is_renewed_where_there_is_room),
        FIXTURE_TEST(test_a_reservation_that_ended_is_lost_to_the_next_pod),
        FIXTURE_TEST(test_a_reservation_that_ended_is_not_renewed_beside_others_against_its_policy),
        FIXTURE_TEST(test_a_bind_needs_its_decision),
        FIXTURE_TEST(test_a_bind_that_failed_gives_back_and_one_unknown_does_not),
        FIXTURE_TEST(test_a_watched_pod_takes_the_place_of_its_reservation),
        FIXTURE_TEST(test_a_bound_pod_that_a_later_list_does_not_show_is_gone),
        FIXTURE_TEST(test_a_bound_pod_that_the_watch_does_not_show_is_asked_about),
        FIXTURE_TEST(test_a_pod_that_the_watch_shows_is_not_asked_about),
        FIXTURE_TEST(test_a_pod_found_after_an_unknown_bind_holds_what_it_says),
        FIXTURE_TEST(test_a_new_term_begins_with_what_the_next_list_shows),
        FIXTURE_TEST(test_a_decision_of_a_former_term_is_not_renewed),
        FIXTURE_TEST(test_nothing_is_decided_before_all_is_read),
        FIXTURE_TEST(test_a_pod_that_asks_for_no_device_is_bound_wherever_it_goes),
        FIXTURE_TEST(test_a_grant_of_several_vendors_is_the_same_in_any_order),
        FIXTURE_TEST(test_a_filter_that_names_no_nodes_is_refused),
        FIXTURE_TEST(test_nodes_that_come_are_ranked_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
