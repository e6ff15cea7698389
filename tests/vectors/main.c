/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"
#include "vectors.h"

enum {
    TAGS_MAX = 128,
};

/* Cases by what they are about. */
struct tag {
    char name[80];
    unsigned ran, left_out;
};

struct tally {
    struct tag tags[TAGS_MAX];
    size_t count;
    unsigned ran, left_out, failed;
};

struct config {
    char name[64];
    struct device_config config;
    struct vendor_set vendors;
};

static const struct family *const families[] = {
    &codec_node_family, &codec_pod_family, &requests_family, &admit_family,
    &filter_family,     &quota_family,     &score_family,
};

static const char *folder;
static yyjson_doc *differing; /* differs.json: reasons, and the cases of each */
static struct config configs[CONFIGS_MAX];
static size_t config_count;

void vector_fail(struct vector *vector, const char *fmt, ...)
{
    va_list args;

    vector->failed = true;
    if (vector->quiet)
        return;
    va_start(args, fmt);
    (void)printf("%s: ", vector->id);
    (void)vprintf(fmt, args);
    (void)printf("\n");
    va_end(args);
}

const char *vector_text(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

bool vector_equal(struct vector *vector, const char *what, const char *ours, const char *theirs)
{
    if (strcmp(ours, theirs) == 0)
        return true;
    vector_fail(vector, "%s: \"%s\", not \"%s\"", what, ours, theirs);
    return false;
}

bool vector_equal_number(struct vector *vector, const char *what, int64_t ours, int64_t theirs)
{
    if (ours == theirs)
        return true;
    vector_fail(vector, "%s: %" PRId64 ", not %" PRId64, what, ours, theirs);
    return false;
}

bool vector_has_tag(const struct vector *vector, const char *tag)
{
    yyjson_val *item;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(vector->line, "tags"), at, max, item)
    {
        if (yyjson_equals_str(item, tag))
            return true;
    }
    return false;
}

static const struct vendor_set *find_config(const char *name)
{
    struct error err = ERROR_INIT;
    struct config *config;
    char path[512];

    for (size_t i = 0; i < config_count; i++) {
        if (strcmp(configs[i].name, name) == 0)
            return &configs[i].vendors;
    }
    if (config_count == CONFIGS_MAX)
        return NULL;
    config = &configs[config_count];
    (void)snprintf(path, sizeof(path), "%s/config-%s.yaml", folder, name);
    if (device_config_load(path, &config->config, &err) < 0) {
        (void)printf("%s\n", err.text);
        return NULL;
    }
    COPY_TEXT(config->name, name);
    (void)device_config_vendors(&config->config, &config->vendors);
    config_count++;
    return &config->vendors;
}

static void count_tag(struct tally *tally, const char *name, unsigned ran, unsigned left_out)
{
    struct tag *tag = tally->tags;

    while (tag < tally->tags + tally->count && strcmp(tag->name, name) != 0)
        tag++;
    if (tag == tally->tags + TAGS_MAX)
        return;
    if (tag == tally->tags + tally->count) {
        COPY_TEXT(tag->name, name);
        tally->count++;
    }
    tag->ran += ran;
    tag->left_out += left_out;
}

static void count_case(struct tally *tally, const struct vector *vector, const char *why)
{
    yyjson_val *tag;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(vector->line, "tags"), at, max, tag)
    {
        count_tag(tally, yyjson_get_str(tag), !why, why != NULL);
    }
    if (why) {
        char name[80];

        (void)snprintf(name, sizeof(name), "(%s)", why);
        count_tag(tally, name, 0, 1);
    }
    tally->ran += !why;
    tally->left_out += why != NULL;
    tally->failed += vector->failed;
}

/* Why ours is another answer on purpose, or NULL. */
static const char *why_differs(const char *id)
{
    yyjson_val *reason, *ids, *item;
    size_t at, max, k, most;

    yyjson_obj_foreach(yyjson_doc_get_root(differing), at, max, reason, ids)
    {
        yyjson_arr_foreach(ids, k, most, item)
        {
            if (yyjson_equals_str(item, id))
                return yyjson_get_str(reason);
        }
    }
    return NULL;
}

