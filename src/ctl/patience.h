/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Calls of the driver that may hang, as with a card that fell off the bus: they are waited for no
 * longer than a person does. What hangs can be neither ended nor joined, so a program in which
 * something does has to leave by _exit().
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* In a thread of its own. Negative, with err set, as the answer of patience_call(). */
typedef int patience_fn(void *work, struct error *err);

/*
 * Calls fn with a copy of the work of so many bytes, and copies it back with the answer. After
 * `seconds` the answer is -ETIMEDOUT, with err set, and *work is as it was; what it points to
 * belongs to the call for good. Where that is more than 10 s, a line on standard error says after
 * these that the driver is waited for.
 */
int patience_call(patience_fn *fn, void *work, size_t size, unsigned seconds, struct error *err);

/* Whether a call still hangs. */
bool patience_is_lost(void);
