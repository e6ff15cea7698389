/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"
#include "node/nvidia/node.h"

#define POD                                                                                        \
    "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\",\"annotations\":{"         \
    "\"hami.io/vgpu-node\":\"node-1\",\"hami.io/bind-phase\":\"%s\","                              \
    "\"hami.io/vgpu-devices-allocated\":\"GPU-a,NVIDIA,10,1:;GPU-a,NVIDIA,20,2:;\"}},"             \
    "\"spec\":{\"initContainers\":[{\"name\":\"i\",\"resources\":{\"limits\":{"                    \
    "\"nvidia.com/priority\":\"1\"}}}],\"containers\":[{\"name\":\"a\",\"env\":["                  \
    "{\"name\":\"CUDA_TASK_PRIORITY\",\"value\":\"0\"}]}]},\"status\":{\"phase\":\"%s\","          \
    "\"initContainerStatuses\":[{\"name\":\"i\",\"restartCount\":0,\"state\":{%s}}]}}"

#define GIVEN "GPU-a,NVIDIA,10,1:;GPU-a,NVIDIA,20,2:;"

static struct node_pod *put_given(struct pods *pods, const char *given)
{
    struct node_pod *pod = NULL;
    char text[1024];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text),
                   "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"u\","
                   "\"annotations\":{\"hami.io/vgpu-node\":\"node-1\","
                   "\"hami.io/vgpu-devices-allocated\":\"%s\"}},\"spec\":{\"containers\":["
                   "{\"name\":\"a\"},{\"name\":\"b\"}]}}",
                   given);
    doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    assert_int_equal(pods_put(pods, yyjson_doc_get_root(doc), true, &pod, NULL), 0);
    yyjson_doc_free(doc);
    return pod;
}

static struct node_pod *put(struct pods *pods, const char *name, const char *uid, const char *phase,
                            const char *state, bool from_watch)
{
    struct error err = ERROR_INIT;
    struct node_pod *pod = NULL;
    char text[2048];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text), POD, name, uid, "allocating", phase, state);
    doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    if (pods_put(pods, yyjson_doc_get_root(doc), from_watch, &pod, &err) < 0)
        fail_msg("%s", err.text);
    yyjson_doc_free(doc);
    return pod;
}

static void count_gone(void *data, struct node_pod *pod)
{
    (void)pod;
    (*(unsigned *)data)++;
}

static void a_pod_is_read(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct node_pod *pod;

    (void)state;
    pod = put(pods, "p", "u", "Pending", "\"terminated\":{\"exitCode\":0}", true);
    assert_string_equal(pod->allocated, "GPU-a,NVIDIA,10,1:;GPU-a,NVIDIA,20,2:;");
    assert_int_equal(pod->container_count, 2);
    assert_int_equal(pod->containers[0].role, CONTAINER_INIT);
    assert_int_equal(pod->containers[0].state, INIT_DONE);
    /* A container's own, and not by the variable, which is the tenant's. */
    assert_int_equal(pod->containers[0].priority, 1);
    assert_int_equal(pod->containers[1].priority, -1);
    assert_false(pod->over || pod->phase_success || pod->labelled || pod->deleting);
    pod = put(pods, "p", "u", "Pending", "\"terminated\":{\"exitCode\":1}", true);
    assert_int_equal(pod->containers[0].state, INIT_FAILED);
    pod = put(pods, "p", "u", "Succeeded", "\"running\":{}", true);
    assert_int_equal(pod->containers[0].state, INIT_RUNNING);
    assert_true(pod->over);
    pods_free(pods);
}

static void a_run_that_ended_is_known_by_its_id(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    const struct pod_container *init;
    struct node_pod *pod;
    uint64_t first;

    (void)state;
    pod = put(pods, "p", "u", "Pending", "\"running\":{}", true);
    assert_int_equal(pod->containers[0].ended, 0);
    pod = put(pods, "p", "u", "Pending",
              "\"terminated\":{\"exitCode\":1,\"containerID\":\"c://1\"}", true);
    first = pod->containers[0].ended;
    assert_int_not_equal(first, 0);
    /* It was handed its devices by another run of the plugin, which saw as much. */
    pod_container_adopt(&pod->containers[0]);
    pod->containers[1].ended_before = 7;
    pod = put(pods, "p", "u", "Pending",
              "\"waiting\":{}},\"lastState\":{\"terminated\":{\"containerID\":\"c://2\"}", true);
    init = &pod->containers[0];
    assert_int_not_equal(init->ended, first);
    assert_int_equal(init->ended_before, init->ended);
    assert_int_equal(pod->containers[1].ended_before, 7);
    pod = put(pods, "p", "u", "Pending",
              "\"terminated\":{\"exitCode\":1,\"containerID\":\"c://1\"}", true);
    init = &pod->containers[0];
    assert_int_equal(init->ended, first);
    assert_int_not_equal(init->ended_before, init->ended);
    pods_free(pods);
}

