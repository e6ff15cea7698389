/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Text that grows up to a bound given at its making. Once an append failed (bound reached, no
 * memory) the buffer stays failed and later appends do nothing, so a caller checks once, at the
 * end.
 */

#include <stdbool.h>
#include <stddef.h>

struct arena;

struct strbuf {
    char *text; /* terminated; NULL while empty */
    size_t len;
    size_t size;
    size_t max;
    bool failed;
    struct arena *arena; /* whose the text is; NULL: the buffer's own */
};

#define STRBUF_INIT(bound)                                                                         \
    {                                                                                              \
        .max = (bound)                                                                             \
    }

/* The text is the arena's and outlives the buffer, which needs no deinit. */
#define STRBUF_IN(arena_, bound)                                                                   \
    {                                                                                              \
        .max = (bound), .arena = (arena_)                                                          \
    }

void strbuf_deinit(struct strbuf *buf);
void strbuf_add(struct strbuf *buf, const char *text);
void strbuf_add_bytes(struct strbuf *buf, const char *bytes, size_t len);
/* Adds len bytes that the caller writes at once: where they go, or NULL as the buffer has failed.
 */
char *strbuf_extend(struct strbuf *buf, size_t len);
void strbuf_addf(struct strbuf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string, quotes included, as Go writes it: <, > and & are escaped, too; and DEL, which YAML
 * does not allow. Bytes that are not UTF-8 become U+FFFD. */
void strbuf_add_json(struct strbuf *buf, const char *text);

/* The text, "" when empty. The buffer keeps it. */
const char *strbuf_text(const struct strbuf *buf);
