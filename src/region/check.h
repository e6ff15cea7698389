/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether a region's parts agree. What is being changed looks wrong for an instant: a finding
 * counts only if it is there in each of several readings.
 */

#include <stdbool.h>

#include "base/error.h"

/* Says one thing that is wrong. */
typedef void (*region_finding)(void *data, const char *text);

/*
 * Reads the file, and calls fn for each thing that is wrong with it, at most 64. Returns how many
 * there are, or, with err set, a negative errno where it is no region. Blocks for up to a quarter
 * of a second.
 */
int region_check(const char *path, region_finding fn, void *data, struct error *err);