static void all_init_containers_that_are_done_are_recorded(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"u\",\"annotations\":{"
        "\"a\":\"x,y\",\"hami.io/vgpu-node\":\"node-1\","
        "\"hami.io/vgpu-devices-allocated\":\"GPU-a,NVIDIA,10,1:;;;\"}},"
        "\"spec\":{\"initContainers\":[{\"name\":\"i\"},{\"name\":\"k\"}],\"containers\":[{"
        "\"name\":\"a\"}]},\"status\":{\"initContainerStatuses\":["
        "{\"name\":\"i\",\"state\":{\"terminated\":{\"exitCode\":0}}},"
        "{\"name\":\"k\",\"state\":{\"terminated\":{\"exitCode\":0}}}]}}";
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct pods *later = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    CLEANUP(strbuf_deinit) struct strbuf record = STRBUF_INIT(1 << 16);
    struct node_pod *pod = NULL;
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);

    (void)state;
    assert_int_equal(pods_put(pods, yyjson_doc_get_root(doc), true, &pod, NULL), 0);
    yyjson_doc_free(doc);
    pods_record(pods, pod, &record);
    doc = yyjson_read(record.text, record.len, 0);
    assert_non_null(doc);
    assert_int_equal(pods_put(later, yyjson_doc_get_root(doc), false, &pod, NULL), 0);
    yyjson_doc_free(doc);
    assert_int_equal(pod->container_count, 3);
    assert_int_equal(pod->containers[0].state, INIT_DONE);
    assert_int_equal(pod->containers[1].state, INIT_DONE);
    pods_free(later);
    pods_free(pods);
}

static int priority_of(struct pods *pods, const char *quantity)
{
    struct node_pod *pod = NULL;
    char text[512];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text),
                   "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"%s\","
                   "\"annotations\":{\"hami.io/vgpu-node\":\"node-1\","
                   "\"hami.io/vgpu-devices-allocated\":\"GPU-a,NVIDIA,10,1:;\"}},\"spec\":{"
                   "\"containers\":[{\"name\":\"a\",\"resources\":{\"limits\":{"
                   "\"nvidia.com/priority\":\"%s\"}}}]}}",
                   quantity, quantity);
    doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    assert_int_equal(pods_put(pods, yyjson_doc_get_root(doc), true, &pod, NULL), 0);
    yyjson_doc_free(doc);
    return pod->containers[0].priority;
}

static void a_priority_is_a_whole_number_within_bounds(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");

    (void)state;
    assert_int_equal(priority_of(pods, "0"), 0);
    assert_int_equal(priority_of(pods, "2"), 2);
    assert_int_equal(priority_of(pods, "1000"), 1000);
    assert_int_equal(priority_of(pods, "1001"), -1);
    assert_int_equal(priority_of(pods, "-3"), -1);
    assert_int_equal(priority_of(pods, "500m"), -1);
    pods_free(pods);
}

static void a_refusals_number_is_read_of_the_container_that_waits(void **state)
{
    static const struct {
        const char *state;
        uint32_t refusal;
    } cases[] = {
        {"\"waiting\":{\"message\":\"no devices (" POD_REFUSAL_WORD "0001beef)\"}", 0x1beef},
        {"\"waiting\":{\"message\":\"" POD_REFUSAL_WORD "fffffffe\"}", 0xfffffffe},
        {"\"waiting\":{\"message\":\"image 12 can't be pulled\"}", 0},
        {"\"waiting\":{\"message\":\"" POD_REFUSAL_WORD "\"}", 0},
        {"\"waiting\":{\"message\":7}", 0},
        {"\"running\":{\"message\":\"" POD_REFUSAL_WORD "1\"}", 0},
    };
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct node_pod *pod = put(pods, "p", "u", "Pending", cases[i].state, true);

        assert_int_equal(pod->containers[0].refusal, cases[i].refusal);
        assert_int_equal(pod->containers[1].refusal, 0);
    }
    pods_free(pods);
}

