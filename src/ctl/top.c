/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl top: the devices, and who holds and uses what; once, or again and again. */

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/screen.h"
#include "ctl/top_print.h"

enum {
    TEXT_MAX = 16 << 20,
    OPT_WATCH = 'w',
    OPT_COUNT = 'n',
    OPT_JSON = 'j',
    OPT_REGION = 'r',
};

struct top {
    bool watch;
    bool json;
    bool region;
    int64_t interval_ns;
    uint64_t count; /* 0: until told to stop */
    char *const *files;
    size_t file_count;

    struct local local;
    struct registry registry;
    struct region_view *view;
};

static const struct argp_option options[] = {
    {"watch", OPT_WATCH, "SECONDS", OPTION_ARG_OPTIONAL,
     "Show it again and again, every 2 seconds or as given, until q, Ctrl-C or SIGTERM", 0},
    {"count", OPT_COUNT, "N", 0, "With --watch: end after N times", 0},
    {"json", OPT_JSON, NULL, 0, "Write JSON, one line each time", 0},
    {"region", OPT_REGION, NULL, 0,
     "Show the region files named instead, also those of HAMi-core 1.2", 0},
    {0},
};

static void parse_interval(struct top *top, const char *arg, struct argp_state *state)
{
    top->watch = true;
    if (!arg)
        return;
    if (ctl_parse_duration(arg, &top->interval_ns) < 0 || top->interval_ns < 50 * NS_PER_MS)
        argp_error(state, "--watch: \"%s\" is not a duration of at least 50ms; say 2 or 500ms",
                   arg);
}

static void parse_count(struct top *top, const char *arg, struct argp_state *state)
{
    if (parse_u64(arg, &top->count) < 0 || !top->count)
        argp_error(state, "--count: \"%s\" is not a number from 1 on", arg);
}

static void check_words(const struct top *top, struct argp_state *state)
{
    if (top->region && !top->file_count)
        argp_error(state, "--region: no file given");
    if (!top->region && top->file_count)
        argp_error(state, "\"%s\" is too much; to show a region file say --region", top->files[0]);
    if (top->count && !top->watch)
        argp_error(state, "--count goes with --watch");
}

static error_t top_parse_option(int key, char *arg, struct argp_state *state)
{
    struct top *top = state->input;

    switch (key) {
    case OPT_WATCH:
        parse_interval(top, arg, state);
        return 0;
    case OPT_COUNT:
        parse_count(top, arg, state);
        return 0;
    case OPT_JSON:
        top->json = true;
        return 0;
    case OPT_REGION:
        top->region = true;
        return 0;
    case ARGP_KEY_ARGS:
        top->files = &state->argv[state->next];
        top->file_count = (size_t)(state->argc - state->next);
        return 0;
    case ARGP_KEY_END:
        check_words(top, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = top_parse_option,
    .args_doc = "\n--region FILE...",
    .doc =
        "Show the GPUs of this machine, and who holds and uses what.\v"
        "USED is what the driver says of a GPU, and what its own region says of a holder; GRANTED "
        "and CORES are what hamictl run has given away. A process without an ID uses the GPU "
        "without a lease.",
};

static int print_machine(struct top *top, struct strbuf *text, struct error *err)
{
    struct snapshot snapshot;
    int r;

    r = snapshot_take(&top->local, &top->registry, &snapshot, err);
    if (r < 0)
        return r;
    if (top->json)
        top_print_json(text, &snapshot);
    else
        top_print_tables(text, &snapshot);
    snapshot_deinit(&snapshot);
    return 0;
}

static int print_regions(struct top *top, struct strbuf *text, struct error *err)
{
    int r;

    if (top->json)
        strbuf_add(text, "{\"regions\":[");
    for (size_t i = 0; i < top->file_count; i++) {
        r = region_view_read(top->files[i], top->view, err);
        if (r < 0)
            return r;
        if (top->json) {
            strbuf_add(text, i ? "," : "");
            top_print_region_json(text, top->files[i], top->view);
        } else {
            strbuf_add(text, i ? "\n" : "");
            top_print_region_tables(text, top->files[i], top->view);
        }
    }
    if (top->json)
        strbuf_add(text, "]}\n");
    return 0;
}

static int print(struct top *top, struct strbuf *text, struct error *err)
{
    int r;

    r = top->region ? print_regions(top, text, err) : print_machine(top, text, err);
    if (r == 0 && text->failed)
        return error_set(err, -ENOMEM, "cannot show it: out of memory");
    return r;
}

static int show_once(struct top *top, struct error *err)
{
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    int r;

    r = print(top, &text, err);
    if (r == 0)
        (void)fputs(strbuf_text(&text), stdout);
    strbuf_deinit(&text);
    if (r == 0 && fflush(stdout) != 0)
        return error_set(err, -errno, "cannot write: %s", strerror(errno));
    return r;
}

static int watch(struct top *top, struct error *err)
{
    struct screen screen;
    uint64_t shown = 0;
    int r;

    r = screen_open(&screen, top->json, err);
    if (r < 0)
        return r;
    do {
        struct strbuf text = STRBUF_INIT(TEXT_MAX);

        r = print(top, &text, err);
        if (r == 0)
            screen_show(&screen, strbuf_text(&text));
        strbuf_deinit(&text);
    } while (r == 0 && ++shown != top->count && screen_wait(&screen, top->interval_ns));
    screen_close(&screen);
    return r;
}

static int open_sources(struct top *top, struct error *err)
{
    int r;

    if (top->region) {
        top->view = malloc(sizeof(*top->view));
        return top->view ? 0 : error_set(err, -ENOMEM, "out of memory");
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

    if (argp_parse(&argp, argc, argv, 0, NULL, &top) != 0)
        return CTL_EXIT_USAGE;

    r = open_sources(&top, &err);
    if (r == 0)
        r = top.watch ? watch(&top, &err) : show_once(&top, &err);
    local_close(&top.local);
    registry_close(&top.registry);
    free(top.view);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "hamictl top: %s\n", err.text);
    return CTL_EXIT_FAILURE;
}
