/* SPDX-License-Identifier: Apache-2.0 */

/* Refusals that are kept, and the demands that they are kept for. */

#include "cluster/refusal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

/* A pod's refusal does not hold for a pod that asks for something else. */
static void test_a_refusal_is_kept_for_the_same_demand_alone(void **state)
{
    static const struct text_pair refused[] = {
        {NVIDIA_USE_UUID_KEY, "GPU-b"},
        {NVIDIA_AVOID_UUID_KEY, "GPU-a"},
        {NVIDIA_USE_TYPE_KEY, "H100"},
        {NVIDIA_AVOID_TYPE_KEY, "NVIDIA"},
        {NVIDIA_MODE_KEY, "mig"},
        {NVIDIA_USE_UUID_KEY, "GPU-a,,GPU-c"},
        {NVIDIA_USE_UUID_KEY, "GPU-a:5:GPU-c"},
    };
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        bool fits = strncmp(refused[i].value, "GPU-a,", 6) == 0;

        for (int again = 0; again < 2; again++)
            assert_int_equal(fixture_filter_noted(fixture, "one", 600, &refused[i], 0, &answer),
                             fits ? CLUSTER_PLACED : CLUSTER_REFUSED);
        assert_int_equal(fixture_filter(fixture, "one", 1001, 0, &answer), CLUSTER_REFUSED);
        assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    }
}

/* By the policy "mutex" a pod shares its card with no other pod. */
static void test_a_refusal_is_kept_for_the_same_policy_alone(void **state)
{
    const struct text_pair alone = {KEY_DEVICE_POLICY, "mutex"};
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    assert_int_equal(fixture_filter(fixture, "first", 100, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter_noted(fixture, "second", 100, &alone, 0, &answer),
                     CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "second", 100, 0, &answer), CLUSTER_PLACED);
}

/* A pod of some of another's containers is another pod, though its demand begins in the same way.
 */
static void test_a_refusal_is_kept_for_all_containers_together(void **state)
{
    struct fixture *fixture = *state;
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container containers[2];
    struct pod pod = {
        .namespace = "default",
        .name = "two",
        .uid = "two",
        .resource_version = "1",
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .containers = containers,
    };
    struct cluster_answer answer;

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, 300};
    for (size_t i = 0; i < ARRAY_SIZE(containers); i++)
        containers[i] = (struct container){.name = "c",
                                           .has_resources = true,
                                           .has_limits = true,
                                           .limits = {limits, ARRAY_SIZE(limits)}};
    assert_int_equal(fixture_filter(fixture, "first", 600, 0, &answer), CLUSTER_PLACED);
    for (size_t count = ARRAY_SIZE(containers); count; count--) {
        pod.container_count = count;
        assert_int_equal(cluster_filter(fixture->cluster, &pod, fixture_nodes,
                                        ARRAY_SIZE(fixture_nodes), 0, fixture->arena, &answer,
                                        NULL),
                         count == 1 ? CLUSTER_PLACED : CLUSTER_REFUSED);
    }
}

/* As long as admission lets through: 256 pieces, 16 KiB, and so for each container. */
static void test_long_lists_of_many_containers_are_placed(void **state)
{
    enum { CONTAINERS = 8, PIECES = 250 };
    struct fixture *fixture = *state;
    char list[PIECES * 64] = "";
    struct text_pair notes[1] = {{NVIDIA_AVOID_UUID_KEY, list}};
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container containers[CONTAINERS];
    const struct pod pod = {
        .namespace = "default",
        .name = "long",
        .uid = "long",
        .resource_version = "1",
        .annotations = {notes, 1},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = CONTAINERS,
        .containers = containers,
    };
    struct cluster_answer answer;

    for (size_t i = 0, len = 0; i < PIECES; i++)
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%sGPU-%052zu", i ? "," : "", i);
    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    for (size_t i = 0; i < CONTAINERS; i++)
        containers[i] = (struct container){.name = "c",
                                           .has_resources = true,
                                           .has_limits = true,
                                           .limits = {limits, ARRAY_SIZE(limits)}};
    assert_int_equal(cluster_filter(fixture->cluster, &pod, fixture_nodes,
                                    ARRAY_SIZE(fixture_nodes), 0, fixture->arena, &answer, NULL),
                     CLUSTER_PLACED);
}

/* What is kept of all demands is bounded by its bytes, too: the oldest goes. */
static void test_refusals_over_many_nodes_make_room(void **state)
{
    enum { NODES = 65000, KEPT_BYTES = 8 << 20, JUDGED_BYTES = 8 };
    struct refusals *refusals = refusals_new();
    struct refusal_key key = {.text = "long enough to be a demand", .len = 26};
    unsigned kept = 0;

    (void)state;
    assert_non_null(refusals);
    for (key.candidates[0] = 1; key.candidates[0] <= 100; key.candidates[0]++)
        assert_non_null(refusals_add(refusals, &key, NODES));
    for (key.candidates[0] = 1; key.candidates[0] <= 100; key.candidates[0]++) {
        struct refusal *found = refusals_find(refusals, &key);

        kept += found != NULL;
        assert_true(found || key.candidates[0] < 100);
    }
    assert_true(kept && kept <= KEPT_BYTES / (NODES * JUDGED_BYTES));
    refusals_free(refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_a_refusal_is_kept_for_the_same_demand_alone),
        FIXTURE_TEST(test_a_refusal_is_kept_for_the_same_policy_alone),
        FIXTURE_TEST(test_a_refusal_is_kept_for_all_containers_together),
        FIXTURE_TEST(test_long_lists_of_many_containers_are_placed),
        FIXTURE_TEST(test_refusals_over_many_nodes_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