static void handed_over_devices_outlive_a_new_reading(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct arena *arena = arena_new(1 << 20);
    struct pod_devices devices;
    struct node_pod *pod;

    (void)state;
    pod = put(pods, "p", "u", "Pending", "", true);
    assert_int_equal(pod_grants(pod, arena, &devices, NULL), 0);
    pod->containers[1].ready = true;
    COPY_TEXT(pod->containers[1].cdi_name, "a1");
    assert_false(pod_is_ready(pod, &devices));
    pod = put(pods, "p", "u", "Pending", "\"terminated\":{\"exitCode\":0}", false);
    assert_true(pod->containers[1].ready);
    assert_string_equal(pod->containers[1].cdi_name, "a1");
    assert_true(pod->confirmed);
    /* An init container that is done needs its devices no more. */
    assert_true(pod_is_ready(pod, &devices));
    arena_free(arena);
    pods_free(pods);
}

static void a_record_brings_a_pod_back(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct pods *again = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    const char *const states[] = {"\"running\":{}", "\"terminated\":{\"exitCode\":0}", ""};
    struct node_pod *pod;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        CLEANUP(strbuf_deinit) struct strbuf record = STRBUF_INIT(1 << 16);
        yyjson_doc *doc;

        pod = put(pods, "p", "u", "Pending", states[i], true);
        pods_record(pods, pod, &record);
        doc = yyjson_read(record.text, record.len, 0);
        assert_int_equal(pods_adopt(again, yyjson_doc_get_root(doc), NULL), 0);
        yyjson_doc_free(doc);
    }
    pod = pods_find(again, "u");
    assert_non_null(pod);
    assert_string_equal(pod->name, "p");
    assert_string_equal(pod->allocated, GIVEN);
    assert_true(pod->final && !pod->over && !pod->confirmed);
    assert_int_equal(pod->container_count, 2);
    assert_int_equal(pod->containers[0].role, CONTAINER_INIT);
    assert_int_equal(pod->containers[0].priority, 1);
    assert_int_equal(pod->containers[0].state, INIT_DONE);
    assert_int_equal(pods_adopt(again, NULL, NULL), -EINVAL);
    pods_free(pods);
    pods_free(again);
}

static void a_pod_that_a_list_lacks_is_gone(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    unsigned gone = 0;

    (void)state;
    pods_begin(pods);
    (void)put(pods, "a", "u-1", "Running", "", true);
    (void)put(pods, "b", "u-2", "Running", "", true);
    pods_complete(pods, count_gone, &gone);
    assert_int_equal(gone, 0);
    pods_begin(pods);
    (void)put(pods, "a", "u-1", "Running", "", true);
    (void)put(pods, "c", "u-3", "Pending", "", false); /* younger than the list */
    pods_complete(pods, count_gone, &gone);
    assert_int_equal(gone, 1);
    assert_null(pods_find(pods, "u-2"));
    assert_non_null(pods_find(pods, "u-3"));

    pods_expire(pods, 2, count_gone, &gone);
    assert_int_equal(gone, 1);
    pods_expire(pods, 2, count_gone, &gone);
    assert_int_equal(gone, 2);
    assert_null(pods_find(pods, "u-3"));
    assert_non_null(pods_find(pods, "u-1"));
    pods_free(pods);
}

static void of_two_of_a_name_the_living_is_meant(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");

    (void)state;
    (void)put(pods, "p", "u-1", "Failed", "", true);
    (void)put(pods, "p", "u-2", "Pending", "", true);
    assert_string_equal(pods_find_name(pods, "ns", "p")->uid, "u-2");
    pods_remove(pods, "u-2");
    assert_string_equal(pods_find_name(pods, "ns", "p")->uid, "u-1");
    assert_null(pods_find_name(pods, "other", "p"));
    pods_free(pods);
}

static void an_annotation_for_another_node_is_ignored(void **state)
{
    struct pods *pods = pods_new("node-2", &nvidia_node_vendor, "");

    (void)state;
    assert_string_equal(put(pods, "p", "u", "Pending", "", true)->allocated, "");
    pods_free(pods);
}

