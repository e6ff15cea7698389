/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/json.h"
#include "model/node.h"
#include "model/pod.h"

static struct arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static yyjson_val *parse(const char *text)
{
    yyjson_val *root;

    assert_int_equal(json_parse(text, strlen(text), arena, &root, NULL), 0);
    return root;
}

static const struct kept_names kept = {1, 1, 1, {"nvidia.com/"}, {"CUDA_"}, {"gpu"}};

static const char whole_pod[] =
    "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"u\",\"resourceVersion\":\"7\","
    "\"deletionTimestamp\":\"2026-01-02T03:04:05Z\","
    "\"annotations\":{\"hami.io/vgpu-node\":\"n1\",\"kubernetes.io/x\":\"y\"},"
    "\"labels\":{\"app\":\"a\",\"hami.io/vgpu-node\":\"n1\"}},"
    "\"spec\":{\"nodeName\":\"n1\",\"schedulerName\":\"hami-scheduler\",\"futureField\":[1],"
    "\"initContainers\":[{\"name\":\"i\"},{\"name\":\"s\",\"restartPolicy\":\"Always\"}],"
    "\"containers\":[{\"name\":\"c\",\"env\":[],\"securityContext\":{\"privileged\":true},"
    "\"resources\":{\"limits\":{\"cpu\":\"bad\",\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":\"3k\"},"
    "\"requests\":{\"nvidia.com/gpucores\":\"30\"}}}]},"
    "\"status\":{\"phase\":\"Running\"}}";

static void a_pod_is_reduced_to_what_counts(void **state)
{
    const struct container *container;
    struct pod pod;

    (void)state;
    assert_int_equal(pod_read(parse(whole_pod), &kept, arena, &pod, NULL), 0);
    assert_string_equal(pod.namespace, "ns");
    assert_string_equal(pod.name, "p");
    assert_string_equal(pod.uid, "u");
    assert_string_equal(pod.resource_version, "7");
    assert_true(pod.deleting);
    assert_int_equal(pod.annotations.count, 1);
    assert_string_equal(text_pairs_get(&pod.annotations, "hami.io/vgpu-node"), "n1");
    assert_int_equal(pod.labels.count, 1);
    assert_string_equal(pod.node_name, "n1");
    assert_string_equal(pod.scheduler_name, "hami-scheduler");
    assert_string_equal(pod.runtime_class, "");
    assert_int_equal(pod.phase, POD_RUNNING);
    assert_false(pod_is_over(&pod));
    assert_int_equal(pod.container_count, 3);
    assert_int_equal(pod.init_count, 2);
    assert_int_equal(pod.containers[0].role, CONTAINER_INIT);
    assert_int_equal(pod.containers[1].role, CONTAINER_SIDECAR);
    assert_string_equal(pod_init_roles(&pod, arena), "is");

    container = &pod.containers[2];
    assert_string_equal(container->name, "c");
    assert_int_equal(container->role, CONTAINER_APP);
    assert_true(container->privilege && container->has_env && container->has_limits);
    assert_int_equal(container->limits.count, 2);
    assert_int_equal(container_resource(container, "nvidia.com/gpu")->quantity.value, 1);
    assert_int_equal(container_resource(container, "nvidia.com/gpumem")->quantity.value, 3000);
    assert_int_equal(container_resource(container, "nvidia.com/gpucores")->quantity.value, 30);
    assert_null(container_resource(container, "cpu"));
    assert_null(container_resource(container, ""));
}

static void metadata_alone_is_a_pod_without_a_spec(void **state)
{
    struct pod pod;

    (void)state;
    assert_int_equal(pod_read(parse("{\"metadata\":{\"name\":\"p\"}}"), NULL, arena, &pod, NULL),
                     0);
    assert_false(pod.has_spec);
    assert_int_equal(pod.phase, POD_PHASE_UNKNOWN);
    assert_int_equal(pod.container_count, 0);
    assert_string_equal(pod_init_roles(&pod, arena), "");
    assert_string_equal(pod.node_name, "");
}

