/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The few macros that every file may want. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/param.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* In place of <sys/param.h>'s. Each argument is evaluated once; the counter keeps nested uses
 * apart. */
#undef MIN
#undef MAX
#define MIN(a, b) MIN_OF(a, b, __COUNTER__)
#define MAX(a, b) MAX_OF(a, b, __COUNTER__)
#define MIN_OF(a, b, n) CHOOSE(a, b, JOIN(left_, n), JOIN(right_, n), <)
#define MAX_OF(a, b, n) CHOOSE(a, b, JOIN(left_, n), JOIN(right_, n), >)
#define JOIN(x, y) JOIN_TOKENS(x, y)
#define JOIN_TOKENS(x, y) x##y
#define CHOOSE(a, b, left, right, order)                                                           \
    ({                                                                                             \
        __typeof__(a) left = (a);                                                                  \
        __typeof__(b) right = (b);                                                                 \
        left order right ? left : right;                                                           \
    })

#define PUBLIC __attribute__((visibility("default")))

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define NS_PER_US INT64_C(1000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* Copies text into an array of its own size, cut to fit, always terminated. */
#define COPY_TEXT(array, text) copy_text((array), sizeof(array), (text))

static inline void copy_text(char *to, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);

    memcpy(to, text, len);
    to[len] = '\0';
}
