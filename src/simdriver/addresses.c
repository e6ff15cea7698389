/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/addresses.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/util.h"

enum {
    FIRST_CLASS = 9, /* blocks of 512 bytes */
    LAST_CLASS = 40, /* of 1 TiB */
    ARENA_BITS = 41, /* of classes up to 37; the larger ones have 16 blocks each */
    WIDE_CLASS = 38,
    LOW_MAX = 4096,
};

#define LOW_FROM UINT64_C(0x10000)
#define LOW_TO UINT64_C(0x100000000)

struct block {
    uint64_t bytes; /* 0: free */
    uint32_t context;
    uint32_t next_free; /* index + 1 */
};

struct arena {
    struct block *blocks;
    uint32_t size, used;
    uint32_t free; /* index + 1 */
};

struct low_block {
    uint64_t from, bytes; /* as they were asked for */
    uint32_t context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arena arenas[LAST_CLASS + 1];
static struct low_block low[LOW_MAX]; /* by address */
static unsigned low_count;

static unsigned class_of(uint64_t bytes)
{
    if (bytes <= UINT64_C(1) << FIRST_CLASS)
        return FIRST_CLASS;
    return 64 - (unsigned)__builtin_clzll(bytes - 1);
}

/* Up to class 37 every arena has 2 TiB; then come 4, 8 and 16 TiB from 64 TiB on. */
static uint64_t arena_base(unsigned class)
{
    if (class < WIDE_CLASS)
        return (uint64_t)(class - FIRST_CLASS + 1) << ARENA_BITS;
    return (UINT64_C(1) << 46) + (((UINT64_C(1) << (class - WIDE_CLASS)) - 1) << 42);
}

static bool locate(uint64_t address, unsigned *ret_class, uint64_t *ret_index)
{
    unsigned class = LAST_CLASS;

    while (class >= FIRST_CLASS && address < arena_base(class))
        class --;
    if (class < FIRST_CLASS)
        return false;
    *ret_class = class;
    *ret_index = (address - arena_base(class)) >> class;
    return *ret_index < arenas[class].used && arenas[class].blocks[*ret_index].bytes;
}

static bool grow(struct arena *arena)
{
    uint32_t size = arena->size ? arena->size * 2 : 64;
    struct block *blocks = realloc(arena->blocks, size * sizeof(*blocks));

    if (!blocks)
        return false;
    arena->blocks = blocks;
    arena->size = size;
    return true;
}

static uint64_t take(unsigned class, uint64_t bytes, uint32_t context)
{
    struct arena *arena = &arenas[class];
    uint32_t i = arena->free;

    if (i) {
        i--;
        arena->free = arena->blocks[i].next_free;
    } else {
        if (class >= WIDE_CLASS && arena->used == 16)
            return 0;
        if (arena->used == arena->size && !grow(arena))
            return 0;
        i = arena->used++;
    }
    arena->blocks[i] = (struct block){.bytes = bytes, .context = context};
    return arena_base(class) + ((uint64_t)i << class);
}

static void give(unsigned class, uint64_t i)
{
    struct arena *arena = &arenas[class];

    arena->blocks[i].bytes = 0;
    arena->blocks[i].next_free = arena->free;
    arena->free = (uint32_t)i + 1;
}

uint64_t address_take(uint64_t bytes, uint32_t context)
{
    unsigned class = class_of(bytes);
    uint64_t address;

    if (class > LAST_CLASS)
        return 0;
    (void)pthread_mutex_lock(&lock);
    address = take(class, bytes, context);
    (void)pthread_mutex_unlock(&lock);
    return address;
}

/* The window */

static uint64_t low_end(const struct low_block *block)
{
    const uint64_t least = UINT64_C(1) << FIRST_CLASS;

    return block->from + (block->bytes + least - 1) / least * least;
}

static uint32_t take_low(uint64_t bytes, uint32_t context)
{
    uint64_t from = LOW_FROM;
    unsigned at = 0;

    if (low_count == LOW_MAX)
        return 0;
    for (; at < low_count && low[at].from - from < bytes; at++)
        from = low_end(&low[at]);
    if (LOW_TO - from < bytes)
        return 0;
    memmove(&low[at + 1], &low[at], (low_count - at) * sizeof(low[0]));
    low[at] = (struct low_block){.from = from, .bytes = bytes, .context = context};
    low_count++;
    return (uint32_t)from;
}

static void give_low(unsigned at)
{
    low_count--;
    memmove(&low[at], &low[at + 1], (low_count - at) * sizeof(low[0]));
}

/* Its place in the table, or low_count. */
static unsigned locate_low(uint64_t address)
{
    unsigned at = 0;

    while (at < low_count && address - low[at].from >= low[at].bytes)
        at++;
    return at;
}

uint32_t address_take_low(uint64_t bytes, uint32_t context)
{
    uint32_t address;

    (void)pthread_mutex_lock(&lock);
    address = take_low(bytes, context);
    (void)pthread_mutex_unlock(&lock);
    return address;
}

/* Both */

static bool give_any(uint64_t address, uint64_t *ret_bytes, uint32_t *ret_context)
{
    unsigned class, at;
    uint64_t i;

    if (address < LOW_TO) {
        at = locate_low(address);
        if (at == low_count || low[at].from != address)
            return false;
        *ret_bytes = low[at].bytes;
        *ret_context = low[at].context;
        give_low(at);
        return true;
    }
    if (!locate(address, &class, &i) || address != arena_base(class) + (i << class))
        return false;
    *ret_bytes = arenas[class].blocks[i].bytes;
    *ret_context = arenas[class].blocks[i].context;
    give(class, i);
    return true;
}

bool address_give(uint64_t address, uint64_t *ret_bytes, uint32_t *ret_context)
{
    bool found;

    (void)pthread_mutex_lock(&lock);
    found = give_any(address, ret_bytes, ret_context);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static bool find_any(uint64_t address, uint64_t *ret_base, uint64_t *ret_bytes)
{
    unsigned class, at;
    uint64_t i;

    if (address < LOW_TO) {
        at = locate_low(address);
        if (at == low_count)
            return false;
        *ret_base = low[at].from;
        *ret_bytes = low[at].bytes;
        return true;
    }
    if (!locate(address, &class, &i))
        return false;
    *ret_base = arena_base(class) + (i << class);
    *ret_bytes = arenas[class].blocks[i].bytes;
    return address - *ret_base < *ret_bytes;
}

bool address_find(uint64_t address, uint64_t *ret_base, uint64_t *ret_bytes)
{
    bool found;

    (void)pthread_mutex_lock(&lock);
    found = find_any(address, ret_base, ret_bytes);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static bool find_context(uint64_t address, uint32_t *ret_context)
{
    unsigned class, at;
    uint64_t i;

    if (address < LOW_TO) {
        at = locate_low(address);
        if (at == low_count)
            return false;
        *ret_context = low[at].context;
        return true;
    }
    if (!locate(address, &class, &i))
        return false;
    *ret_context = arenas[class].blocks[i].context;
    return true;
}

bool address_context(uint64_t address, uint32_t *ret_context)
{
    bool found;

    (void)pthread_mutex_lock(&lock);
    found = find_context(address, ret_context);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static void drop_class(unsigned class, uint32_t context)
{
    struct arena *arena = &arenas[class];

    for (uint32_t i = 0; i < arena->used; i++) {
        if (!arena->blocks[i].bytes || arena->blocks[i].context != context)
            continue;
        give(class, i);
    }
}

void address_drop(uint32_t context)
{
    (void)pthread_mutex_lock(&lock);
    for (unsigned class = FIRST_CLASS; class <= LAST_CLASS; class ++)
        drop_class(class, context);
    for (unsigned at = low_count; at > 0; at--) {
        if (low[at - 1].context == context)
            give_low(at - 1);
    }
    (void)pthread_mutex_unlock(&lock);
}
