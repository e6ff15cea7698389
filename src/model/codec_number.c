/* SPDX-License-Identifier: Apache-2.0 */
#include "model/codec_number.h"

#include <string.h>

#include "base/parse.h"
#include "base/util.h"

static bool is_number(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return len > 0;
}

bool codec_number(const char *text, size_t len, int64_t min, int64_t max, int64_t *ret_value)
{
    bool negative = len && text[0] == '-';
    size_t sign = len && (text[0] == '-' || text[0] == '+');
    __int128 value = 0;

    *ret_value = 0;
    if (!is_number(text + sign, len - sign))
        return false;
    for (size_t i = sign; i < len && value <= UINT64_MAX; i++)
        value = value * 10 + (text[i] - '0');
    if (negative)
        value = -value;
    if (value < min || value > max) {
        *ret_value = value < min ? min : max;
        return false;
    }
    *ret_value = (int64_t)value;
    return true;
}

bool codec_bool(const char *text, size_t len, bool *ret_value)
{
    char word[8] = "";

    *ret_value = false;
    if (len >= sizeof(word))
        return false;
    memcpy(word, text, len);
    return parse_bool(word, ret_value) == 0;
}

bool codec_piece(const char **rest, const char *end, char sep, const char **ret_piece,
                 size_t *ret_len)
{
    const char *piece = *rest, *stop;

    if (!piece)
        return false;
    stop = memchr(piece, sep, (size_t)(end - piece));
    *rest = stop ? stop + 1 : NULL;
    *ret_piece = piece;
    *ret_len = (size_t)((stop ? stop : end) - piece);
    return true;
}
