/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who a process is, in a way that survives the reuse of its pid: the pid, the time it started, and
 * the pid namespace in which both are meant. Nothing is allocated: safe inside libvgpu.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_identity {
    int32_t pid;
    uint32_t pid_namespace; /* inode number of the namespace, low 32 bits */
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat, proc(5) */

    /* Of the caller's own identity: /proc is mounted for another pid namespace (as in a container
     * that has the host's /proc), so /proc/PID there is another process than the caller's PID. */
    bool proc_is_foreign;
};

enum proc_state {
    PROC_ALIVE = 1, /* one of its threads at least */
    PROC_DEAD,      /* gone, a zombie, or another process under the same pid */
    PROC_UNKNOWN,   /* of another pid namespace, or /proc does not tell */
};

/* The calling process. Fields that /proc does not tell are 0. Costs a few system calls. */
void proc_identity_self(struct proc_identity *ret_identity);

/* The state of a process, as seen by the caller, whose own identity is self. */
enum proc_state proc_identity_check(const struct proc_identity *who,
                                    const struct proc_identity *self);

/* Whether no process has this pid any more. False for one of another namespace: the caller can't
 * see it. One system call. */
bool proc_is_gone(const struct proc_identity *who, const struct proc_identity *self);
