/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * File descriptors that were given out for memory, of which each keeps it: those that other
 * processes import (cuMemExportToShareableHandle) and dma-bufs, by which network cards reach it.
 * While one is open, anywhere, NVML counts memory that its maker has let go of for nobody, whoever
 * has imported it (seen on H100, driver 580; of dma-bufs nv-dmabuf.c of NVIDIA's open kernel
 * modules says as much). So it stays charged to its maker until the last of them is closed.
 *
 * When that is only the kernel knows: they are sent to others, and kept on their way there. It
 * drops a file from an epoll set as the file's last descriptor goes, in whichever process
 * (epoll(7)), and says in fdinfo what is in a set; so a set of ours, which nobody waits for, holds
 * them all. Where it can't be seen they count as open until the process ends; where the
 * process lacks descriptors or memory to look by, until it has them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

/* The highest of the first ids; those of given_new() follow. */
#define GIVEN_FIRST_IDS (REGION_DEVICES + 2)

/* For descriptors of other processes, which this one imported from. */
static inline uint32_t given_imported(void)
{
    return GIVEN_FIRST_IDS;
}

/* For descriptors of memory whose places nobody tells apart: one id for each device, by its index.
 */
static inline uint32_t given_any(unsigned device)
{
    return device + 1;
}

/* An id for the descriptors of one piece of memory. */
uint32_t given_new(void);

/* A descriptor of memory on the device was made. It stays the caller's. False: the process lacks
 * descriptors or memory by which to see its end, as it may not later; nobody may get it then. */
bool given_watch(int fd, uint32_t id, unsigned device);

/* Until the second one memory of that id counts as given out: for the time in which a descriptor is
 * made. */
void given_begin(uint32_t id, unsigned device);
void given_end(uint32_t id, unsigned device);

/* The maker has let go of it. False: no descriptor of that id is open, nor was at the last look;
 * else given_units() has the units from now on. */
bool given_keep(uint32_t id, unsigned device, uint64_t units);

/* Units that descriptors keep, as of the last look. */
uint64_t given_units(unsigned device);

/* Looks whether descriptors of that id are open. */
bool given_is_open(uint32_t id);

/* Looks which are open still. Returns the units that they keep no more. */
uint64_t given_look(unsigned device);

/* The id that a line of a set's fdinfo tells; 0: none of this tag. */
uint32_t given_line(const char *line, uint32_t tag);
