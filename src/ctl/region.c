/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl region: one shared region, as people want to know it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/region_print.h"
#include "ctl/screen.h"
#include "region/check.h"

enum {
    TEXT_MAX = 16 << 20,
};

#define WATCH_NS NS_PER_S

struct region_options {
    bool json, watch, check;
    const char *file;
    size_t files;
};

static void take_files(void *options, char **words, size_t count)
{
    struct region_options *region = options;

    region->file = count ? words[0] : NULL;
    region->files = count;
}

static int check_together(void *options, struct error *err)
{
    const struct region_options *region = options;

    if (region->files != 1)
        return error_set(err, -EINVAL, "one region file is to be named");
    if (region->check && (region->watch || region->json))
        return error_set(err, -EINVAL, "--check goes neither with --watch nor with --json");
    return 0;
}

#define AT(member) offsetof(struct region_options, member)

static const struct option_row rows[] = {
    {"json", 'j', 0, NULL, option_bool, AT(json), "Print JSON, one object"},
    {"watch", 'w', 0, NULL, option_bool, AT(watch), "Show it again each second"},
    {"check", 'c', 0, NULL, option_bool, AT(check),
     "Say whether its parts agree; exits with 1 if they don't"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "FILE",
    .doc =
        "Show a container's shared region: what its processes hold and launched, and what the "
        "library did to them.\v"
        "BUSY is the device's time that was charged, WAITED for how long launches waited, "
        "LAUNCHES how many did, LONGEST how long one of them did at most. OWN ns is what our own "
        "code takes a launch, as samples have it, beside the driver's and but for the ten "
        "nanoseconds of a launch that need not be looked at.",
    .take_arguments = take_files,
    .check = check_together,
};

static void say(void *data, const char *text)
{
    (void)data;
    (void)printf("%s\n", text);
}

static int run_check(const struct region_options *options, struct error *err)
{
    int found = region_check(options->file, say, NULL, err);

    if (found == 0)
        (void)printf("%s: its parts agree\n", options->file);
    return found;
}

struct shown {
    const struct region_options *options;
    struct region_picture picture;
};

static int print(void *data, struct strbuf *text, struct error *err)
{
    struct shown *shown = data;
    int r = region_picture_read(&shown->picture, shown->options->file, err);

    if (r < 0)
        return r;
    if (shown->options->json) {
        region_print_json(text, &shown->picture);
        strbuf_add(text, "\n");
    } else {
        region_print_tables(text, &shown->picture);
    }
    return 0;
}

static int show(const struct region_options *options, struct error *err)
{
    const struct watch times = {.interval_ns = WATCH_NS, .dense = options->json};
    struct shown *shown = malloc(sizeof(*shown));
    const struct picture picture = {.print = print, .data = shown, .text_max = TEXT_MAX};
    int r;

    if (!shown)
        return error_set(err, -ENOMEM, "out of memory");
    shown->options = options;
    r = options->watch ? screen_watch(&picture, &times, err) : screen_show_once(&picture, err);
    free(shown);
    return r;
}

int region_main(int argc, char **argv)
{
    static struct region_options options;
    struct error err = ERROR_INIT;
    int r;

    options_read(&table, argc, argv, &options);
    r = options.check ? run_check(&options, &err) : show(&options, &err);
    if (r < 0)
        (void)fprintf(stderr, "hamictl region: %s\n", err.text);
    return r ? CTL_EXIT_FAILURE : 0;
}
