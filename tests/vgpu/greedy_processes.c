/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: processes that end before they pay, or in which no thread can be made. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "greedy_ways.h"

/* Several kernels for each process, which ends before it launches again. */
static void processes(const char *way)
{
    const char *words[] = {"greedy", way, NULL};

    for (unsigned i = 0; !stopped; i++) {
        pid_t child = fork();

        if (child == 0) {
            if (i) /* the first one's words are enough */
                (void)freopen("/dev/null", "w", stderr);
            (void)execv("/proc/self/exe", (char **)words);
            _exit(1);
        }
        (void)waitpid(child, NULL, 0);
    }
}

/* So large are the stacks of threads, too: there is no room for one. */
void way_large_stacks(void)
{
    struct rlimit limit = {(rlim_t)1 << 46, (rlim_t)1 << 46};

    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        exit(1);
    processes("last-kernels");
}

static void forbid_threads(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), /* then clone() is tried */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(1);
}

void way_threadless(void)
{
    forbid_threads();
    processes("last-kernels");
}

void way_kept_thread(void)
{
    launch(function_of("spin"), 108, SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    forbid_threads();
    usleep(2500000);
    launch(function_of("spin"), 108, SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
}

void way_singles(void)
{
    processes("single-kernel");
}

/* It waits for its turn for seconds. */
void way_single_kernel(void)
{
    launch(function_of("spin"), 108, 300000000, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    _exit(0);
}

void way_exiting(void)
{
    processes("exit-kernels");
}

void way_last_kernels(void)
{
    for (unsigned i = 0; i < 8; i++)
        launch(function_of("spin"), 108 + i, 6 * (uint64_t)LONG_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    _exit(0);
}

void way_exit_kernels(void)
{
    (void)atexit(way_last_kernels); /* runs after those that the first launch registers */
    short_ones(3);
    exit(0);
}
