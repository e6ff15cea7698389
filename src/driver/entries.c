/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/entries.h"

#include <string.h>

#include "base/util.h"
#include "driver/entry_rows.inc"

const size_t driver_entry_count = ARRAY_SIZE(driver_entries);

const char *driver_entry_base(const struct driver_entry *entry)
{
    return texts + entry->base_at;
}

const char *driver_entry_name(const struct driver_entry *entry, char buffer[DRIVER_NAME_MAX])
{
    const char *base = driver_entry_base(entry);
    size_t len = strlen(base);

    memcpy(buffer, base, len);
    memcpy(buffer + len, endings[entry->ending], sizeof(endings[0]));
    return buffer;
}

/* As strcmp() with the entry's name. */
static int compare_name(const char *name, const struct driver_entry *entry)
{
    const char *base = driver_entry_base(entry);
    size_t len = strlen(base);
    int order = strncmp(name, base, len);

    return order != 0 ? order : strcmp(name + len, endings[entry->ending]);
}

const struct driver_entry *driver_entry_find(const char *name)
{
    size_t low = 0, high = driver_entry_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_name(name, &driver_entries[middle]);

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
