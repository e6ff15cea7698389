/* SPDX-License-Identifier: Apache-2.0 */

/* Pods of many requests, over many nodes. */

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "cluster/state.h"

enum {
    NODES = 1000,
    CONTAINERS = 200, /* so that one question looks into 500 nodes of one card */
    LOOKED_INTO = 500,
    TRIED = 250, /* with a pod on each that may go */
};

static char names[NODES][16];
static const char *list[NODES];

static void add_nodes(struct fixture *fixture)
{
    for (size_t i = 0; i < NODES; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "n%04zu", i);
        list[i] = names[i];
        fixture_add_node(fixture->cluster, names[i], 10000);
    }
}

/* A pod of so many containers, one after the other but for the last, which take as much each. */
static struct pod waiting_pod(const char *uid, size_t inits, size_t apps, int mib)
{
    static struct container containers[CONTAINERS];
    static struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                        {.name = "nvidia.com/gpumem", .text = ""}};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .has_spec = true,
        .has_priority = true,
        .priority = strncmp(uid, "small", 5) == 0 ? 1 : 10,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .init_count = inits,
        .container_count = inits + apps,
        .containers = containers,
    };

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    for (size_t i = 0; i < inits + apps; i++)
        containers[i] = (struct container){.name = "c",
                                           .role = i < inits ? CONTAINER_INIT : CONTAINER_APP,
                                           .has_resources = true,
                                           .has_limits = true,
                                           .limits = {limits, 2}};
    return pod;
}

static int ask(struct fixture *fixture, const char *uid, size_t inits, size_t apps, int mib,
               const char *node, struct cluster_answer *ret_answer)
{
    const struct pod pod = waiting_pod(uid, inits, apps, mib);

    arena_reset(fixture->arena);
    return cluster_filter(fixture->cluster, &pod, node ? &node : list, node ? 1 : NODES, 0,
                          fixture->arena, ret_answer, NULL);
}

static size_t count_later(const struct cluster_answer *answer)
{
    size_t count = 0;

    for (size_t i = 0; i < answer->failed_count; i++) {
        if (!strstr(answer->failed[i].reason, "not looked into yet"))
            continue;
        assert_false(answer->failed[i].for_good);
        count++;
    }
    return count;
}

static void test_one_question_looks_into_so_many_nodes_and_the_next_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    add_nodes(fixture);
    assert_int_equal(ask(fixture, "large", CONTAINERS - 2, 2, 6000, NULL, &answer),
                     CLUSTER_REFUSED);
    assert_int_equal(answer.failed_count, NODES);
    assert_int_equal(count_later(&answer), NODES - LOOKED_INTO);
    assert_true(answer.partly); /* so that nobody is evicted for it */
    assert_non_null(strstr(answer.summary, "500/1000 nodes not looked into yet"));
    assert_int_equal(ask(fixture, "large", CONTAINERS - 2, 2, 6000, NULL, &answer),
                     CLUSTER_REFUSED);
    assert_int_equal(count_later(&answer), 0);
    assert_false(answer.partly);
    assert_null(strstr(answer.summary, "not looked into yet"));
}

static void test_the_emptiest_nodes_are_looked_into_first(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    char uid[32];

    add_nodes(fixture);
    for (size_t i = 0; i + 1 < NODES; i++) {
        (void)snprintf(uid, sizeof(uid), "small-%zu", i);
        assert_int_equal(ask(fixture, uid, 0, 1, 5000, names[i], &answer), CLUSTER_PLACED);
    }
    assert_int_equal(ask(fixture, "large", CONTAINERS - 1, 1, 6000, NULL, &answer), CLUSTER_PLACED);
    assert_string_equal(answer.node, names[NODES - 1]);
}

static void test_a_pod_of_few_requests_looks_into_all_nodes(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    add_nodes(fixture);
    assert_int_equal(ask(fixture, "small", 2, 2, 6000, NULL, &answer), CLUSTER_REFUSED);
    assert_int_equal(count_later(&answer), 0);
}

