/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pick.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"

enum {
    CONTAINERS_MAX = 4,
};

/* A container: its name, role, status, whether it was handed its devices. */
struct line {
    const char *name;
    enum container_role role;
    enum init_state state;
    bool ready;
    bool ordered, started; /* it was handed them before it starts; and has started */
    uint64_t ended, ended_before;
};

struct fixture {
    struct node_pod pod;
    struct pod_container containers[CONTAINERS_MAX];
    struct arena *arena;
    struct pod_devices devices;
};

static void make(struct fixture *fixture, const struct line *lines, const char *allocated)
{
    *fixture = (struct fixture){.arena = arena_new(1 << 20)};
    fixture->pod.containers = fixture->containers;
    for (size_t i = 0; i < CONTAINERS_MAX && lines[i].name; i++) {
        fixture->containers[i] = (struct pod_container){
            .name = (char *)lines[i].name,
            .role = lines[i].role,
            .state = lines[i].state,
            .ready = lines[i].ready,
            .ordered = lines[i].ordered,
            .started = lines[i].started,
            .ended = lines[i].ended,
            .ended_before = lines[i].ended_before,
        };
        fixture->pod.container_count++;
    }
    fixture->pod.allocated = (char *)allocated;
    assert_int_equal(pod_grants(&fixture->pod, fixture->arena, &fixture->devices, NULL), 0);
}

#define ONE(mib) "GPU-a,NVIDIA," #mib ",10:;"
#define TWO "GPU-a,NVIDIA,1,10:GPU-b,NVIDIA,1,10:;"

