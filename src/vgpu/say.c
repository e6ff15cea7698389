/* SPDX-License-Identifier: Apache-2.0 */

/* The only words that a program of the tenant's sees from us. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "vgpu/vgpu.h"

static _Atomic unsigned said; /* bit set of enum vgpu_word */

/* LIBCUDA_LOG_LEVEL, HAMi-core's: below 2 errors only, from 4 on each time. */
enum {
    LEVEL_ERRORS = 1,
    LEVEL_USUAL = 2,
    LEVEL_ALL = 4,
};

/* What is refused for good. The rest are notes. */
#define ERRORS                                                                                     \
    (1u << VGPU_WORD_DENIED | 1u << VGPU_WORD_LIMITS | 1u << VGPU_WORD_REGION |                    \
     1u << VGPU_WORD_DRIVER | 1u << VGPU_WORD_THREAD)

static int level(void)
{
    const char *text = getenv("LIBCUDA_LOG_LEVEL");

    return text && text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : LEVEL_USUAL;
}

void vgpu_say(enum vgpu_word word, const char *fmt, ...)
{
    char line[640] = "hami: ";
    va_list args;
    int len;

    if ((!(ERRORS & 1u << word) && level() <= LEVEL_ERRORS) ||
        ((atomic_fetch_or(&said, 1u << word) & (1u << word)) && level() < LEVEL_ALL))
        return;

    va_start(args, fmt);
    len = vsnprintf(line + 6, sizeof(line) - 8, fmt, args);
    va_end(args);
    len = MIN(MAX(len, 0), (int)sizeof(line) - 9) + 6;
    line[len] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)len + 1);
}
