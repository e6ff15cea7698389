/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names that people write: which one they may have meant. */

#include <stdbool.h>

/* Whether the one becomes the other by at most two letters that are added, left out or replaced;
 * hyphens count for nothing, and names of more than 127 bytes are near to none. False for equal
 * ones. */
bool spelling_is_near(const char *one, const char *other);
