/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A process of the node, by what the kernel says of it below /proc. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "monitor/cgroup.h"

struct process {
    uint64_t start_ticks; /* tells it from a later one of the same pid */
    bool ends;            /* it is on its way out: none of its threads runs on */
    bool in_pod;
    char pod_uid[CGROUP_UID_SIZE];
};

/*
 * When it started and whether it ends; whose it is is another question, with a file of its own.
 * -ENOENT: it is gone, or can't be seen; -EIO. procfs: "/proc".
 */
int process_read(const char *procfs, pid_t pid, struct process *ret_process);
int process_read_pod(const char *procfs, pid_t pid, struct process *process);

/* Its pid in its own, innermost pid namespace; 0 where that can't be told. */
pid_t process_inner_pid(const char *procfs, pid_t pid);

/* Whether pids here are those of the whole machine, as the driver has them for its root. */
bool process_sees_host(void);

/* Ends a process with SIGKILL if it is still the one that started then. */
int process_kill(const char *procfs, pid_t pid, uint64_t start_ticks);