static void the_first_grant_of_a_pod_is_final(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct node_pod *pod;

    (void)state;
    assert_false(put_given(pods, "")->final);
    assert_false(put_given(pods, "GPU-a,NVIDIA;x:y")->final);
    assert_false(put_given(pods, ";;")->final);
    pod = put_given(pods, GIVEN);
    assert_true(pod->final && !pod->altered);
    pod = put_given(pods, "GPU-a,NVIDIA,9999,100:;;");
    assert_true(pod->final && pod->altered);
    assert_string_equal(pod->allocated, GIVEN);
    assert_string_equal(put_given(pods, "")->allocated, GIVEN);
    pod = put_given(pods, GIVEN);
    assert_true(pod->final && !pod->altered);
    pods_free(pods);
}

static void the_first_grant_of_an_earlier_run_is_final(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    struct node_pod *pod = put_given(pods, "GPU-a,NVIDIA,9999,100:;;");

    (void)state;
    assert_int_equal(pod_keep(pod, "x"), 0);
    assert_string_equal(pod->allocated, "GPU-a,NVIDIA,9999,100:;;");
    assert_int_equal(pod_keep(pod, GIVEN), 0);
    assert_true(pod->altered);
    assert_string_equal(pod->allocated, GIVEN);
    assert_string_equal(put_given(pods, "GPU-a,NVIDIA,9999,100:;;")->allocated, GIVEN);
    pods_free(pods);
}

static bool others_allocate(struct pods *pods, const char *key, const char *devices)
{
    struct node_pod *pod = NULL;
    char text[512];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text),
                   "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"u\","
                   "\"annotations\":{\"%s\":\"%s\"}},\"spec\":{\"containers\":[{\"name\":\"a\"}]}}",
                   key, devices);
    doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    assert_int_equal(pods_put(pods, yyjson_doc_get_root(doc), true, &pod, NULL), 0);
    yyjson_doc_free(doc);
    return pod->others_allocate;
}

static void what_another_vendor_is_still_to_hand_over_is_known_by_its_key(void **state)
{
    static const struct {
        const char *key, *devices;
        bool others;
    } cases[] = {
        {"hami.io/dcu-devices-to-allocate", "DCU-0,DCU,1,1:;", true},
        {"x-devices-to-allocate", "a,b", true},
        {"hami.io/dcu-devices-to-allocate", ";", false}, /* they all were */
        {"hami.io/vgpu-devices-to-allocate", GIVEN, false},
        {"hami.io/dcu-devices-allocated", "DCU-0,DCU,1,1:;", false},
        {"hami.io/dcu-devices-to-allocate-at", "a,b", false},
        {"-devices-to-allocate", "a,b", false}, /* whose? */
        {"a", "a,b", false},
        {"", "a,b", false},
    };
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(others_allocate(pods, cases[i].key, cases[i].devices), cases[i].others);
    pods_free(pods);
}

static void a_pod_that_cannot_be_read_stays(void **state)
{
    struct pods *pods = pods_new("node-1", &nvidia_node_vendor, "nvidia.com/priority");
    unsigned gone = 0;

    (void)state;
    (void)put_given(pods, GIVEN);
    pods_begin(pods);
    pods_touch(pods, "u");
    pods_touch(pods, "another");
    pods_complete(pods, count_gone, &gone);
    assert_int_equal(gone, 0);
    assert_non_null(pods_find(pods, "u"));
    pods_free(pods);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_is_read),
        cmocka_unit_test(a_run_that_ended_is_known_by_its_id),
        cmocka_unit_test(all_init_containers_that_are_done_are_recorded),
        cmocka_unit_test(a_priority_is_a_whole_number_within_bounds),
        cmocka_unit_test(a_refusals_number_is_read_of_the_container_that_waits),
        cmocka_unit_test(handed_over_devices_outlive_a_new_reading),
        cmocka_unit_test(a_record_brings_a_pod_back),
        cmocka_unit_test(a_pod_that_a_list_lacks_is_gone),
        cmocka_unit_test(of_two_of_a_name_the_living_is_meant),
        cmocka_unit_test(an_annotation_for_another_node_is_ignored),
        cmocka_unit_test(the_first_grant_of_a_pod_is_final),
        cmocka_unit_test(the_first_grant_of_an_earlier_run_is_final),
        cmocka_unit_test(what_another_vendor_is_still_to_hand_over_is_known_by_its_key),
        cmocka_unit_test(a_pod_that_cannot_be_read_stays),
    };

    return cmocka_run_group_tests_name("pods", tests, NULL, NULL);
}
