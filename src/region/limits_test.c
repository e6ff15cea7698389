/* SPDX-License-Identifier: Apache-2.0 */
#include "region/limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static int parse(struct limits *limits, const char *text)
{
    *limits = (struct limits)LIMITS_INIT;
    return limits_parse(limits, text, NULL);
}

static void a_file_says_what_each_device_may_give(void **state)
{
    struct limits limits;

    (void)state;
    assert_int_equal(parse(&limits, "# made by hand\n"
                                    "CUDA_DEVICE_MEMORY_LIMIT_1=1g\n"
                                    "CUDA_DEVICE_MEMORY_LIMIT=3000m\n"
                                    "CUDA_DEVICE_SM_LIMIT=30\n"
                                    "CUDA_DEVICE_CONTEXT_SIZE_1=421m\n"
                                    "\n"
                                    "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b\n"
                                    "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/x.cache\n"
                                    "HAMI_VISIBLE_DEVICES=granted\n"
                                    "SOMETHING_ELSE=1"),
                     0);
    assert_int_equal(limits.device_count, 2);
    assert_string_equal(limits.devices[1].uuid, "GPU-b");
    assert_int_equal(limits.devices[0].memory_bytes, 3000 * MIB);
    assert_int_equal(limits.devices[1].memory_bytes, GIB);
    assert_int_equal(limits.devices[15].memory_bytes, 3000 * MIB);
    assert_int_equal(limits.devices[1].cores, 30);
    assert_int_equal(limits.devices[0].context_bytes, 0);
    assert_int_equal(limits.devices[1].context_bytes, 421 * MIB);
    assert_string_equal(limits.region_path, "/tmp/x.cache");
    assert_true(limits.only_granted);
    assert_false(limits.allow_unaccounted);
    assert_int_equal(limits.priority, 1);
    assert_true(limits_any(&limits));
}

static void what_cannot_be_read_is_an_error_and_never_no_limit(void **state)
{
    static const char *const texts[] = {
        "CUDA_DEVICE_MEMORY_LIMIT_0=abc",
        "CUDA_DEVICE_MEMORY_LIMIT_0=-1",
        "CUDA_DEVICE_MEMORY_LIMIT=5 g",
        "CUDA_DEVICE_SM_LIMIT=50k",
        "CUDA_DEVICE_CONTEXT_SIZE=large",
        "CUDA_DEVICE_SM_LIMIT_3=0x10",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE=relative/path",
        "NVIDIA_VISIBLE_DEVICES=GPU-a,,GPU-b",
        "HAMI_UNACCOUNTED=maybe",
        "HAMI_IMPORTS=maybe",
        "HAMI_VISIBLE_DEVICES=some",
        "CUDA_TASK_PRIORITY=high",
        "no equals sign",
    };
    struct limits limits;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        print_message("%s\n", texts[i]);
        assert_true(parse(&limits, texts[i]) < 0);
    }
}

static void a_key_that_is_nearly_one_is_another(void **state)
{
    static const char *const texts[] = {
        "CUDA_TASK_PRIORITY_0=7",        "CUDA_DEVICE_MEMORY_LIMITS=5g",
        "CUDA_DEVICE_MEMORY_LIMIT-0=5g", "CUDA_DEVICE_MEMORY_LIMIT_=5g",
        "CUDA_DEVICE_MEMORY_LIMIT_16=5", "CUDA_DEVICE_MEMORY_LIMIT_99999999999=5",
        "CUDA_DEVICE_SM_LIMIT_0x=5",     "CUDA_DEVICE_SM_LIMIT_0=",
        "CUDA_DEVICE_SM_LIMIT=",         "MY_CUDA_DEVICE_SM_LIMIT=5",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct limits limits;

        assert_int_equal(parse(&limits, texts[i]), 0);
        assert_false(limits_any(&limits));
        assert_int_equal(limits.priority, 1);
    }
}