/* A pod that runs on the node, and leaves no room there. */
static void fill(struct fixture *fixture, const char *uid, size_t node)
{
    const struct cluster_bind bind = {"default", uid, uid, names[node]};
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(ask(fixture, uid, 0, 1, 10000, names[node], &answer), CLUSTER_PLACED);
    assert_int_equal(
        cluster_bind(fixture->cluster, &bind, 0, 0, fixture->arena, &annotations, NULL), 0);
    fixture_show(fixture, uid, &annotations);
}

static void test_one_question_tries_victims_on_so_many_nodes(void **state)
{
    static struct cluster_victims victims[NODES];
    static char uids[NODES][16];
    static const char *victim[NODES];
    struct fixture *fixture = *state;
    size_t count = NODES;
    struct pod pod;

    add_nodes(fixture);
    for (size_t i = 0; i < NODES; i++) {
        (void)snprintf(uids[i], sizeof(uids[i]), "small-%zu", i);
        victim[i] = uids[i];
        victims[i] = (struct cluster_victims){names[i], &victim[i], 1, 0};
        fill(fixture, uids[i], i);
    }
    pod = waiting_pod("large", CONTAINERS - 2, 2, 5000);
    assert_int_equal(cluster_preempt(fixture->cluster, &pod, victims, &count, fixture->arena, NULL),
                     0);
    assert_int_equal(count, TRIED);
    pod = waiting_pod("few", 2, 2, 5000);
    count = NODES;
    assert_int_equal(cluster_preempt(fixture->cluster, &pod, victims, &count, fixture->arena, NULL),
                     0);
    assert_int_equal(count, NODES);
}

/* The node that is looked into last: they are taken in the order in which they lie in memory. */
static size_t last_node(struct fixture *fixture)
{
    size_t last = 0;

    for (size_t i = 1; i < NODES; i++) {
        if (node_find(fixture->cluster, names[i])->place >
            node_find(fixture->cluster, names[last])->place)
            last = i;
    }
    return last;
}

/* Only of one node, which is in the last part, a pod may go. */
static void test_victims_are_looked_for_a_part_after_the_other(void **state)
{
    struct fixture *fixture = *state;
    const struct cluster_options options = {.vendors = &fixture->vendors, .evicts = true};
    struct cluster_eviction_due due = {.requeue = true};
    struct pod pod;
    size_t questions = 0, last;
    int64_t now_ns = 0;

    cluster_free(fixture->cluster);
    fixture->cluster = cluster_new(&options);
    fixture_list(fixture->cluster);
    add_nodes(fixture);
    last = last_node(fixture);
    for (size_t i = 0; i < NODES; i++) {
        char uid[16];

        (void)snprintf(uid, sizeof(uid), "%s-%zu", i == last ? "small" : "same", i);
        fill(fixture, uid, i);
    }
    while (due.requeue && questions < 10) {
        struct cluster_answer answer;

        arena_reset(fixture->arena);
        pod = waiting_pod("large", CONTAINERS - 2, 2, 5000);
        assert_int_equal(cluster_filter(fixture->cluster, &pod, list, NODES, now_ns, fixture->arena,
                                        &answer, NULL),
                         CLUSTER_REFUSED);
        if (answer.partly)
            continue;
        questions++;
        now_ns += NS_PER_S;
        assert_int_equal(cluster_evictions(fixture->cluster, now_ns, fixture->arena, &due, 1), 1);
    }
    assert_int_equal(questions, NODES / TRIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_one_question_looks_into_so_many_nodes_and_the_next_goes_on),
        FIXTURE_TEST(test_the_emptiest_nodes_are_looked_into_first),
        FIXTURE_TEST(test_a_pod_of_few_requests_looks_into_all_nodes),
        FIXTURE_TEST(test_one_question_tries_victims_on_so_many_nodes),
        FIXTURE_TEST(test_victims_are_looked_for_a_part_after_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
