/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where this process' limits come from: a file beside the library, lowered by the environment, or
 * the environment alone. The file's folder is known from the moment the library is loaded; what it
 * says is read at the first CUDA or NVML call, and again when it changes. The caller holds the lock
 * of attach.c.
 */

#include <stdbool.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/kept.h"
#include "region/limits.h"

struct source {
    bool read;
    bool is_file;
    char path[LIMITS_PATH_SIZE]; /* absolute; "": could not be known, which refuses everything */
    struct kept folder;          /* it lies there, whatever else the path leads to later; open from
                                    the first reading on */
    bool was_there;              /* when the library was loaded */
    struct stat seen;            /* the file that was read */
    struct limits limits;
};

extern struct source source;

/* Reads for the first time. -ENOENT when a file was there as the library was loaded and is gone. */
int source_read(struct error *err);

/* Reads the file again if it changed. What can't be read, or found (as after chroot()), or is gone,
 * leaves all as it was. */
void source_refresh(void);
