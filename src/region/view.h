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
    uint64_t waits[REGION_WAITS];
};

struct region_view_process {
    unsigned slot;
    pid_t pid;      /* in the container */
    pid_t host_pid; /* as the reader sees it, 0 when it does not */
    bool is_sure; /* that is the kernel's word, which has seen it lock the slot; else the file's */
    bool has_account;     /* used is by our ledger */
    pid_t told_pid;       /* the host's pid as the file has it */
    uint64_t start_ticks; /* as the file has it; 0: it has none */
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
    bool ruled_by_file; /* a limits file rules whoever uses it */
    int recent_kernel;
    int utilization_switch;
    uint64_t last_kernel_time; /* Unix seconds; 0: never */
    uint64_t unaccounted_refused;
    uint64_t unaccounted_allowed;
    uint64_t pinned_bytes;  /* of the host's memory, by all its living processes */
    uint64_t spilled_bytes; /* of what they use, that lives on the host: the card had no room */
    uint64_t imports;       /* pieces of memory that they hold and others made */
};

/*
 * Reads a region file into *ret_view, which is large: keep it off the stack. Dead processes' slots
 * are left out, whether or not anybody has settled them. Returns 0, or with err set -ENOENT,
 * -EPROTO when it is not a region, or another negative errno. Costs two preads, and another two
 * for each slot in use (one for the first), and a question for its lock. Whatever its owner does,
 * whether slots live is asked for some 50 ms of processor time at most, or kept.asking_ns;
 * of those that are left then their own word is taken.
 */
int region_view_read(const char *path, struct region_view *ret_view, struct error *err);

/* A region's file between two readings: fd is -1 where it is not open. */
struct region_kept {
    int fd;
    dev_t dev;
    ino_t ino;
    int64_t asking_ns; /* for so long a reading asks at most; 0: 50 ms */
    int64_t asked_ns;  /* so long the last one did */
};

#define REGION_KEPT_INIT                                                                           \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/*
 * The same below an open folder. With kept the file stays open, which spares most of a reading's
 * time; each reading looks whether the path still leads to it, and opens what it leads to
 * otherwise. Whoever has it closes it in the end. kept may be NULL.
 */
int region_view_read_at(int folder, const char *path, struct region_kept *kept,
                        struct region_view *ret_view, struct error *err);
void region_kept_close(struct region_kept *kept);

/* The range of the longest wait (REGION_WAIT_MS), plus 1; 0: nothing waited. */
unsigned region_view_longest(const struct region_view_device *device);

/* What the library did to one process, by device. */
struct region_explained {
    struct region_explain launches[REGION_DEVICES];
    struct region_refusals refusals[REGION_DEVICES];
};

/* Its launches of all kinds, and what our own code took for one of them. */
uint64_t region_launches(const struct region_explain *explain);
uint64_t region_own_ns(const struct region_explain *explain);

/*
 * That of those processes that are in the view, one row for each of them; all 0 where the file has
 * no such thing. Two preads for each.
 */
int region_view_explained(const char *path, const struct region_view *view,
                          struct region_explained *ret_rows);

/*
 * Writes the host's pid of a process into its slot, by which libvgpu finds itself in NVML's list
 * where that has the host's pids. Only for the process that has the slot's lock, by the kernel's
 * word, before and after: 0, -ESRCH if it has not, another negative errno.
 */
int region_tell_host_pid(const char *path, unsigned slot, pid_t host_pid);

/* HAMi's words from a monitor to a region's processes: see monitor/feedback.h. */
struct region_words {
    int recent_kernel, utilization_switch;
};

/*
 * Writes those words that differ from what was seen. A region of version 0 has them elsewhere. 0,
 * -EPROTO when the file is no region, another negative errno.
 */
int region_tell_words(const char *path, const struct region_words *seen,
                      const struct region_words *words);
