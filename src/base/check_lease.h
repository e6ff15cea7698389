/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For tests: a process that has a write lease of a file (fcntl(2)), and takes it anew at once each
 * time that the kernel asks for it. */

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int lease_fd;

static inline void lease_take_again(int number)
{
    (void)number;
    (void)fcntl(lease_fd, F_SETLEASE, F_UNLCK);
    while (fcntl(lease_fd, F_SETLEASE, F_WRLCK) < 0)
        (void)usleep(10);
}

static inline void lease_keep(const char *path, int told)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    lease_fd = open(path, O_RDWR | O_CLOEXEC);
    if (lease_fd < 0 || fcntl(lease_fd, F_SETLEASE, F_WRLCK) < 0)
        _exit(1);
    (void)signal(SIGIO, lease_take_again);
    (void)write(told, "", 1);
    for (;;)
        (void)pause();
}

/* Its pid, once it has the lease; 0: this file system has none. */
static inline pid_t lease_start(const char *path)
{
    int ends[2];
    char byte;
    pid_t pid;
    bool has;

    if (pipe(ends) < 0)
        return 0;
    pid = fork();
    if (pid == 0)
        lease_keep(path, ends[1]);
    (void)close(ends[1]);
    has = pid > 0 && read(ends[0], &byte, 1) == 1;
    (void)close(ends[0]);
    if (!has && pid > 0)
        (void)waitpid(pid, NULL, 0);
    return has ? pid : 0;
}

static inline void lease_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}
