/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the region: record locks, and who is alive. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/proc.h"

/*
 * A write lock of the calling process on a range of bytes, which need not exist. Tries again every
 * millisecond for wait_ms; -ETIMEDOUT. The locks are POSIX record locks: a forked child has none,
 * and closing any descriptor of the file drops them all.
 */
int lock_range(int fd, off_t start, off_t len, int wait_ms);
int unlock_range(int fd, off_t start, off_t len);

/* Whether another process holds a lock there. Its pid as we see it is put in ret_pid (0: not
 * visible). */
bool range_is_locked(int fd, off_t start, off_t len, pid_t *ret_pid);

/*
 * Whether the process that claimed a slot is dead, given the descriptor of the region's file, which
 * file that is, and who is asking. A slot whose lock is held is alive; one whose lock was lost is
 * dead if its process is gone, or has become another program.
 */
bool slot_is_dead(int fd, ino_t ino, unsigned slot, const struct proc_identity *claimer,
                  const struct proc_identity *self);
