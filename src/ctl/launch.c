/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/launch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/ctl.h"

/* In the child. */
static void __attribute__((noreturn))
become(const struct launch *launch, pid_t parent, char *const *argv)
{
    int code;

    /* The parent may have died before this was asked for. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(CTL_EXIT_RUN_FAILURE);

    (void)sigaction(SIGCHLD, &launch->sigchld, NULL);
    (void)sigprocmask(SIG_SETMASK, &launch->signals, NULL);
    (void)execvp(argv[0], argv);

    code = errno == ENOENT ? CTL_EXIT_NOT_FOUND : CTL_EXIT_CANNOT_EXECUTE;
    (void)fprintf(stderr, "hamictl run: cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(code);
}

int launch_start(struct launch *ret_launch, char *const *argv, struct error *err)
{
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    pid_t self = getpid();
    sigset_t all;

    /* With SIGCHLD ignored, as some parents leave it, there would be no exit code to wait for. */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &ret_launch->signals);
    (void)sigaction(SIGCHLD, &standard, &ret_launch->sigchld);

    ret_launch->pid = fork();
    if (ret_launch->pid < 0)
        return error_set(err, -errno, "cannot start a process: %s", strerror(errno));
    if (ret_launch->pid == 0)
        become(ret_launch, self, argv);
    return 0;
}

/* Only what a process sent: the kernel sends the terminal's signals to the whole process group. */
static void pass_on(const struct launch *launch, const siginfo_t *info)
{
    if (info->si_code != SI_USER && info->si_code != SI_QUEUE && info->si_code != SI_TKILL)
        return;
    if (info->si_pid == launch->pid)
        return;

    if (info->si_code == SI_QUEUE)
        (void)sigqueue(launch->pid, info->si_signo, info->si_value);
    else
        (void)kill(launch->pid, info->si_signo);
}

/* Whether the program has ended, with what exit code. Stops with it, so that its shell notices. */
static bool look_at_program(const struct launch *launch, int *ret_code)
{
    int status;

    while (waitpid(launch->pid, &status, WNOHANG | WUNTRACED) == launch->pid) {
        if (WIFEXITED(status)) {
            *ret_code = WEXITSTATUS(status);
            return true;
        }
        if (WIFSIGNALED(status)) {
            *ret_code = CTL_EXIT_SIGNAL + WTERMSIG(status);
            return true;
        }
        if (WIFSTOPPED(status))
            (void)raise(SIGSTOP);
    }
    return false;
}

int launch_wait(struct launch *launch)
{
    siginfo_t info;
    sigset_t all;
    int code;

    (void)sigfillset(&all);
    while (!look_at_program(launch, &code)) {
        if (sigwaitinfo(&all, &info) > 0 && info.si_signo != SIGCHLD)
            pass_on(launch, &info);
    }
    return code;
}
