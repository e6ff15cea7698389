/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl top: the devices, and who holds and uses what; once, or again and again. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/patience.h"
#include "ctl/region_print.h"
#include "ctl/screen.h"
#include "ctl/top_cluster.h"
#include "ctl/top_print.h"

enum {
    TEXT_MAX = 512 << 20,
    ANSWER_S = 10, /* for the driver, which in its own good time answers in milliseconds */
};

struct top {
    bool watch;
    bool json;
    bool region;
    bool cluster;
    const char *config_path;
    int64_t interval_ns;
    uint64_t count; /* 0: until told to stop */
    char *const *files;
    size_t file_count;

    struct local local;
    struct registry registry;
    struct region_picture *picture;
};

static int read_interval(char *text, void *member, struct error *err)
{
    struct top *top = member;

    top->watch = true;
    if (!text)
        return 0;
    if (ctl_parse_duration(text, &top->interval_ns) < 0 || top->interval_ns < 50 * NS_PER_MS)
        return error_set(err, -EINVAL, "\"%s\" is not a duration of at least 50ms; say 2 or 500ms",
                         text);
    return 0;
}

static int read_count(char *text, void *member, struct error *err)
{
    uint64_t *count = member;

    if (parse_u64(text, count) < 0 || !*count)
        return error_set(err, -EINVAL, "\"%s\" is not a number from 1 on", text);
    return 0;
}

static void take_files(void *options, char **words, size_t count)
{
    struct top *top = options;

    top->files = words;
    top->file_count = count;
}

static int check_together(void *options, struct error *err)
{
    const struct top *top = options;

    if (top->cluster && (top->region || top->watch))
        return error_set(err, -EINVAL, "--cluster goes neither with --region nor with --watch");
    if (top->region && !top->file_count)
        return error_set(err, -EINVAL, "--region: no file given");
    if (!top->region && top->watch && top->file_count)
        return error_set(err, -EINVAL, "\"%s\" is too much; if seconds are meant, say --watch=%s",
                         top->files[0], top->files[0]);
    if (!top->region && !top->cluster && top->file_count)
        return error_set(err, -EINVAL, "\"%s\" is too much; to show a region file say --region",
                         top->files[0]);
    if (top->file_count > OBJECTS_MAX_FILES)
        return error_set(err, -EINVAL, "more than %d files", OBJECTS_MAX_FILES);
    if (top->config_path && !top->cluster)
        return error_set(err, -EINVAL, "--device-config goes with --cluster");
    if (top->count && !top->watch)
        return error_set(err, -EINVAL, "--count goes with --watch");
    return 0;
}

#define AT(member) offsetof(struct top, member)

static const struct option_row rows[] = {
    {"watch", 'w', OPTION_MAY_STAND_ALONE, "SECONDS", read_interval, 0,
     "Show it again and again, every 2 seconds or as given, until q, Ctrl-C or SIGTERM"},
    {"count", 'n', 0, "N", read_count, AT(count), "With --watch: end after N times"},
    {"json", 'j', 0, NULL, option_bool, AT(json), "Write JSON, one line each time"},
    {"region", 'r', 0, NULL, option_bool, AT(region),
     "Show the region files named instead, also those of HAMi-core 1.2"},
    {"cluster", 0, 0, NULL, option_bool, AT(cluster),
     "Show the nodes, devices and pods of a Kubernetes cluster instead, out of the files named or "
     "standard input: objects as kubectl get nodes,pods,resourcequotas -A -o json prints them, or "
     "the scheduler's /debug/view or /debug/objects"},
    {"device-config", 'c', 0, "FILE", option_text, AT(config_path),
     "With --cluster: device-config.yaml (NVIDIA's resources)"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "\n--region FILE...\n--cluster [FILE...]",
    .doc =
        "Show the GPUs of this machine, and who holds and uses what.\v"
        "USED is what the driver says of a GPU, and what its own region says of a holder; GRANTED "
        "and CORES are what hamictl run has given away. A process without an ID uses the GPU "
        "without a lease.",
    .take_arguments = take_files,
    .check = check_together,
};

struct machine {
    struct top *top;
    struct snapshot snapshot;
};

static int take_snapshot(void *work, struct error *err)
{
    struct machine *machine = work;

    return snapshot_take(&machine->top->local, &machine->top->registry, &machine->snapshot, err);
}

static int print_machine(struct top *top, struct strbuf *text, struct error *err)
{
    struct machine machine = {.top = top};
    int r = patience_call(take_snapshot, &machine, sizeof(machine), ANSWER_S, err);

    if (r < 0)
        return r;
    if (top->json)
        top_print_json(text, &machine.snapshot);
    else
        top_print_tables(text, &machine.snapshot);
    snapshot_deinit(&machine.snapshot);
    return 0;
}

static int print_regions(struct top *top, struct strbuf *text, struct error *err)
{
    int r;

    if (top->json)
        strbuf_add(text, "{\"regions\":[");
    for (size_t i = 0; i < top->file_count; i++) {
        r = region_picture_read(top->picture, top->files[i], err);
        if (r < 0)
            return r;
        if (top->json) {
            strbuf_add(text, i ? "," : "");
            region_print_json(text, top->picture);
        } else {
            strbuf_add(text, i ? "\n" : "");
            region_print_tables(text, top->picture);
        }
    }
    if (top->json)
        strbuf_add(text, "]}\n");
    return 0;
}

static int print_cluster(const struct top *top, struct strbuf *text, struct error *err)
{
    struct objects_options options = {
        .program = "hamictl top",
        .config_path = top->config_path,
        .takes_view = true,
    };

    for (size_t i = 0; i < top->file_count; i++)
        options.files[options.file_count++] = top->files[i];
    if (!options.file_count)
        options.files[options.file_count++] = "-";
    return top_print_cluster(&options, top->json, text, err);
}

static int print(void *data, struct strbuf *text, struct error *err)
{
    struct top *top = data;

    if (top->cluster)
        return print_cluster(top, text, err);
    return top->region ? print_regions(top, text, err) : print_machine(top, text, err);
}

static int show(struct top *top, struct error *err)
{
    const struct watch times = {top->interval_ns, top->count, .dense = top->json};
    const struct picture picture = {.print = print, .data = top, .text_max = TEXT_MAX};

    return top->watch ? screen_watch(&picture, &times, err) : screen_show_once(&picture, err);
}

static int open_sources(struct top *top, struct error *err)
{
    int r;

    if (top->cluster)
        return 0;
    if (top->region) {
        top->picture = malloc(sizeof(*top->picture));
        return top->picture ? 0 : error_set(err, -ENOMEM, "out of memory");
    }
    r = local_open(&top->local, err);
    return r < 0 ? r : registry_open(&top->registry, top->local.state, err);
}

int top_main(int argc, char **argv)
{
    static struct top top = {
        .interval_ns = 2 * NS_PER_S,
        .registry = REGISTRY_INIT,
    };
    struct error err = ERROR_INIT;
    int r;

    options_read(&table, argc, argv, &top);
    r = open_sources(&top, &err);
    if (r == 0)
        r = show(&top, &err);
    local_close(&top.local);
    registry_close(&top.registry);
    free(top.picture);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "hamictl top: %s\n", err.text);
    return CTL_EXIT_FAILURE;
}
