/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes that were seen on cards: whose each is, and when it started, is asked of the kernel
 * once. Whether it is still the one, and lives, is for the caller to ask. One that is in no pod is
 * asked each time, since a runtime moves what it starts into the pod's cgroup.
 */

#include "monitor/process.h"

struct known_process;

struct known_processes {
    struct known_process *first; /* NULL: none */
};

/* A process with its pod: as process_read() and process_read_pod(), or as they said before. */
int known_processes_read(struct known_processes *known, const char *procfs, pid_t pid,
                         struct process *ret_process);

/* It is not that process any more: whoever has the number is asked anew. */
void known_processes_forget(struct known_processes *known, pid_t pid);

/* Forgets those that were not read since the last call. */
void known_processes_forget_unseen(struct known_processes *known);

void known_processes_deinit(struct known_processes *known);
