/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/layout.h"

#include <errno.h>

#include "base/check.h"
#include "base/util.h"

/* Of an A100 of 40 GB. */
static const struct nvml_profile profiles[] = {
    {.name = "1g.5gb",
     .slices = 1,
     .memory_mib = 4864,
     .size = 1,
     .start_count = 7,
     .starts = {0, 1, 2, 3, 4, 5, 6}},
    {.name = "1g.5gb+me",
     .slices = 1,
     .memory_mib = 4864,
     .size = 1,
     .start_count = 7,
     .starts = {0, 1, 2, 3, 4, 5, 6}},
    {.name = "1g.10gb",
     .slices = 1,
     .memory_mib = 9856,
     .size = 2,
     .start_count = 4,
     .starts = {0, 2, 4, 6}},
    {.name = "2g.10gb",
     .slices = 2,
     .memory_mib = 9856,
     .size = 2,
     .start_count = 3,
     .starts = {0, 2, 4}},
    {.name = "3g.20gb",
     .slices = 3,
     .memory_mib = 19968,
     .size = 4,
     .start_count = 2,
     .starts = {0, 4}},
    {.name = "4g.20gb",
     .slices = 4,
     .memory_mib = 19968,
     .size = 4,
     .start_count = 1,
     .starts = {0}},
    {.name = "7g.40gb",
     .slices = 7,
     .memory_mib = 40192,
     .size = 8,
     .start_count = 1,
     .starts = {0}},
};

#define KIND(text, mib, number)                                                                    \
    {                                                                                              \
        .name = text, .memory_mib = mib, .cores = 1, .count = number                               \
    }

static const struct {
    const char *what;
    struct mig_group group;
    int count;
    struct {
        const char *profile;
        unsigned start;
    } places[MIG_MAX_INSTANCES];
} cases[] = {
    {"seven small ones",
     {1, {KIND("1g.5gb", 5120, 7)}},
     7,
     {{"1g.5gb", 0},
      {"1g.5gb", 1},
      {"1g.5gb", 2},
      {"1g.5gb", 3},
      {"1g.5gb", 4},
      {"1g.5gb", 5},
      {"1g.5gb", 6}}},
    {"what HAMi's configuration has for this card",
     {2, {KIND("2g.10gb", 10240, 3), KIND("1g.5gb", 5120, 1)}},
     4,
     {{"2g.10gb", 0}, {"2g.10gb", 2}, {"2g.10gb", 4}, {"1g.5gb", 6}}},
    {"halves", {1, {KIND("3g.20gb", 20480, 2)}}, 2, {{"3g.20gb", 0}, {"3g.20gb", 4}}},
    {"all of it, by a name of another card", {1, {KIND("7g.79gb", 40960, 1)}}, 1, {{"7g.40gb", 0}}},
    {"the small ones named first",
     {2, {KIND("1g.5gb", 5120, 3), KIND("3g.20gb", 20480, 1)}},
     4,
     {{"1g.5gb", 4}, {"1g.5gb", 5}, {"1g.5gb", 6}, {"3g.20gb", 0}}},
    {"4g keeps its only place",
     {2, {KIND("3g.20gb", 20480, 1), KIND("4g.20gb", 20480, 1)}},
     2,
     {{"3g.20gb", 4}, {"4g.20gb", 0}}},
    {"by memory alone", {1, {KIND("", 10240, 1)}}, 1, {{"1g.10gb", 0}}},
    {"twice the memory by its name",
     {1, {KIND("1g.10gb", 10240, 4)}},
     4,
     {{"1g.10gb", 0}, {"1g.10gb", 2}, {"1g.10gb", 4}, {"1g.10gb", 6}}},
    {"too many", {1, {KIND("2g.10gb", 10240, 4)}}, -ENOSPC, {{0}}},
    {"no such slices", {1, {KIND("5g.30gb", 30000, 1)}}, -ENOENT, {{0}}},
};

static void each_instance_of_a_group_has_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct layout_place places[MIG_MAX_INSTANCES];
        struct error err = ERROR_INIT;
        int count = layout_group(&cases[i].group, profiles, ARRAY_SIZE(profiles), places, &err);

        if (count != cases[i].count)
            fail_msg("%s: %d, %s", cases[i].what, count, err.text);
        for (int k = 0; k < count; k++) {
            if (strcmp(profiles[places[k].profile].name, cases[i].places[k].profile) != 0 ||
                places[k].start != cases[i].places[k].start)
                fail_msg("%s: number %d is %s at %u", cases[i].what, k,
                         profiles[places[k].profile].name, places[k].start);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_instance_of_a_group_has_its_place),
    };

    return cmocka_run_group_tests_name("node/nvidia/layout", tests, NULL, NULL);
}
