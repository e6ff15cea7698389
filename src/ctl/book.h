/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What this machine's devices are granted to, in a directory that all hamictl share.
 *
 *     lock          taken while looking and granting; holds the number of the last grant or ticket
 *     grants/ID     one file per grant, as KEY=VALUE lines
 *     runs/ID/      what the granted program sees: vgpu/libvgpu.so, vgpu/limits, region.cache
 *     waiting/ID    one file per hamictl that waits for room, in order of arrival
 *
 * Nobody has to tidy up. The directory's lock is the kernel's, which gives it back when its holder
 * dies. A grant lives as long as any process holds the open-file-description lock on its file: the
 * granted program inherits that descriptor, and its children do; a process that has closed it
 * counts while it uses the region. A file that nobody holds is a dead grant, and whoever looks
 * removes it. Files are made, judged and removed under the directory's lock only.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "ctl/grant.h"
#include "model/device.h"

struct grant_list {
    struct grant *grants; /* by id, ascending */
    size_t count;
};

struct book {
    char path[PATH_MAX];
    int lock_fd;
    int grants_fd, runs_fd, waiting_fd;
};

#define BOOK_INIT                                                                                  \
    {                                                                                              \
        .lock_fd = -1, .grants_fd = -1, .runs_fd = -1, .waiting_fd = -1                            \
    }

/* Opens the ledger in a directory, making what is missing in it. */
int book_open(struct book *book, const char *path, struct error *err);
void book_close(struct book *book);

/* Blocks until the directory is ours. Nothing may be forked meanwhile. */
int book_lock(struct book *book, struct error *err);
void book_unlock(struct book *book);

void grant_list_deinit(struct grant_list *list);

/*
 * Locked. Removes dead grants and lists the living. -EBADMSG for a living one that cannot be read:
 * what it holds is not known, so nothing may be granted.
 */
int book_list(struct book *book, struct grant_list *ret_list, struct error *err);

/* Adds the grants to the usage of the devices they name. */
void book_charge(const struct grant_list *list, struct device *devices, size_t count);

/*
 * Locked. Writes a grant, sets its id, and returns the descriptor that keeps it. The descriptor is
 * inherited across exec and out of the way of those that shells use.
 */
int book_add(struct book *book, struct grant *grant, struct error *err);

/* Adds the program's pid to the grant that fd keeps. */
void book_set_program(int fd, pid_t program);

/* Not locked. Lets go of the grant, and removes it unless another process keeps it. */
void book_release(struct book *book, uint64_t id, int fd);

/* Locked. Joins the queue; returns the descriptor that keeps the place, closed on exec. */
int book_join_queue(struct book *book, uint64_t *ret_id, struct error *err);

/* Locked. The nearest living one in front of this place, or 0. Removes the dead between. */
uint64_t book_find_predecessor(struct book *book, uint64_t id);

void book_leave_queue(struct book *book, uint64_t id, int fd);

/* Makes runs/ID/, empty, and gives its path, which has room for 64 more bytes. */
int book_make_run(struct book *book, uint64_t id, char ret_path[PATH_MAX], struct error *err);

/* runs/ID/region.cache */
int book_region_path(const struct book *book, uint64_t id, char ret_path[PATH_MAX]);

/* -EBUSY, with err saying how many, when programs hold grants in that directory. */
int book_check_unused(const char *path, struct error *err);

/* Removes the directory with all that is in it, if it is one. */
void book_remove(const char *path);
