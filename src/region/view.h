/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A region as seen from outside the container. The file is read, never mapped: its owner may cut it
 * short at any time, which would kill a reader that maps it. Files of HAMi-core are read as well;
 * they lack what only our extension tells.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "region/region.h"

struct region_view_memory {
    uint64_t total; /* bytes */
    uint64_t context;
    uint64_t module;
    uint64_t data;
};

struct region_view_device {
    char uuid[REGION_UUID_SIZE + 1]; /* "" where the file names none */
    uint64_t limit_bytes;            /* 0: none */
    unsigned cores;                  /* percent; 0 or 100: none */
    struct region_view_memory used;  /* sum over living processes */
    unsigned sm_util;                /* as some monitor wrote it */

    /* From the extension, else 0. */
    uint64_t refusals; /* allocations refused for the limit */
    int64_t charged_ns;
    uint64_t launches_delayed;
    uint64_t delayed_ns;
};

struct region_view_process {
    pid_t pid;      /* in the container */
    pid_t host_pid; /* as the reader sees it, 0 when it does not */
    struct region_view_memory used[REGION_DEVICES];
};

struct region_view {
    uint32_t major_version, minor_version;
    bool has_extension;
    unsigned device_count;
    struct region_view_device devices[REGION_DEVICES];
    unsigned process_count; /* living ones */
    struct region_view_process processes[REGION_SLOTS];
    int priority;
    int recent_kernel;
    int utilization_switch;
    uint64_t last_kernel_time; /* Unix seconds; 0: never */
    uint64_t unaccounted_refused;
    uint64_t unaccounted_allowed;
};

/*
 * Reads a region file into *ret_view, which is large: keep it off the stack. Dead processes' slots
 * are left out, whether or not anybody has settled them. Returns 0, or with err set -ENOENT,
 * -EPROTO when it is not a region, or another negative errno. Costs one pread for the head and one
 * per slot in use.
 */
int region_view_read(const char *path, struct region_view *ret_view, struct error *err);
