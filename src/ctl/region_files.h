/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The regions that somebody means by a path: a file, a container's folder, or the folder of all. */

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum {
    REGION_FILES_MAX = 1024,
    REGION_FILES_SEEN_MAX = 65536, /* of the folder's entries */
    /* Of a folder in the folder, whose owner may be anybody. */
    REGION_FILES_IN_ONE = 16,
    REGION_FILES_SEEN_IN_ONE = 1024,
};

struct region_file {
    char *path;
    bool is_empty; /* it was made for a container of which no process has used it yet */
};

struct region_files {
    bool in_folder; /* else the path is the only one, whatever it leads to */
    size_t count;   /* at least one */
    struct region_file items[REGION_FILES_MAX]; /* by path */
};

/*
 * A folder's files *.cache, and those of the folders in it; if there are none, those of the folders
 * in its folder "runs", where hamictl's state directory has them. Links are not followed, and names
 * with control characters are none of ours. The caller frees them by region_files_deinit(), a
 * failure leaves none. -ENOENT: there are none; -E2BIG: more than the bounds; or another negative
 * errno, with err set.
 */
int region_files_find(const char *path, struct region_files *ret_files, struct error *err);

void region_files_deinit(struct region_files *files);
