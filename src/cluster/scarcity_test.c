/* SPDX-License-Identifier: Apache-2.0 */

/* What the policy scarcity learns, and when its prices change. */

#include "place/scarcity.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "cluster/scarcity.h"
#include "model/keys.h"

static int set_up(void **state)
{
    struct cluster_options options = {.defaults = {.node_order = PLACE_SCARCITY}};
    struct fixture *fixture;

    fixture_set_up(state);
    fixture = *state;
    cluster_free(fixture->cluster);
    options.vendors = &fixture->vendors;
    fixture->cluster = cluster_new(&options);
    fixture_list(fixture->cluster);
    return 0;
}

/* So many pods arrive; each is asked for that often. What they are promised ends. */
static void arrive(struct fixture *fixture, const char *kind, int mib, int count, int times)
{
    struct cluster_answer answer;
    char uid[32];

    for (int i = 0; i < count; i++) {
        (void)snprintf(uid, sizeof(uid), "%s-%d", kind, i);
        for (int k = 0; k < times; k++) {
            assert_true(fixture_filter(fixture, uid, mib, 0, &answer) > 0);
            arena_reset(fixture->arena);
        }
        cluster_delete_pod(fixture->cluster, uid);
    }
}

static struct cluster_class class_of(const struct fixture *fixture, const char *begin)
{
    struct cluster_class classes[8];
    const size_t count = cluster_classes(fixture->cluster, classes, ARRAY_SIZE(classes));

    for (size_t i = 0; i < count; i++) {
        if (strncmp(classes[i].text, begin, strlen(begin)) == 0)
            return classes[i];
    }
    fail_msg("there is no class %s", begin);
    return classes[0];
}

static void test_a_pod_counts_once_whether_it_is_placed_or_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    arrive(fixture, "half", 500, 4, 5);
    assert_int_equal(fixture_filter(fixture, "full", 1000, 0, &answer), CLUSTER_PLACED);
    for (int i = 0; i < 12; i++) {
        char uid[32];

        (void)snprintf(uid, sizeof(uid), "refused-%d", i % 4);
        assert_int_equal(fixture_filter(fixture, uid, 300, 0, &answer), CLUSTER_REFUSED);
    }
    cluster_renew_prices(fixture->cluster);
    assert_float_equal(class_of(fixture, "1x50%").share, 4.0 / 9, 0.001);
    assert_float_equal(class_of(fixture, "1x30%").share, 4.0 / 9, 0.001);
    assert_float_equal(class_of(fixture, "1x100%").share, 1.0 / 9, 0.001);
}

/* kube-scheduler is made to try such a pod whenever devices came free. */
static void test_a_pod_that_waits_counts_once_however_often_it_is_tried(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct cluster_pod_name pod;
    int64_t now_ns = 0;

    arrive(fixture, "half", 500, 4, 1);
    assert_int_equal(fixture_filter(fixture, "full", 1000, 0, &answer), CLUSTER_PLACED);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fixture_filter(fixture, "waits", 1000, now_ns, &answer), CLUSTER_REFUSED);
        cluster_delete_pod(fixture->cluster, "full");
        (void)cluster_requeue(fixture->cluster, now_ns, fixture->arena, &pod, 1);
        now_ns += CLUSTER_REQUEUE_NS;
        assert_int_equal(cluster_requeue(fixture->cluster, now_ns, fixture->arena, &pod, 1), 1);
        assert_int_equal(fixture_filter(fixture, "full", 1000, now_ns, &answer), CLUSTER_PLACED);
    }
    cluster_renew_prices(fixture->cluster);
    assert_float_equal(class_of(fixture, "1x50%").share, 4.0 / 6, 0.001);
    assert_float_equal(class_of(fixture, "1x100%").share, 2.0 / 6, 0.001);
}

static void test_late_arrivals_count_more(void **state)
{
    struct fixture *fixture = *state;

    arrive(fixture, "half", 500, 3000, 1);
    arrive(fixture, "third", 300, 3000, 1);
    cluster_renew_prices(fixture->cluster);
    assert_true(class_of(fixture, "1x30%").share > 0.6);
    assert_true(class_of(fixture, "1x50%").share > 0.1);
}

