/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory that is given back all at once: one arena a request, a decision, a test. What is taken
 * from it lives until the arena is reset or freed. An arena is bounded, so that input from outside
 * can't make it grow for ever, and belongs to one thread.
 */

#include <stdarg.h>
#include <stddef.h>

#include "base/cleanup.h"

struct arena;

/* An arena that gives out at most max bytes in all. NULL: no memory. */
struct arena *arena_new(size_t max);

/* Accepts NULL. */
void arena_free(struct arena *arena);
DEFINE_CLEANUP(struct arena *, arena_free);

/* Takes everything back; up to 1 MiB is kept for the next use. */
void arena_reset(struct arena *arena);

/* Bytes given out since the last reset. */
size_t arena_used(const struct arena *arena);

/* A point to go back to: what was taken since is given back, what was taken before stays. */
struct arena_mark {
    void *chunk;
    size_t chunk_used, used;
};

struct arena_mark arena_mark(const struct arena *arena);
void arena_rewind(struct arena *arena, struct arena_mark mark);

/*
 * Zeroed memory for any type; of size 0 it is a valid pointer. NULL: the bound is reached, or no
 * memory; callers answer -ENOMEM.
 */
void *arena_alloc(struct arena *arena, size_t size) __attribute__((malloc));

/* The same with whatever is in it: for what is written in full, and may be large. */
void *arena_alloc_raw(struct arena *arena, size_t size) __attribute__((malloc));

/* arena_alloc() for count elements; NULL when their size overflows, too. */
void *arena_alloc_array(struct arena *arena, size_t count, size_t size) __attribute__((malloc));

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc_array((arena), (count), sizeof(type)))

/* Copies of text; of len bytes, which hold no NUL, or of what a format makes. NULL as above. */
char *arena_strdup(struct arena *arena, const char *text);
char *arena_strndup(struct arena *arena, const char *text, size_t len);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *arena, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
