/* SPDX-License-Identifier: Apache-2.0 */

/* Annotations of pods and nodes, and when they count. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static void test_a_grant_is_final(void **state)
{
    struct fixture *fixture = *state;
    struct text_pair over[] = {{KEY_NODE, "a"}, {NVIDIA_ALLOCATED_KEY, "x"}};
    const struct text_pairs none = {0}, written_over = {over, 2};
    struct cluster_answer answer;
    struct text_pairs annotations;
    struct pod pod = {.namespace = "default", .name = "one", .uid = "one", .resource_version = "3"};

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations);
    pod.annotations = written_over;
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 1);
    pod.annotations = none;
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 1);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
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

static void test_an_error_names_what_is_wrong_with_an_annotation(void **state)
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

    assert_int_equal(fixture_show_whole(fixture, "elsewhere", "b", 1, claim, 2), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(fixture_filter(fixture, "one", 1000, 0, &answer), CLUSTER_PLACED);
    cluster_delete_pod(fixture->cluster, "one");
    cluster_delete_pod(fixture->cluster, "elsewhere");
    assert_int_equal(fixture_show_whole(fixture, "asks for nothing", "a", 0, claim, 2), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 0);
    assert_int_equal(fixture_show_whole(fixture, "honest", "a", 1, &claim[1], 1), 0);
    assert_int_equal(cluster_count(fixture->cluster).pods, 1);
    assert_int_equal(fixture_filter(fixture, "one", 1000, 0, &answer), CLUSTER_REFUSED);
}

static void test_an_object_that_cannot_be_read_stays_as_it_was(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations);
    cluster_begin(fixture->cluster, CLUSTER_PODS);
    cluster_keep(fixture->cluster, CLUSTER_PODS, "one");
    cluster_complete(fixture->cluster, CLUSTER_PODS);
    cluster_begin(fixture->cluster, CLUSTER_NODES);
    cluster_keep(fixture->cluster, CLUSTER_NODES, "a");
    cluster_complete(fixture->cluster, CLUSTER_NODES);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
}

static void test_a_node_that_comes_back_finds_its_pods_charged(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    fixture_show(fixture, "one", &annotations);
    cluster_delete_node(fixture->cluster, "a");
    assert_int_equal(fixture_filter(fixture, "two", 300, 0, &answer), CLUSTER_REFUSED);
    fixture_add_node(fixture->cluster, "a", 1000);
    assert_int_equal(fixture_filter(fixture, "two", 600, 0, &answer), CLUSTER_REFUSED);
    assert_int_equal(fixture_filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_a_grant_is_final),
        FIXTURE_TEST(test_an_error_names_what_is_wrong_with_an_annotation),
        FIXTURE_TEST(test_a_whole_pod_is_held_against_what_its_annotations_say),
        FIXTURE_TEST(test_an_object_that_cannot_be_read_stays_as_it_was),
        FIXTURE_TEST(test_a_node_that_comes_back_finds_its_pods_charged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