/* Each arrival counts a little more than the one before. */
static void test_prices_stay_small_whatever_has_arrived(void **state)
{
    enum { ARRIVALS = 300000 };
    struct fixture *fixture = *state;
    const struct request request = {
        .vendor = &fixture->vendors.instances[0].id, .count = 1, .memory_bytes = 500 * MIB};
    const struct container_demand container = {CONTAINER_APP, 1, &request};
    const struct demand demand = {1, &container};
    const struct amounts none = {0};
    char uid[32];

    for (int i = 0; i < ARRIVALS; i++) {
        (void)snprintf(uid, sizeof(uid), "uid-%d", i);
        scarcity_learn(fixture->cluster, uid, &demand, &none);
    }
    cluster_renew_prices(fixture->cluster);
    assert_true(class_of(fixture, "1x50%").price > 1);
    assert_true(class_of(fixture, "1x50%").price < 1e6);
}

static void test_pods_that_exist_are_learned_after_a_restart(void **state)
{
    struct fixture *fixture = *state;

    for (int again = 0; again < 2; again++) {
        (void)fixture_show_whole(fixture, "one", "a", 1, NULL, 0);
        (void)fixture_show_whole(fixture, "two", "a", 1, NULL, 0);
        (void)fixture_show_whole(fixture, "pair", "a", 2, NULL, 0);
    }
    cluster_renew_prices(fixture->cluster);
    assert_float_equal(class_of(fixture, "1x100%").share, 2.0 / 3, 0.001);
    assert_float_equal(class_of(fixture, "2x100%").share, 1.0 / 3, 0.001);
}

/* There is room for so many types in all; what is of a further one costs nothing. */
static void test_one_node_does_not_take_the_room_of_all_types(void **state)
{
    struct fixture *fixture = *state;
    char text[8192] = "[";
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {
        .name = "odd",
        .uid = "",
        .resource_version = "",
        .annotations = {pairs, 1},
        .has_status = true,
        .allocatable = {resources, 1},
    };
    struct cluster_answer answer;

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    for (unsigned i = 0; i < SCARCITY_TYPES; i++) {
        const size_t len = strlen(text);

        (void)snprintf(text + len, sizeof(text) - len,
                       "%s{\"id\":\"GPU-%u\",\"count\":10,\"devmem\":%u,\"devcore\":100,"
                       "\"type\":\"NVIDIA-A\",\"health\":true}",
                       i ? "," : "", i, 100 + i);
    }
    strcat(text, "]");
    assert_int_equal(cluster_set_node(fixture->cluster, &node, NULL), 0);
    fixture_add_node(fixture->cluster, "b", 2000);
    assert_int_equal(fixture_filter(fixture, "one", 1000, 0, &answer), CLUSTER_PLACED);
    cluster_renew_prices(fixture->cluster);
    assert_int_equal(class_of(fixture, "1x100/50%").fillable, 1);
}

static void test_how_many_more_would_fit_is_counted(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    fixture_add_node(fixture->cluster, "b", 1000);
    arrive(fixture, "half", 500, 3, 1);
    arrive(fixture, "third", 300, 3, 1);
    cluster_renew_prices(fixture->cluster);
    assert_int_equal(class_of(fixture, "1x50%").fillable, 4);
    assert_int_equal(class_of(fixture, "1x30%").fillable, 6);
    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    cluster_count_classes(fixture->cluster);
    while (cluster_work(fixture->cluster, 10))
        ;
    assert_int_equal(class_of(fixture, "1x50%").fillable, 2);
    assert_int_equal(class_of(fixture, "1x30%").fillable, 4);
    /* 1400 of 2000 are free; three of four halves and a fifth of thirds of that can be had. */
    assert_float_equal(cluster_unallocatable(fixture->cluster), (1.4 - (1.0 + 1.2) / 2) / 2, 0.001);
}

