/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How often a process holds what it was given a handle of: by handles, and by mappings, which hold
 * as well. Two tables, of handles and of mapped addresses; open addressing in anonymous memory of
 * our own. Not locked.
 *
 * A row is valid until the next one of its table is added or removed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reference_row {
    uint64_t key; /* handle or address; 0: empty */
    union {
        struct {
            uint64_t units; /* charged for it; 0: another's, or no device's */
            uint32_t handles, maps;
            uint32_t device; /* place in vgpu.devices */
            uint32_t given;  /* what its descriptors are known by (given.h); 0: there are none */
            bool shared, imported; /* others may hold it as well; one of them made it */
            bool held;             /* something of this process' may, that nobody counts */
            bool spilled;          /* the card had no room for it: it is charged, and on the host */
        };
        struct {
            uint64_t handle, bytes; /* of a mapping */
        };
    };
};

struct references {
    struct reference_row *rows;
    size_t size; /* power of two */
    size_t count;
};

/* Sees to it that there is room for one more. */
bool references_reserve(struct references *table);

/* The row of a key that is not there yet, in reserved room; zeros but for the key. */
struct reference_row *references_add(struct references *table, uint64_t key);

/* NULL when there is none. */
struct reference_row *references_find(const struct references *table, uint64_t key);

void references_remove(struct references *table, struct reference_row *row);
