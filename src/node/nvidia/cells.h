/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who wants a card now (region/card.h), among a node's containers. Functions block on the disk.
 *
 * "<hook path>/cards/<card's UUID>/<pod uid>_<container>" the container's cell, and behind that
 * name its priority and its share (card_cell_name())
 *
 * Every container of a card has one, also where it may not use what others leave idle. host.h
 * removes them with the container's folder.
 */

#include "node/host.h"
#include "node/spec.h"
#include "region/limits.h"

/*
 * At start: containers that were made before there were cells can't say that they want their cards.
 * Each gets a cell that always does, for as long as it lives.
 */
int cells_adopt(const struct node_host *host, struct error *err);

/* Makes new cells for the container of this folder, on each of its cards, and has the limits say
 * where they are. lends: what others leave idle may be used. */
int cells_prepare(const struct node_host *host, const char *folder, bool lends,
                  struct limits *limits, struct error *err);

/* Mounts of the own cells, and of the cards' folders. */
void cells_add_mounts(const struct node_host *host, const char *folder, const struct limits *limits,
                      struct spec_edits *edits);

/* A container can make its cells longer: cuts them, and calls fn as guest_trim() does. */
void cells_trim(const struct node_host *host,
                void (*fn)(void *data, const char *entry, uint64_t bytes), void *data);
