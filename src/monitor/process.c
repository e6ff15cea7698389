/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/process.h"

#include <dirent.h>
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

static DIR *open_threads(const char *procfs, pid_t pid)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s/%d/task", procfs, (int)pid) >= (int)sizeof(path))
        return NULL;
    return opendir(path);
}

static void close_folder(DIR **folder)
{
    if (*folder)
        (void)closedir(*folder);
}

/* What is read of a "stat" file. */
struct stat_line {
    unsigned long long threads, start;
    bool ends; /* the thread */
};

/* Fields count from the end of the name, which may hold anything: state is the third. */
static int read_stat(const char *procfs, pid_t pid, const char *name, struct stat_line *ret_line)
{
    unsigned long long flags;
    char text[STAT_MAX], state;
    const char *p;
    int r;

    r = read_file(procfs, pid, name, text, sizeof(text));
    if (r < 0)
        return r;
    p = strrchr(text, ')');
    if (!p || sscanf(p + 1,
                     " %c %*s %*s %*s %*s %*s %llu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%llu %*s %llu",
                     &state, &flags, &ret_line->threads, &ret_line->start) != 4)
        return -EIO;
    ret_line->ends = state == 'Z' || state == 'X' || (flags & EXITING);
    return 0;
}

/*
 * A process whose first thread ended may go on, or may be on its way out with all of them: the last
 * one that closes the driver's files is there until the driver has freed what it held.
 */
static bool all_threads_end(const char *procfs, pid_t pid)
{
    CLEANUP(close_folder) DIR *entries = open_threads(procfs, pid);
    char name[sizeof("task//stat") + NAME_MAX];
    struct stat_line line;

    if (!entries)
        return false;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "task/%s/stat", entry->d_name);
        if (read_stat(procfs, pid, name, &line) == 0 && !line.ends)
            return false;
    }
    return true;
}

int process_read(const char *procfs, pid_t pid, struct process *ret_process)
{
    struct stat_line line;
    int r;

    r = read_stat(procfs, pid, "stat", &line);
    if (r < 0)
        return r;
    *ret_process = (struct process){
        .start_ticks = line.start,
        .ends = line.ends && (line.threads < 2 || all_threads_end(procfs, pid)),
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