static void what_means_no_limit_is_none(void **state)
{
    struct limits limits;

    (void)state;
    assert_int_equal(parse(&limits, "CUDA_DEVICE_MEMORY_LIMIT=0\nCUDA_DEVICE_SM_LIMIT=100\n"
                                    "CUDA_DEVICE_SM_LIMIT_1=250\nNVIDIA_VISIBLE_DEVICES=all\n"
                                    "CUDA_DEVICE_MEMORY_LIMIT_=5\nCUDA_DEVICE_MEMORY_LIMIT_16=5\n"
                                    "CUDA_DEVICE_MEMORY_LIMIT_0=\n"),
                     0);
    assert_false(limits_any(&limits));
    /* What the container runtime knows by other words names no device here. */
    for (size_t i = 0; i < 4; i++) {
        static const char *const words[] = {"0,1", "none", "void", "all"};
        char text[64];

        (void)snprintf(text, sizeof(text), "NVIDIA_VISIBLE_DEVICES=%s\n", words[i]);
        assert_int_equal(parse(&limits, text), 0);
        assert_int_equal(limits.device_count, 0);
    }
}

static void the_environment_only_lowers_a_file(void **state)
{
    char *environment[] = {
        (char *)"CUDA_DEVICE_MEMORY_LIMIT_0=4g", (char *)"PATH=/bin",
        (char *)"CUDA_DEVICE_MEMORY_LIMIT_1=1g", (char *)"CUDA_DEVICE_SM_LIMIT=20",
        (char *)"CUDA_DEVICE_CONTEXT_SIZE=1",    (char *)"GPU_CORE_UTILIZATION_POLICY=disable",
        (char *)"HAMI_UNACCOUNTED=allow",        NULL};
    struct limits limits, lower = LIMITS_INIT;

    (void)state;
    assert_int_equal(parse(&limits, "CUDA_DEVICE_MEMORY_LIMIT=2g\nCUDA_DEVICE_SM_LIMIT_0=10\n"), 0);
    assert_int_equal(limits_parse_environment(&lower, environment, NULL), 0);
    assert_int_equal(lower.devices[0].cores, 0);
    limits_lower(&limits, &lower);
    assert_int_equal(limits.devices[0].memory_bytes, 2 * GIB);
    assert_int_equal(limits.devices[1].memory_bytes, GIB);
    assert_int_equal(limits.devices[0].cores, 10);
    assert_int_equal(limits.devices[0].context_bytes, 0);
    assert_false(limits.allow_unaccounted);
}

static void what_can_not_be_read_in_the_environment_is_told_and_the_rest_is_added(void **state)
{
    char *environment[] = {
        (char *)"CUDA_DEVICE_MEMORY_LIMIT=garbage", (char *)"CUDA_DEVICE_MEMORY_LIMIT_1=1g",
        (char *)"CUDA_DEVICE_SM_LIMIT_1=x", (char *)"CUDA_DEVICE_SM_LIMIT_0=20", NULL};
    struct limits limits = LIMITS_INIT;
    struct error err = ERROR_INIT;

    (void)state;
    assert_int_equal(limits_parse_environment(&limits, environment, &err), -EINVAL);
    assert_non_null(strstr(err.text, "MEMORY_LIMIT=garbage"));
    assert_int_equal(limits.devices[0].memory_bytes, 0);
    assert_int_equal(limits.devices[1].memory_bytes, GIB);
    assert_int_equal(limits.devices[0].cores, 20);
    assert_int_equal(limits.devices[1].cores, 0);
}

static void what_the_environment_was_given_lowers_no_raise(void **state)
{
    static const char raised[] = "CUDA_DEVICE_MEMORY_LIMIT_0=2g\nCUDA_DEVICE_SM_LIMIT_0=60\n"
                                 "HAMI_ENVIRONMENT_MEMORY_LIMIT_0=1024m\n"
                                 "HAMI_ENVIRONMENT_SM_LIMIT_0=30\n";
    char *given[] = {(char *)"CUDA_DEVICE_MEMORY_LIMIT_0=1024m", (char *)"CUDA_DEVICE_SM_LIMIT=30",
                     (char *)"HAMI_ENVIRONMENT_MEMORY_LIMIT_0=512m", NULL};
    char *changed[] = {(char *)"CUDA_DEVICE_MEMORY_LIMIT_0=1000m",
                       (char *)"CUDA_DEVICE_SM_LIMIT=20", NULL};
    struct limits limits, environment = LIMITS_INIT;

    (void)state;
    assert_int_equal(parse(&limits, raised), 0);
    assert_int_equal(limits_parse_environment(&environment, given, NULL), 0);
    limits_lower(&limits, &environment);
    assert_int_equal(limits.devices[0].memory_bytes, 2 * GIB);
    assert_int_equal(limits.devices[0].cores, 60);
    assert_int_equal(limits_parse_environment(&environment, changed, NULL), 0);
    limits_lower(&limits, &environment);
    assert_int_equal(limits.devices[0].memory_bytes, 1000 * MIB);
    assert_int_equal(limits.devices[0].cores, 20);
    assert_int_equal(limits.devices[0].common_cores, 60);
}

