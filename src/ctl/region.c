/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl region: one shared region, as people want to know it; or a list of those in a folder. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/options.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/region_files.h"
#include "ctl/region_print.h"
#include "ctl/screen.h"
#include "region/check.h"

enum {
    TEXT_MAX = 16 << 20,
};

#define WATCH_NS NS_PER_S
#define UNUSED "no process has used it yet"

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
        return error_set(err, -EINVAL, "one region file, or a folder with some, is to be named");
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
    .arguments_doc = "FILE\nFOLDER",
    .doc =
        "Show a container's shared region: what its processes hold and launched, and what the "
        "library did to them. Of a container's folder its region; of a folder with several, as "
        "that "
        "of all containers on a node, a list. Containers have theirs in "
        "/usr/local/vgpu/containers/UID_CONTAINER on the node; programs of hamictl run in runs/ID "
        "of "
        "hamictl's state directory, which is MACHINE.run with a simulated machine.\v"
        "BUSY is the device's time that was charged. WAITED is how long launches waited for the "
        "share in all, LAUNCHES how many of them did, LONGEST the longest of these waits. OWN ns "
        "is the time, in nanoseconds, that the library's own code adds to a launch: the average of "
        "samples of those launches that it looks at. To the others it adds some ten.",
    .take_arguments = take_files,
    .check = check_together,
};

static void say(void *data, const char *text)
{
    (void)data;
    (void)printf("%s\n", text);
}

/* Of several, one that is none says so, and the others are checked. */
static int check_one(const struct region_file *file, bool of_several, struct error *err)
{
    int found = file->is_empty ? 0 : region_check(file->path, say, NULL, err);

    if (found < 0 && of_several) {
        say(NULL, err->text);
        return found == -ENOENT ? 0 : 1;
    }
    if (found == 0)
        (void)printf("%s: %s\n", file->path, file->is_empty ? UNUSED : "its parts agree");
    return found;
}

static int run_check(const struct region_options *options, struct error *err)
{
    AUTOFREE struct region_files *files = malloc(sizeof(*files));
    int found = 0, r;

    if (!files)
        return error_set(err, -ENOMEM, "out of memory");
    r = region_files_find(options->file, files, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < files->count && r >= 0; i++) {
        r = check_one(&files->items[i], files->count > 1, err);
        found += MAX(r, 0);
    }
    region_files_deinit(files);
    return r < 0 ? r : found;
}

struct shown {
    const struct region_options *options;
    struct region_files files;
    struct region_picture picture;
};

/* An error's text without the path that stands in front of it. */
static const char *without_path(const char *text, const char *path)
{
    const size_t len = strlen(path);

    return strncmp(text, path, len) == 0 && strncmp(text + len, ": ", 2) == 0 ? text + len + 2
                                                                              : text;
}

/* One that can't be read says so, and the others are listed. */
static void add_listed(struct shown *shown, const struct region_file *file, struct table *list)
{
    const struct region_picture *picture = NULL;
    struct error err = ERROR_INIT;
    int r = 0;

    if (!file->is_empty) {
        r = region_picture_read(&shown->picture, file->path, &err);
        picture = r < 0 ? NULL : &shown->picture;
    }
    if (r != -ENOENT)
        region_list_add(list, file->path, picture, without_path(err.text, file->path));
}

static void print_list(struct shown *shown, struct strbuf *text)
{
    struct table list;

    region_list_begin(&list);
    for (size_t i = 0; i < shown->files.count; i++)
        add_listed(shown, &shown->files.items[i], &list);
    table_finish(&list, text);
}

/* Those that can be read and were used. */
static void print_list_json(struct shown *shown, struct strbuf *text)
{
    const char *before = "";

    strbuf_add(text, "{\"regions\":[");
    for (size_t i = 0; i < shown->files.count; i++) {
        if (shown->files.items[i].is_empty ||
            region_picture_read(&shown->picture, shown->files.items[i].path, NULL) < 0)
            continue;
        strbuf_add(text, before);
        region_print_json(text, &shown->picture);
        before = ",";
    }
    strbuf_add(text, "]}\n");
}

static void print_unused(const struct shown *shown, struct strbuf *text, const char *path)
{
    if (!shown->options->json) {
        strbuf_addf(text, "%s: " UNUSED "\n", path);
        return;
    }
    strbuf_add(text, "{\"path\":");
    strbuf_add_json(text, path);
    strbuf_add(text, ",\"devices\":[],\"processes\":[]}\n");
}

static int print_one(struct shown *shown, struct strbuf *text, struct error *err)
{
    const struct region_file *file = &shown->files.items[0];
    int r;

    if (file->is_empty) {
        print_unused(shown, text, file->path);
        return 0;
    }
    r = region_picture_read(&shown->picture, file->path, err);
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

/* A folder is looked into each time: containers come and go. */
static int print(void *data, struct strbuf *text, struct error *err)
{
    struct shown *shown = data;
    int r = region_files_find(shown->options->file, &shown->files, err);

    if (r < 0)
        return r;
    if (shown->files.count == 1)
        r = print_one(shown, text, err);
    else if (shown->options->json)
        print_list_json(shown, text);
    else
        print_list(shown, text);
    region_files_deinit(&shown->files);
    return r;
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
