/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory that is made apart from its addresses: pieces, the holds that processes have on them, and
 * the file descriptors that stand for them. All under the machine's lock.
 */

#include "simdriver/state.h"

/*
 * A piece of memory and the maker's first hold on it. The template says where and how large; its
 * bytes are a multiple of SIM_ALIGN. The hold, or 0: there is no room for it.
 */
uint32_t sim_physical_new(struct sim *sim, const struct sim_physical *template);

/* Another hold of this process on a piece; 0 when there are too many. */
uint32_t sim_hold_new(struct sim *sim, uint32_t physical);

/* A handle is given back. */
void sim_hold_drop(struct sim_state *s, uint32_t hold);

/* After a handle was given back, or a mapping ended: ends what nobody has any more. */
void sim_hold_settle(struct sim_state *s, uint32_t hold);

/*
 * A file descriptor that stands for the piece, and keeps it, as long as it is open anywhere, while
 * this process lives. The caller's to close; or a negative errno. A dma-buf is no import, and what
 * it alone keeps NVML counts for nobody.
 */
int sim_export_new(struct sim *sim, uint32_t physical, bool dma_buf);

/* The piece that a file descriptor stands for; 0 when it stands for none of this machine. */
uint32_t sim_export_find(const struct sim *sim, int fd);

/* Forgets those of this process' exports whose descriptors are closed. */
void sim_export_look(struct sim *sim);

/* Ends all that a process has. */
void sim_physical_drop(struct sim_state *s, unsigned slot);

/* Derives sums and users anew; ends what nobody has. */
void sim_physical_repair(struct sim_state *s);
