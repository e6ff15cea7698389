/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/heap.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/physical.h"

enum {
    BUCKETS = 4096,
};

#define HEAP_FROM (UINT64_C(7) << 44)   /* above all that is reserved */
#define HEAP_TO (UINT64_C(0x7c0) << 36) /* graphs' memory lies behind */

enum piece_state {
    PIECE_FREE = 0,
    PIECE_GIVEN,
    PIECE_FREED, /* by a stream that may not have come so far */
};

struct heap_piece {
    uint64_t from, bytes;
    uint64_t asked_bytes; /* before they were rounded up, while given out */
    enum piece_state state;
    uint32_t stream, gen; /* that freed it */
    uint64_t seq;
    struct heap *heap;
    struct heap_piece *next; /* of the chunk, by address */
    struct heap_piece *same; /* of its bucket, while given out */
};

struct heap_chunk {
    uint64_t bytes;
    uint32_t hold; /* of a shared heap's */
    struct heap_piece *first;
    struct heap_chunk *next;
};

static struct heap_piece *buckets[BUCKETS];

static struct heap_piece **bucket_of(uint64_t address)
{
    return &buckets[(address / SIM_ALIGN) % BUCKETS];
}

/* Pieces */

static bool is_done(const struct heap_piece *piece)
{
    const struct sim_stream *st = &guest_state()->streams[piece->stream];

    return !piece->stream || st->gen != piece->gen || !st->owner || st->head >= piece->seq;
}

static bool is_own(const struct heap_piece *piece, uint32_t stream)
{
    return piece->stream == stream && guest_state()->streams[stream].gen == piece->gen;
}

/* What is left of a piece behind so many bytes becomes one of its own. */
static bool split(struct heap_piece *piece, uint64_t bytes)
{
    struct heap_piece *rest;

    if (piece->bytes == bytes)
        return true;
    rest = malloc(sizeof(*rest));
    if (!rest)
        return false;
    *rest = *piece;
    rest->from += bytes;
    rest->bytes -= bytes;
    piece->bytes = bytes;
    piece->next = rest;
    return true;
}

static uint64_t give_out(struct heap_piece *piece, uint64_t bytes)
{
    struct heap *heap = piece->heap;

    if (!split(piece, bytes))
        return 0;
    if (piece->state == PIECE_FREE)
        heap->used_bytes += bytes;
    heap->used_high = MAX(heap->used_high, heap->used_bytes);
    piece->state = PIECE_GIVEN;
    piece->same = *bucket_of(piece->from);
    *bucket_of(piece->from) = piece;
    return piece->from;
}

/* The first piece that is large enough and may be given to a stream; waits: after it made that wait
 * for another one. */
static struct heap_piece *find_piece(const struct heap *heap, uint64_t bytes, uint32_t stream,
                                     bool waits)
{
    for (struct heap_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
        for (struct heap_piece *piece = chunk->first; piece; piece = piece->next) {
            if (piece->bytes < bytes || piece->state == PIECE_GIVEN)
                continue;
            if (piece->state == PIECE_FREE || is_own(piece, stream) || waits)
                return piece;
        }
    }
    return NULL;
}

/* Chunks. Their addresses are never used again. */

uint64_t heap_addresses(uint64_t bytes)
{
    static uint64_t next = HEAP_FROM;
    uint64_t from = next;

    if (bytes > HEAP_TO - next)
        return 0;
    next += bytes;
    return from;
}

static void let_go(struct heap *heap, struct heap_chunk *chunk)
{
    if (heap->place.on_host || heap->place.managed)
        return;
    if (!heap->shared) {
        sim_discharge(guest.sim, heap->place.device, chunk->bytes);
        return;
    }
    sim_hold_drop(guest_state(), chunk->hold);
}

static bool get(struct heap *heap, struct heap_chunk *chunk)
{
    const struct sim_physical asked = {
        .device = heap->place.device,
        .location_type = CU_MEM_LOCATION_TYPE_DEVICE,
        .bytes = chunk->bytes,
    };

    if (heap->place.on_host || heap->place.managed)
        return true;
    if (!heap->shared)
        return sim_charge(guest.sim, heap->place.device, chunk->bytes);
    chunk->hold = sim_physical_new(guest.sim, &asked);
    return chunk->hold != 0;
}

static struct heap_piece *add_chunk(struct heap *heap, uint64_t bytes)
{
    AUTOFREE struct heap_chunk *chunk = calloc(1, sizeof(*chunk));
    AUTOFREE struct heap_piece *piece = calloc(1, sizeof(*piece));
    struct heap_chunk **at = &heap->chunks;

    if (!chunk || !piece)
        return NULL;
    chunk->bytes = bytes;
    if (!get(heap, chunk))
        return NULL;
    *piece = (struct heap_piece){.from = heap_addresses(bytes), .bytes = bytes, .heap = heap};
    if (!piece->from ||
        (heap->place.managed &&
         !guest_managed_add(piece->from, bytes, heap->place.device, heap->place.preferred))) {
        let_go(heap, chunk);
        return NULL;
    }
    while (*at)
        at = &(*at)->next;
    chunk->first = piece;
    *at = TAKE(chunk);
    heap->reserved_bytes += bytes;
    heap->reserved_high = MAX(heap->reserved_high, heap->reserved_bytes);
    return TAKE(piece);
}