static void a_priority_of_any_size_is_one(void **state)
{
    struct limits limits;

    (void)state;
    assert_int_equal(parse(&limits, "CUDA_TASK_PRIORITY=1001"), 0);
    assert_int_equal(limits.priority, 1000);
    assert_int_equal(parse(&limits, "CUDA_TASK_PRIORITY=9223372036854775807"), 0);
    assert_int_equal(limits.priority, 1000);
}

static void words_of_hami_mean_what_they_say(void **state)
{
    struct limits limits;

    (void)state;
    assert_int_equal(parse(&limits, "GPU_CORE_UTILIZATION_POLICY=force"), 0);
    assert_true(limits.cores_forced && !limits.cores_disabled);
    assert_int_equal(parse(&limits, "GPU_CORE_UTILIZATION_POLICY=default"), 0);
    assert_true(!limits.cores_forced && !limits.cores_disabled);
    assert_int_equal(parse(&limits, "CUDA_OVERSUBSCRIBE=true"), 0);
    assert_true(limits.oversubscribed);
    assert_int_equal(parse(&limits, "CUDA_OVERSUBSCRIBE=false"), 0);
    assert_false(limits.oversubscribed);
    assert_int_equal(parse(&limits, "HAMI_SUSPENDED=perhaps"), -EINVAL);
}

static void what_is_written_is_read_back(void **state)
{
    struct limits limits = LIMITS_INIT, again;
    char text[1024];

    (void)state;
    limits.device_count = 2;
    COPY_TEXT(limits.devices[0].uuid, "GPU-one");
    COPY_TEXT(limits.devices[1].uuid, "GPU-two");
    limits.devices[1].memory_bytes = 12345;
    limits.devices[1].context_bytes = 54321;
    limits.devices[0].cores = 30;
    limits.devices[0].given_cores = 20;
    limits.devices[1].given_memory_bytes = 1234;
    limits.region_inode = 77;
    limits.only_granted = true;
    limits.suspended = true;
    limits.oversubscribed = true;
    limits.priority = 0;
    COPY_TEXT(limits.ranks, "/run/x/cards");
    COPY_TEXT(limits.region_path, "/run/x/region.cache");
    assert_true(limits_format(&limits, text, sizeof(text)) > 0);
    assert_int_equal(parse(&again, text), 0);
    assert_memory_equal(&limits, &again, sizeof(limits));
    assert_true(limits_format(&limits, text, 20) < 0);

    limits.region_path[1] = '\0';
    assert_true(limits_format(&limits, text, sizeof(text)) > 0);
    assert_int_equal(parse(&again, text), 0);
    assert_string_equal(again.region_path, "/");
}

static void what_is_wrong_is_said_with_what_is_right(void **state)
{
    static const char *const wrong[][2] = {
        {"CUDA_DEVICE_MEMORY_LIMIT_0=abc", "a size, as 4g or 512m"},
        {"CUDA_DEVICE_SM_LIMIT=half", "a whole number"},
        {"CUDA_DEVICE_MEMORY_SHARED_CACHE=here", "a path from the root on"},
        {"HAMI_SUSPENDED=1", "true or false"},
        {"HAMI_MANAGED=some", "resident, full or free"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct limits limits = LIMITS_INIT;
        struct error err = ERROR_INIT;
        char text[256];

        (void)snprintf(text, sizeof(text), "\"%s\" can't be read: it takes %s", wrong[i][0],
                       wrong[i][1]);
        assert_true(limits_parse(&limits, wrong[i][0], &err) < 0);
        assert_non_null(strstr(err.text, text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_what_each_device_may_give),
        cmocka_unit_test(what_cannot_be_read_is_an_error_and_never_no_limit),
        cmocka_unit_test(a_key_that_is_nearly_one_is_another),
        cmocka_unit_test(what_means_no_limit_is_none),
        cmocka_unit_test(the_environment_only_lowers_a_file),
        cmocka_unit_test(what_can_not_be_read_in_the_environment_is_told_and_the_rest_is_added),
        cmocka_unit_test(what_the_environment_was_given_lowers_no_raise),
        cmocka_unit_test(a_priority_of_any_size_is_one),
        cmocka_unit_test(words_of_hami_mean_what_they_say),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(what_is_wrong_is_said_with_what_is_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
