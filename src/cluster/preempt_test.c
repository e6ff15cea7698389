/* SPDX-License-Identifier: Apache-2.0 */

/* Preemption. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static void place_important(struct fixture *fixture, const char *uid, const char *priority)
{
    struct text_pair pairs[8];
    struct text_pairs annotations;
    size_t count;

    fixture_start_bind(fixture, uid, &annotations);
    cluster_bound(fixture->cluster, uid, CLUSTER_BOUND, 0);
    count = annotations.count;
    assert_true(count < ARRAY_SIZE(pairs));
    memcpy(pairs, annotations.items, count * sizeof(*pairs));
    if (priority)
        pairs[count++] = (struct text_pair){KEY_PRIORITY, priority};
    fixture_show(fixture, uid, &(struct text_pairs){pairs, count});
}

static size_t preempt(struct fixture *fixture, int mib, int32_t priority,
                      struct cluster_victims *victims, size_t count)
{
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container container = {.name = "c", .limits = {limits, 2}};
    const struct pod pod = {
        .namespace = "default",
        .name = "urgent",
        .uid = "urgent",
        .has_spec = true,
        .has_priority = true,
        .priority = priority,
        .container_count = 1,
        .containers = &container,
    };

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, mib > 0};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    assert_int_equal(cluster_preempt(fixture->cluster, &pod, victims, &count, fixture->arena, NULL),
                     0);
    return count;
}

static void test_pods_are_evicted_for_devices_and_never_in_vain(void **state)
{
    static const struct {
        const char *name, *priority; /* of the pod that holds 600 of 1000 MiB */
        int mib;
        int32_t by;
        size_t nodes, victims;
    } cases[] = {
        {"a less important pod goes", "5", 600, 6, 1, 2},
        {"a negative priority is one", "-5", 600, -4, 1, 2},
        {"one as important stays", "6", 600, 6, 0, 0},
        {"one of unknown priority stays", NULL, 600, 6, 0, 0},
        {"so does one whose priority can't be read", "5x", 600, 6, 0, 0},
        {"nobody goes who is not in the way", "5", 400, 6, 1, 1},
        {"nobody goes for what no card has", "5", 1001, 6, 0, 0},
        {"a pod without devices is kube-scheduler's own matter", "5", 0, 6, 1, 1},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *found[] = {"plain"};
        struct cluster_victims victims = {"a", found, 1, 3};

        place_important(fixture, "one", cases[i].priority);
        if (preempt(fixture, cases[i].mib, cases[i].by, &victims, 1) != cases[i].nodes)
            fail_msg("%s", cases[i].name);
        if (cases[i].nodes && victims.count != cases[i].victims)
            fail_msg("%s: %zu go", cases[i].name, victims.count);
        if (cases[i].nodes) {
            assert_string_equal(victims.uids[0], "plain");
            assert_int_equal(victims.pdb_violations, 3);
        }
        if (cases[i].nodes && victims.count == 2)
            assert_string_equal(victims.uids[1], "one");
        cluster_delete_pod(fixture->cluster, "one");
    }
}

/* A bind that is under way can't be stopped by an eviction. */
static void test_a_pod_that_is_being_bound_is_not_evicted(void **state)
{
    const char *found[] = {"plain"}, *theirs[] = {"one"};
    struct fixture *fixture = *state;
    struct cluster_victims victims = {"a", found, 1, 0}, nodes[] = {{"b", found, 1, 0}, victims};
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    assert_int_equal(preempt(fixture, 600, 1000, &victims, 1), 0);
    victims = (struct cluster_victims){"a", theirs, 1, 0};
    assert_int_equal(preempt(fixture, 600, 1000, &victims, 1), 1);
    assert_int_equal(victims.count, 1);
    assert_int_equal(preempt(fixture, 400, 0, nodes, 2), 1);
    assert_string_equal(nodes[0].node, "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_pods_are_evicted_for_devices_and_never_in_vain),
        FIXTURE_TEST(test_a_pod_that_is_being_bound_is_not_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
