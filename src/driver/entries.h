/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of the driver's entry points, made from entries.txt, where the classes are explained.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum driver_class {
    DRIVER_PASS,
    DRIVER_ALLOC,
    DRIVER_FREE,
    DRIVER_VIRTUAL,
    DRIVER_MANAGED,
    DRIVER_HOST,
    DRIVER_POOL,
    DRIVER_CONTEXT,
    DRIVER_MODULE,
    DRIVER_QUERY,
    DRIVER_LAUNCH,
    DRIVER_COPY,
    DRIVER_STREAM,
    DRIVER_GRAPH,
    DRIVER_EVENT,
    DRIVER_RESOLVE,
};

enum driver_stream {
    DRIVER_STREAM_LEGACY,
    DRIVER_STREAM_PER_THREAD, /* _ptsz, _ptds */
};

struct driver_entry {
    uint16_t base_at;   /* in the texts: see below */
    uint16_t version;   /* from this CUDA version on; 0 = never answered */
    uint8_t class;      /* enum driver_class */
    uint8_t stream : 1; /* enum driver_stream */
    uint8_t ending : 7; /* of the name, behind its base: see below */
};

enum {
    DRIVER_NAME_MAX = 64, /* with its end; generate.py sees to it */
};

/* Sorted by name. What is made of the same list as driver/entry_numbers.inc numbers the rows, as
 * ENTRY_cuInit. */
extern const struct driver_entry driver_entries[];
extern const size_t driver_entry_count;

/* The ELF symbol: written into the caller's buffer, which it returns. */
const char *driver_entry_name(const struct driver_entry *entry, char buffer[DRIVER_NAME_MAX]);

/* What cuGetProcAddress knows it by. */
const char *driver_entry_base(const struct driver_entry *entry);

/* The entry of this exact export, or NULL. */
const struct driver_entry *driver_entry_find(const char *name);

enum driver_lookup {
    DRIVER_FOUND = 1,
    DRIVER_NO_SYMBOL, /* no such base name */
    DRIVER_TOO_OLD,   /* it exists, in a later version only */
};

/*
 * The export that cuGetProcAddress means by a base name at a CUDA version: the newest that is not
 * newer, of the per-thread flavour if asked for and there is one.
 */
enum driver_lookup driver_entry_resolve(const char *base, int version, enum driver_stream stream,
                                        const struct driver_entry **ret_entry);
