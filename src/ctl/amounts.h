/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What --gpumem and --gpucores say; readers of base/options.h. */

#include "base/error.h"

/* Into a struct request: memory_bytes, of whole MiB, or memory_percent; the other is 0. */
int option_gpumem(char *text, void *member, struct error *err);

/* Into an unsigned. */
int option_gpucores(char *text, void *member, struct error *err);
