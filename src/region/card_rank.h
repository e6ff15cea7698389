/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the region: priorities among the cells of a card. */

#include "region/card.h"

/* A claim for a time further ahead is of another boot. */
#define CARD_WANT_MOST_NS (4 * CARD_WANT_NS)

/* A cell, as it is read. */
struct card_text {
    uint64_t magic;
    int64_t wanted_until_ns, busy_until_ns, busy_since_ns;
};

/* What the name of a cell says of its container. */
void card_rank_of(const char *name, struct card_other *other);

/* After a look around, with the lock held: whether there are other priorities. */
void card_rank_note(struct card *card);
