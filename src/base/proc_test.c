/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proc.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

static void *live_on(void *unused)
{
    (void)unused;
    for (;;)
        (void)pause();
    return NULL;
}

static pid_t start_child(bool without_main_thread)
{
    pid_t child = fork();
    pthread_t thread;

    if (child != 0)
        return child;
    if (without_main_thread && pthread_create(&thread, NULL, live_on, NULL) == 0)
        (void)syscall(SYS_exit, 0);
    (void)live_on(NULL);
    return 0;
}

static void end_child(pid_t child)
{
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

static struct proc_identity identity_of(pid_t pid, const struct proc_identity *self)
{
    return (struct proc_identity){.pid = pid, .pid_namespace = self->pid_namespace};
}

static void a_process_whose_main_thread_ended_is_alive(void **state)
{
    struct proc_identity self, who;
    pid_t child = start_child(true);

    (void)state;
    proc_identity_self(&self);
    assert_false(self.proc_is_foreign);
    who = identity_of(child, &self);
    (void)usleep(50000);
    assert_int_equal(proc_identity_check(&who, &self), PROC_ALIVE);
    assert_false(proc_is_gone(&who, &self));
    assert_int_equal(kill(child, SIGKILL), 0);
    (void)usleep(50000);
    assert_int_equal(proc_identity_check(&who, &self), PROC_DEAD); /* a zombie, all of it */
    end_child(child);
    assert_int_equal(proc_identity_check(&who, &self), PROC_DEAD);
    assert_true(proc_is_gone(&who, &self));
}

static void a_process_of_another_start_is_dead(void **state)
{
    struct proc_identity self, who;

    (void)state;
    proc_identity_self(&self);
    who = self;
    assert_int_equal(proc_identity_check(&who, &self), PROC_ALIVE);
    who.start_ticks++;
    assert_int_equal(proc_identity_check(&who, &self), PROC_DEAD);
}

/* Process 1 of a new pid namespace, with the /proc of the old one. Returns a line's number. */
static int live_with_foreign_proc(void)
{
    struct proc_identity self, who, before;
    pid_t child = start_child(false);
    int result = 0;

    proc_identity_self(&self);
    who = identity_of(child, &self);
    /* Process 1 of a namespace that ended, whose number ours has got. */
    before = self;
    before.start_ticks--;
    if (getpid() != 1 || !self.proc_is_foreign)
        result = __LINE__;
    /* The process that /proc calls 1 started earlier. */
    else if (self.start_ticks < 1 || proc_identity_check(&self, &self) == PROC_DEAD)
        result = __LINE__;
    else if (proc_identity_check(&before, &self) != PROC_DEAD)
        result = __LINE__;
    else if (proc_identity_check(&who, &self) == PROC_DEAD)
        result = __LINE__;
    end_child(child);
    if (result == 0 && proc_identity_check(&who, &self) != PROC_DEAD)
        result = __LINE__;
    return result;
}

static void another_namespaces_proc_is_not_believed(void **state)
{
    int pipe_fds[2], result = -1;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) < 0)
            _exit(77);
        if (fork() == 0) {
            result = live_with_foreign_proc();
            (void)!write(pipe_fds[1], &result, sizeof(result));
            _exit(0);
        }
        (void)wait(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    (void)close(pipe_fds[1]);
    if (WEXITSTATUS(result) == 77) {
        (void)close(pipe_fds[0]);
        skip(); /* not permitted here */
    }
    assert_int_equal(read(pipe_fds[0], &result, sizeof(result)), sizeof(result));
    (void)close(pipe_fds[0]);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_whose_main_thread_ended_is_alive),
        cmocka_unit_test(a_process_of_another_start_is_dead),
        cmocka_unit_test(another_namespaces_proc_is_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
