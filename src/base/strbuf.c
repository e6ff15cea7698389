/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"

void strbuf_deinit(struct strbuf *buf)
{
    if (!buf->arena)
        free(buf->text);
    *buf = (struct strbuf){.max = buf->max, .arena = buf->arena};
}

static char *resize(const struct strbuf *buf, size_t size)
{
    char *text;

    if (!buf->arena)
        return realloc(buf->text, size);
    text = arena_alloc_raw(buf->arena, size);
    if (text && buf->len)
        memcpy(text, buf->text, buf->len + 1);
    return text;
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
    text = resize(buf, size);
    if (!text) {
        buf->failed = true;
        return false;
    }
    buf->text = text;
    buf->size = size;
    return true;
}

char *strbuf_extend(struct strbuf *buf, size_t len)
{
    char *begin;

    if (!strbuf_grow(buf, len))
        return NULL;
    begin = buf->text + buf->len;
    buf->len += len;
    buf->text[buf->len] = '\0';
    return begin;
}

void strbuf_add_bytes(struct strbuf *buf, const char *bytes, size_t len)
{
    char *to = strbuf_extend(buf, len);

    if (to)
        memcpy(to, bytes, len);
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

/* The escape of the character of len bytes at p; NULL: it stands for itself. */
static const char *json_escape(const unsigned char *p, size_t len, char ret_text[8])
{
    static const char *const short_ones[128] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t",
    };

    if (!len)
        return "\\ufffd";
    if (len == 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9))
        return p[2] == 0xa8 ? "\\u2028" : "\\u2029";
    if (len > 1 || (*p >= 0x20 && !strchr("\"\\<>&\x7f", *p)))
        return NULL;
    if (short_ones[*p])
        return short_ones[*p];
    (void)snprintf(ret_text, 8, "\\u%04x", *p);
    return ret_text;
}

void strbuf_add_json(struct strbuf *buf, const char *text)
{
    const unsigned char *p = (const unsigned char *)text, *plain = p;
    char escape_text[8];

    strbuf_add(buf, "\"");
    while (*p) {
        size_t len = utf8_length(p);
        const char *escape = json_escape(p, len, escape_text);

        if (escape) {
            strbuf_add_bytes(buf, (const char *)plain, (size_t)(p - plain));
            strbuf_add(buf, escape);
            plain = p + (len ? len : 1);
        }
        p += len ? len : 1;
    }
    strbuf_add_bytes(buf, (const char *)plain, (size_t)(p - plain));
    strbuf_add(buf, "\"");
}

const char *strbuf_text(const struct strbuf *buf)
{
    return buf->text ? buf->text : "";
}
