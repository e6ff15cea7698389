/* SPDX-License-Identifier: Apache-2.0 */

/*
 * By which pids NVML names processes: two of them, one on the host and one in a pid namespace of
 * its own, each with a context. And that the dead are named no longer.
 */

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "driver/nvml.h"
#include "simdriver/testing.h"

enum {
    LISTED = 8,
    NO_PID = 1 << 22,
};

struct list {
    unsigned count;
    nvmlProcessInfo_v2_t processes[LISTED];
};

static void list(struct list *ret_list)
{
    nvmlDevice_t device;

    ret_list->count = LISTED;
    HOLDS(nvmlInit_v2() == NVML_SUCCESS);
    HOLDS(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
    HOLDS(nvmlDeviceGetComputeRunningProcesses_v3(device, &ret_list->count, ret_list->processes) ==
          NVML_SUCCESS);
    HOLDS(nvmlShutdown() == NVML_SUCCESS);
}

static bool has(const struct list *list, pid_t pid)
{
    for (unsigned i = 0; i < list->count; i++) {
        if (list->processes[i].pid == (unsigned)pid)
            return true;
    }
    return false;
}

/* The one in the namespace: says when it has a context, and its list each time it is asked. */
struct inner {
    pid_t pid; /* on the host */
    int ask, answer;
};

static void make_context(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
}

static _Noreturn void serve(int ask, int answer)
{
    struct list listed;
    char byte = 0;

    make_context();
    HOLDS(getpid() == 1);
    HOLDS(write(answer, &byte, 1) == 1);
    while (read(ask, &byte, 1) == 1) {
        list(&listed);
        HOLDS(write(answer, &listed, sizeof(listed)) == sizeof(listed));
    }
    _exit(0);
}

static bool enter_namespace(bool own_proc)
{
    if (unshare(CLONE_NEWPID | (own_proc ? CLONE_NEWNS : 0)) == 0)
        return true;
    return unshare(CLONE_NEWUSER | CLONE_NEWPID | (own_proc ? CLONE_NEWNS : 0)) == 0;
}

/* Where the root is a plain folder (chroot), it is no mount of its own; /proc is one everywhere. */
static void mount_proc(void)
{
    HOLDS(mount(NULL, "/proc", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    HOLDS(mount("proc", "/proc", "proc", 0, NULL) == 0);
}

/* Before the driver is initialised here: a child could not do it then. */
static void inner_begin(struct inner *inner, bool own_proc)
{
    int asks[2], answers[2], pids[2];
    char byte;
    pid_t between;

    HOLDS(pipe(asks) == 0 && pipe(answers) == 0 && pipe(pids) == 0);
    between = fork();
    if (between == 0) {
        HOLDS(enter_namespace(own_proc));
        inner->pid = fork();
        if (inner->pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)close(asks[1]);
            if (own_proc)
                mount_proc();
            serve(asks[0], answers[1]);
        }
        HOLDS(write(pids[1], &inner->pid, sizeof(inner->pid)) == sizeof(inner->pid));
        (void)close(asks[1]);
        (void)waitpid(inner->pid, NULL, 0);
        _exit(0);
    }
    (void)close(asks[0]);
    (void)close(answers[1]);
    HOLDS(read(pids[0], &inner->pid, sizeof(inner->pid)) == sizeof(inner->pid));
    HOLDS(read(answers[0], &byte, 1) == 1);
    inner->ask = asks[1];
    inner->answer = answers[0];
    make_context();
}

static void inner_list(const struct inner *inner, struct list *ret_list)
{
    HOLDS(write(inner->ask, "", 1) == 1);
    HOLDS(read(inner->answer, ret_list, sizeof(*ret_list)) == sizeof(*ret_list));
}

static void by_the_callers(void)
{
    struct inner inner;
    struct list listed;

    inner_begin(&inner, false);
    inner_list(&inner, &listed);
    HOLDS(listed.count == 1);
    HOLDS(listed.processes[0].pid == 1);
    HOLDS(listed.processes[0].usedGpuMemory == 100 * MIB);
    list(&listed);
    HOLDS(listed.count == 2);
    HOLDS(has(&listed, getpid()) && has(&listed, inner.pid));
}

static void by_the_hosts(void)
{
    struct inner inner;
    struct list listed;

    inner_begin(&inner, false);
    inner_list(&inner, &listed);
    HOLDS(listed.count == 2);
    HOLDS(has(&listed, getpid()) && has(&listed, inner.pid) && !has(&listed, 1));
    list(&listed);
    HOLDS(listed.count == 2);
    HOLDS(has(&listed, getpid()) && has(&listed, inner.pid));
}

/* A container that sees nothing of the host but the machine. */
static void by_the_hosts_unseen(void)
{
    struct inner inner;
    struct list listed;

    inner_begin(&inner, true);
    inner_list(&inner, &listed);
    HOLDS(listed.count == 2);
    HOLDS(has(&listed, getpid()) && !has(&listed, 1) && !has(&listed, inner.pid));
    HOLDS(listed.processes[0].pid >= NO_PID || listed.processes[1].pid >= NO_PID);

    /* Somebody on the host looks. */
    list(&listed);
    HOLDS(listed.count == 2 && has(&listed, inner.pid));
    inner_list(&inner, &listed);
    HOLDS(listed.count == 2 && has(&listed, getpid()) && has(&listed, inner.pid));
}

static uint64_t used_bytes(unsigned index)
{
    nvmlMemory_t memory;
    nvmlDevice_t device;

    HOLDS(nvmlDeviceGetHandleByIndex_v2(index, &device) == NVML_SUCCESS);
    HOLDS(nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS);
    return memory.used;
}

static void killed(void)
{
    int answers[2];
    struct list listed;
    char byte = 0;
    pid_t pid;

    HOLDS(pipe(answers) == 0);
    pid = fork();
    if (pid == 0) {
        CUcontext context;

        make_context();
        OK(cuCtxCreate_v2(&context, 0, 1));
        HOLDS(write(answers[1], &byte, 1) == 1);
        (void)pause();
    }
    HOLDS(read(answers[0], &byte, 1) == 1);
    HOLDS(nvmlInit_v2() == NVML_SUCCESS);
    HOLDS(used_bytes(0) == 100 * MIB && used_bytes(1) == 100 * MIB);
    HOLDS(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    HOLDS(used_bytes(1) == 0); /* whichever is asked about first */
    HOLDS(used_bytes(0) == 0);
    list(&listed);
    HOLDS(listed.count == 0);
}

HOLDS_IN(one_that_died_is_on_no_device_at_once, "", killed)

static bool has_namespaces(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(!enter_namespace(true));
    (void)waitpid(pid, &status, 0);
    return status == 0;
}

static void nvml_names_processes_by_the_callers_namespace(void **state)
{
    (void)state;
    if (!has_namespaces())
        skip();
    assert_int_equal(testing_run("", by_the_callers), 0);
}

static void nvml_names_processes_by_the_hosts_pids(void **state)
{
    (void)state;
    if (!has_namespaces())
        skip();
    assert_int_equal(testing_run("pids=host", by_the_hosts), 0);
    assert_int_equal(testing_run("pids=host", by_the_hosts_unseen), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvml_names_processes_by_the_callers_namespace),
        cmocka_unit_test(nvml_names_processes_by_the_hosts_pids),
        cmocka_unit_test(one_that_died_is_on_no_device_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
