/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What this machine's devices are granted to, in a directory that all hamictl share.
 *
 *     lock          taken while looking and granting; holds the number of the last lease or ticket
 *     grants/ID     one file per lease, as KEY=VALUE lines
 *     runs/ID/      what the granted program sees: vgpu/libvgpu.so, vgpu/limits, region.cache; and
 *                   "resized", the lease's amounts since they were changed
 *     cards/UUID/   the cells of a card: see cells.h
 *     waiting/ID    one file per hamictl that waits for room, in order of arrival
 *
 * Nobody has to tidy up. The directory's lock is the kernel's, which gives it back when its holder
 * dies. A lease lives as long as any process holds the open-file-description lock on its file: the
 * granted program inherits that descriptor, and its children do; a process that has closed it
 * counts while it uses the region. A file that nobody holds is a dead lease, and whoever looks
 * removes it. Files are made, judged and removed under the directory's lock only.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "ctl/lease.h"
#include "model/device.h"

struct lease_list {
    struct lease *leases; /* by id, ascending */
    size_t count;
};

struct registry {
    char path[PATH_MAX];
    int lock_fd;
    int leases_fd, runs_fd, waiting_fd;
};

#define REGISTRY_INIT                                                                              \
    {                                                                                              \
        .lock_fd = -1, .leases_fd = -1, .runs_fd = -1, .waiting_fd = -1                            \
    }

/* Opens the ledger in a directory, making what is missing in it. */
int registry_open(struct registry *registry, const char *path, struct error *err);
void registry_close(struct registry *registry);

/* Blocks until the directory is ours. Nothing may be forked meanwhile. */
int registry_lock(struct registry *registry, struct error *err);
void registry_unlock(struct registry *registry);

void lease_list_deinit(struct lease_list *list);

/*
 * Locked. Removes dead leases and lists the living. -EBADMSG for a living one that cannot be read:
 * what it holds is not known, so nothing may be granted.
 */
int registry_list(struct registry *registry, struct lease_list *ret_list, struct error *err);

/* Adds the leases to the usage of the devices they name. */
void registry_charge(const struct lease_list *list, struct device *devices, size_t count);

/*
 * Locked. Writes a lease, sets its id, and returns the descriptor that keeps it. The descriptor is
 * inherited across exec and out of the way of those that shells use.
 */
int registry_add(struct registry *registry, struct lease *lease, struct error *err);

/*
 * Locked. The lease has these amounts from now on. Memory that its program holds beyond them counts
 * as granted until it is free.
 */
int registry_resize(struct registry *registry, const struct lease *lease, struct error *err);

/* Adds the program's pid to the lease that fd keeps. */
void registry_set_program(int fd, pid_t program);

/* Not locked. Lets go of the lease, and removes it unless another process keeps it. */
void registry_release(struct registry *registry, uint64_t id, int fd);

/* Locked. Joins the queue; returns the descriptor that keeps the place, closed on exec. */
int registry_join_queue(struct registry *registry, uint64_t *ret_id, struct error *err);

/* Locked. The nearest living one in front of this place, or 0. Removes the dead between. */
uint64_t registry_find_predecessor(struct registry *registry, uint64_t id);

void registry_leave_queue(struct registry *registry, uint64_t id, int fd);

/* Makes runs/ID/, empty, and gives its path, which has room for 64 more bytes. */
int registry_make_run(struct registry *registry, uint64_t id, char ret_path[PATH_MAX],
                      struct error *err);

/* runs/ID/region.cache, and runs/ID/vgpu/limits. */
int registry_region_path(const struct registry *registry, uint64_t id, char ret_path[PATH_MAX]);
int registry_limits_path(const struct registry *registry, uint64_t id, char ret_path[PATH_MAX]);

/* -EBUSY, with err saying how many, when programs hold leases in that directory. */
int registry_check_unused(const char *path, struct error *err);

/* Removes the directory with all that is in it, if it is one. */
void registry_remove(const char *path);
