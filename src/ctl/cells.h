/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who wants a card now (region/card.h), among what hamictl granted: in the registry's folder
 *
 *     cards/UUID/ID      the cell of lease ID, and behind that name its priority and its share
 *                        (card_cell_name())
 *     runs/ID/cells/UUID the same file, by the name that the program's limits say
 */

#include <limits.h>
#include <stdint.h>

#include "base/error.h"
#include "ctl/lease.h"

/* Makes the cells of a lease whose folder in "runs" there is. */
int cells_make(const char *registry, const char *run, const struct lease *lease, int priority,
               struct error *err);

/* The lease has other shares than before. */
void cells_resize(const char *registry, const struct lease *lease, int priority);

/* Removes those in "cards"; name is the lease's id. */
void cells_remove(const char *registry, const char *name);
