/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_deinit(struct strbuf *buf)
{
    free(buf->text);
    *buf = (struct strbuf){.max = buf->max};
}

static bool strbuf_grow(struct strbuf *buf, size_t more)
{
    size_t want, size;
    char *text;

    if (buf->failed)
        return false;
    if (more > buf->max || buf->len > buf->max - more) {
        buf->failed = true;
        return false;
    }

    want = buf->len + more + 1;
    if (want <= buf->size)
        return true;

    size = buf->size ? buf->size : 64;
    while (size < want)
        size *= 2;
    text = realloc(buf->text, size);
    if (!text) {
        buf->failed = true;
        return false;
    }
    buf->text = text;
    buf->size = size;
    return true;
}

static void strbuf_add_bytes(struct strbuf *buf, const char *bytes, size_t len)
{
    if (!strbuf_grow(buf, len))
        return;
    memcpy(buf->text + buf->len, bytes, len);
    buf->len += len;
    buf->text[buf->len] = '\0';
}

void strbuf_add(struct strbuf *buf, const char *text)
{
    strbuf_add_bytes(buf, text, strlen(text));
}

void strbuf_addf(struct strbuf *buf, const char *fmt, ...)
{
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0 || !strbuf_grow(buf, (size_t)len))
        return;

    va_start(args, fmt);
    (void)vsnprintf(buf->text + buf->len, (size_t)len + 1, fmt, args);
    va_end(args);
    buf->len += (size_t)len;
}

/* Bytes of the well-formed UTF-8 sequence at p, or 0 (RFC 3629). */
static size_t utf8_length(const unsigned char *p)
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

void strbuf_add_json(struct strbuf *buf, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    strbuf_add(buf, "\"");
    while (*p) {
        size_t len = utf8_length(p);

        if (!len) {
            strbuf_add(buf, "\\ufffd");
            len = 1;
        } else if (*p == '"' || *p == '\\') {
            strbuf_addf(buf, "\\%c", *p);
        } else if (*p < 0x20 || *p == 0x7f) {
            strbuf_addf(buf, "\\u%04x", *p);
        } else {
            strbuf_add_bytes(buf, (const char *)p, len);
        }
        p += len;
    }
    strbuf_add(buf, "\"");
}

const char *strbuf_text(const struct strbuf *buf)
{
    return buf->text ? buf->text : "";
}
