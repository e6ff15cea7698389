/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cutting files that containers write to. A container's root can take a lease of its file
 * (fcntl(2)), by which opening it waits for up to 45 s or fails, and take it anew each time that it
 * was given up for our sake. Whoever waits in open() keeps it from that: a thread does so here.
 */

#include <stdint.h>
#include <sys/types.h>

/* A file may have so many bytes, and take so many of the disk: blocks can be allocated beyond the
 * file's end, and file systems allocate some in advance. */
struct cut_bounds {
    off_t size, taken;
};

/*
 * Cuts a regular file that exceeds its bounds to its size of them. The bytes that it had; 0: it was
 * left as it is, or a lease is in the way, and it is cut as soon as that has ended.
 */
uint64_t cut_file(const char *path, const struct cut_bounds *bounds);
