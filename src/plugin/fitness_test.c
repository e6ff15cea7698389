/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/fitness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "grpc/runtime.pb-c.h"

static struct runtime_facts read_config(const char *text)
{
    Runtime__V1__InfoEntry other = RUNTIME__V1__INFO_ENTRY__INIT, config = other;
    Runtime__V1__InfoEntry *entries[] = {&other, &config};
    Runtime__V1__StatusResponse status = RUNTIME__V1__STATUS_RESPONSE__INIT;
    struct runtime_facts facts;
    uint8_t message[4096];

    other.key = (char *)"golang";
    other.value = (char *)"{";
    config.key = (char *)"config";
    config.value = (char *)text;
    status.n_info = ARRAY_SIZE(entries);
    status.info = entries;
    assert_int_equal(
        runtime_facts_read(message, runtime__v1__status_response__pack(&status, message), &facts),
        0);
    return facts;
}

static void a_runtime_says_where_it_looks(void **state)
{
    struct runtime_facts facts;

    (void)state;
    facts = read_config("{\"enableCDI\":false,\"cdiSpecDirs\":[\"/etc/cdi\",\"/var/run/cdi\"],"
                        "\"containerd\":{\"defaultRuntimeName\":\"nvidia\"}}");
    assert_true(facts.cdi_off);
    assert_string_equal(facts.cdi_folders, "/etc/cdi,/var/run/cdi");
    assert_string_equal(facts.default_handler, "nvidia");
    facts = read_config("{\"enableCDI\":null}");
    assert_false(facts.cdi_off);
    facts = read_config("no JSON");
    assert_false(facts.cdi_off);
    assert_string_equal(facts.cdi_folders, "");
    assert_int_equal(runtime_facts_read((const uint8_t *)"\x12\xff", 2, &facts), -EPROTO);
}

static void a_node_is_fit_or_says_why(void **state)
{
    static const struct {
        const char *name;
        struct fitness fitness;
        enum fitness_outcome outcome;
        const char *why;
    } cases[] = {
        {"CDI on",
         {.has_runtime = true, .has_node = true, .kubelet_version = "v1.29.0"},
         FITNESS_GOOD,
         ""},
        {"CDI off",
         {.has_runtime = true, .runtime = {.cdi_off = true}, .has_node = true},
         FITNESS_NO_CDI,
         "enable_cdi"},
        {"told to believe",
         {.has_runtime = true, .runtime = {.cdi_off = true}, .has_node = true, .assume_cdi = true},
         FITNESS_GOOD,
         ""},
        {"its folder",
         {.has_runtime = true, .runtime = {.cdi_folders = "/etc/cdi,/run/cdi/"}, .has_node = true},
         FITNESS_GOOD,
         ""},
        {"its folder, with slashes behind",
         {.has_runtime = true, .runtime = {.cdi_folders = "/var/run/cdi///"}, .has_node = true},
         FITNESS_GOOD,
         ""},
        {"another folder",
         {.has_runtime = true, .runtime = {.cdi_folders = "/etc/cdi,/run/cd"}, .has_node = true},
         FITNESS_NO_CDI,
         "not in /var/run/cdi"},
        {"silent containerd 1",
         {.has_node = true, .runtime_version = "containerd://1.7.2"},
         FITNESS_NO_CDI,
         "--runtime-socket"},
        {"silent containerd 2",
         {.has_node = true, .runtime_version = "containerd://2.0.0"},
         FITNESS_GOOD,
         ""},
        {"CRI-O", {.has_node = true, .runtime_version = "cri-o://1.30.0"}, FITNESS_GOOD, ""},
        {"old kubelet",
         {.has_node = true, .kubelet_version = "v1.28.15+k3s1"},
         FITNESS_OLD_KUBELET,
         "v1.28.15"},
        {"new kubelet", {.has_node = true, .kubelet_version = "v1.36.0-alpha.1"}, FITNESS_GOOD, ""},
        {"next kubelet", {.has_node = true, .kubelet_version = "v2.0.0"}, FITNESS_GOOD, ""},
        {"odd kubelet", {.has_node = true, .kubelet_version = "1.2.3"}, FITNESS_GOOD, ""},
        {"no API server, new here", {.has_runtime = true}, FITNESS_UNKNOWN, "API server"},
        {"no API server, known here",
         {.has_runtime = true, .served_before = true},
         FITNESS_GOOD,
         ""},
        {"no API server, known here as unfit",
         {.has_runtime = true, .ordered_before = true},
         FITNESS_OLD_KUBELET,
         "an earlier run"},
        {"no API server, known here as both",
         {.has_runtime = true, .served_before = true, .ordered_before = true},
         FITNESS_OLD_KUBELET,
         "an earlier run"},
        {"known here as unfit, and mended since",
         {.has_node = true, .kubelet_version = "v1.30.0", .ordered_before = true},
         FITNESS_GOOD,
         ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fitness fitness = cases[i].fitness;
        struct error why = ERROR_INIT;

        fitness.cdi_folder = "/var/run/cdi";
        if (fitness_judge(&fitness, &why) != cases[i].outcome || !strstr(why.text, cases[i].why) ||
            (cases[i].outcome == FITNESS_GOOD && why.text[0]))
            fail_msg("%s: %s", cases[i].name, why.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_runtime_says_where_it_looks),
        cmocka_unit_test(a_node_is_fit_or_says_why),
    };

    return cmocka_run_group_tests_name("fitness", tests, NULL, NULL);
}
