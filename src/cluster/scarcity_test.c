/* SPDX-License-Identifier: Apache-2.0 */

/* What the policy scarcity learns, and when its prices change. */

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
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

static void test_late_arrivals_count_more(void **state)
{
    struct fixture *fixture = *state;

    arrive(fixture, "half", 500, 3000, 1);
    arrive(fixture, "third", 300, 3000, 1);
    cluster_renew_prices(fixture->cluster);
    assert_true(class_of(fixture, "1x30%").share > 0.6);
    assert_true(class_of(fixture, "1x50%").share > 0.1);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_pod_counts_once_whether_it_is_placed_or_refused),
        TEST(test_late_arrivals_count_more),
        TEST(test_pods_that_exist_are_learned_after_a_restart),
        TEST(test_how_many_more_would_fit_is_counted),
        TEST(test_prices_change_all_at_once),
        TEST(test_requests_of_a_pod_count_until_it_is_gone),
        TEST(test_many_pods_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
