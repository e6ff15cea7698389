/* SPDX-License-Identifier: Apache-2.0 */

/* Reservations: what becomes of a decision between its filter and its bind. */

#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

#define SECOND INT64_C(1000000000)

struct fixture {
    struct nvidia_config config;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct arena *arena;
};

static const char *const both[] = {"a", "b"};

static void add_node(struct cluster *cluster, const char *name, unsigned mib)
{
    char text[512];
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {
        .name = name,
        .uid = name,
        .resource_version = "1",
        .annotations = {pairs, 1},
        .has_status = true,
        .ready = true,
        .allocatable = {resources, 1},
    };

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    (void)snprintf(text, sizeof(text),
                   "[{\"id\":\"GPU-%s\",\"count\":10,\"devmem\":%u,\"devcore\":100,\"type\":"
                   "\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]",
                   name, mib);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
}

static void list(struct cluster *cluster)
{
    cluster_begin(cluster, CLUSTER_NODES);
    add_node(cluster, "a", 1000);
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_PODS);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    const struct cluster_options options = {.vendors = &fixture.vendors};

    nvidia_config_defaults(&fixture.config);
    fixture.vendors.instances[0] = nvidia_vendor_instance(&fixture.config);
    fixture.vendors.count = 1;
    fixture.cluster = cluster_new(&options);
    fixture.arena = arena_new(1 << 20);
    list(fixture.cluster);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    cluster_free(fixture->cluster);
    arena_free(fixture->arena);
    return 0;
}

static int filter_noted(struct fixture *fixture, const char *uid, int mib,
                        const struct text_pair *note, int64_t now_ns,
                        struct cluster_answer *ret_answer)
{
    struct text_pair notes[1] = {note ? *note : (struct text_pair){0}};
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .annotations = {notes, note != NULL},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    container.limits = (struct resource_list){limits, 2};
    return cluster_filter(fixture->cluster, &pod, both, ARRAY_SIZE(both), now_ns, fixture->arena,
                          ret_answer, NULL);
}

static int filter(struct fixture *fixture, const char *uid, int mib, int64_t now_ns,
                  struct cluster_answer *ret_answer)
{
    return filter_noted(fixture, uid, mib, NULL, now_ns, ret_answer);
}

static int bind(struct fixture *fixture, const char *uid, int64_t now_ns,
                struct text_pairs *ret_annotations)
{
    const struct cluster_bind what = {"default", uid, uid, "a"};

    return cluster_bind(fixture->cluster, &what, now_ns, 1700000000, fixture->arena,
                        ret_annotations, NULL);
}

/* The watch shows a whole pod, which runs on this node. */
static int show_whole(struct fixture *fixture, const char *uid, const char *node, int count,
                      const struct text_pair *annotations, size_t annotation_count)
{
    struct resource limit = {.name = "nvidia.com/gpu", .text = ""};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "2",
        .annotations = {annotations, annotation_count},
        .has_spec = true,
        .node_name = node,
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };

    limit.quantity = (struct quantity){QUANTITY_WHOLE, count};
    container.limits = (struct resource_list){&limit, 1};
    return cluster_set_pod(fixture->cluster, &pod, NULL);
}

/* The watch shows it bound, with what its Binding wrote. */
static void show(struct fixture *fixture, const char *uid, const struct text_pairs *annotations)
{
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "2",
        .annotations = *annotations,
    };

    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
}

/* A pod of 600 MiB is placed on node a, and its bind has begun. */
static void start_bind(struct fixture *fixture, const char *uid, struct text_pairs *ret_annotations)
{
    struct cluster_answer answer;

    assert_int_equal(filter(fixture, uid, 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(bind(fixture, uid, 0, ret_annotations), 0);
}

static void test_a_decision_holds_its_devices(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_string_equal(answer.node, "a");
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
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
        assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 2);
}

static void test_a_reservation_ends_and_is_renewed_where_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "late", 300, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 1);
    assert_int_equal(bind(fixture, "one", 62 * SECOND, &annotations), 0);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 2);
}

static void test_a_reservation_that_ended_is_lost_to_who_came_then(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "late", 700, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(bind(fixture, "one", 62 * SECOND, &annotations), -ENOSPC);
    assert_int_equal(bind(fixture, "one", 62 * SECOND, &annotations), -ENOENT);
}

