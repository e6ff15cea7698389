/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a pool of stream-ordered memory has: chunks of memory, each cut into pieces, which
 * are given out and freed in the order of streams. Under guest.lock and the machine's.
 *
 * A freed piece is given out again to the stream that freed it at once; to others when that stream
 * has come so far, or the host has waited for it; and where no new memory can be had, to a stream
 * that then waits for the other one.
 */

#include "simdriver/guest.h"

struct heap_piece;
struct heap_chunk;

struct heap {
    struct guest_place place; /* of its chunks, which a device has, or move, or take nothing */
    uint64_t max_bytes;       /* 0: as much as there is */
    uint64_t granule;         /* of chunks */
    bool opportunistic; /* whether what a stream is seen to have freed goes to others unasked */
    bool internal;      /* whether a stream may be made to wait for another one */
    bool shared;        /* other processes may have its chunks, which it keeps till its end */
    uint64_t reserved_bytes, reserved_high;
    uint64_t used_bytes, used_high; /* given out, or freed and not yet for everybody */
    struct heap_chunk *chunks;      /* oldest first */
};

/* Gives out some to a stream; 0: there is no room. */
uint64_t heap_take(struct heap *heap, uint64_t bytes, uint32_t stream);

/* The piece that was given out at an address; NULL when there is none. Its heap. */
struct heap_piece *heap_find(uint64_t address, struct heap **ret_heap);

/* The piece that an address lies in, if it is given out, as large as was asked for, and its heap;
 * NULL. */
struct heap *heap_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes);

/* Where in which piece of memory of a shared heap a piece that was given out lies. */
bool heap_locate(uint64_t address, uint32_t *ret_physical, uint64_t *ret_offset,
                 uint64_t *ret_bytes);

/* Addresses that are never used again; 0 when there are none. */
uint64_t heap_addresses(uint64_t bytes);

/* Free once the stream has done what it has to do so far; 0: at once. */
void heap_give(struct heap_piece *piece, uint32_t stream);

/* Looks which pieces are free by now; the host has waited for some. */
void heap_look(struct heap *heap, bool waited);

/* Gives back chunks that are free as long as so much stays; at its end a shared heap's, too. */
void heap_shrink(struct heap *heap, uint64_t keep);
void heap_end(struct heap *heap);
