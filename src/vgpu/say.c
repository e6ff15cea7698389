/* SPDX-License-Identifier: Apache-2.0 */

/* The only words that a program of the tenant's sees from us. */

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "vgpu/vgpu.h"

static _Atomic unsigned said; /* bit set of enum vgpu_word */

void vgpu_say(enum vgpu_word word, const char *fmt, ...)
{
    char line[640] = "hami: ";
    va_list args;
    int len;

    if (atomic_fetch_or(&said, 1u << word) & (1u << word))
        return;

    va_start(args, fmt);
    len = vsnprintf(line + 6, sizeof(line) - 8, fmt, args);
    va_end(args);
    len = MIN(MAX(len, 0), (int)sizeof(line) - 9) + 6;
    line[len] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)len + 1);
}
