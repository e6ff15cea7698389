/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small files as a whole. */

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/*
 * Reads a file of less than size bytes into the caller's buffer and terminates it. Returns the
 * length, -EFBIG when it is longer, or another negative errno. Allocates nothing: safe inside
 * libvgpu.
 */
ssize_t file_read(const char *path, char *buf, size_t size);

/*
 * Puts a file of this content in place of whatever was there: written beside it, then renamed, so
 * that a reader or a crash sees the old one or the new one. Returns 0 or a negative errno.
 */
int file_replace(const char *path, const char *text, size_t len, mode_t mode);

/*
 * stat() and fstat(), without the C library: its own are symbols of glibc 2.33, and libvgpu must
 * load on older ones. Return 0 or a negative errno.
 */
int file_stat(const char *path, struct stat *ret_stat);
int file_stat_fd(int fd, struct stat *ret_stat);
