/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Numbers out of text. The whole text must be the number, or nothing is accepted: -EINVAL for what
 * is not a number of that form, -ERANGE for what does not fit. Outputs are untouched on failure.
 * Locale and errno play no part, nothing is allocated: safe inside libvgpu.
 */

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits only: no sign, no blanks, no other base. */
int parse_u64(const char *text, uint64_t *ret_value);

/*
 * An amount of memory: digits, an optional decimal fraction, and K M G T P or E in either
 * case, optionally followed by "i", by "B", or by both ("512", "1.5g", "10Gi", "512MB"). All units
 * count by 1024, as HAMi's do. A fraction of a byte is dropped. -ERANGE: beyond 64 bits.
 */
int parse_bytes(const char *text, uint64_t *ret_bytes);

/* A whole percentage from 0 to max, with or without the sign: "30", "30%". */
int parse_percent(const char *text, unsigned max, unsigned *ret_percent);

/* A time as Go's flags take it, in ms: "90s", "1m30s", "1.5h", "300ms", "0". Units h, m, s, ms; a
 * fraction of a ms is dropped. */
int parse_duration(const char *text, uint64_t *ret_ms);

/* Go's spellings, as HAMi's flags take them: 1, t, T, true, TRUE, True, and their opposites. */
int parse_bool(const char *text, bool *ret_value);

/* How much to log: "4", or "=4" out of "-v=4", as HAMi's programs are started. */
int parse_verbosity(const char *text, unsigned *ret_level);