/* A price that is renewed while the others are not yet misleads. */
static void test_prices_change_all_at_once(void **state)
{
    struct fixture *fixture = *state;
    double before[2], after[2];
    unsigned changes = 0;

    arrive(fixture, "half", 500, 30, 1);
    arrive(fixture, "third", 300, 30, 1);
    cluster_renew_prices(fixture->cluster);
    before[0] = class_of(fixture, "1x50%").price;
    before[1] = class_of(fixture, "1x30%").price;
    arrive(fixture, "more", 300, 400, 1);
    for (int i = 0; i < 100000; i++) {
        const bool more = cluster_work(fixture->cluster, 1);

        after[0] = class_of(fixture, "1x50%").price;
        after[1] = class_of(fixture, "1x30%").price;
        assert_int_equal(before[0] != after[0], before[1] != after[1]);
        changes += before[0] != after[0];
        memcpy(before, after, sizeof(before));
        if (!more)
            break;
    }
    assert_int_equal(changes, 1);
}

static void test_requests_of_a_pod_count_until_it_is_gone(void **state)
{
    struct fixture *fixture = *state;
    const struct amounts two = {.cpu_milli = 2000}, one = {.cpu_milli = 1000};
    struct node node = {.name = "plain", .uid = "", .resource_version = "", .has_status = true};
    struct pod pod = {.namespace = "default",
                      .name = "p",
                      .uid = "p",
                      .resource_version = "1",
                      .has_spec = true,
                      .node_name = "plain",
                      .scheduler_name = "",
                      .runtime_class = "",
                      .amounts = {.cpu_milli = 3000}};

    node.amounts = (struct amounts){.cpu_milli = 4000, .memory_mib = 1000};
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
    assert_int_equal(cluster_set_node(fixture->cluster, &node, NULL), 0);
    assert_false(cluster_has_amounts(fixture->cluster, "plain", &two));
    assert_true(cluster_has_amounts(fixture->cluster, "plain", &one));
    pod.amounts.cpu_milli = 1500; /* resized */
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
    assert_true(cluster_has_amounts(fixture->cluster, "plain", &two));
    pod.amounts.cpu_milli = 4000;
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
    assert_false(cluster_has_amounts(fixture->cluster, "plain", &one));
    cluster_begin(fixture->cluster, CLUSTER_PODS);
    cluster_complete(fixture->cluster, CLUSTER_PODS);
    assert_true(cluster_has_amounts(fixture->cluster, "plain", &two));
}

/* Whoever may make pods may name any node, and have it as often as he likes. */
static void test_pods_on_nodes_that_there_are_not_cost_decisions_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    uint64_t generation;

    assert_int_equal(fixture_filter(fixture, "one", 500, 0, &answer), CLUSTER_PLACED);
    generation = fixture->cluster->generation;
    for (int i = 0; i < 3; i++) {
        (void)fixture_show_whole(fixture, "odd", "no-such-node", 1, NULL, 0);
        assert_int_equal(fixture_filter(fixture, "two", 2000, 0, &answer), CLUSTER_REFUSED);
        assert_int_equal(answer.failed_count, 2);
        cluster_delete_pod(fixture->cluster, "odd");
        assert_int_equal(fixture->cluster->generation, generation);
        assert_int_equal(fixture->cluster->unranked, 0);
    }
    /* One that the last filter named is not known to it any more. */
    (void)fixture_show_whole(fixture, "odd", fixture_nodes[1], 1, NULL, 0);
    assert_int_equal(fixture_filter(fixture, "two", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(answer.failed_count, 2);
    cluster_delete_pod(fixture->cluster, "odd");
    assert_int_equal(fixture_filter(fixture, "two", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(answer.failed_count, 2);
    fixture_add_node(fixture->cluster, fixture_nodes[1], 2000);
    assert_int_equal(fixture_filter(fixture, "two", 2000, 0, &answer), CLUSTER_PLACED);
}

/* More pods than the table has room for at first, and in another order gone. */
static void test_many_pods_come_and_go(void **state)
{
    struct fixture *fixture = *state;
    const struct amounts all = {.cpu_milli = 5000};
    struct node node = {.name = "plain", .uid = "", .resource_version = "", .has_status = true};
    char uid[32];

    node.amounts = all;
    assert_int_equal(cluster_set_node(fixture->cluster, &node, NULL), 0);
    for (unsigned i = 0; i < 5000; i++) {
        struct pod pod = {.namespace = "default",
                          .name = "p",
                          .uid = uid,
                          .resource_version = "1",
                          .has_spec = true,
                          .node_name = "plain",
                          .scheduler_name = "",
                          .runtime_class = "",
                          .amounts = {.cpu_milli = 1}};

        (void)snprintf(uid, sizeof(uid), "uid-%u", i);
        assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
    }
    for (unsigned i = 0; i < 5000; i++) {
        const struct amounts free = {.cpu_milli = i}, more = {.cpu_milli = i + 1};

        assert_true(cluster_has_amounts(fixture->cluster, "plain", &free));
        assert_false(cluster_has_amounts(fixture->cluster, "plain", &more));
        (void)snprintf(uid, sizeof(uid), "uid-%u", i * 1237 % 5000);
        cluster_delete_pod(fixture->cluster, uid);
        cluster_delete_pod(fixture->cluster, uid);
    }
    assert_true(cluster_has_amounts(fixture->cluster, "plain", &all));
}

enum {
    MANY = 1500,  /* more nodes than one decision prices by so many classes: */
    SHARES = 20,  /* of one card each, */
    COUNTS = 13,  /* for so many cards */
    PARTLY = 1400 /* the node that has half a card */
};

static int ask_many(struct fixture *fixture, const char *uid, int count, int mib,
                    uint64_t cpu_milli, const char *node, const char **ret_node)
{
    static char names[MANY][16];
    static const char *list[MANY];
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
        .amounts = {.cpu_milli = cpu_milli},
    };
    struct cluster_answer answer = {0};
    int r;

    for (size_t i = 0; i < MANY && !list[i]; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "n%04zu", i);
        list[i] = names[i];
    }
    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, count};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    container.limits = (struct resource_list){limits, 2};
    arena_reset(fixture->arena);
    r = cluster_filter(fixture->cluster, &pod, node ? &node : list, node ? 1 : MANY, 0,
                       fixture->arena, &answer, NULL);
    if (ret_node)
        *ret_node = answer.node;
    return r;
}

