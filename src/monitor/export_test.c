/* SPDX-License-Identifier: Apache-2.0 */

/* The page as a whole, but for the lines of help. */

#include "monitor/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void put_pod(struct pod_names *names, const char *metadata)
{
    char text[512];
    yyjson_doc *doc;

    (void)snprintf(text, sizeof(text), "{\"metadata\": {%s}}", metadata);
    doc = yyjson_read(text, strlen(text), 0);
    pod_names_put(names, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
}

static const struct nvml_card cards[] = {
    {.device = {.index = 0, .uuid = "GPU-a", .model = "A100"},
     .has_status = true,
     .status = {.memory_used_bytes = 100,
                .memory_total_bytes = 200,
                .has_utilization = true,
                .utilization_percent = 30,
                .controller_percent = 40}},
    {.device = {.index = 1, .uuid = "GPU-b", .model = "A100", .healthy = true},
     .has_health = true,
     .has_status = true,
     .status = {.memory_used_bytes = 5, .memory_total_bytes = 201}},
    {.device = {.index = 2, .uuid = "GPU-c", .model = "A100"},
     .has_health = true,
     .failures = 3,
     .has_errors = true,
     .corrected = 4,
     .uncorrected = 5},
    /* Behind the last that is to be exported. */
    {.device = {.index = 3, .uuid = "GPU-behind", .model = "A100"}, .has_status = true},
};

static const struct container_use uses[] = {
    {.pod_uid = "uid-1",
     .name = "main",
     .has_region = true,
     .last_kernel_time = 990,
     .unaccounted_refused = 21,
     .unaccounted_allowed = 22,
     .pinned_bytes = 4096,
     .spilled_bytes = 8192,
     .imports = 3,
     .card_count = 2,
     .cards = {{.uuid = "GPU-a",
                .index = 0,
                .limit_bytes = 1000,
                .cores = 30,
                .used = {.total = 60, .context = 10, .module = 20, .data = 30},
                .utilization = 12.5,
                .charged_ns = 1500000000,
                .delayed_ns = 2500000000,
                .launches_delayed = 7,
                .waits = {[0] = 1, [3] = 2, [9] = 4},
                .refusals = 8},
               {.uuid = "GPU-b", .index = 1}}},
    {.pod_uid = "uid-2", .name = "nameless", .card_count = 1, .unaccounted_refused = 99},
    {.pod_uid = "uid-3",
     .name = "silent",
     .last_kernel_time = 0,
     .card_count = 1,
     .cards = {{.uuid = "GPU-b", .index = 0, .limit_bytes = 5}}},
    {.pod_uid = "uid-1", .name = "behind", .card_count = 1, .cards = {{.uuid = "GPU-a"}}},
};

static const struct tell_case cases[] = {
    {.namespace = "ns", .pod = "one", .uuid = "GPU-a", .kind = BYPASS_NO_SLOT},
    {.namespace = "ns", .pod = "one", .uuid = "GPU-a", .kind = BYPASS_COMPUTE},
    /* Behind the last that is to be exported. */
    {.namespace = "ns", .pod = "behind", .uuid = "GPU-a", .kind = BYPASS_MEMORY},
};

#define INSTANCE                                                                                   \
    "{\\\"deviceIndex\\\":3,\\\"gpuUUID\\\":\\\"GPU-a\\\",\\\"profile\\\":\\\"1g.5gb\\\","         \
    "\\\"placement\\\":{\\\"start\\\":0,\\\"size\\\":1},\\\"migUUID\\\":"                          \
    "\\\"MIG-1\\\",\\\"gpuInstanceID\\\":7,\\\"computeInstanceID\\\":0}"

/* What is exported, without the lines of help. */
static char *export(bool legacy, double age_s)
{
    struct pod_names *names = pod_names_new();
    struct strbuf buf = STRBUF_INIT(1 << 20);
    const struct exported what = {
        .node = "node-1",
        .version = "1.2",
        .legacy = legacy,
        .now = 1000,
        .card_count = ARRAY_SIZE(cards) - 1,
        .cards = cards,
        .nvml_answers = age_s >= 0,
        .cards_age_s = age_s,
        .use_count = ARRAY_SIZE(uses) - 1,
        .uses = uses,
        .names = names,
        .uses_age_s = 0.25,
        .pods_age_s = 2.5,
        .compares = true,
        .compare_up = true,
        .compare_age_s = 0.5,
        .case_count = ARRAY_SIZE(cases) - 1,
        .cases = cases,
        .counts = {.own = 6, .kills = 7, .found = {[BYPASS_NO_SLOT] = 8, [BYPASS_COMPUTE] = 9}},
    };
    char *page, *to;

    put_pod(names, "\"uid\": \"uid-1\", \"namespace\": \"ns\", \"name\": \"one\"");
    put_pod(names, "\"uid\": \"uid-3\", \"namespace\": \"other\", \"name\": \"three\", "
                   "\"annotations\": {\"" MIG_ALLOCATIONS_KEY "\": \"[" INSTANCE "]\"}");
    export_metrics(&what, &buf);
    assert_false(buf.failed);
    page = to = calloc(1, buf.len + 1);
    for (char *line = buf.text, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, "# HELP", 6) == 0)
            continue;
        memcpy(to, line, (size_t)(end + 1 - line));
        to += end + 1 - line;
    }
    strbuf_deinit(&buf);
    pod_names_free(names);
    return page;
}

