/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/resource_name.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void names_that_kubernetes_takes_are_taken(void **state)
{
    static const char *const names[] = {"nvidia.com/gpu",
                                        "iluvatar.ai/BI-V150.vMem",
                                        "huawei.com/Ascend910B3-memory",
                                        "a/b",
                                        "aws.amazon.com/neuron",
                                        "metax-tech.com/sgpu",
                                        "kubernetes.com/gpu",
                                        "request.io/gpu"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_null(resource_name_check(names[i]));
}

static void names_that_kubernetes_refuses_are_refused(void **state)
{
    static const struct {
        const char *name, *wrong;
    } rows[] = {
        {"gpu", "without a domain"},
        {"cpu", "without a domain"},
        {"", "without a domain"},
        {"kubernetes.io/gpu", "Kubernetes' own"},
        {"device.kubernetes.io/gpu", "Kubernetes' own"},
        {"requests.nvidia.com/gpu", "leave that out"},
        {"/gpu", "no domain before"},
        {"NVIDIA.com/gpu", "no domain before"},
        {"nvidia..com/gpu", "no domain before"},
        {"nvidia.com./gpu", "no domain before"},
        {"-nvidia.com/gpu", "no domain before"},
        {"nvidia_x.com/gpu", "no domain before"},
        {"nvidia.com/", "no name behind"},
        {"nvidia.com/gpu/x", "no name behind"},
        {"nvidia.com/-gpu", "no name behind"},
        {"nvidia.com/gpu.", "no name behind"},
        {"nvidia.com/_0", "no name behind"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *wrong = resource_name_check(rows[i].name);

        assert_non_null(wrong);
        assert_non_null(strstr(wrong, rows[i].wrong));
    }
}

static void lengths_are_bounded_as_in_kubernetes(void **state)
{
    char name[512];

    (void)state;
    (void)snprintf(name, sizeof(name), "a.b/%063d", 0);
    assert_null(resource_name_check(name));
    (void)snprintf(name, sizeof(name), "a.b/%064d", 0);
    assert_non_null(strstr(resource_name_check(name), "at most 63"));
    (void)snprintf(name, sizeof(name), "%0244d/a", 0);
    assert_null(resource_name_check(name));
    (void)snprintf(name, sizeof(name), "%0245d/a", 0);
    assert_non_null(strstr(resource_name_check(name), "at most 244"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_kubernetes_takes_are_taken),
        cmocka_unit_test(names_that_kubernetes_refuses_are_refused),
        cmocka_unit_test(lengths_are_bounded_as_in_kubernetes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
