/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

struct reservation {
    uint64_t from, bytes;
};

static struct {
    struct reservation *list;
    size_t count, size;
} reserved;

static struct {
    struct mapping *list;
    size_t count, size;
} mapped;

/* Room for one more. */
static bool grow(void **list, size_t *size, size_t count, size_t element)
{
    size_t larger = *size ? *size * 2 : 64;
    void *memory;

    if (count < *size)
        return true;
    memory = realloc(*list, larger * element);
    if (!memory)
        return false;
    *list = memory;
    *size = larger;
    return true;
}

/* How many begin at or below an address. */
static size_t reservations_below(uint64_t address)
{
    size_t low = 0, high = reserved.count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (reserved.list[mid].from <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static size_t mappings_below(uint64_t address)
{
    size_t low = 0, high = mapped.count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (mapped.list[mid].from <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_free(uint64_t from, uint64_t bytes)
{
    size_t at = reservations_below(from);

    if (from < RANGE_FROM || from >= RANGE_TO || bytes > RANGE_TO - from)
        return false;
    if (at > 0 && from - reserved.list[at - 1].from < reserved.list[at - 1].bytes)
        return false;
    return at == reserved.count || reserved.list[at].from - from >= bytes;
}

static uint64_t align_up(uint64_t address, uint64_t alignment)
{
    return (address + alignment - 1) / alignment * alignment;
}

static uint64_t first_fit(uint64_t bytes, uint64_t alignment)
{
    uint64_t from = align_up(RANGE_FROM, alignment);

    for (size_t i = 0; i < reserved.count && !is_free(from, bytes); i++)
        from = align_up(reserved.list[i].from + reserved.list[i].bytes, alignment);
    return is_free(from, bytes) ? from : 0;
}

uint64_t range_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint)
{
    uint64_t from = hint;
    size_t at;

    if (alignment > RANGE_FROM || bytes > RANGE_TO - RANGE_FROM)
        return 0;
    if (hint % alignment || !is_free(hint, bytes))
        from = first_fit(bytes, alignment);
    if (!from ||
        !grow((void **)&reserved.list, &reserved.size, reserved.count, sizeof(*reserved.list)))
        return 0;
    at = reservations_below(from);
    memmove(&reserved.list[at + 1], &reserved.list[at],
            (reserved.count - at) * sizeof(*reserved.list));
    reserved.list[at] = (struct reservation){.from = from, .bytes = bytes};
    reserved.count++;
    return from;
}

/* Whether no mapping has any part of it. */
static bool is_unmapped(uint64_t from, uint64_t bytes)
{
    size_t at = mappings_below(from);

    if (at > 0 && from - mapped.list[at - 1].from < mapped.list[at - 1].bytes)
        return false;
    return at == mapped.count || mapped.list[at].from - from >= bytes;
}

bool range_release(uint64_t from, uint64_t bytes)
{
    size_t at = reservations_below(from);

    if (at == 0 || reserved.list[at - 1].from != from || reserved.list[at - 1].bytes != bytes ||
        !is_unmapped(from, bytes))
        return false;
    reserved.count--;
    memmove(&reserved.list[at - 1], &reserved.list[at],
            (reserved.count - (at - 1)) * sizeof(*reserved.list));
    return true;
}

static bool is_reserved(uint64_t from, uint64_t bytes)
{
    size_t at = reservations_below(from);
    const struct reservation *r;

    if (at == 0)
        return false;
    r = &reserved.list[at - 1];
    return from - r->from < r->bytes && bytes <= r->bytes - (from - r->from);
}

bool range_map(const struct mapping *mapping)
{
    size_t at = mappings_below(mapping->from);

    if (!is_reserved(mapping->from, mapping->bytes) ||
        !is_unmapped(mapping->from, mapping->bytes) ||
        !grow((void **)&mapped.list, &mapped.size, mapped.count, sizeof(*mapped.list)))
        return false;
    memmove(&mapped.list[at + 1], &mapped.list[at], (mapped.count - at) * sizeof(*mapped.list));
    mapped.list[at] = *mapping;
    mapped.count++;
    return true;
}

struct mapping *range_find(uint64_t address)
{
    size_t at = mappings_below(address);

    if (at == 0 || address - mapped.list[at - 1].from >= mapped.list[at - 1].bytes)
        return NULL;
    return &mapped.list[at - 1];
}

size_t range_run(uint64_t from, uint64_t bytes, struct mapping **ret_first)
{
    struct mapping *first = range_find(from);
    uint64_t end = from;
    size_t at, count = 0;

    if (!first || first->from != from)
        return 0;
    at = (size_t)(first - mapped.list);
    while (end - from < bytes && at + count < mapped.count && mapped.list[at + count].from == end)
        end += mapped.list[at + count++].bytes;
    *ret_first = first;
    return end - from == bytes ? count : 0;
}

void range_unmap(struct mapping *mapping)
{
    size_t at = (size_t)(mapping - mapped.list);

    mapped.count--;
    memmove(&mapped.list[at], &mapped.list[at + 1], (mapped.count - at) * sizeof(*mapped.list));
}
