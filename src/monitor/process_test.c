/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"
#include "monitor/known.h"

static void ourselves_are_found(void **state)
{
    struct process process;

    (void)state;
    assert_int_equal(process_read("/proc", getpid(), &process), 0);
    assert_true(process.start_ticks > 0);
    assert_false(process.ends);
    assert_true(process_inner_pid("/proc", getpid()) > 0);
    assert_int_equal(process_read("/proc", 1 << 30, &process), -ENOENT);
}

static void a_zombie_is_on_its_way_out(void **state)
{
    struct process process;
    siginfo_t info;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(process_read("/proc", child, &process), 0);
    assert_true(process.ends);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void only_the_one_that_started_then_is_ended(void **state)
{
    struct process process;
    int status;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(process_read("/proc", child, &process), 0);
    assert_int_equal(process_kill("/proc", child, process.start_ticks + 1), -ESRCH);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(process_kill("/proc", child, process.start_ticks), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(process_kill("/proc", child, process.start_ticks) < 0);
}

/* A leader that ended first says that it is exiting, while others go on. */
static void what_the_kernel_writes_is_read(void **state)
{
    static const struct {
        const char *stat;
        int r;
        bool ends;
    } cases[] = {
        {"7 (a) R 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n", 0, false},
        {"7 (a) b) (c) S 1 7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n", 0, false},
        {"7 (a) Z 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n", 0, true},
        {"7 (a) R 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n", 0, true},
        {"7 (a) Z 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 2 0 4711 0\n", 0, false},
        {"7 (a) R 1 7 7\n", -EIO, false},
        {"7 a R 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n", -EIO, false},
        {"", -EIO, false},
    };
    char folder[] = "/tmp/hami-process-XXXXXX", path[64], file[96];
    struct process process;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/7", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)snprintf(file, sizeof(file), "%s/stat", path);
        assert_int_equal(file_replace(file, cases[i].stat, strlen(cases[i].stat), 0600), 0);
        assert_int_equal(process_read(folder, 7, &process), cases[i].r);
        if (cases[i].r == 0) {
            assert_int_equal(process.ends, cases[i].ends);
            assert_int_equal(process.start_ticks, 4711);
        }
        (void)unlink(file);
    }
    (void)snprintf(file, sizeof(file), "%s/status", path);
    assert_int_equal(file_replace(file, "Name:\tx\nNSpid:\t7\t30\t1\nUid:\t0\n", 30, 0600), 0);
    assert_int_equal(process_inner_pid(folder, 7), 1);
    /* A kernel without namespaces of pids. */
    assert_int_equal(file_replace(file, "Name:\tx\nUid:\t0\n", 15, 0600), 0);
    assert_int_equal(process_inner_pid(folder, 7), 7);
    (void)unlink(file);
    (void)rmdir(path);
    (void)rmdir(folder);
}

#define THREAD(flags) "7 (a) Z 1 7 7 0 -1 " flags " 1 2 3 4 5 6 7 8 20 0 2 0 4711 0\n"
#define RUNNING "8 (a) S 1 7 7 0 -1 64 1 2 3 4 5 6 7 8 20 0 2 0 4711 0\n"
#define CLOSING "8 (a) D 1 7 7 0 -1 68 1 2 3 4 5 6 7 8 20 0 2 0 4711 0\n"

/* As when the driver frees what a killed process held, in the last thread that closes its files. */
static void a_process_ends_once_all_of_its_threads_do(void **state)
{
    static const char *const folders[] = {"7", "7/task", "7/task/7", "7/task/8"};
    char folder[] = "/tmp/hami-process-XXXXXX", path[64];
    const struct {
        const char *file, *text;
        bool ends;
    } steps[] = {
        {"7/stat", THREAD("4"), true},        /* the others have gone meanwhile */
        {"7/task/7/stat", THREAD("4"), true}, /* itself */
        {"7/task/8/stat", RUNNING, false},    /* another runs on */
        {"7/task/8/stat", CLOSING, true},     /* in the driver, for the last time */
        {"7/stat", RUNNING, false},           /* the first one is asked first */
    };
    struct process process;

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, steps[i].file);
        assert_int_equal(file_replace(path, steps[i].text, strlen(steps[i].text), 0600), 0);
        assert_int_equal(process_read(folder, 7, &process), 0);
        assert_int_equal(process.ends, steps[i].ends);
    }
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, steps[i].file);
        (void)unlink(path);
    }
    for (size_t i = ARRAY_SIZE(folders); i-- > 0;) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* A process of a made-up /proc. */
