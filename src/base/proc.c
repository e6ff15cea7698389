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

/* State letter and start time of a process; -ENOENT when there is none, -EIO when it can't be told.
 */
static int read_stat(pid_t pid, char *ret_state, uint64_t *ret_start_ticks)
{
    char path[32], text[512];
    AUTOCLOSE int fd = -1;
    uint64_t ticks = 0;
    const char *p;
    ssize_t len;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ENOENT : -EIO;
    len = read(fd, text, sizeof(text) - 1);
    if (len <= 0)
        return errno == ESRCH ? -ENOENT : -EIO;
    text[len] = '\0';

    /* The name in parentheses may hold blanks and parentheses: fields count from its end. */
    p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -EIO;
    *ret_state = p[2];

    p += 1;
    for (int field = 2; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -EIO;
        p++;
    }
    for (; *p >= '0' && *p <= '9'; p++)
        ticks = ticks * 10 + (uint64_t)(*p - '0');
    *ret_start_ticks = ticks;
    return 0;
}

/* The namespace's number is in the link's text, "pid:[4026531836]". */
static uint32_t read_pid_namespace(void)
{
    uint32_t number = 0;
    char text[64];
    ssize_t len;

    len = readlink("/proc/self/ns/pid", text, sizeof(text));
    for (ssize_t i = 0; i < len; i++) {
        if (text[i] >= '0' && text[i] <= '9')
            number = number * 10 + (uint32_t)(text[i] - '0');
    }
    return number;
}

void proc_identity_self(struct proc_identity *ret_identity)
{
    uint64_t start_ticks = 0;
    char state;

    /* The raw call: a vfork or clone child must not see a cached answer. */
    ret_identity->pid = (int32_t)syscall(SYS_getpid);
    ret_identity->pid_namespace = read_pid_namespace();
    (void)read_stat(ret_identity->pid, &state, &start_ticks);
    ret_identity->start_ticks = start_ticks;
}

enum proc_state proc_identity_check(const struct proc_identity *who,
                                    const struct proc_identity *self)
{
    uint64_t start_ticks;
    char state;
    int r;

    if (who->pid <= 0)
        return PROC_DEAD;
    if (who->pid_namespace != self->pid_namespace)
        return PROC_UNKNOWN;

    r = read_stat(who->pid, &state, &start_ticks);
    if (r == -ENOENT) {
        /* With hidepid the entry is hidden, not gone: ask the kernel as well. */
        return kill(who->pid, 0) < 0 && errno == ESRCH ? PROC_DEAD : PROC_UNKNOWN;
    }
    if (r < 0)
        return PROC_UNKNOWN;
    if (who->start_ticks && start_ticks != who->start_ticks)
        return PROC_DEAD;
    if (state == 'Z' || state == 'X' || state == 'x')
        return PROC_DEAD;
    return PROC_ALIVE;
}
