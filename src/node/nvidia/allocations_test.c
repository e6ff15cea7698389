/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/allocations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static const struct nvml_profile profiles[] = {
    {.name = "1g.5gb",
     .slices = 1,
     .multiprocessors = 14,
     .memory_mib = 4864,
     .size = 1,
     .start_count = 2,
     .starts = {0, 1}},
    {.name = "1g.10gb",
     .slices = 1,
     .multiprocessors = 14,
     .memory_mib = 9856,
     .size = 2,
     .start_count = 1,
     .starts = {0}},
    {.name = "7g.40gb",
     .slices = 7,
     .multiprocessors = 98,
     .memory_mib = 40192,
     .size = 8,
     .start_count = 1,
     .starts = {0}},
};

static void profiles_are_those_that_the_configuration_allows(void **state)
{
    static struct nvidia_config config = {
        .allowance_count = 2,
        .allowances = {{1, 1, {"A30"}, {"1g.6gb"}},
                       {2, 3, {"H100", "A100"}, {"1g.5gb", "3g.20gb", "7g.79gb"}}},
    };
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(1 << 16);
    CLEANUP(strbuf_deinit) struct strbuf none = STRBUF_INIT(1 << 16);

    (void)state;
    assert_int_equal(allocations_format_profiles(&config, "NVIDIA A100-SXM4-40GB", profiles,
                                                 ARRAY_SIZE(profiles), &text),
                     1);
    assert_string_equal(strbuf_text(&text),
                        "[{\"name\":\"1g.5gb\",\"memoryMB\":4864,\"core\":15,\"sliceCount\":1,"
                        "\"placements\":[{\"start\":0,\"size\":1},{\"start\":1,\"size\":1}]},"
                        "{\"name\":\"7g.79gb\",\"memoryMB\":40192,\"core\":100,\"sliceCount\":7,"
                        "\"placements\":[{\"start\":0,\"size\":8}]}]");
    assert_int_equal(
        allocations_format_profiles(&config, "NVIDIA T4", profiles, ARRAY_SIZE(profiles), &none),
        0);
}

#define ALLOCATION(container, device, uuid)                                                        \
    "{\"containerIndex\":" #container ",\"deviceIndex\":" #device ",\"gpuUUID\":\"" uuid           \
    "\",\"profile\":\"1g.5gb\",\"placement\":{\"start\":3,\"size\":1}}"

static const struct {
    const char *what, *grant, *allocations, *named;
} cases[] = {
    {"each by its place in the list", "GPU-a,NVIDIA,1,2:;;GPU-b,NVIDIA,3,4:GPU-a,NVIDIA,5,6:;",
     "[" ALLOCATION(0, 0, "GPU-a") "," ALLOCATION(2, 1, "GPU-a") "]",
     "GPU-a[1g.5gb@3],NVIDIA,1,2:;;GPU-b,NVIDIA,3,4:GPU-a[1g.5gb@3],NVIDIA,5,6:;"},
    {"zeros are left out", "GPU-a,NVIDIA,1,2:;",
     "[{\"gpuUUID\":\"GPU-a\",\"profile\":\"7g.40gb\",\"placement\":{\"size\":8}}]",
     "GPU-a[7g.40gb@0],NVIDIA,1,2:;"},
    {"of another card", "GPU-a,NVIDIA,1,2:;", "[" ALLOCATION(0, 0, "GPU-b") "]",
     "GPU-a,NVIDIA,1,2:;"},
    {"beyond the list", "GPU-a,NVIDIA,1,2:;", "[" ALLOCATION(0, 1, "GPU-a") "]",
     "GPU-a,NVIDIA,1,2:;"},
    {"twice the same", "GPU-a,NVIDIA,1,2:;",
     "[" ALLOCATION(0, 0, "GPU-a") "," ALLOCATION(0, 0, "GPU-a") "]", "GPU-a,NVIDIA,1,2:;"},
    {"a profile that is none", "GPU-a,NVIDIA,1,2:;",
     "[{\"gpuUUID\":\"GPU-a\",\"profile\":\"x]:;\"}]", "GPU-a,NVIDIA,1,2:;"},
    {"no list", "GPU-a,NVIDIA,1,2:;", "{}", "GPU-a,NVIDIA,1,2:;"},
    {"no JSON", "GPU-a,NVIDIA,1,2:;", "[", "GPU-a,NVIDIA,1,2:;"},
    {"none", "GPU-a,NVIDIA,1,2:;", NULL, "GPU-a,NVIDIA,1,2:;"},
    {"named already", "GPU-a[0-1],NVIDIA,1,2:;", "[" ALLOCATION(0, 0, "GPU-a") "]",
     "GPU-a[0-1],NVIDIA,1,2:;"},
};

static void allocations_name_the_instances_of_a_grant(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTOFREE char *named = allocations_name_parts(cases[i].grant, cases[i].allocations);

        if (strcmp(named, cases[i].named) != 0)
            fail_msg("%s: %s", cases[i].what, named);
    }
}

static void a_name_says_profile_and_place(void **state)
{
    char profile[NVML_PROFILE_NAME_SIZE];
    unsigned start;

    (void)state;
    assert_int_equal(allocations_parse_name("GPU-a[1g.10gb+me@3]", profile, &start), 0);
    assert_string_equal(profile, "1g.10gb+me");
    assert_int_equal(start, 3);
    assert_int_equal(allocations_parse_name("GPU-a[0-3]", profile, &start), -EINVAL);
    assert_int_equal(allocations_parse_name("GPU-a[@3]", profile, &start), -EINVAL);
    assert_int_equal(allocations_parse_name("GPU-a[1g@3", profile, &start), -EINVAL);
    assert_int_equal(allocations_parse_name("GPU-a[1234567890123456789012345@3]", profile, &start),
                     -EINVAL);
    assert_int_equal(allocations_parse_name("GPU-a", profile, &start), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiles_are_those_that_the_configuration_allows),
        cmocka_unit_test(allocations_name_the_instances_of_a_grant),
        cmocka_unit_test(a_name_says_profile_and_place),
    };

    return cmocka_run_group_tests_name("node/nvidia/allocations", tests, NULL, NULL);
}
