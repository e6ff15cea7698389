/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sets of devices by how well they are connected. Inside place only. */

#include <stddef.h>

#include "place/rules.h"

enum {
    /* More devices than this are not compared: the most preferred are. */
    CONNECTED_MAX = 64,
    /* Looks into partial sets until the best found so far will do. Enough for any set of 16. */
    CONNECTED_EXACT = 16,
    CONNECTED_STEPS = 1 << 16,
    CONNECTED_STEPS_MORE = 1 << 12, /* from among more than 16, where each look costs more */

    /* Of all searches for one pod: 4 ms. */
    CONNECTED_POD_STEPS = 1 << 18,
};

/*
 * Moves the positions of the best connected `wanted` of count devices to the front, in the order
 * in which they were, the others behind them; of several such sets the first. The single device
 * that is wanted is the worst connected one, so that the others stay together. Exact for up to 16
 * devices; from among more, the best that is found in bounded time. What it looks at it takes from
 * *looks_left, unless that is NULL; where nothing is left the positions stay as they are.
 */
void connected_choose(const struct place_rules *rules, const struct device *devices,
                      size_t *positions, size_t count, size_t wanted, unsigned *looks_left);
