/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What this process holds, by handle: device addresses and modules, each with its size, device and
 * context. Open addressing in anonymous memory of our own, 16 bytes an entry, in shards with a lock
 * each, so that threads seldom meet; what is taken soon after it was added costs the same however
 * many entries there are.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum allocation_kind {
    ALLOCATION_ADDRESS,
    ALLOCATION_MODULE,
    ALLOCATION_MANAGED,
    ALLOCATION_HOST,
    ALLOCATION_IMPORT, /* addresses of other processes' memory; units: how often it was opened */
    ALLOCATION_POOL_IMPORT, /* addresses of other processes' pools */
    ALLOCATION_EXTERNAL,    /* imported memory of other interfaces, by handle */
    ALLOCATION_GRAPHICS,    /* registered buffers and images of GL, EGL and VDPAU, by handle */
    ALLOCATION_HOME, /* of code and of what launches it, by handle; units: devices (graph_homes.h)
                      */
    ALLOCATION_KINDS,
};

struct allocation {
    uint64_t units;   /* of LEDGER_UNIT bytes, at most 34 bits; of memory its piece (pages.h) */
    unsigned device;  /* place in vgpu.devices */
    unsigned context; /* number from contexts.h */
    bool shared;      /* other processes may have it as well, */
    bool kept;        /* or the kernel, for a dma-buf (given.h): then it is shared as well */
};

/* False when there is no memory for it. An older entry of that handle is hidden, or replaced. */
bool allocations_add(enum allocation_kind kind, uint64_t handle, const struct allocation *entry);

/* Takes an entry out; false when it is not ours. */
bool allocations_take(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry);

/* The same, without taking it out. */
bool allocations_look(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry);

/* What others may have from now on and could not before, or the other way round. */
struct allocation_lent {
    int64_t units;
    unsigned device;
};

/* From now on it is shared. False when it is not ours. */
bool allocations_share(enum allocation_kind kind, uint64_t handle,
                       struct allocation_lent *ret_lent);

/* A dma-buf may keep it, or not after all. False when it is not ours. */
bool allocations_keep(enum allocation_kind kind, uint64_t handle, bool kept,
                      struct allocation_lent *ret_lent);

/*
 * Takes out all entries of a context, which is about to end: from then on another may have their
 * handles. The bag is given back or dropped. Where there is no memory for one, they are only
 * counted, and can't be given back.
 */
struct allocations_bag {
    bool in_pages;                /* pieces of memory: small ones are counted apart (pages.h) */
    uint64_t units, shared_units; /* of what is not shared, and of what is, */
    uint64_t kept_units;          /* but for what the kernel may have */
    uint64_t small_units;
    struct allocations_bagged *entries;
    size_t count, room;
};

void allocations_take_context(enum allocation_kind kind, unsigned context,
                              struct allocations_bag *ret_bag);

/* Takes one out of the bag, as allocations_take() from the table, and puts it back. */
bool allocations_take_bagged(struct allocations_bag *bag, uint64_t handle,
                             struct allocation *ret_entry);
void allocations_put_bagged(struct allocations_bag *bag, uint64_t handle,
                            const struct allocation *entry);

/* The context did not end; they are of this one now. */
void allocations_give_back(enum allocation_kind kind, unsigned context,
                           struct allocations_bag *bag);
void allocations_drop(struct allocations_bag *bag);