static void
test_a_reservation_that_ended_is_not_renewed_beside_others_against_its_policy(void **state)
{
    const struct text_pair alone = {KEY_DEVICE_POLICY, "mutex"};
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_answer answer;

    assert_int_equal(filter_noted(fixture, "one", 100, &alone, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "two", 100, 61 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(bind(fixture, "one", 62 * SECOND, &annotations), -ENOSPC);
}

static void test_a_bind_needs_its_decision(void **state)
{
    struct fixture *fixture = *state;
    const struct cluster_bind elsewhere = {"default", "one", "one", "b"};
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(bind(fixture, "one", 0, &annotations), -ENOENT);
    assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(
        cluster_bind(fixture->cluster, &elsewhere, 0, 0, fixture->arena, &annotations, NULL),
        -ENOENT);
    assert_int_equal(bind(fixture, "one", 0, &annotations), 0);
    assert_int_equal(bind(fixture, "one", 0, &annotations), -EBUSY);
    assert_int_equal(filter(fixture, "one", 600, 0, &answer), -EBUSY);
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

    start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    cluster_expire(fixture->cluster, 100000 * SECOND);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    cluster_bound(fixture->cluster, "one", CLUSTER_NOT_BOUND, 0);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_PLACED);
}

static void test_what_the_watch_shows_takes_the_place_of_the_promise(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    show(fixture, "one", &annotations); /* before the answer to the bind */
    cluster_bound(fixture->cluster, "one", CLUSTER_NOT_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(cluster_count(fixture->cluster).reserved, 0);
    assert_int_equal(filter(fixture, "one", 600, 0, &answer), -EBUSY);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_a_bound_pod_that_a_later_list_does_not_show_is_gone(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    list(fixture->cluster);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
}

static void test_a_bound_pod_that_the_watch_does_not_show_is_asked_about(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct cluster_pod_name unseen[2];
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    list(fixture->cluster); /* it came and went */
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 5 * SECOND);
    assert_int_equal(cluster_unseen(fixture->cluster, 34 * SECOND, fixture->arena, unseen, 2), 0);
    cluster_expire(fixture->cluster, 1000 * SECOND);
    assert_int_equal(filter(fixture, "two", 600, 34 * SECOND, &answer), CLUSTER_REFUSED);
    assert_int_equal(cluster_unseen(fixture->cluster, 35 * SECOND, fixture->arena, unseen, 2), 1);
    assert_string_equal(unseen[0].uid, "one");
    assert_string_equal(unseen[0].namespace, "default");
    assert_string_equal(unseen[0].name, "one");
    assert_int_equal(cluster_unseen(fixture->cluster, 64 * SECOND, fixture->arena, unseen, 2), 0);
    assert_int_equal(cluster_unseen(fixture->cluster, 65 * SECOND, fixture->arena, unseen, 2), 1);
    cluster_gone(fixture->cluster, "one");
    assert_int_equal(filter(fixture, "two", 600, 66 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(cluster_unseen(fixture->cluster, 999 * SECOND, fixture->arena, unseen, 2), 0);
}

static void test_a_pod_that_the_watch_shows_is_not_asked_about(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name unseen[2];
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    show(fixture, "one", &annotations);
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

    start_bind(fixture, "one", &annotations);
    pod.annotations = annotations;
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_true(ours);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    cluster_delete_pod(fixture->cluster, "one");

    start_bind(fixture, "one", &annotations);
    pod.annotations = given;
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_false(ours);
    assert_int_equal(filter(fixture, "two", 800, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "three", 1, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "two", 5000, 0, &answer), CLUSTER_REFUSED);
    cluster_delete_pod(fixture->cluster, "one");

    start_bind(fixture, "one", &annotations);
    pod.annotations = none; /* bound by another scheduler */
    assert_int_equal(cluster_found(fixture->cluster, &pod, 0, &ours, NULL), 0);
    assert_false(ours);
    assert_int_equal(filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_a_new_term_begins_with_what_the_next_list_shows(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    assert_int_equal(filter(fixture, "reserved", 400, 0, &answer), CLUSTER_PLACED);
    cluster_begin_term(fixture->cluster);
    assert_int_equal(filter(fixture, "two", 401, 0, &answer), CLUSTER_REFUSED);
    cluster_begin(fixture->cluster, CLUSTER_PODS);
    show(fixture, "one", &annotations);
    cluster_complete(fixture->cluster, CLUSTER_PODS);
    assert_int_equal(filter(fixture, "two", 401, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(bind(fixture, "reserved", 0, &annotations), -ENOENT);
    cluster_delete_pod(fixture->cluster, "one");

    start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_UNKNOWN, 0);
    cluster_begin_term(fixture->cluster);
    list(fixture->cluster);
    assert_int_equal(filter(fixture, "two", 1000, 0, &answer), CLUSTER_PLACED);
}

static void test_what_a_pod_was_given_is_final(void **state)
{
    struct fixture *fixture = *state;
    struct text_pair over[] = {{KEY_NODE, "a"}, {NVIDIA_ALLOCATED_KEY, "x"}};
    const struct text_pairs none = {0}, written_over = {over, 2};
    struct cluster_answer answer;
    struct text_pairs annotations;
    struct pod pod = {.namespace = "default", .name = "one", .uid = "one", .resource_version = "3"};

    start_bind(fixture, "one", &annotations);
    show(fixture, "one", &annotations);
    pod.annotations = written_over;
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 1);
    pod.annotations = none;
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 1);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
}

static int set_devices(struct fixture *fixture, const char *uid, const char *devices,
                       struct error *err)
{
    struct text_pair pairs[2] = {{KEY_NODE, "a"}, {NVIDIA_ALLOCATED_KEY, devices}};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .annotations = {pairs, 2},
    };

    return cluster_set_pod(fixture->cluster, &pod, err);
}

static int set_registration(struct fixture *fixture, const char *text, struct error *err)
{
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {
        .name = "garbled",
        .uid = "garbled",
        .resource_version = "1",
        .annotations = {pairs, 1},
        .allocatable = {resources, 1},
    };

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    return cluster_set_node(fixture->cluster, &node, err);
}

static void test_what_is_wrong_with_an_annotation_is_said(void **state)
{
    static const char card[] = "{\"id\":\"GPU-g\",\"count\":10,\"devmem\":1000,\"devcore\":100,"
                               "\"type\":\"NVIDIA-A\",\"health\":true}";
    struct fixture *fixture = *state;
    char twice[512];
    struct error err = ERROR_INIT;

    assert_int_equal(set_devices(fixture, "good", "GPU-a,NVIDIA,100,0:;", &err), 0);
    assert_string_equal(err.text, "");
    assert_int_equal(set_devices(fixture, "mended", "GPU-a,NVIDIA,many,0:;", &err), 1);
    assert_non_null(strstr(err.text, "memory is not a number"));
    assert_int_equal(set_devices(fixture, "broken", "GPU-a,NVIDIA:;", &err), -EINVAL);
    assert_non_null(strstr(err.text, "the pod's NVIDIA devices"));
    assert_int_equal(cluster_count(fixture->cluster).pods, 2);

    (void)snprintf(twice, sizeof(twice), "[%s,%s]", card, card);
    assert_int_equal(set_registration(fixture, twice, &err), 1);
    assert_non_null(strstr(err.text, "is listed twice"));
    assert_int_equal(set_registration(fixture, "[{", &err), -EINVAL);
    assert_non_null(strstr(err.text, NVIDIA_REGISTER_KEY));
}

/* As far as a stolen token or a tenant can write annotations, where no policy is in force. */
static void test_a_whole_pod_is_held_against_what_its_annotations_say(void **state)
{
    struct fixture *fixture = *state;
    const struct text_pair claim[] = {{KEY_NODE, "a"},
                                      {NVIDIA_ALLOCATED_KEY, "GPU-a,NVIDIA,1000,100:;"}};
    struct cluster_answer answer;

    assert_int_equal(show_whole(fixture, "elsewhere", "b", 1, claim, 2), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(filter(fixture, "one", 1000, 0, &answer), CLUSTER_PLACED);
    cluster_delete_pod(fixture->cluster, "one");
    cluster_delete_pod(fixture->cluster, "elsewhere");
    assert_int_equal(show_whole(fixture, "asks for nothing", "a", 0, claim, 2), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
    assert_int_equal(show_whole(fixture, "honest", "a", 1, &claim[1], 1), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(filter(fixture, "one", 1000, 0, &answer), CLUSTER_REFUSED);
}

static void test_what_cannot_be_read_stays_as_it_was(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    show(fixture, "one", &annotations);
    cluster_begin(fixture->cluster, CLUSTER_PODS);
    cluster_keep(fixture->cluster, CLUSTER_PODS, "one");
    cluster_complete(fixture->cluster, CLUSTER_PODS);
    cluster_begin(fixture->cluster, CLUSTER_NODES);
    cluster_keep(fixture->cluster, CLUSTER_NODES, "a");
    cluster_complete(fixture->cluster, CLUSTER_NODES);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
}

static void test_a_node_that_comes_back_finds_its_pods_charged(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    start_bind(fixture, "one", &annotations);
    show(fixture, "one", &annotations);
    cluster_delete_node(fixture->cluster, "a");
    assert_int_equal(filter(fixture, "two", 300, 0, &answer), CLUSTER_REFUSED);
    add_node(fixture->cluster, "a", 1000);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
}

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

    start_bind(fixture, "one", &annotations);
    show(fixture, "one", &annotations);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "three", 700, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(to_requeue(fixture, 9 * SECOND, pods), 0);
    assert_false(answer.again);
    assert_int_equal(filter(fixture, "three", 700, 0, &answer), CLUSTER_REFUSED);
    assert_true(answer.again);

    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(to_requeue(fixture, 10 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 11 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
    assert_string_equal(pods[0].name, "two");
    assert_string_equal(pods[0].namespace, "default");
    assert_int_equal(filter(fixture, "three", 700, 11 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "two", 600, 11 * SECOND, &answer), CLUSTER_REFUSED);
    assert_int_equal(to_requeue(fixture, 20 * SECOND, pods), 0);

    cluster_expire(fixture->cluster, 80 * SECOND);
    assert_int_equal(to_requeue(fixture, 80 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 81 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
    assert_int_equal(to_requeue(fixture, 90 * SECOND, pods), 0);

    assert_int_equal(filter(fixture, "four", 2000, 90 * SECOND, &answer), CLUSTER_REFUSED);
    add_node(fixture->cluster, "b", 3000);
    assert_int_equal(to_requeue(fixture, 91 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 92 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "four");
}

/* A bind that is seen, or a promise that is made again, frees nothing. */
static void test_no_pod_is_requeued_where_nothing_came_free(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;

    assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "one", 600, SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(bind(fixture, "one", SECOND, &annotations), 0);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    show(fixture, "one", &annotations);
    assert_int_equal(to_requeue(fixture, 2 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 3 * SECOND, pods), 0);
    assert_int_equal(filter(fixture, "two", 600, 3 * SECOND, &answer), CLUSTER_REFUSED);
    assert_true(answer.again);

    assert_int_equal(filter(fixture, "small", 300, 4 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(filter(fixture, "small", 200, 4 * SECOND, &answer), CLUSTER_PLACED);
    assert_int_equal(to_requeue(fixture, 5 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 6 * SECOND, pods), 1);
}

/* kube-scheduler tries every pod again within that time: who is not asked for is gone. */
static void test_who_is_not_asked_for_in_minutes_is_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name pods[1];
    struct cluster_answer answer;

    assert_int_equal(filter(fixture, "one", 2000, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "two", 2000, 100 * SECOND, &answer), CLUSTER_REFUSED);
    add_node(fixture->cluster, "b", 3000);
    assert_int_equal(to_requeue(fixture, 400 * SECOND, pods), 0);
    assert_int_equal(to_requeue(fixture, 401 * SECOND, pods), 1);
    assert_string_equal(pods[0].uid, "two");
}

static void test_nothing_is_decided_before_all_is_read(void **state)
{
    struct fixture *fixture = *state;
    const struct cluster_options options = {.vendors = &fixture->vendors};
    struct cluster *whole = fixture->cluster;
    struct cluster_answer answer;

    fixture->cluster = cluster_new(&options);
    cluster_begin(fixture->cluster, CLUSTER_NODES);
    add_node(fixture->cluster, "a", 1000);
    cluster_complete(fixture->cluster, CLUSTER_NODES);
    assert_int_equal(filter(fixture, "one", 600, 0, &answer), -EAGAIN);
    cluster_free(fixture->cluster);
    fixture->cluster = whole;
}

/* What one pod was refused for says nothing to one that asks for something else. */
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
            assert_int_equal(filter_noted(fixture, "one", 600, &refused[i], 0, &answer),
                             fits ? CLUSTER_PLACED : CLUSTER_REFUSED);
        assert_int_equal(filter(fixture, "one", 1001, 0, &answer), CLUSTER_REFUSED);
        assert_int_equal(filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    }
}

/* A card is given to nobody else by "mutex", which is a matter of the pod's policy. */
static void test_a_refusal_is_kept_for_the_same_policy_alone(void **state)
{
    const struct text_pair alone = {KEY_DEVICE_POLICY, "mutex"};
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    assert_int_equal(filter(fixture, "first", 100, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(filter_noted(fixture, "second", 100, &alone, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(filter(fixture, "second", 100, 0, &answer), CLUSTER_PLACED);
}

/* What admission lets through: 256 pieces, 16 KiB, and so for each container. */
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
    assert_int_equal(cluster_filter(fixture->cluster, &pod, both, ARRAY_SIZE(both), 0,
                                    fixture->arena, &answer, NULL),
                     CLUSTER_PLACED);
}

static void place_important(struct fixture *fixture, const char *uid, const char *priority)
{
    struct text_pair pairs[8];
    struct text_pairs annotations;
    size_t count;

    start_bind(fixture, uid, &annotations);
    cluster_bound(fixture->cluster, uid, CLUSTER_BOUND, 0);
    count = annotations.count;
    assert_true(count < ARRAY_SIZE(pairs));
    memcpy(pairs, annotations.items, count * sizeof(*pairs));
    if (priority)
        pairs[count++] = (struct text_pair){KEY_PRIORITY, priority};
    show(fixture, uid, &(struct text_pairs){pairs, count});
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

    start_bind(fixture, "one", &annotations);
    assert_int_equal(preempt(fixture, 600, 1000, &victims, 1), 0);
    victims = (struct cluster_victims){"a", theirs, 1, 0};
    assert_int_equal(preempt(fixture, 600, 1000, &victims, 1), 1);
    assert_int_equal(victims.count, 1);
    assert_int_equal(preempt(fixture, 400, 0, nodes, 2), 1);
    assert_string_equal(nodes[0].node, "a");
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
        cluster_filter(fixture->cluster, &pod, both, 2, 0, fixture->arena, &answer, NULL),
        CLUSTER_NOT_OURS);
    assert_int_equal(bind(fixture, "plain", SECOND, &annotations), 0);
    assert_int_equal(annotations.count, 0);
    cluster_bound(fixture->cluster, "plain", CLUSTER_NOT_BOUND, 0);
    assert_int_equal(bind(fixture, "plain", 2 * SECOND, &annotations), 0);
    cluster_bound(fixture->cluster, "plain", CLUSTER_BOUND, 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
    assert_int_equal(bind(fixture, "plain", 100 * SECOND, &annotations), -ENOENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_decision_holds_its_devices),
        TEST(test_a_pod_that_is_asked_for_again_gives_back_first),
        TEST(test_a_reservation_ends_and_is_renewed_where_there_is_room),
        TEST(test_a_reservation_that_ended_is_lost_to_who_came_then),
        TEST(test_a_reservation_that_ended_is_not_renewed_beside_others_against_its_policy),
        TEST(test_a_bind_needs_its_decision),
        TEST(test_a_bind_that_failed_gives_back_and_one_unknown_does_not),
        TEST(test_what_the_watch_shows_takes_the_place_of_the_promise),
        TEST(test_a_bound_pod_that_a_later_list_does_not_show_is_gone),
        TEST(test_a_bound_pod_that_the_watch_does_not_show_is_asked_about),
        TEST(test_a_pod_that_the_watch_shows_is_not_asked_about),
        TEST(test_a_pod_found_after_an_unknown_bind_holds_what_it_says),
        TEST(test_a_new_term_begins_with_what_the_next_list_shows),
        TEST(test_what_a_pod_was_given_is_final),
        TEST(test_what_is_wrong_with_an_annotation_is_said),
        TEST(test_a_whole_pod_is_held_against_what_its_annotations_say),
        TEST(test_what_cannot_be_read_stays_as_it_was),
        TEST(test_a_node_that_comes_back_finds_its_pods_charged),
        TEST(test_a_pod_not_asked_for_again_is_requeued),
        TEST(test_no_pod_is_requeued_where_nothing_came_free),
        TEST(test_who_is_not_asked_for_in_minutes_is_forgotten),
        TEST(test_nothing_is_decided_before_all_is_read),
        TEST(test_a_refusal_is_kept_for_the_same_demand_alone),
        TEST(test_a_refusal_is_kept_for_the_same_policy_alone),
        TEST(test_long_lists_of_many_containers_are_placed),
        TEST(test_pods_are_evicted_for_devices_and_never_in_vain),
        TEST(test_a_pod_that_is_being_bound_is_not_evicted),
        TEST(test_a_pod_that_asks_for_no_device_is_bound_wherever_it_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
