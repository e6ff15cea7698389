/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small files as a whole. */

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/error.h"

/*
 * Reads a file of less than size bytes into the caller's buffer and terminates it. Returns the
 * length, -EFBIG when it is longer, or another negative errno. Allocates nothing: safe inside
 * libvgpu.
 */
ssize_t file_read(const char *path, char *buf, size_t size);
/* Below an open folder. */
ssize_t file_read_at(int folder, const char *path, char *buf, size_t size);

/* What an open one has from its place on. */
ssize_t file_read_fd(int fd, char *buf, size_t size);

/* Writes all bytes, in as many calls as it takes. Returns 0 or a negative errno. */
int file_write_all(int fd, const char *bytes, size_t len);

enum {
    FILE_PATH_SIZE = 4096, /* PATH_MAX */
};

/*
 * The same description under a number that a program does not take for its own: some count on the
 * low ones, and close what they don't know. fd itself when there is none.
 */
int file_move_away(int fd);

/*
 * For a program's first moment: what of descriptors 0 to 2 is closed becomes one that can't be
 * written to, so that no file of ours gets its number, and what is printed. Programs that are
 * started have it so as well.
 */
void file_hold_standard(void);

/* printf() into a path. -ENAMETOOLONG. */
int file_path(char ret_path[FILE_PATH_SIZE], struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Puts a file of this content in place of whatever was there: written beside it, then renamed, so
 * that a reader or a crash sees the old one or the new one. Returns 0 or a negative errno.
 */
int file_replace(const char *path, const char *text, size_t len, mode_t mode);

/*
 * stat() and fstat(), without the C library: its own are symbols of glibc 2.33, and libvgpu must
 * load on older ones. Return 0 or a negative errno; -EIO where the call claims to have worked and
 * told nothing, as by a filter of the program's (seccomp(2)).
 */
int file_stat(const char *path, struct stat *ret_stat);
/* Below an open folder. */
int file_stat_at(int folder, const char *path, struct stat *ret_stat);
/* The same, of a symbolic link itself where there is one. */
int file_stat_link_at(int folder, const char *path, struct stat *ret_stat);
int file_stat_fd(int fd, struct stat *ret_stat);