/* Else a pod of a class that nobody asked for before holds up the others, and whoever asks for many
 * classes sees to it that there is always one. */
static void test_one_decision_prices_so_many_nodes_and_the_rest_follows(void **state)
{
    struct fixture *fixture = *state;
    const char *node;
    char name[32];

    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "n%04zu", i);
        fixture_add_node(fixture->cluster, name, 10000);
    }
    (void)snprintf(name, sizeof(name), "n%04d", PARTLY);
    assert_int_equal(ask_many(fixture, "half", 1, 5000, 0, name, NULL), CLUSTER_PLACED);
    for (int i = 0; i < SHARES * COUNTS; i++) {
        char uid[32];

        (void)snprintf(uid, sizeof(uid), "class-%d", i);
        (void)ask_many(fixture, uid, 1 + i / SHARES, 500 + i % SHARES * 500, 0, "a", NULL);
        cluster_delete_pod(fixture->cluster, uid);
    }
    cluster_renew_prices(fixture->cluster);

    assert_int_equal(ask_many(fixture, "new", 1, 5000, 4000, NULL, &node), CLUSTER_PLACED);
    assert_string_not_equal(node, name);
    while (cluster_work(fixture->cluster, 1000))
        ;
    assert_int_equal(ask_many(fixture, "new", 1, 5000, 4000, NULL, &node), CLUSTER_PLACED);
    assert_string_equal(node, name);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_pod_counts_once_whether_it_is_placed_or_refused),
        TEST(test_a_pod_that_waits_counts_once_however_often_it_is_tried),
        TEST(test_late_arrivals_count_more),
        TEST(test_prices_stay_small_whatever_has_arrived),
        TEST(test_pods_that_exist_are_learned_after_a_restart),
        TEST(test_one_node_does_not_take_the_room_of_all_types),
        TEST(test_how_many_more_would_fit_is_counted),
        TEST(test_prices_change_all_at_once),
        TEST(test_one_decision_prices_so_many_nodes_and_the_rest_follows),
        TEST(test_requests_of_a_pod_count_until_it_is_gone),
        TEST(test_pods_on_nodes_that_there_are_not_cost_decisions_nothing),
        TEST(test_many_pods_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
