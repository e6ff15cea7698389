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

static int print(const struct region_options *options, struct region_picture *picture,
                 struct strbuf *text, struct error *err)
{
    int r = region_view_read(options->file, &picture->view, err);

    if (r < 0)
        return r;
    r = region_view_explains(options->file, &picture->view, picture->explains);
    if (r < 0)
        return error_set(err, r, "%s: %s", options->file, strerror(-r));
    picture->path = options->file;
    if (options->json)
        region_print_json(text, picture);
    else
        region_print_tables(text, picture);
    return text->failed ? error_set(err, -ENOMEM, "cannot show it: out of memory") : 0;
}

static int show(const struct region_options *options, struct region_picture *picture,
                struct error *err)
{
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    int r = print(options, picture, &text, err);

    if (r == 0)
        (void)fputs(strbuf_text(&text), stdout);
    strbuf_deinit(&text);
    if (r == 0 && fflush(stdout) != 0)
        return error_set(err, -errno, "cannot write: %s", strerror(errno));
    return r;
}

static int watch(const struct region_options *options, struct region_picture *picture,
                 struct error *err)
{
    struct screen screen;
    int r = screen_open(&screen, options->json, err);

    if (r < 0)
        return r;
    do {
        struct strbuf text = STRBUF_INIT(TEXT_MAX);

        r = print(options, picture, &text, err);
        if (r == 0)
            screen_show(&screen, strbuf_text(&text));
        strbuf_deinit(&text);
    } while (r == 0 && screen_wait(&screen, WATCH_NS));
    screen_close(&screen);
    return r;
}

int region_main(int argc, char **argv)
{
    static struct region_options options;
    struct region_picture *picture;
    struct error err = ERROR_INIT;
    int r = -ENOMEM;

    options_read(&table, argc, argv, &options);
    picture = malloc(sizeof(*picture));
    if (!picture)
        (void)error_set(&err, r, "out of memory");
    else if (options.check)
        r = run_check(&options, &err);
    else
        r = options.watch ? watch(&options, picture, &err) : show(&options, picture, &err);
    free(picture);
    if (r < 0)
        (void)fprintf(stderr, "hamictl region: %s\n", err.text);
    return r ? CTL_EXIT_FAILURE : 0;
}