static const struct {
    const char *what;
    struct line lines[CONTAINERS_MAX];
    const char *allocated;
    size_t count;
    const char *holder;
    int outcome;
    const char *picked;
} cases[] = {
    {"kubelet names it", {{"a"}, {"b"}}, ONE(1) ONE(2), 1, "b", PICK_FOUND, "b"},
    {"no init container has devices",
     {{"i", CONTAINER_INIT}, {"a"}},
     ";" ONE(1),
     1,
     "a",
     PICK_FOUND,
     "a"},
    {"an init container comes first",
     {{"i", CONTAINER_INIT}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_FOUND,
     "i"},
    {"an init container that was handed its devices has not started by that",
     {{"i", CONTAINER_INIT, .ready = true, .ordered = true}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_FOUND,
     "i"},
    {"once it has, its status is waited for",
     {{"i", CONTAINER_INIT, .ready = true, .ordered = true, .started = true}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_BEHIND,
     ""},
    {"one with another number of devices is not meant",
     {{"i", CONTAINER_INIT}, {"a"}},
     TWO ONE(2),
     1,
     "a",
     PICK_FOUND,
     "a"},
    {"it started, and nothing tells whether it ended",
     {{"i", CONTAINER_INIT, INIT_RUNNING, true}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_BEHIND,
     NULL},
    {"it is done",
     {{"i", CONTAINER_INIT, INIT_DONE, true}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_FOUND,
     "a"},
    {"it failed",
     {{"i", CONTAINER_INIT, INIT_FAILED, true, .ended = 2, .ended_before = 1}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_FOUND,
     "i"},
    {"it failed, before it last got its devices",
     {{"i", CONTAINER_INIT, INIT_FAILED, true, .ended = 2, .ended_before = 2}, {"a"}},
     ONE(1) ONE(2),
     1,
     "a",
     PICK_BEHIND,
     NULL},
    {"the second init container",
     {{"i", CONTAINER_INIT, INIT_DONE, true}, {"j", CONTAINER_INIT}, {"a"}},
     ONE(1) ONE(2) ONE(3),
     1,
     "a",
     PICK_FOUND,
     "j"},
    {"init containers after a sidecar are not meant by its devices",
     {{"s", CONTAINER_SIDECAR}, {"i", CONTAINER_INIT}, {"a"}},
     ONE(1) ONE(2) ONE(3),
     1,
     "s",
     PICK_FOUND,
     "s"},
    {"only the pod is known", {{"i", CONTAINER_INIT}, {"a"}}, ONE(1) ";", 1, NULL, PICK_FOUND, "i"},
    {"only the pod is known, and the last init container starts again",
     {{"i", CONTAINER_INIT, INIT_DONE, true}, {"a"}},
     ONE(1) ";",
     1,
     NULL,
     PICK_FOUND,
     "i"},
    {"only the pod is known, and no init container fits",
     {{"i", CONTAINER_INIT}, {"a"}},
     TWO ONE(1),
     1,
     NULL,
     -EINVAL,
     NULL},
    {"another number of devices", {{"a"}}, ONE(1), 2, "a", -EINVAL, NULL},
    {"a container that is not the pod's", {{"a"}}, ONE(1), 1, "b", -EINVAL, NULL},
};

static void the_container_that_starts_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;
        struct fixture fixture;
        size_t index = 99;
        int r;

        make(&fixture, cases[i].lines, cases[i].allocated);
        r = pick_container(&fixture.pod, &fixture.devices, cases[i].count, cases[i].holder, &index,
                           &err);
        if (r != cases[i].outcome)
            fail_msg("%s: %d %s", cases[i].what, r, err.text);
        if (r == PICK_FOUND && strcmp(fixture.containers[index].name, cases[i].picked) != 0)
            fail_msg("%s: %s", cases[i].what, fixture.containers[index].name);
        if (r < 0 && !err.text[0])
            fail_msg("%s: no reason", cases[i].what);
        arena_free(fixture.arena);
    }
}

static void init_containers_count_as_kubernetes_counts_them(void **state)
{
    static const struct line lines[CONTAINERS_MAX] = {
        {"s", CONTAINER_SIDECAR}, {"i", CONTAINER_INIT}, {"a"}, {"b"}};
    struct card_use use = {0};
    struct fixture fixture;

    (void)state;
    make(&fixture, lines, ONE(10) ONE(500) ONE(100) ONE(200));
    pick_add_use(&fixture.pod, &fixture.devices, "GPU-a", &use);
    assert_int_equal(use.memory_mib, 510); /* the init container beside the sidecar */
    assert_int_equal(use.tasks, 3);        /* the sidecar and the two others */
    assert_int_equal(use.cores, 30);
    pick_add_use(&fixture.pod, &fixture.devices, "GPU-b", &use);
    assert_int_equal(use.memory_mib, 510);
    arena_free(fixture.arena);
}

static void give_used(void *data, const char *uuid, struct card_use *ret_use)
{
    (void)uuid;
    *ret_use = *(const struct card_use *)data;
}

static void a_grant_beyond_a_card_is_refused(void **state)
{
    static const struct line lines[CONTAINERS_MAX] = {{"a"}};
    static const struct {
        struct card_use used;
        const char *allocated;
        int r;
    } rows[] = {
        {{900, 90, 1}, ONE(100), 0},          {{901, 90, 1}, ONE(100), -ENOSPC},
        {{900, 91, 1}, ONE(100), -ENOSPC},    {{900, 90, 2}, ONE(100), -ENOSPC},
        {{0}, "GPU-x,NVIDIA,1,1:;", -ENODEV}, {{0}, "GPU-a,NVIDIA,-1,1:;", -EINVAL},
        {{0}, "GPU-a,NVIDIA,0,1:;", -EINVAL}, {{UINT64_MAX / 2, 0, 0}, ONE(100), -ENOSPC},
    };
    struct cards cards = {
        .count = 1,
        .items =
            {{.uuid = "GPU-a", .memory_mib = 1000, .cores = 100, .max_tasks = 2, .healthy = true}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct card_use used = rows[i].used;
        struct error err = ERROR_INIT;
        struct fixture fixture;

        make(&fixture, lines, rows[i].allocated);
        assert_int_equal(
            pick_check(&fixture.pod, &fixture.devices, 0, &cards, give_used, &used, &err),
            rows[i].r);
        assert_true(rows[i].r == 0 || err.text[0]);
        arena_free(fixture.arena);
    }
}

static void a_sick_card_is_refused(void **state)
{
    static const struct line lines[CONTAINERS_MAX] = {{"a"}};
    struct cards cards = {
        .count = 1, .items = {{.uuid = "GPU-a", .memory_mib = 1000, .cores = 100, .max_tasks = 2}}};
    struct error err = ERROR_INIT;
    struct fixture fixture;
    struct card_use used = {0};

    (void)state;
    make(&fixture, lines, ONE(100));
    assert_int_equal(pick_check(&fixture.pod, &fixture.devices, 0, &cards, give_used, &used, &err),
                     -ENODEV);
    assert_non_null(strstr(err.text, "card GPU-a is not healthy"));
    arena_free(fixture.arena);
}

/* A card is given out whole or in parts, and a part to one pod. */
static void a_part_is_somebodys_own(void **state)
{
    static const struct line lines[CONTAINERS_MAX] = {{"a"}};
    static const struct {
        const char *allocated;
        bool has_parts;
        unsigned tasks; /* of others */
        int r;
    } rows[] = {
        {"GPU-a[0-1],NVIDIA,500,10:;", true, 0, 0},
        {"GPU-a[0-1],NVIDIA,500,10:GPU-a[0-2],NVIDIA,500,10:;", true, 0, 0},
        {"GPU-a[0-1],NVIDIA,500,10:;", true, 1, -ENOSPC},
        {"GPU-a[0-1],NVIDIA,500,10:GPU-a[0-1],NVIDIA,500,10:;", true, 0, -ENOSPC},
        {"GPU-a[0-1],NVIDIA,500,10:;", false, 0, -EINVAL},
        {ONE(500), true, 0, -EINVAL},
        {"GPU-[0-1],NVIDIA,500,10:;", true, 0, -ENODEV},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cards cards = {.count = 1,
                              .items = {{.uuid = "GPU-a",
                                         .memory_mib = 1000,
                                         .cores = 100,
                                         .max_tasks = 7,
                                         .has_parts = rows[i].has_parts,
                                         .healthy = true}}};
        struct card_use used = {.tasks = rows[i].tasks};
        struct fixture fixture;

        make(&fixture, lines, rows[i].allocated);
        assert_int_equal(
            pick_check(&fixture.pod, &fixture.devices, 0, &cards, give_used, &used, NULL),
            rows[i].r);
        arena_free(fixture.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_container_that_starts_is_found),
        cmocka_unit_test(init_containers_count_as_kubernetes_counts_them),
        cmocka_unit_test(a_grant_beyond_a_card_is_refused),
        cmocka_unit_test(a_sick_card_is_refused),
        cmocka_unit_test(a_part_is_somebodys_own),
    };

    return cmocka_run_group_tests_name("pick", tests, NULL, NULL);
}
