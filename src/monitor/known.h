/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes that were seen on cards. Whose one is stays, and is asked of the kernel once for
 * each process, which its start tells from a later one of its number; one that is in no pod is
 * asked each time, since a runtime moves what it starts into the pod's cgroup.
 */

#include "monitor/process.h"

struct known_process;

struct known_processes {
    struct known_process *first; /* NULL: none */
};

/* A process with its pod: as process_read() and process_read_pod(). */
int known_processes_read(struct known_processes *known, const char *procfs, pid_t pid,
                         struct process *ret_process);

/* Forgets those that were not read since the last call. */
void known_processes_forget_unseen(struct known_processes *known);

void known_processes_deinit(struct known_processes *known);
