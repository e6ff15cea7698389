/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/process.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"

enum {
    STAT_MAX = 1024,
    STATUS_MAX = 8192,
    CGROUP_MAX = 64 << 10, /* of version 1: a path of 4 KiB for each of its controllers */
    EXITING = 0x4,         /* of the kernel's flags of a task */
};

/* The number that the kernel gives the first pid namespace's file. */
#define HOST_PID_NAMESPACE UINT64_C(0xeffffffc)

static int read_file(const char *procfs, pid_t pid, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    ssize_t len;

    if (snprintf(path, sizeof(path), "%s/%d/%s", procfs, (int)pid, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    len = file_read(path, text, size - 1);
    if (len < 0)
        return len == -ENOENT || len == -ESRCH ? -ENOENT : -EIO;
    text[len] = '\0';
    return 0;
}

/* Fields count from the end of the name, which may hold anything: state is the third. */
int process_read(const char *procfs, pid_t pid, struct process *ret_process)
{
    unsigned long long flags, threads, start;
    char text[STAT_MAX], state;
    const char *p;
    int r;

    r = read_file(procfs, pid, "stat", text, sizeof(text));
    if (r < 0)
        return r;
    p = strrchr(text, ')');
    if (!p || sscanf(p + 1,
                     " %c %*s %*s %*s %*s %*s %llu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%llu %*s %llu",
                     &state, &flags, &threads, &start) != 4)
        return -EIO;
    *ret_process = (struct process){
        .start_ticks = start,
        .ends = threads < 2 && (state == 'Z' || state == 'X' || (flags & EXITING)),
    };
    return 0;
}

int process_read_pod(const char *procfs, pid_t pid, struct process *process)
{
    AUTOFREE char *text = malloc(CGROUP_MAX);
    int r;

    r = text ? read_file(procfs, pid, "cgroup", text, CGROUP_MAX) : -ENOMEM;
    if (r == 0)
        process->in_pod = cgroup_read_pod(text, process->pod_uid);
    return r;
}

pid_t process_inner_pid(const char *procfs, pid_t pid)
{
    char text[STATUS_MAX], *line, *last;

    if (read_file(procfs, pid, "status", text, sizeof(text)) < 0)
        return 0;
    line = strstr(text, "\nNSpid:\t");
    if (!line)
        return pid;
    line++;
    line[strcspn(line, "\n")] = '\0';
    last = strrchr(line, '\t');
    return last ? (pid_t)strtol(last + 1, NULL, 10) : 0;
}

bool process_sees_host(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == HOST_PID_NAMESPACE;
}

int process_kill(const char *procfs, pid_t pid, uint64_t start_ticks)
{
    AUTOCLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct process process;

    if (fd < 0)
        return -errno;
    /* From here on the number can't become another process' without our descriptor noticing. */
    if (process_read(procfs, pid, &process) < 0 || process.start_ticks != start_ticks)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) < 0 ? -errno : 0;
}
