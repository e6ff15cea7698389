/* SPDX-License-Identifier: Apache-2.0 */
#include "model/amounts.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define ASKS(kind, cpu, memory)                                                                    \
    "{\"resources\":{\"" kind "\":{\"cpu\":" cpu ",\"memory\":\"" memory "\"}}}"

static const struct {
    const char *name, *text;
    uint64_t cpu_milli, memory_mib;
} pods[] = {
    {"an empty spec", "{}", 0, 0},
    {"containers add up",
     "{\"containers\":[" ASKS("requests", "\"1500m\"", "1Gi") "," ASKS("requests", "2", "1M") "]}",
     3500, 1025},
    {"fractions round up",
     "{\"containers\":[" ASKS("requests", "\"0.1\"", "1") "," ASKS("requests", "\"100u\"",
                                                                   "0.5Gi") "]}",
     101, 513},
    {"a limit counts where there is no request",
     "{\"containers\":[" ASKS("limits", "\"4\"",
                              "2Gi") ",{\"resources\":{\"requests\":{\"cpu\":1},"
                                     "\"limits\":{\"cpu\":3,\"memory\":\"1Gi\"}}}]}",
     5000, 3072},
    {"init containers run alone",
     "{\"initContainers\":[" ASKS("requests", "8", "1Gi") "," ASKS(
         "requests", "4", "4Gi") "],\"containers\":[" ASKS("requests", "2", "2Gi") "]}",
     8000, 4096},
    {"sidecars go on",
     "{\"initContainers\":[{\"restartPolicy\":\"Always\",\"resources\":{\"requests\":{\"cpu\":1}}}"
     "," ASKS("requests", "3", "0") "],\"containers\":[" ASKS("requests", "2", "1Gi") "]}",
     4000, 1024},
    {"a pod's own requests and its overhead",
     "{\"resources\":{\"requests\":{\"cpu\":\"7\"}},\"overhead\":{\"cpu\":\"250m\",\"memory\":"
     "\"64Mi\"},"
     "\"containers\":[" ASKS("requests", "2", "1Gi") "]}",
     7250, 1088},
    {"what can't be read is none",
     "{\"containers\":[" ASKS("requests", "\"many\"", "-1Gi") "," ASKS("requests", "true",
                                                                       "1Xi") "]}",
     0, 0},
    {"what is huge is bounded",
     "{\"containers\":[" ASKS("requests", "\"99999999999999999999\"", "9999E") "]}",
     UINT64_C(1) << 46, UINT64_C(1) << 26},
};

static yyjson_doc *doc_of(const char *text)
{
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);

    assert_non_null(doc);
    return doc;
}

static void test_a_pod_asks_for_what_kube_scheduler_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(pods); i++) {
        yyjson_doc *doc = doc_of(pods[i].text);
        const struct amounts found = amounts_of_pod(yyjson_doc_get_root(doc));

        print_message("%s\n", pods[i].name);
        assert_int_equal(found.cpu_milli, pods[i].cpu_milli);
        assert_int_equal(found.memory_mib, pods[i].memory_mib);
        yyjson_doc_free(doc);
    }
}

static void test_a_node_has_what_is_allocatable(void **state)
{
    yyjson_doc *doc = doc_of("{\"capacity\":{\"cpu\":\"64\"},\"allocatable\":{\"cpu\":\"63500m\","
                             "\"memory\":\"1048577Ki\"}}");
    const struct amounts found = amounts_of_node(yyjson_doc_get_root(doc));

    (void)state;
    assert_int_equal(found.cpu_milli, 63500);
    assert_int_equal(found.memory_mib, 1024);
    yyjson_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pod_asks_for_what_kube_scheduler_counts),
        cmocka_unit_test(test_a_node_has_what_is_allocatable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
