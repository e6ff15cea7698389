/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A vendor's section of the device configuration, as a tree of values that know their place in the
 * file. config makes the tree out of YAML; a vendor reads it by tables of its keys.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    SECTION_NAME_SIZE = 254,   /* a resource's name: a domain, a slash, a name */
    SECTION_SCALING_MAX = 100, /* of a factor */
    SECTION_DOUBTS_MAX = 16,   /* of a file; a vendor has fewer keys with a doubt */
    SECTION_DOUBT_SIZE = 512,
};

enum section_kind {
    SECTION_NOTHING = 0, /* YAML's null: counts as not given */
    SECTION_TEXT,
    SECTION_LIST,
    SECTION_KEYS,
};

struct section_place {
    size_t line, column; /* from 1 on */
};

struct section_name {
    const char *text;
    struct section_place place;
};

struct section {
    enum section_kind kind;
    struct section_place place;
    const char *text;                 /* SECTION_TEXT */
    size_t count;                     /* SECTION_LIST, SECTION_KEYS */
    const struct section *items;      /* values */
    const struct section_name *names; /* SECTION_KEYS: of the values, each once */
};

/* Values that are accepted, as HAMi accepts them, and are surely not meant: "file:line:column:
 * path: what follows from it", in the file's order. */
struct section_doubts {
    size_t count;
    char texts[SECTION_DOUBTS_MAX][SECTION_DOUBT_SIZE];
};

/* The file being read; file is for messages. */
struct section_reading {
    const char *file;
    struct error *err;
    struct section_doubts *doubts; /* NULL: nobody wants them */
};

/* "file:line:column: path: what"; returns -EINVAL. */
int section_refuse(const struct section_reading *reading, struct section_place place,
                   const char *path, const char *what);

/* A key: its name and how its value is read into the member at offset. One of both readers. */
struct section_key {
    const char *name;
    const char *(*read)(const char *text, void *to); /* a single value; NULL, or what is wrong */
    int (*read_value)(const struct section_reading *reading, const struct section *value,
                      const char *path, void *to); /* any other; -EINVAL */
    size_t offset;
    const char *(*doubt)(const void *member); /* of a value that was read: what follows from it that
                                                 is surely not meant, or NULL. May be NULL */
};

/*
 * Reads keys into a struct; "path.name" stands for a key in messages. Keys that are not given are
 * left as they are. -EINVAL: one that is not in the table, or a value that its reader refuses.
 */
int section_read_keys(const struct section_reading *reading, const struct section *section,
                      const char *path, const struct section_key *keys, size_t count, void *to);

/* -EINVAL unless it is a list of at most max values. */
int section_check_list(const struct section_reading *reading, const struct section *section,
                       const char *path, size_t max);

/* Readers for tables. */
const char *section_read_name(const char *text, void *to);     /* char[SECTION_NAME_SIZE] */
const char *section_read_resource(const char *text, void *to); /* the same, of a device's resource:
                                                                  vendor/resource_name.h, or "" */
const char *section_read_int32(const char *text, void *to);    /* int32_t, not negative */
const char *section_read_int64(const char *text, void *to);    /* int64_t, not negative */
const char *section_read_switch(const char *text, void *to);   /* bool: YAML 1.1's words */
const char *section_read_scaling(const char *text, void *to);  /* double, above 0 */
