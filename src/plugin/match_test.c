/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/match.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define NAME "a0000000000000001"

enum {
    PODS_MAX = 3,
};

/* A node's pods: each has an init container and two others, granted one device, none, two. */
struct world {
    struct node_pod pods[PODS_MAX];
    struct pod_container containers[PODS_MAX][3];
    char names[PODS_MAX][8];
};

static struct world world;
static struct node_pod *const list[] = {&world.pods[0], &world.pods[1], &world.pods[2]};

static void make_world(void)
{
    static const char *const names[] = {"init", "plain", "main"};

    memset(&world, 0, sizeof(world));
    for (size_t i = 0; i < PODS_MAX; i++) {
        (void)snprintf(world.names[i], sizeof(world.names[i]), "pod-%zu", i);
        for (size_t k = 0; k < ARRAY_SIZE(names); k++)
            world.containers[i][k].name = (char *)names[k];
        world.pods[i] = (struct node_pod){
            .namespace = (char *)"ns",
            .name = world.names[i],
            .uid = world.names[i],
            .allocated = (char *)"GPU-a,NVIDIA,10,1:;;GPU-a,NVIDIA,10,1:GPU-b,NVIDIA,10,1:;",
            .allocated_key = "k",
            .container_count = ARRAY_SIZE(names),
            .containers = world.containers[i],
        };
    }
}

static void hand_over(size_t pod, size_t container, const char *name)
{
    struct pod_container *to = &world.containers[pod][container];

    to->ready = to->ordered = true;
    COPY_TEXT(to->cdi_name, name);
}

static void check_match(size_t count, int outcome, const char *why)
{
    struct error err = ERROR_INIT;
    struct match match = {.index = 99};
    int r = match_container(list, ARRAY_SIZE(list), NAME, count, &match, &err);

    if (r != outcome || !strstr(err.text, why))
        fail_msg("%d, %s", r, err.text);
    assert_true(outcome == MATCH_FOUND || match.index == 99);
}

static void an_allocation_is_for_the_one_pod_that_is_being_bound(void **state)
{
    struct match match;

    (void)state;
    make_world();
    world.pods[1].allocating = true;
    assert_int_equal(match_container(list, PODS_MAX, NAME, 1, &match, NULL), MATCH_FOUND);
    assert_ptr_equal(match.pod, &world.pods[1]);
    assert_int_equal(match.index, 0);
    assert_false(match.again);
    hand_over(1, 0, NAME);
    assert_int_equal(match_container(list, PODS_MAX, NAME, 2, &match, NULL), MATCH_FOUND);
    assert_int_equal(match.index, 2);
    hand_over(1, 2, "a0000000000000002");
    world.pods[2].allocating = true;
    assert_int_equal(match_container(list, PODS_MAX, NAME, 1, &match, NULL), MATCH_FOUND);
    assert_ptr_equal(match.pod, &world.pods[2]);
}

static void what_is_not_certain_is_nobodys(void **state)
{
    (void)state;
    make_world();
    check_match(1, MATCH_NONE, "no pod of this node is being bound");
    world.pods[0].allocating = world.pods[0].over = true;
    check_match(1, MATCH_NONE, "no pod of this node is being bound");
    world.pods[1].allocating = true;
    world.pods[1].allocated = (char *)"";
    check_match(1, MATCH_NONE, "no pod of this node is being bound");

    make_world();
    world.pods[0].allocating = world.pods[2].allocating = true;
    check_match(1, MATCH_SEVERAL, "two pods wait for devices, ns/pod-0 and ns/pod-2");
    world.pods[2].deleting = true;
    check_match(1, MATCH_SEVERAL, "two pods");
    world.pods[2].allocated = (char *)"GPU-a,NVIDIA,x,1:;";
    check_match(1, MATCH_SEVERAL, "two pods");

    make_world();
    world.pods[0].allocating = true;
    check_match(2, MATCH_COUNT, "asks for 2 devices, and container init of ns/pod-0");
    world.pods[0].allocated = (char *)"GPU-a,NVIDIA,x,1:;";
    check_match(1, MATCH_COUNT, "k: ");
}

static void an_allocation_that_kubelet_forgot_is_known_by_its_ids(void **state)
{
    struct match match;

    (void)state;
    make_world();
    hand_over(0, 0, "a0000000000000002");
    hand_over(0, 2, "a0000000000000003");
    hand_over(1, 2, NAME);
    assert_int_equal(match_container(list, PODS_MAX, NAME, 2, &match, NULL), MATCH_FOUND);
    assert_ptr_equal(match.pod, &world.pods[1]);
    assert_int_equal(match.index, 2);
    assert_true(match.again);
    check_match(1, MATCH_COUNT, "asks for 1 devices");
    world.containers[1][2].ordered = false;
    check_match(2, MATCH_NONE, "no pod");

    hand_over(1, 2, NAME);
    hand_over(2, 0, NAME);
    check_match(1, MATCH_SEVERAL, "2 containers had these devices");
    world.pods[1].over = true;
    assert_int_equal(match_container(list, PODS_MAX, NAME, 1, &match, NULL), MATCH_FOUND);
    assert_ptr_equal(match.pod, &world.pods[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_is_for_the_one_pod_that_is_being_bound),
        cmocka_unit_test(what_is_not_certain_is_nobodys),
        cmocka_unit_test(an_allocation_that_kubelet_forgot_is_known_by_its_ids),
    };

    return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
