/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Semaphores of other interfaces. What takes the part of one is a memfd that can't be shrunk
 * (F_SEAL_SHRINK), whose first eight bytes are a counter that only grows. A timeline's is its
 * value. A binary one is signalled while its counter is odd: a signal makes it so, and a wait that
 * is over makes it even.
 *
 * The machine has a copy of it for each process that imported it (struct sim_value), since anybody
 * may do a stream's ops: an op changes all copies of the same file. Between them and the file it is
 * carried by whoever imported it, as he takes and gives back the machine's lock. So what others
 * count in the file is seen then, and no earlier. All under the machine's lock.
 */

#include "simdriver/state.h"

/* An import of this process. */
struct sim_semaphore {
    uint64_t *counter; /* the file's */
    uint32_t value;    /* the number of the copy, which is the one of all this process' imports */
    struct sim_semaphore *next;
};

/* Takes in what a descriptor stands for, which stays the caller's: into his storage, where it stays
 * until it is closed. -EINVAL: it is none; -ENOMEM. */
int sim_semaphore_open(struct sim *sim, int fd, struct sim_semaphore *semaphore);
void sim_semaphore_close(struct sim *sim, struct sim_semaphore *semaphore);

/* What the files say, and what they are to say. */
void sim_semaphore_look(struct sim *sim);
void sim_semaphore_tell(const struct sim *sim);
