/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/allowance.h"

#include "base/check.h"
#include "base/util.h"

#define KIND(text, number)                                                                         \
    {                                                                                              \
        .name = text, .memory_mib = 1, .cores = 1, .count = number                                 \
    }

/* Groups: seven 1g.5gb; three 2g.10gb and a 1g.5gb; four 1g.10gb; a 7g.80gb; one without a name. */
static struct nvidia_config config = {
    .mig_count = 2,
    .migs = {{.name_count = 1,
              .names = {"A100-SXM4"},
              .geometry = {5,
                           {
                               {1, {KIND("1g.5gb", 7)}},
                               {2, {KIND("2g.10gb", 3), KIND("1g.5gb", 1)}},
                               {1, {KIND("1g.10gb", 4)}},
                               {1, {KIND("7g.80gb", 1)}},
                               {1, {KIND("", 2)}},
                           }}},
             {.name_count = 2,
              .names = {"A30", "T4"},
              .geometry = {1, {{1, {KIND("1g.6gb+me", 1)}}}}}},
};

static uint64_t in_group(unsigned group, uint64_t instances)
{
    return instances << group * MIG_MAX_INSTANCES;
}

static void allow(const char *model, const char *const *profiles)
{
    struct nvidia_allowance *allowance = &config.allowances[config.allowance_count++];

    *allowance = (struct nvidia_allowance){.name_count = 1};
    COPY_TEXT(allowance->names[0], model);
    for (size_t i = 0; profiles[i]; i++) {
        COPY_TEXT(allowance->profiles[i], profiles[i]);
        allowance->profile_count = i + 1;
    }
}

#define MODEL "NVIDIA A100-SXM4-40GB"

static void instances_of_profiles_that_are_not_listed_are_barred(void **state)
{
    const uint64_t all = in_group(0, 0x7f) | in_group(1, 0xf) | in_group(2, 0xf) |
                         in_group(3, 0x1) | in_group(4, 0x3);
    const struct {
        const char *what, *model, *profiles[3];
        uint64_t barred;
    } rows[] = {
        {"only what is listed", "A100", {"1g.5gb"}, all & ~in_group(0, 0x7f) & ~in_group(1, 0x8)},
        {"of two of as many slices the one that is listed",
         "A100",
         {"1g.10gb", "2g.10gb"},
         all & ~in_group(2, 0xf) & ~in_group(1, 0x7)},
        {"a name that this card has not, by its slices",
         "A100",
         {"7g.79gb"},
         all & ~in_group(3, 1)},
        {"and all of as many",
         "A100",
         {"1g.12gb"},
         all & ~in_group(0, 0x7f) & ~in_group(1, 0x8) & ~in_group(2, 0xf)},
        {"one with media extensions is another", "A100", {"1g.5gb+me"}, all},
        {"of another model nothing is said", "A30", {"1g.6gb"}, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t barred;

        config.allowance_count = 0;
        allow(rows[i].model, rows[i].profiles);
        barred = allowance_barred(&config, MODEL);
        if (barred != rows[i].barred)
            fail_msg("%s: %llx", rows[i].what, (unsigned long long)barred);
    }
}

static void without_a_list_nothing_is_barred(void **state)
{
    (void)state;
    config.allowance_count = 0;
    assert_int_equal(allowance_barred(&config, MODEL), 0);
    assert_null(allowance_find_useless(&config));
}

static void the_first_entry_with_a_part_of_the_name_counts(void **state)
{
    (void)state;
    config.allowance_count = 0;
    allow("A30", (const char *const[]){"2g.12gb", NULL});
    allow("A100", (const char *const[]){"2g.10gb", NULL});
    allow("SXM4", (const char *const[]){"1g.5gb", NULL});
    assert_ptr_equal(allowance_find(&config, MODEL), &config.allowances[1]);
    assert_null(allowance_find(&config, "NVIDIA H200"));
    assert_true(allowance_lists(&config.allowances[1], "2g.10gb"));
    assert_false(allowance_lists(&config.allowances[1], "2g.12gb"));
}

/* No geometry has what its entry allows: "1g.6gb+me" is not "1g.6gb". */
static void geometries_of_which_nothing_is_allowed_are_found(void **state)
{
    (void)state;
    config.allowance_count = 0;
    allow("A100", (const char *const[]){"2g.10gb", NULL});
    assert_null(allowance_find_useless(&config));
    allow("T4", (const char *const[]){"1g.6gb", NULL});
    assert_string_equal(allowance_find_useless(&config), "T4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_of_profiles_that_are_not_listed_are_barred),
        cmocka_unit_test(without_a_list_nothing_is_barred),
        cmocka_unit_test(the_first_entry_with_a_part_of_the_name_counts),
        cmocka_unit_test(geometries_of_which_nothing_is_allowed_are_found),
    };

    return cmocka_run_group_tests_name("vendor/nvidia/allowance", tests, NULL, NULL);
}
