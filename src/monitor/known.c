/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/known.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/util.h"

struct known_process {
    pid_t pid;
    struct process told;
    bool seen;
    UT_hash_handle hh;
};

static struct known_process *find(const struct known_processes *known, pid_t pid)
{
    struct known_process *process;

    HASH_FIND(hh, known->first, &pid, sizeof(pid), process);
    return process;
}

/* Without memory it is asked again. */
static void remember(struct known_processes *known, pid_t pid, const struct process *told)
{
    struct known_process *process = calloc(1, sizeof(*process));

    if (!process)
        return;
    *process = (struct known_process){.pid = pid, .told = *told, .seen = true};
    HASH_ADD(hh, known->first, pid, sizeof(process->pid), process);
}

int known_processes_read(struct known_processes *known, const char *procfs, pid_t pid,
                         struct process *ret_process)
{
    struct known_process *before = find(known, pid);
    struct process process;
    int r;

    if (before) {
        before->seen = true;
        *ret_process = before->told;
        return 0;
    }
    r = process_read(procfs, pid, &process);
    if (r == 0)
        r = process_read_pod(procfs, pid, &process);
    if (r < 0)
        return r;
    if (process.in_pod && !process.ends)
        remember(known, pid, &process);
    *ret_process = process;
    return 0;
}

void known_processes_forget(struct known_processes *known, pid_t pid)
{
    struct known_process *process = find(known, pid);

    if (!process)
        return;
    HASH_DEL(known->first, process);
    free(process);
}

static void forget(struct known_processes *known, bool all)
{
    struct known_process *process, *next;

    HASH_ITER(hh, known->first, process, next)
    {
        const bool stays = process->seen && !all;

        process->seen = false;
        if (stays)
            continue;
        HASH_DEL(known->first, process);
        free(process);
    }
}

void known_processes_forget_unseen(struct known_processes *known)
{
    forget(known, false);
}

void known_processes_deinit(struct known_processes *known)
{
    forget(known, true);
}
