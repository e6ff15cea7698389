/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * dma-bufs: descriptors of the kernel's by which network cards and other devices reach the memory
 * of this one. Such a descriptor, and whatever has it mapped, keeps the memory, and does so in the
 * kernel's name (nv-dmabuf.c of NVIDIA's open kernel modules): once the program has freed it NVML
 * counts it for nobody. So it stays charged after its free, as what other processes may hold
 * (hidden.h), while any of the process' dma-bufs is open.
 *
 * Whether one is, the kernel says of a copy that is kept here (its fdinfo). Where it does not say,
 * or there are more than can be kept, they count as open until the process ends.
 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Closes the copies that nobody else has open. */
void dma_bufs_look(void);

/* Any may be open, as of the last look. */
bool dma_bufs_are_open(void);

/* How many have it open, of what the kernel says of a descriptor (dma_buf_show_fdinfo() of Linux);
 * -1: it does not say. */
static inline long dma_buf_users(const char *fdinfo)
{
    static const char key[] = "\ncount:";
    const char *line = strstr(fdinfo, key);
    char *end;
    long users;

    if (!line)
        return -1;
    line += sizeof(key) - 1;
    users = strtol(line, &end, 10);
    return end > line && users > 0 ? users : -1;
}
