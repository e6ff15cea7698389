/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* UTF-8, as far as writing JSON needs it. */

#include <stddef.h>

/* Bytes of the well-formed UTF-8 sequence at p, or 0 (RFC 3629). */
static inline size_t utf8_length(const unsigned char *p)
{
    unsigned min, code;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2, min = 0x80, code = p[0] & 0x1fu;
    } else if ((p[0] & 0xf0) == 0xe0) {
        len = 3, min = 0x800, code = p[0] & 0x0fu;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4, min = 0x10000, code = p[0] & 0x07u;
    } else {
        return 0;
    }

    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    if (code < min || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return len;
}
