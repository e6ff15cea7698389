/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/references.h"

#include <sys/mman.h>

enum {
    FIRST_SIZE = 128,
};

static size_t home_of(const struct references *table, uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key >> 32) & (table->size - 1);
}

static struct reference_row *place(struct references *table, uint64_t key)
{
    size_t at = home_of(table, key);

    while (table->rows[at].key)
        at = (at + 1) & (table->size - 1);
    return &table->rows[at];
}

bool references_reserve(struct references *table)
{
    struct references larger = {.size = table->size ? 2 * table->size : FIRST_SIZE};
    void *rows;

    if (4 * (table->count + 1) <= 3 * table->size)
        return true;
    rows = mmap(NULL, larger.size * sizeof(*larger.rows), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED)
        return false;
    larger.rows = rows;
    larger.count = table->count;
    for (size_t i = 0; i < table->size; i++) {
        if (table->rows[i].key)
            *place(&larger, table->rows[i].key) = table->rows[i];
    }
    if (table->rows)
        (void)munmap(table->rows, table->size * sizeof(*table->rows));
    *table = larger;
    return true;
}

struct reference_row *references_add(struct references *table, uint64_t key)
{
    struct reference_row *row = place(table, key);

    *row = (struct reference_row){.key = key};
    table->count++;
    return row;
}

struct reference_row *references_find(const struct references *table, uint64_t key)
{
    if (!table->size || !key)
        return NULL;
    for (size_t at = home_of(table, key); table->rows[at].key; at = (at + 1) & (table->size - 1)) {
        if (table->rows[at].key == key)
            return &table->rows[at];
    }
    return NULL;
}

/* Closes the gap that it leaves in its run (Knuth, 6.4 algorithm R). */
void references_remove(struct references *table, struct reference_row *row)
{
    size_t mask = table->size - 1, gap = (size_t)(row - table->rows), at = gap;

    for (;;) {
        size_t home;

        at = (at + 1) & mask;
        if (!table->rows[at].key)
            break;
        home = home_of(table, table->rows[at].key);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            table->rows[gap] = table->rows[at];
            gap = at;
        }
    }
    table->rows[gap].key = 0;
    table->count--;
}
