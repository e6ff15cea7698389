/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where this process' limits come from: a file beside the library, lowered by the environment, or
 * the environment alone. The file's folder is known from the moment the library is loaded; what it
 * says is read at the first CUDA or NVML call, and again when it changes. The caller holds the lock
 * of attach.c.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/kept.h"
#include "region/limits.h"

/* A program that is out of descriptors for so long is not merely busy. */
#define SOURCE_LOST_NS INT64_C(10000000000)

enum source_place {
    SOURCE_PLACE_UNKNOWN,
    SOURCE_PLACE_FOLDER, /* it lies in its folder, where another may replace it */
    SOURCE_PLACE_MOUNT,  /* it is mounted there by itself, for good */
};

struct source {
    bool read;
    bool is_file;
    char path[LIMITS_PATH_SIZE]; /* absolute; "": could not be known, which refuses everything */
    struct kept folder;          /* it lies there, whatever else the path leads to later; open from
                                    the first reading on */
    bool was_there;              /* when the library was loaded, or may have been */
    enum source_place place;     /* and where it lay then; */
    struct stat mounted;         /* that file, where it is mounted */
    struct stat seen;            /* the file that was read */
    int64_t failing_since_ns;    /* 0: it could be looked at, and read if it changed */
    bool is_lost;                /* what it says now is not known for too long */
    struct limits limits;
};

extern struct source source;

/* Reads for the first time. -ENOENT when a file was there as the library was loaded and is gone. */
int source_read(struct error *err);

/*
 * Reads the file again if it changed. One that was removed from its folder, which can be
 * listed and has none, leaves all as it was. So does one that can't be read, or found (as after
 * chroot()), but no longer than SOURCE_LOST_NS: the source is lost then, until it can be read
 * again.
 */
void source_refresh(void);
