/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/entries.h"

#include <string.h>

#include "base/util.h"
#include "driver/entry_rows.inc"

const size_t driver_entry_count = ARRAY_SIZE(driver_entries);

const char *driver_entry_name(const struct driver_entry *entry)
{
    return texts + entry->name_at;
}

const char *driver_entry_base(const struct driver_entry *entry)
{
    return texts + entry->base_at;
}

const struct driver_entry *driver_entry_find(const char *name)
{
    size_t low = 0, high = driver_entry_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, driver_entry_name(&driver_entries[middle]));

        if (order == 0)
            return &driver_entries[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Among candidates of one base name: the wanted flavour before the other, then the newer version.
 */
static bool entry_is_better(const struct driver_entry *a, const struct driver_entry *b,
                            enum driver_stream stream)
{
    if (!b)
        return true;
    if (a->stream != b->stream)
        return a->stream == stream;
    return a->version > b->version;
}

enum driver_lookup driver_entry_resolve(const char *base, int version, enum driver_stream stream,
                                        const struct driver_entry **ret_entry)
{
    const struct driver_entry *best = NULL;
    bool known = false;

    for (size_t i = 0; i < driver_entry_count; i++) {
        const struct driver_entry *entry = &driver_entries[i];

        if (!entry->version || strcmp(driver_entry_base(entry), base) != 0)
            continue;
        known = true;
        if (entry->version > version)
            continue;
        if (entry->stream == DRIVER_STREAM_PER_THREAD && stream == DRIVER_STREAM_LEGACY)
            continue;
        if (entry_is_better(entry, best, stream))
            best = entry;
    }

    if (!best)
        return known ? DRIVER_TOO_OLD : DRIVER_NO_SYMBOL;
    *ret_entry = best;
    return DRIVER_FOUND;
}
