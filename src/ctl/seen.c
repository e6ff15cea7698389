/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/seen.h"

#include <errno.h>
#include <search.h>
#include <string.h>

struct seen_name {
    const char *what, *file;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct seen_name *)a)->what, ((const struct seen_name *)b)->what);
}

static int refuse_second(const struct seen_name *first, const char *file, struct error *err)
{
    if (strcmp(first->file, file) == 0)
        return error_set(err, -EEXIST, "%s is there twice, in %s", first->what, file);
    return error_set(err, -EEXIST, "%s is there twice, in %s and in %s", first->what, first->file,
                     file);
}

int seen_add(struct seen *seen, const char *what, const char *file, struct arena *arena,
             struct error *err)
{
    const struct seen_name wanted = {.what = what};
    const struct seen_name *const *found = tfind(&wanted, &seen->tree, compare_names);
    struct seen_name *name;

    if (found)
        return refuse_second(*found, file, err);
    name = ARENA_ARRAY(arena, struct seen_name, 1);
    if (name)
        *name = (struct seen_name){arena_strdup(arena, what), file};
    if (!name || !name->what || !tsearch(name, &seen->tree, compare_names))
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static void keep(void *name)
{
    (void)name; /* the arena's */
}

void seen_deinit(struct seen *seen)
{
    tdestroy(seen->tree, keep);
    seen->tree = NULL;
}