static struct heap_piece *grow(struct heap *heap, uint64_t bytes)
{
    uint64_t more = (bytes + heap->granule - 1) / heap->granule * heap->granule;

    if (heap->max_bytes && more > heap->max_bytes - MIN(heap->max_bytes, heap->reserved_bytes))
        return NULL;
    return add_chunk(heap, more);
}

/* Makes the stream wait for whoever freed the piece. */
static bool wait_for(uint32_t stream, const struct heap_piece *piece)
{
    const struct sim_state *s = guest_state();
    unsigned here = s->contexts[s->streams[stream].context].device;
    struct sim_op op = {
        .kind = SIM_OP_WAIT, .target = piece->stream, .gen = piece->gen, .seq = piece->seq};

    op.weight = s->contexts[s->streams[piece->stream].context].device != here;
    return guest_append(stream, &op) == CUDA_SUCCESS;
}

uint64_t heap_take(struct heap *heap, uint64_t bytes, uint32_t stream)
{
    const uint64_t asked_bytes = bytes;
    struct heap_piece *piece;

    if (bytes > UINT64_MAX - heap->granule)
        return 0;
    bytes = (bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
    heap_look(heap, false);
    piece = find_piece(heap, bytes, stream, false);
    if (!piece)
        piece = grow(heap, bytes);
    if (!piece && heap->internal) {
        piece = find_piece(heap, bytes, stream, true);
        if (piece && !is_done(piece) && !wait_for(stream, piece))
            piece = NULL;
    }
    if (!piece)
        return 0;
    piece->asked_bytes = asked_bytes;
    return give_out(piece, bytes);
}

struct heap_piece *heap_find(uint64_t address, struct heap **ret_heap)
{
    struct heap_piece *piece = *bucket_of(address);

    while (piece && piece->from != address)
        piece = piece->same;
    if (piece)
        *ret_heap = piece->heap;
    return piece;
}

struct heap *heap_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (const struct heap_piece *piece = buckets[i]; piece; piece = piece->same) {
            if (address - piece->from >= piece->asked_bytes)
                continue;
            *ret_from = piece->from;
            *ret_bytes = piece->asked_bytes;
            return piece->heap;
        }
    }
    return NULL;
}

static void forget_given(struct heap_piece *piece)
{
    struct heap_piece **at = bucket_of(piece->from);

    while (*at != piece)
        at = &(*at)->same;
    *at = piece->same;
}

void heap_give(struct heap_piece *piece, uint32_t stream)
{
    const struct sim_stream *st = &guest_state()->streams[stream];

    forget_given(piece);
    piece->state = PIECE_FREED;
    piece->stream = stream;
    piece->gen = stream ? st->gen : 0;
    piece->seq = stream ? st->tail : 0;
    if (!stream)
        heap_look(piece->heap, true);
}

/* With the one behind it, if that is free as well. */
static void join(struct heap_piece *piece)
{
    struct heap_piece *next = piece->next;

    while (next && piece->state == PIECE_FREE && next->state == PIECE_FREE) {
        piece->bytes += next->bytes;
        piece->next = next->next;
        free(next);
        next = piece->next;
    }
}

void heap_look(struct heap *heap, bool waited)
{
    for (struct heap_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
        for (struct heap_piece *piece = chunk->first; piece; piece = piece->next) {
            if (piece->state != PIECE_FREED || !is_done(piece) || !(waited || heap->opportunistic))
                continue;
            piece->state = PIECE_FREE;
            heap->used_bytes -= piece->bytes;
        }
        for (struct heap_piece *piece = chunk->first; piece; piece = piece->next)
            join(piece);
    }
}

static bool is_free(const struct heap_chunk *chunk)
{
    return chunk->first->state == PIECE_FREE && !chunk->first->next;
}

static void give_back(struct heap *heap, uint64_t keep)
{
    struct heap_chunk **at = &heap->chunks;

    while (*at) {
        struct heap_chunk *chunk = *at;

        if (!is_free(chunk) || heap->reserved_bytes - chunk->bytes < keep) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        heap->reserved_bytes -= chunk->bytes;
        if (heap->place.managed)
            guest_managed_remove(chunk->first->from);
        let_go(heap, chunk);
        free(chunk->first);
        free(chunk);
    }
}

void heap_shrink(struct heap *heap, uint64_t keep)
{
    if (!heap->shared)
        give_back(heap, keep);
}

void heap_end(struct heap *heap)
{
    give_back(heap, 0);
}

/* A chunk begins where its first piece does. */
bool heap_locate(uint64_t address, uint32_t *ret_physical, uint64_t *ret_offset,
                 uint64_t *ret_bytes)
{
    struct heap *heap;
    const struct heap_piece *piece = heap_find(address, &heap);

    if (!piece || !heap->shared)
        return false;
    for (const struct heap_chunk *chunk = heap->chunks; chunk; chunk = chunk->next) {
        if (address - chunk->first->from >= chunk->bytes)
            continue;
        *ret_physical = guest_state()->holds[chunk->hold].physical;
        *ret_offset = address - chunk->first->from;
        *ret_bytes = piece->asked_bytes;
        return true;
    }
    return false;
}
