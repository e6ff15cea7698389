/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The few macros that every file may want. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) min_a_ = (a);                                                                \
        __typeof__(b) min_b_ = (b);                                                                \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                         \
    })

#define MAX(a, b)                                                                                  \
    ({                                                                                             \
        __typeof__(a) max_a_ = (a);                                                                \
        __typeof__(b) max_b_ = (b);                                                                \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                         \
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
