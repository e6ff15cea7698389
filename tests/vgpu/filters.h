/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Filters of system calls (seccomp(2)) by which a program tries to keep its limits file from the
 * library. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum {
    FILTER_PAGE = 4096,
    FILTER_DESCRIPTORS = 1 << 30, /* more there are not; AT_FDCWD is more */
    FILTER_READ_BYTES = 16384,    /* as the library reads its limits */
};

#define LOAD(word) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, word))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IS_FROM(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, value, yes, no)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define ANSWER(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

static void install(struct sock_filter *rows, size_t count)
{
    struct sock_fprog program = {(unsigned short)count, rows};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        exit(77);
}

#define INSTALL(...)                                                                               \
    do {                                                                                           \
        struct sock_filter rows[] = {__VA_ARGS__};                                                 \
        install(rows, sizeof(rows) / sizeof(*rows));                                               \
    } while (0)

/* A call that names something below an open folder. */
#define BELOW(call, error)                                                                         \
    LOAD(nr), IS(call, 0, 3), LOAD(args[0]), IS_FROM(3, 0, 1), IS_FROM(FILTER_DESCRIPTORS, 0, 1),  \
        ALLOW, ANSWER(error)

/* A question for what is there; with flags it is one for the descriptor itself. */
#define STAT_BELOW(error)                                                                          \
    LOAD(nr), IS(SYS_newfstatat, 0, 5), LOAD(args[3]), IS(0, 0, 3), LOAD(args[0]),                 \
        IS_FROM(3, 0, 1), IS_FROM(FILTER_DESCRIPTORS, 0, 1), ALLOW, ANSWER(error)

/* path: of the address of the library's own path, what it is in its page. */
static void filter(const char *way, unsigned path)
{
    if (strcmp(way, "hidden") == 0) /* as the library is loaded */
        INSTALL(LOAD(nr), IS(SYS_newfstatat, 0, 3), LOAD(args[1]),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, FILTER_PAGE - 1), IS(path, 1, 0), ALLOW,
                ANSWER(ENOENT));
    else if (strcmp(way, "unopened") == 0)
        INSTALL(BELOW(SYS_openat, ENOENT));
    else if (strcmp(way, "unseen") == 0)
        INSTALL(STAT_BELOW(ENOENT));
    else if (strcmp(way, "seen") == 0) /* as if it had been looked at */
        INSTALL(STAT_BELOW(0));
    else if (strcmp(way, "input") == 0) /* as if it had been opened as standard input */
        INSTALL(BELOW(SYS_openat, 0));
    else if (strcmp(way, "unlisted") == 0) /* as if the folder were empty */
        INSTALL(LOAD(nr), IS(SYS_getdents64, 0, 1), ANSWER(0), ALLOW);
    else if (strcmp(way, "empty") == 0)
        INSTALL(LOAD(nr), IS(SYS_read, 0, 2), LOAD(args[2]), IS(FILTER_READ_BYTES, 1, 0), ALLOW,
                ANSWER(0));
    else
        exit(1);
}
