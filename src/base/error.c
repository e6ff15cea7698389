/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *err, int code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return code;

    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return code;
}

int error_wrap(struct error *err, int code, const char *fmt, ...)
{
    struct error inner;
    va_list args;
    size_t len;

    if (!err)
        return code;

    inner = *err;
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    len = strlen(err->text);
    (void)snprintf(err->text + len, sizeof(err->text) - len, ": %s", inner.text);
    return code;
}
