/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cuts the JSON that a list or a watch brings into its objects, byte by byte as it comes, so that
 * no more than one object is in memory at a time.
 *
 * A watch is objects one after another. A list is one object; the elements of its "items" are cut
 * out, and the rest around them, {"metadata":{...},"items":[]}, is the envelope.
 *
 * This finds where objects begin and end; their reader checks that they are JSON.
 */

#include <stdbool.h>
#include <stddef.h>

enum {
    SPLIT_OBJECT_MAX = 8 << 20, /* bytes; etcd keeps 1.5 MiB of an object unless told otherwise */
    SPLIT_ENVELOPE_MAX = 64 << 10,
    SPLIT_PADDING = 16, /* zero bytes behind an object, for yyjson's reading in place */
};

struct split_text {
    char *text; /* SPLIT_PADDING bytes more than size */
    size_t len, size;
};

struct split {
    bool is_list;
    bool in_items;
    bool in_string, escaped;
    bool done;      /* an object was returned: the next call begins a new one */
    unsigned depth; /* of braces and brackets */
    struct split_text object, envelope;
};

enum split_outcome {
    SPLIT_MORE = 1, /* all bytes are taken, more are wanted */
    SPLIT_OBJECT,   /* an object is complete */
    SPLIT_ENVELOPE, /* the list is complete: its envelope */
};

/* Begins a list or a watch; keeps the memory of the former. The split is zeroed before its first
 * use. */
void split_begin(struct split *split, bool is_list);
void split_deinit(struct split *split);

/*
 * Takes bytes from *bytes until an object is complete, and moves *bytes and *len on. The object is
 * good until the next call, may be written to, and is followed by SPLIT_PADDING zero bytes. Returns
 * an outcome, -EFBIG if an object is too long, -EPROTO if the bytes are neither a list nor a watch,
 * -ENOMEM.
 */
int split_next(struct split *split, const char **bytes, size_t *len, char **ret_object,
               size_t *ret_len);
