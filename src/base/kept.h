/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A descriptor that is kept in a program which does not know of it. The program may close it and
 * get the number for a file of its own, or put another file there. So a kept descriptor is known by
 * its file too: what is read or closed is that file, or nothing. Not safe among threads.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct kept {
    int fd; /* -1: not open */
    dev_t dev;
    ino_t ino;
};

/*
 * Takes what open() has just returned over, and moves it to a number that a program does not take
 * for its own (file_move_away()). 0 or a negative errno, open()'s among them: nothing is kept then.
 */
int kept_take(struct kept *kept, int fd);

/* The same in place of one that was lost: the file must be the same one, else -ESTALE. */
int kept_renew(struct kept *kept, int fd);

/* Whether it still is what it was. One system call. */
bool kept_is_open(const struct kept *kept);

/* pread() from the beginning. -ESTALE when it was lost, or another negative errno. */
ssize_t kept_read(const struct kept *kept, void *bytes, size_t size);

/* Closes it, unless it was lost. */
void kept_close(struct kept *kept);
