/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/podnames.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static struct pod_names *names;

static int set_up(void **state)
{
    (void)state;
    names = pod_names_new();
    return names ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    pod_names_free(names);
    return 0;
}

static void put(const char *metadata)
{
    char text[256];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text), "{\"metadata\": {%s}}", metadata);
    doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    pod_names_put(names, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
}

#define ONE "\"uid\": \"1\", \"namespace\": \"ns\", \"name\": \"one\""
#define TWO "\"uid\": \"2\", \"namespace\": \"ns\", \"name\": \"two\""

static void a_pod_is_known_by_its_uid_until_it_is_deleted(void **state)
{
    yyjson_doc *doc =
        yyjson_read("{\"metadata\": {" ONE "}}", sizeof("{\"metadata\": {" ONE "}}") - 1, 0);

    (void)state;
    put(ONE);
    put(TWO);
    assert_string_equal(pod_names_find(names, "1")->namespace, "ns");
    assert_string_equal(pod_names_find(names, "1")->name, "one");
    pod_names_remove(names, yyjson_doc_get_root(doc));
    pod_names_remove(names, yyjson_doc_get_root(doc));
    assert_null(pod_names_find(names, "1"));
    assert_string_equal(pod_names_find(names, "2")->name, "two");
    yyjson_doc_free(doc);
}

static void a_new_list_forgets_pods_that_are_not_in_it_once_it_is_complete(void **state)
{
    (void)state;
    pod_names_begin(names);
    put(ONE);
    put(TWO);
    pod_names_complete(names);
    pod_names_begin(names);
    put(TWO);
    assert_non_null(pod_names_find(names, "1"));
    pod_names_complete(names);
    assert_null(pod_names_find(names, "1"));
    assert_non_null(pod_names_find(names, "2"));
}

static void what_is_no_pod_is_left_out(void **state)
{
    (void)state;
    put("\"uid\": \"1\"");
    put("\"uid\": \"1\", \"namespace\": \"ns\"");
    put("\"uid\": \"1\", \"name\": \"one\"");
    put("\"uid\": 1, \"namespace\": \"ns\", \"name\": \"one\"");
    put("");
    assert_null(pod_names_find(names, "1"));
}

static void put_text(const char *text)
{
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);

    assert_non_null(doc);
    pod_names_put(names, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
}

#define TO_BE_MADE(container)                                                                      \
    "{\\\"containerIndex\\\":" container                                                           \
    ",\\\"gpuUUID\\\":\\\"GPU-a\\\",\\\"profile\\\":\\\"1g.5gb\\\","                               \
    "\\\"placement\\\":{\\\"size\\\":1}"
#define INSTANCE(container)                                                                        \
    TO_BE_MADE(container)                                                                          \
    ",\\\"migUUID\\\":\\\"MIG-1\\\",\\\"gpuInstanceID\\\":7,\\\"computeInstanceID\\\":0}"
#define WITH(annotation)                                                                           \
    "{\"metadata\": {" ONE ", \"annotations\": {\"hami.io/vgpu-mig-allocations\": \"" annotation   \
    "\"}}, \"spec\": {\"initContainers\": [{\"name\": \"first\"}], \"containers\": [{\"name\": "   \
    "\"main\"}]}}"

static void instances_belong_to_containers_by_their_place(void **state)
{
    const struct pod_name *pod;

    (void)state;
    put_text(WITH("[" INSTANCE("1") "," INSTANCE("0") "," TO_BE_MADE("3") "}," INSTANCE("2") "]"));
    pod = pod_names_find(names, "1");
    assert_int_equal(pod->mig_count, 3);
    assert_string_equal(pod->migs[0].container, "main");
    assert_string_equal(pod->migs[1].container, "first");
    assert_string_equal(pod->migs[2].container, "");
    put_text(WITH("[" INSTANCE("1") "]"));
    assert_int_equal(pod->mig_count, 1);
    put_text(WITH("garbage"));
    assert_int_equal(pod->mig_count, 0);
    put_text(WITH("[" INSTANCE("1") "]"));
    put(ONE);
    assert_int_equal(pod->mig_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_pod_is_known_by_its_uid_until_it_is_deleted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_new_list_forgets_pods_that_are_not_in_it_once_it_is_complete, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_pod_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(instances_belong_to_containers_by_their_place, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
