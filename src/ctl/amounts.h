/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Amounts that people write; what --gpumem and --gpucores say, readers of base/options.h. */

#include <stdbool.h>

#include "base/error.h"

/* Whether an amount is a bare number of bytes, where larger ones are meant. */
bool amount_lacks_unit(const char *text);

/* Into a struct request: memory_bytes, of whole MiB, or memory_percent; the other is 0. */
int option_gpumem(char *text, void *member, struct error *err);

/* Into an unsigned. */
int option_gpucores(char *text, void *member, struct error *err);
