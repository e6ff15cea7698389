/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What was read so far, and out of which file: a name that comes twice is a mistake. */

#include "base/arena.h"
#include "base/error.h"

/* Begins as zeros. */
struct seen {
    void *tree; /* tsearch(3)'s, of names of an arena */
};

/*
 * Notes "what NAME" as read from the file, whose name outlives it; what is copied into the arena.
 * -EEXIST, with both files in err, if it is there already; -ENOMEM.
 */
int seen_add(struct seen *seen, const char *what, const char *file, struct arena *arena,
             struct error *err);
void seen_deinit(struct seen *seen);