static char *wanted;

static void read_wanted(const char *path)
{
    FILE *file = fopen(path, "r");

    wanted = calloc(1, 1 << 16);
    assert_non_null(file);
    assert_true(fread(wanted, 1, (1 << 16) - 1, file) > 0);
    (void)fclose(file);
}

/* So that the first line that differs is shown. */
static void assert_same_lines(char *got, char *want)
{
    char *at_got, *at_want, *line = strtok_r(got, "\n", &at_got);

    for (char *row = strtok_r(want, "\n", &at_want); row; row = strtok_r(NULL, "\n", &at_want)) {
        assert_non_null(line);
        assert_string_equal(line, row);
        line = strtok_r(NULL, "\n", &at_got);
    }
    assert_null(line);
}

static void each_value_is_told_with_its_labels_under_all_names(void **state)
{
    char *got = export(true, 1.5), *want = strdup(wanted);

    (void)state;
    assert_same_lines(got, want);
    free(got);
    free(want);
}

static bool is_old(const char *line)
{
    static const char *const old[] = {"HostGPU", "HostCore", "vGPU_", "Device_", "MigInfo"};
    const char *name = strncmp(line, "# TYPE ", 7) == 0 ? line + 7 : line;

    for (size_t i = 0; i < ARRAY_SIZE(old); i++) {
        if (strncmp(name, old[i], strlen(old[i])) == 0)
            return true;
    }
    return false;
}

/* And NVML that never answered: its state is told, and no age. */
static void by_itself_the_older_names_are_left_out(void **state)
{
    char *got = export(false, -1), *want = calloc(1, strlen(wanted) + 1), *to = want;

    (void)state;
    for (const char *line = wanted, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (is_old(line) || strncmp(line, "hami_monitor_cards_age", 22) == 0)
            continue;
        memcpy(to, line, (size_t)(end + 1 - line));
        if (strncmp(line, "hami_monitor_nvml_up", 20) == 0)
            to[end - line - 1] = '0';
        to += end + 1 - line;
    }
    assert_same_lines(got, want);
    free(got);
    free(want);
}

/* usage: export_test tests/data/monitor.txt */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_is_told_with_its_labels_under_all_names),
        cmocka_unit_test(by_itself_the_older_names_are_left_out),
    };
    int failed;

    if (argc < 2)
        return 2;
    read_wanted(argv[1]);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(wanted);
    return failed;
}
