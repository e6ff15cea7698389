/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

struct stat_line {
    char state;
    uint64_t threads; /* a leader that ended first counts for as long as others go on */
    uint64_t start_ticks;
};

static uint64_t read_digits(const char *p)
{
    uint64_t value = 0;

    for (; *p >= '0' && *p <= '9'; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    return value;
}

/* Reads the beginning of a file of /proc. -ENOENT when there is no such process. */
static int read_proc(const char *path, char *text, size_t size)
{
    AUTOCLOSE int fd = -1;
    ssize_t len;

    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : -EIO;
    len = read(fd, text, size - 1);
    if (len <= 0)
        return errno == ESRCH ? -ENOENT : -EIO;
    text[len] = '\0';
    return 0;
}

/* -ENOENT when there is no such process, -EIO when it can't be told. */
static int read_stat(const char *path, struct stat_line *ret_line)
{
    char text[512];
    const char *p;
    int r;

    r = read_proc(path, text, sizeof(text));
    if (r < 0)
        return r;

    /* The name in parentheses may hold blanks and parentheses: fields count from its end. */
    p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EIO;
    ret_line->state = p[2];

    p += 1;
    for (int field = 2; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -EIO;
        p++;
        if (field + 1 == 20)
            ret_line->threads = read_digits(p);
    }
    ret_line->start_ticks = read_digits(p);
    return 0;
}

/*
 * The namespace's number is in the link's text, "pid:[4026531836]". A process whose main thread has
 * ended has no such link of its own, its other threads do.
 */
static uint32_t read_pid_namespace(void)
{
    uint32_t number = 0;
    char text[64];
    ssize_t len;

    len = readlink("/proc/thread-self/ns/pid", text, sizeof(text));
    if (len < 0)
        len = readlink("/proc/self/ns/pid", text, sizeof(text));
    for (ssize_t i = 0; i < len; i++) {
        if (text[i] >= '0' && text[i] <= '9')
            number = number * 10 + (uint32_t)(text[i] - '0');
    }
    return number;
}

/*
 * The line NSpid of our status has our pid in each namespace, from the one that /proc is mounted
 * for to our own: one number where those are the same. Without such a line (before Linux 4.1) the
 * name that /proc has for us must be our pid.
 */
static bool proc_is_foreign(int32_t pid)
{
    const char *line;
    char text[4096];
    ssize_t len;

    if (read_proc("/proc/self/status", text, sizeof(text)) == 0) {
        line = strstr(text, "\nNSpid:\t");
        if (line) {
            line += strlen("\nNSpid:\t");
            return line[strspn(line, "0123456789")] == '\t';
        }
    }
    len = readlink("/proc/self", text, sizeof(text) - 1);
    if (len <= 0)
        return false;
    text[len] = '\0';
    return read_digits(text) != (uint64_t)pid;
}

void proc_identity_self(struct proc_identity *ret_identity)
{
    struct stat_line line = {0};

    /* The raw call: a vfork or clone child must not see a cached answer. */
    ret_identity->pid = (int32_t)syscall(SYS_getpid);
    ret_identity->pid_namespace = read_pid_namespace();
    /* Ourselves, whatever number /proc has for us. */
    (void)read_stat("/proc/self/stat", &line);
    ret_identity->start_ticks = line.start_ticks;
    ret_identity->proc_is_foreign = proc_is_foreign(ret_identity->pid);
}

bool proc_is_gone(const struct proc_identity *who, const struct proc_identity *self)
{
    return who->pid_namespace == self->pid_namespace && kill(who->pid, 0) < 0 && errno == ESRCH;
}

enum proc_state proc_identity_check(const struct proc_identity *who,
                                    const struct proc_identity *self)
{
    struct stat_line line;
    char path[32];
    int r = -ENOENT;

    if (who->pid <= 0)
        return PROC_DEAD;
    if (who->pid_namespace != self->pid_namespace)
        return PROC_UNKNOWN;
    /*
     * Ourselves, whatever /proc knows; or one of before us: the kernel gives the number of a
     * namespace that ended to a new one, in which pid 1 is there again.
     */
    if (who->pid == self->pid) {
        if (who->start_ticks == self->start_ticks)
            return PROC_ALIVE;
        if (who->start_ticks && self->start_ticks)
            return PROC_DEAD;
    }

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)who->pid);
    if (!self->proc_is_foreign)
        r = read_stat(path, &line);
    /* With hidepid the entry is hidden, not gone: ask the kernel as well. */
    if (r == -ENOENT)
        return proc_is_gone(who, self) ? PROC_DEAD : PROC_UNKNOWN;
    if (r < 0)
        return PROC_UNKNOWN;
    if (who->start_ticks && line.start_ticks != who->start_ticks)
        return PROC_DEAD;
    /* The main thread may end before the others, which go on under its pid. */
    if ((line.state == 'Z' && line.threads < 2) || line.state == 'X' || line.state == 'x')
        return PROC_DEAD;
    return PROC_ALIVE;
}
