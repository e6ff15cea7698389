/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Numbers of the annotations, read as HAMi's Go reads them. For codecs alone: model's and
 * those of vendors. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A decimal number with an optional sign. False when it is mended: what is no number is 0, what
 * does not fit is the nearest that does.
 */
bool codec_number(const char *text, size_t len, int64_t min, int64_t max, int64_t *ret_value);

/* "1", "t", "T", "true", "True", "TRUE" and their opposites; false when it is mended to false. */
bool codec_bool(const char *text, size_t len, bool *ret_value);

/* The next piece of *rest before sep, or all of it; false when there is none left. */
bool codec_piece(const char **rest, const char *end, char sep, const char **ret_piece,
                 size_t *ret_len);