static void write_process(const char *path, const char *start, const char *group)
{
    char file[96], stat[128];
    int len;

    len =
        snprintf(stat, sizeof(stat), "7 (a) R 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 %s 0\n", start);
    (void)snprintf(file, sizeof(file), "%s/stat", path);
    assert_int_equal(file_replace(file, stat, (size_t)len, 0600), 0);
    (void)snprintf(file, sizeof(file), "%s/cgroup", path);
    if (group)
        assert_int_equal(file_replace(file, group, strlen(group), 0600), 0);
    else
        (void)unlink(file);
}

#define POD "0b8f6a1c-3a52-4d5e-9f0e-1c2d3e4f5a6b"
#define ENDING "7 (a) R 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4712 0\n"
#define GROUP "0::/kubepods/pod" POD "/x\n"
#define OTHER_POD "1b8f6a1c-3a52-4d5e-9f0e-1c2d3e4f5a6b"

static void whose_a_process_is_is_asked_once(void **state)
{
    char folder[] = "/tmp/hami-process-XXXXXX", path[64], file[96];
    struct known_processes known = {NULL};
    struct process process;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/7", folder);
    assert_int_equal(mkdir(path, 0700), 0);

    write_process(path, "4711", NULL);
    assert_int_equal(known_processes_read(&known, folder, 7, &process), -ENOENT);
    write_process(path, "4711", "0::/system.slice/containerd.service\n");
    assert_int_equal(known_processes_read(&known, folder, 7, &process), 0);
    assert_false(process.in_pod);
    write_process(path, "4711", "0::/kubepods/pod" POD "/x\n");
    assert_int_equal(known_processes_read(&known, folder, 7, &process), 0);
    assert_true(process.in_pod); /* moved meanwhile, as runtimes do */
    assert_string_equal(process.pod_uid, POD);

    write_process(path, "4711", NULL);
    for (int look = 0; look < 3; look++) {
        assert_int_equal(known_processes_read(&known, folder, 7, &process), 0);
        assert_true(process.in_pod);
        assert_string_equal(process.pod_uid, POD);
        assert_int_equal(process.start_ticks, 4711);
        known_processes_forget_unseen(&known);
    }

    write_process(path, "4712", "0::/kubepods/pod" OTHER_POD "/x\n");
    known_processes_forget(&known, 7); /* another one of that number */
    assert_int_equal(known_processes_read(&known, folder, 7, &process), 0);
    assert_string_equal(process.pod_uid, OTHER_POD);
    assert_int_equal(process.start_ticks, 4712);

    write_process(path, "4712", NULL);
    known_processes_forget_unseen(&known);
    known_processes_forget_unseen(&known); /* it was not seen in between */
    assert_int_equal(known_processes_read(&known, folder, 7, &process), -ENOENT);

    (void)snprintf(file, sizeof(file), "%s/cgroup", path);
    assert_int_equal(file_replace(file, GROUP, strlen(GROUP), 0600), 0);
    (void)snprintf(file, sizeof(file), "%s/stat", path);
    assert_int_equal(file_replace(file, ENDING, strlen(ENDING), 0600), 0);
    assert_int_equal(known_processes_read(&known, folder, 7, &process), 0);
    assert_true(process.ends);
    (void)unlink(file);
    assert_int_equal(known_processes_read(&known, folder, 7, &process), -ENOENT); /* not kept */

    (void)snprintf(file, sizeof(file), "%s/cgroup", path);
    (void)unlink(file);
    known_processes_deinit(&known);
    (void)rmdir(path);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ourselves_are_found),
        cmocka_unit_test(a_zombie_is_on_its_way_out),
        cmocka_unit_test(only_the_one_that_started_then_is_ended),
        cmocka_unit_test(what_the_kernel_writes_is_read),
        cmocka_unit_test(a_process_ends_once_all_of_its_threads_do),
        cmocka_unit_test(whose_a_process_is_is_asked_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
