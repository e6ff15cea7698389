/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    CHUNK_SIZE = 16384,
    KEPT_SIZE = 1 << 20, /* a larger chunk was for something unusual, and goes back */
    ALIGNMENT = alignof(max_align_t),
};

/* The newest chunk is the one that is filled. */
struct chunk {
    struct chunk *older;
    size_t size, used;
    alignas(max_align_t) unsigned char bytes[];
};

struct arena {
    struct chunk *chunks;
    size_t max, used;
};

struct arena *arena_new(size_t max)
{
    struct arena *arena = calloc(1, sizeof(*arena));

    if (arena)
        arena->max = max;
    return arena;
}

static void free_chunks(struct chunk *chunk)
{
    while (chunk) {
        struct chunk *older = chunk->older;

        free(chunk);
        chunk = older;
    }
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    free_chunks(arena->chunks);
    free(arena);
}

void arena_reset(struct arena *arena)
{
    arena->used = 0;
    if (!arena->chunks)
        return;
    free_chunks(TAKE(arena->chunks->older));
    arena->chunks->used = 0;
    if (arena->chunks->size > KEPT_SIZE)
        free_chunks(TAKE(arena->chunks));
}

size_t arena_used(const struct arena *arena)
{
    return arena->used;
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){
        .chunk = arena->chunks,
        .chunk_used = arena->chunks ? arena->chunks->used : 0,
        .used = arena->used,
    };
}

void arena_rewind(struct arena *arena, struct arena_mark mark)
{
    while (arena->chunks != mark.chunk) {
        struct chunk *newest = arena->chunks;

        /* The very first chunk was not there yet: it is kept. */
        if (!newest->older && !mark.chunk)
            break;
        arena->chunks = newest->older;
        free(newest);
    }
    if (arena->chunks)
        arena->chunks->used = mark.chunk_used;
    arena->used = mark.used;
}

static struct chunk *add_chunk(struct arena *arena, size_t size)
{
    struct chunk *chunk = malloc(sizeof(*chunk) + size);

    if (!chunk)
        return NULL;
    chunk->size = size;
    chunk->used = 0;
    chunk->older = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *arena_alloc_raw(struct arena *arena, size_t size)
{
    struct chunk *chunk = arena->chunks;
    size_t rounded = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    void *bytes;

    if (rounded < size || rounded > arena->max - arena->used)
        return NULL;
    if (!chunk || rounded > chunk->size - chunk->used)
        chunk = add_chunk(arena, MAX(rounded, (size_t)CHUNK_SIZE));
    if (!chunk)
        return NULL;
    bytes = chunk->bytes + chunk->used;
    chunk->used += rounded;
    arena->used += rounded;
    return bytes;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    void *bytes = arena_alloc_raw(arena, size);

    return bytes ? memset(bytes, 0, size) : NULL;
}

void *arena_alloc_array(struct arena *arena, size_t count, size_t size)
{
    size_t all;

    return __builtin_mul_overflow(count, size, &all) ? NULL : arena_alloc(arena, all);
}

char *arena_strndup(struct arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? arena_alloc_raw(arena, len + 1) : NULL;

    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(struct arena *arena, const char *fmt, va_list args)
{
    va_list again;
    char *text;
    int len;

    va_copy(again, args);
    len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (len < 0)
        return NULL;
    text = arena_alloc_raw(arena, (size_t)len + 1);
    if (text)
        (void)vsnprintf(text, (size_t)len + 1, fmt, args);
    return text;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    text = arena_vprintf(arena, fmt, args);
    va_end(args);
    return text;
}
