/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Running a program as if hamictl were it: signals that processes send to hamictl reach the
 * program, those of the terminal already do (it is in the same process group), stopping and
 * continuing go along, and hamictl's death is the program's.
 */

#include <signal.h>
#include <sys/types.h>

#include "base/error.h"

struct launch {
    pid_t pid;
    sigset_t signals;         /* the caller's mask before, which the program gets */
    struct sigaction sigchld; /* likewise */
};

/*
 * Blocks all signals and starts argv[0], found along PATH, with hamictl's environment. That it
 * could not be executed is said by the child, whose exit code is then 126 or 127.
 */
int launch_start(struct launch *ret_launch, char *const *argv, struct error *err);

/* Passes signals on until the program has ended. Returns its exit code, 128+N when signal N ended
 * it. */
int launch_wait(struct launch *launch);