/* A case that is listed has to differ: the list is not to outlive its reasons. */
static void check_case(const struct family *family, struct vector *vector, const char *differs)
{
    vector->quiet = differs != NULL;
    family->check(vector);
    if (!differs)
        return;
    vector->quiet = false;
    vector->failed = !vector->failed;
    if (vector->failed)
        vector_fail(vector, "is HAMi's answer, though differs.json says: %s", differs);
}

static void run_case(const struct family *family, const char *line, size_t len, struct arena *arena,
                     struct tally *tally)
{
    struct vector vector = {.id = family->name, .arena = arena};
    struct error err = ERROR_INIT;
    const char *config, *why, *differs;

    if (json_parse(line, len, arena, &vector.line, &err) < 0) {
        vector_fail(&vector, "%s", err.text);
        tally->failed++;
        return;
    }
    vector.id = vector_text(vector.line, "id");
    config = vector_text(vector.line, "config");
    vector.vendors = find_config(*config ? config : "default");
    why = family->left_out ? family->left_out(&vector) : NULL;
    differs = why ? NULL : why_differs(vector.id);
    if (!vector.vendors)
        vector_fail(&vector, "no configuration \"%s\"", config);
    else if (!why)
        check_case(family, &vector, differs);
    count_case(tally, &vector, differs ? differs : why);
}

static void print_tally(const struct family *family, const struct tally *tally)
{
    (void)printf("%s: %u ran, %u left out, %u differ\n", family->name, tally->ran, tally->left_out,
                 tally->failed);
    for (size_t i = 0; i < tally->count; i++)
        (void)printf("    %-24s %4u ran %4u left out\n", tally->tags[i].name, tally->tags[i].ran,
                     tally->tags[i].left_out);
}

static void run_file(const struct family *family, const char *path, struct arena *arena,
                     struct tally *tally)
{
    AUTOFREE char *line = NULL;
    FILE *file = fopen(path, "re");
    size_t size = 0;
    ssize_t len;

    if (!file) {
        (void)printf("%s: can't be read\n", path);
        tally->failed++;
        return;
    }
    while ((len = getline(&line, &size, file)) > 0) {
        run_case(family, line, (size_t)len, arena, tally);
        arena_reset(arena);
    }
    (void)fclose(file);
}

/* FAMILY.jsonl and every FAMILY-*.jsonl. True when all that ran is equal, and something ran. */
static bool run_family(const struct family *family)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(CASE_MEMORY);
    struct tally tally = {.count = 0};
    glob_t files = {0};
    char pattern[512];

    (void)snprintf(pattern, sizeof(pattern), "%s/%s{,-*}.jsonl", folder, family->name);
    if (!arena || glob(pattern, GLOB_BRACE, NULL, &files) != 0) {
        (void)printf("%s: can't be read\n", pattern);
        return false;
    }
    for (size_t i = 0; i < files.gl_pathc; i++)
        run_file(family, files.gl_pathv[i], arena, &tally);
    globfree(&files);
    print_tally(family, &tally);
    return tally.ran && !tally.failed;
}

/* vectors FOLDER [FAMILY...] */
int main(int argc, char **argv)
{
    bool good = true;

    char path[512];

    folder = argc > 1 ? argv[1] : "tests/data/vectors";
    (void)snprintf(path, sizeof(path), "%s/differs.json", folder);
    differing = yyjson_read_file(path, 0, NULL, NULL);
    if (!differing) {
        (void)printf("%s: can't be read\n", path);
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        bool wanted = argc < 3;

        for (int k = 2; k < argc; k++)
            wanted |= strcmp(argv[k], families[i]->name) == 0;
        if (wanted)
            good &= run_family(families[i]);
    }
    yyjson_doc_free(differing);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
