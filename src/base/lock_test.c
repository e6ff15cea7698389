/* SPDX-License-Identifier: Apache-2.0 */

/* Which signals reach a thread. */

#include "base/lock.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

enum {
    CANCEL = 32, /* libc's */
    SETXID = 33,
};

static bool is_blocked(int number)
{
    static const char key[] = "\nSigBlk:\t";
    char text[4096];
    const char *line;

    assert_true(file_read("/proc/thread-self/status", text, sizeof(text)) > 0);
    line = strstr(text, key);
    assert_non_null(line);
    return strtoull(line + sizeof(key) - 1, NULL, 16) >> (number - 1) & 1;
}

static void check_blocked(bool usual, bool faults)
{
    assert_int_equal(is_blocked(SIGUSR1), usual);
    assert_int_equal(is_blocked(SIGRTMAX), usual);
    assert_int_equal(is_blocked(SIGSEGV), faults);
    assert_int_equal(is_blocked(SIGSYS), faults);
    assert_int_equal(is_blocked(CANCEL), faults);
    assert_int_equal(is_blocked(SETXID), faults);
}

static void signals_come_again_once_all_is_released(void **state)
{
    sigset_t own;

    (void)state;
    (void)sigemptyset(&own);
    (void)sigaddset(&own, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &own, NULL), 0);
    check_blocked(false, false);
    assert_true(lock_hold_signals());
    check_blocked(true, false);
    assert_true(lock_hold_signals());
    lock_hold_faults();
    check_blocked(true, true);
    lock_release_signals();
    check_blocked(true, true);
    lock_release_signals();
    check_blocked(false, false);
    assert_true(is_blocked(SIGUSR2)); /* the program's own doing */
}

/* A program whose kernel answers without doing as it was told. */
static void what_is_not_blocked_is_not_held(void **state)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rows) / sizeof(*rows), rows};
    pid_t child = fork();
    int status;

    (void)state;
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
            _exit(77);
        _exit(lock_hold_signals());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_come_again_once_all_is_released),
        cmocka_unit_test(what_is_not_blocked_is_not_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
