/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes that were seen on cards. Whose one is stays, and is asked of the kernel once; one
 * that is in no pod is asked each time, since a runtime moves what it starts into the pod's cgroup.
 * Whether it is still the same, and whether it ends, is asked again after KNOWN_NS: less than what
 * a bypass has to last until it counts (bypass.h).
 */

#include "monitor/process.h"

#define KNOWN_NS (INT64_C(1200) * 1000000)

struct known_process;

struct known_processes {
    struct known_process *first; /* NULL: none */
};

/* A process with its pod, at now_ns of CLOCK_MONOTONIC: as process_read(), process_read_pod(). */
int known_processes_read(struct known_processes *known, const char *procfs, pid_t pid,
                         int64_t now_ns, struct process *ret_process);

/* Forgets those that were not read since the last call. */
void known_processes_forget_unseen(struct known_processes *known);

void known_processes_deinit(struct known_processes *known);
