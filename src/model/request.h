/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What one container, or one command of `hamictl run`, asks for of one vendor's devices. */

#include <stddef.h>
#include <stdint.h>

/* Strings of the request's owner. */
struct text_list {
    const char *const *items;
    size_t count;
};

struct request {
    const char *type;        /* the vendor's word, "NVIDIA" */
    unsigned count;          /* devices; the amounts below are of each */
    uint64_t memory_bytes;   /* 0: see memory_percent */
    unsigned memory_percent; /* of the card, when memory_bytes is 0; 0: no memory is asked for */
    unsigned cores;          /* percent of the card; 0: no share is asked for */

    /* Empty lists do not constrain. UUIDs match exactly, types as a part of the model's name. */
    struct text_list use_uuids, avoid_uuids;
    struct text_list use_types, avoid_types;
};
