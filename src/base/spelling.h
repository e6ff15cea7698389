/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names that people write: which one they may have meant. */

#include <stdbool.h>
#include <stddef.h>

#define SPELLING_NEAR 2 /* letters; more are no slip of the finger */

/* How many letters are to be added, left out or replaced to make the one of the other; hyphens
 * count for nothing. SIZE_MAX: a name has more than 127 letters. */
size_t spelling_distance(const char *one, const char *other);

/* Whether the one becomes the other by at most two letters, and is not the same. */
bool spelling_is_near(const char *one, const char *other);
