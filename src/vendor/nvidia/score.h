/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How well a node's cards are connected, as its plugin registers it. */

#include "base/arena.h"
#include "base/error.h"
#include "model/device.h"

/*
 * Reads NVIDIA_SCORE_KEY, `[{"uuid":"GPU-a","score":{"GPU-b":120}}]`, into the facts of the node's
 * count cards, which keep what they know already. Cards that are not of the node are passed over; a
 * pair that is not listed scores 0. -EINVAL when the text can't be read; -ENOMEM.
 */
int nvidia_read_scores(const char *text, struct device *devices, size_t count, struct arena *arena,
                       struct error *err);
