/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the region: record locks, and who is alive. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/proc.h"

/*
 * A write lock on a range of bytes, which need not exist. Tries again every millisecond for
 * wait_ms; -ETIMEDOUT. The locks are those of open file descriptions (F_OFD_SETLK): the program can
 * open and close the file as it likes without dropping them. They end with the description: with
 * our descriptor and its copies in children, and with the pin.
 */
int lock_range(int fd, off_t start, off_t len, int wait_ms);
int unlock_range(int fd, off_t start, off_t len);

/*
 * A page that is mapped and never touched. It keeps the descriptor's open file, and so its locks,
 * if the program closes the descriptor; no child inherits it. NULL if that is not to be had.
 */
void *pin_file(int fd);
void unpin_file(void *pin);

/* Whether another process holds the slot's record lock. Its pid as we see it is put in ret_pid (0:
 * not visible). */
bool slot_is_locked(int fd, unsigned slot, pid_t *ret_pid);

/*
 * Whether the process that claimed a slot is dead, given the descriptor of the region's file, which
 * file that is, and who is asking. A slot has two locks: a record lock of the process, which tells
 * its pid and which closing any descriptor of the file drops, and one of the open file, which a
 * child without fork handlers may keep for a while. With the first the process lives; with the
 * second it does unless it is gone, a zombie, or its pid is another process' now. One that lost
 * both is dead as well if it has become another program, or is in another pid namespace; what can't
 * be told counts as alive.
 */
bool slot_is_dead(int fd, ino_t ino, unsigned slot, const struct proc_identity *claimer,
                  const struct proc_identity *self);