static const struct {
    const char *text, *error;
} bad_pods[] = {
    {"[]", "not an object"},
    {"{\"metadata\":1}", "metadata: not an object"},
    {"{\"metadata\":{\"name\":1}}", "metadata.name: not text"},
    {"{\"metadata\":{\"name\":\"a\\u0000\"}}", "metadata.name: not text"},
    {"{\"metadata\":{\"annotations\":[]}}", "metadata.annotations: not an object"},
    {"{\"spec\":{\"containers\":{}}}", "spec.containers: not a list"},
    {"{\"spec\":{\"containers\":[7]}}", "spec.containers[0]: not an object"},
    {"{\"spec\":{\"containers\":[{},{\"resources\":7}]}}",
     "spec.containers[1].resources: not an object"},
    {"{\"spec\":{\"initContainers\":[{\"resources\":{\"limits\":{\"nvidia.com/gpu\":\"x\"}}}]}}",
     "spec.initContainers[0].resources.limits[nvidia.com/gpu]: not a quantity"},
    {"{\"spec\":{\"containers\":[{\"resources\":{\"requests\":{\"nvidia.com/gpu\":true}}}]}}",
     "spec.containers[0].resources.requests[nvidia.com/gpu]: not a quantity"},
};

static void an_error_names_the_field_of_a_pod(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_pods); i++) {
        struct error err = ERROR_INIT;
        struct pod pod = {.name = "untouched"};

        assert_int_equal(pod_read(parse(bad_pods[i].text), &kept, arena, &pod, &err), -EINVAL);
        assert_string_equal(err.text, bad_pods[i].error);
        assert_string_equal(pod.name, "untouched");
    }
}

static void an_annotation_that_is_no_text_costs_itself_alone(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"uid\":\"u\",\"annotations\":{\"nvidia.com/x\":\"a\\u0000\","
        "\"hami.io/y\":7,\"hami.io/vgpu-node\":\"n\"}}}";
    struct pod pod;

    (void)state;
    assert_int_equal(pod_read(parse(text), &kept, arena, &pod, NULL), 0);
    assert_int_equal(pod.annotations.count, 1);
    assert_string_equal(text_pairs_get(&pod.annotations, "hami.io/vgpu-node"), "n");
}

static void a_full_arena_is_an_error_and_no_crash(void **state)
{
    yyjson_val *object = parse(whole_pod);

    (void)state;
    for (size_t size = 0; size < 2048; size += 16) {
        CLEANUP(arena_freep) struct arena *small = arena_new(size);
        struct pod pod;
        int r = pod_read(object, &kept, small, &pod, NULL);

        assert_true(r == 0 || r == -ENOMEM);
    }
}

static void a_node_is_reduced_to_what_counts(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"name\":\"n1\",\"annotations\":{\"hami.io/node-nvidia-register\":\"[]\"},"
        "\"labels\":{\"gpu\":\"on\",\"zone\":\"a\"}},\"spec\":{\"unschedulable\":true},"
        "\"status\":{\"allocatable\":{\"cpu\":\"2\",\"nvidia.com/gpu\":\"20\"},"
        "\"conditions\":[{\"type\":\"DiskPressure\",\"status\":\"False\"},"
        "{\"type\":\"Ready\",\"status\":\"True\"}]}}";
    struct node node;

    (void)state;
    assert_int_equal(node_read(parse(text), &kept, arena, &node, NULL), 0);
    assert_string_equal(node.name, "n1");
    assert_true(node.has_status && node.ready && node.unschedulable);
    assert_int_equal(node.labels.count, 1);
    assert_string_equal(text_pairs_get(&node.labels, "gpu"), "on");
    assert_int_equal(node.allocatable.count, 1);
    assert_int_equal(resource_find(&node.allocatable, "nvidia.com/gpu")->quantity.value, 20);
    assert_string_equal(text_pairs_get(&node.annotations, "hami.io/node-nvidia-register"), "[]");

    assert_int_equal(node_read(parse("{}"), NULL, arena, &node, NULL), 0);
    assert_false(node.has_status || node.ready || node.unschedulable);
    assert_int_equal(node.labels.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_is_reduced_to_what_counts),
        cmocka_unit_test(metadata_alone_is_a_pod_without_a_spec),
        cmocka_unit_test(an_error_names_the_field_of_a_pod),
        cmocka_unit_test(an_annotation_that_is_no_text_costs_itself_alone),
        cmocka_unit_test(a_full_arena_is_an_error_and_no_crash),
        cmocka_unit_test(a_node_is_reduced_to_what_counts),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
