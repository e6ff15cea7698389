/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/allocations.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"
#include "vgpu/pages.h"
#include "vgpu/vgpu.h"

enum {
    SHARDS = 16,
    FIRST_SIZE = 256,
    YOUNG = 32,
};

/* units:42 | kept:1 | device:4 | shared:1 | context:15, plus 1 in the lowest bit: never 0 for an
 * entry in use. */
#define SHARED (UINT64_C(1) << 16)
#define KEPT (UINT64_C(1) << 21)

struct cell {
    uint64_t handle;
    uint64_t packed; /* 0: empty */
};

/*
 * Most of what is freed was allocated just before. So an entry begins among the young ones, a few
 * cells that stay in the processor's cache, and goes into the table, which beside a million entries
 * is in no cache, when another one needs its place.
 *
 * While a shard grows, a few cells of the old table move with each change, so that none is slow.
 */
struct shard {
    pthread_mutex_t lock;
    struct cell young[YOUNG];
    struct cell *cells;
    size_t size; /* power of two */
    size_t count;
    struct cell *old;
    size_t old_size;
    size_t moved;
};

static struct shard shards[ALLOCATION_KINDS][SHARDS] = {
    [0 ... ALLOCATION_KINDS - 1] = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}},
};

static uint64_t pack(const struct allocation *entry)
{
    return entry->units << 22 | (entry->kept ? KEPT : 0) | (uint64_t)entry->device << 17 |
           (entry->shared ? SHARED : 0) | (uint64_t)entry->context << 1 | 1;
}

static struct allocation unpack(uint64_t packed)
{
    return (struct allocation){
        .units = packed >> 22,
        .device = (unsigned)(packed >> 17 & 0xf),
        .context = (unsigned)(packed >> 1 & 0x7fff),
        .shared = packed & (SHARED | KEPT),
        .kept = packed & KEPT,
    };
}

static uint64_t hash(uint64_t handle)
{
    handle ^= handle >> 32;
    handle *= UINT64_C(0xd6e8feb86659fd93);
    handle ^= handle >> 32;
    return handle;
}

static struct shard *shard_of(enum allocation_kind kind, uint64_t hashed)
{
    return &shards[kind][hashed >> 60];
}

_Static_assert(SHARDS == 16, "the four highest bits choose the shard");

static struct cell *young_cell(struct shard *shard, uint64_t hashed)
{
    return &shard->young[hashed >> 55 & (YOUNG - 1)];
}

_Static_assert(YOUNG == 32, "the five bits below choose the cell");

static struct cell *new_cells(size_t size)
{
    void *cells = mmap(NULL, size * sizeof(struct cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return cells == MAP_FAILED ? NULL : cells;
}

static struct cell *find_cell(struct cell *cells, size_t size, uint64_t handle)
{
    size_t at = hash(handle) & (size - 1);

    for (; cells[at].packed; at = (at + 1) & (size - 1)) {
        if (cells[at].handle == handle)
            return &cells[at];
    }
    return NULL;
}

static void put_cell(struct cell *cells, size_t size, struct cell cell)
{
    size_t at = hash(cell.handle) & (size - 1);

    while (cells[at].packed)
        at = (at + 1) & (size - 1);
    cells[at] = cell;
}

/* Closes the gap that a removed cell leaves in its run (Knuth, 6.4 algorithm R). */
static void remove_cell(struct cell *cells, size_t size, struct cell *cell)
{
    size_t gap = (size_t)(cell - cells), at = gap;

    for (;;) {
        size_t home;

        at = (at + 1) & (size - 1);
        if (!cells[at].packed)
            break;
        home = hash(cells[at].handle) & (size - 1);
        if (((at - home) & (size - 1)) >= ((at - gap) & (size - 1))) {
            cells[gap] = cells[at];
            gap = at;
        }
    }
    cells[gap].packed = 0;
}

/* Moves up to this many cells of the table that is being left. */
static void move_some(struct shard *shard, size_t count)
{
    for (; shard->old && count > 0; count--) {
        struct cell *cell = &shard->old[shard->moved];

        /* A cell that moved out leaves its mark, so that runs through it stay whole. */
        if (cell->packed && cell->handle) {
            put_cell(shard->cells, shard->size, *cell);
            cell->handle = 0;
        }
        if (++shard->moved == shard->old_size) {
            (void)munmap(shard->old, shard->old_size * sizeof(struct cell));
            shard->old = NULL;
        }
    }
}

/* Makes room for one more: at three quarters the table doubles. */
static bool reserve(struct shard *shard)
{
    size_t size = shard->size ? 2 * shard->size : FIRST_SIZE;
    struct cell *cells;

    move_some(shard, 8);
    if (4 * (shard->count + 1) <= 3 * shard->size)
        return true;

    move_some(shard, SIZE_MAX);
    cells = new_cells(size);
    if (!cells)
        return shard->count + 1 < shard->size;
    shard->old = shard->count ? shard->cells : NULL;
    if (!shard->old && shard->cells)
        (void)munmap(shard->cells, shard->size * sizeof(struct cell));
    shard->old_size = shard->size;
    shard->moved = 0;
    shard->cells = cells;
    shard->size = size;
    return true;
}

static bool take_stored(struct shard *shard, uint64_t handle, uint64_t *ret_packed)
{
    struct cell *cell = NULL;

    if (shard->cells)
        cell = find_cell(shard->cells, shard->size, handle);
    if (cell) {
        *ret_packed = cell->packed;
        remove_cell(shard->cells, shard->size, cell);
        shard->count--;
        return true;
    }

    if (shard->old)
        cell = find_cell(shard->old, shard->old_size, handle);
    if (!cell)
        return false;
    *ret_packed = cell->packed;
    cell->handle = 0;
    shard->count--;
    return true;
}

/* Into the table; in the place of what it has of that handle. */
static bool store(struct shard *shard, struct cell cell)
{
    uint64_t replaced;

    (void)take_stored(shard, cell.handle, &replaced);
    if (!reserve(shard))
        return false;
    put_cell(shard->cells, shard->size, cell);
    shard->count++;
    return true;
}

bool allocations_add(enum allocation_kind kind, uint64_t handle, const struct allocation *entry)
{
    const uint64_t hashed = hash(handle);
    struct shard *shard = shard_of(kind, hashed);
    struct cell *young = young_cell(shard, hashed);
    bool room;

    if (!handle)
        return false;

    (void)pthread_mutex_lock(&shard->lock);
    room = !young->packed || young->handle == handle || store(shard, *young);
    if (room)
        *young = (struct cell){.handle = handle, .packed = pack(entry)};
    (void)pthread_mutex_unlock(&shard->lock);
    return room;
}

bool allocations_take(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry)
{
    const uint64_t hashed = hash(handle);
    struct shard *shard = shard_of(kind, hashed);
    struct cell *young = young_cell(shard, hashed);
    uint64_t packed = 0;
    bool found;

    if (!handle)
        return false;

    (void)pthread_mutex_lock(&shard->lock);
    found = young->packed && young->handle == handle;
    if (found) {
        packed = young->packed;
        young->packed = 0;
    } else {
        found = take_stored(shard, handle, &packed);
    }
    (void)pthread_mutex_unlock(&shard->lock);
    if (found)
        *ret_entry = unpack(packed);
    return found;
}

/* With the shard's lock: where an entry is, or NULL. */
static struct cell *locate(struct shard *shard, uint64_t handle, uint64_t hashed)
{
    struct cell *cell = young_cell(shard, hashed);

    if (cell->packed && cell->handle == handle)
        return cell;
    cell = shard->cells ? find_cell(shard->cells, shard->size, handle) : NULL;
    if (!cell && shard->old)
        cell = find_cell(shard->old, shard->old_size, handle);
    return cell;
}

static struct allocation_lent lent_by(uint64_t before, uint64_t after)
{
    const struct allocation was = unpack(before), is = unpack(after);

    return (struct allocation_lent){
        .units = ((int64_t)is.shared - (int64_t)was.shared) * (int64_t)is.units,
        .device = is.device,
    };
}

static bool set(enum allocation_kind kind, uint64_t handle, uint64_t bits, bool on,
                struct allocation_lent *ret_lent)
{
    const uint64_t hashed = hash(handle);
    struct shard *shard = shard_of(kind, hashed);
    uint64_t before;
    struct cell *cell;

    *ret_lent = (struct allocation_lent){0};
    (void)pthread_mutex_lock(&shard->lock);
    cell = handle ? locate(shard, handle, hashed) : NULL;
    if (cell) {
        before = cell->packed;
        cell->packed = on ? before | bits : before & ~bits;
        *ret_lent = lent_by(before, cell->packed);
    }
    (void)pthread_mutex_unlock(&shard->lock);
    return cell != NULL;
}

bool allocations_share(enum allocation_kind kind, uint64_t handle, struct allocation_lent *ret_lent)
{
    return set(kind, handle, SHARED, true, ret_lent);
}

bool allocations_keep(enum allocation_kind kind, uint64_t handle, bool kept,
                      struct allocation_lent *ret_lent)
{
    return set(kind, handle, KEPT, kept, ret_lent);
}

bool allocations_look(enum allocation_kind kind, uint64_t handle, struct allocation *ret_entry)
{
    const uint64_t hashed = hash(handle);
    struct shard *shard = shard_of(kind, hashed);
    const struct cell *cell;

    (void)pthread_mutex_lock(&shard->lock);
    cell = handle ? locate(shard, handle, hashed) : NULL;
    if (cell)
        *ret_entry = unpack(cell->packed);
    (void)pthread_mutex_unlock(&shard->lock);
    return cell != NULL;
}

struct allocations_bagged {
    uint64_t handle;
    struct allocation entry;
};

static bool make_room(struct allocations_bag *bag)
{
    size_t room = bag->room ? 2 * bag->room : FIRST_SIZE;
    void *entries;

    if (bag->count < bag->room)
        return true;
    entries = mmap(NULL, room * sizeof(*bag->entries), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (entries == MAP_FAILED)
        return false;
    if (bag->entries) {
        memcpy(entries, bag->entries, bag->count * sizeof(*bag->entries));
        (void)munmap(bag->entries, bag->room * sizeof(*bag->entries));
    }
    bag->entries = entries;
    bag->room = room;
    return true;
}

/* Where the bag counts it. */
static uint64_t *count_of(struct allocations_bag *bag, const struct allocation *entry)
{
    if (bag->in_pages && page_is_shared(entry->units))
        return &bag->small_units;
    if (entry->kept)
        return &bag->kept_units;
    return entry->shared ? &bag->shared_units : &bag->units;
}

void allocations_put_bagged(struct allocations_bag *bag, uint64_t handle,
                            const struct allocation *entry)
{
    *count_of(bag, entry) += entry->units;
    if (make_room(bag))
        bag->entries[bag->count++] = (struct allocations_bagged){.handle = handle, .entry = *entry};
}

static void put_into(struct allocations_bag *bag, const struct cell *cell)
{
    const struct allocation entry = unpack(cell->packed);

    allocations_put_bagged(bag, cell->handle, &entry);
}

static bool is_of(const struct cell *cell, unsigned context)
{
    return cell->packed && unpack(cell->packed).context == context;
}

static void take_context_from(struct shard *shard, unsigned context, struct allocations_bag *bag)
{
    (void)pthread_mutex_lock(&shard->lock);
    for (size_t i = 0; i < YOUNG; i++) {
        struct cell *cell = &shard->young[i];

        if (!is_of(cell, context))
            continue;
        put_into(bag, cell);
        cell->packed = 0;
    }
    move_some(shard, SIZE_MAX);
    for (size_t i = 0; i < shard->size;) {
        struct cell *cell = &shard->cells[i];

        if (!is_of(cell, context)) {
            i++;
            continue;
        }
        put_into(bag, cell);
        remove_cell(shard->cells, shard->size, cell);
        shard->count--;
    }
    (void)pthread_mutex_unlock(&shard->lock);
}

void allocations_take_context(enum allocation_kind kind, unsigned context,
                              struct allocations_bag *ret_bag)
{
    *ret_bag = (struct allocations_bag){.in_pages = kind == ALLOCATION_ADDRESS};
    for (unsigned i = 0; i < SHARDS; i++)
        take_context_from(&shards[kind][i], context, ret_bag);
}

bool allocations_take_bagged(struct allocations_bag *bag, uint64_t handle,
                             struct allocation *ret_entry)
{
    for (size_t i = 0; i < bag->count; i++) {
        if (bag->entries[i].handle != handle)
            continue;
        *ret_entry = bag->entries[i].entry;
        *count_of(bag, ret_entry) -= ret_entry->units;
        bag->entries[i] = bag->entries[--bag->count];
        return true;
    }
    return false;
}

void allocations_give_back(enum allocation_kind kind, unsigned context, struct allocations_bag *bag)
{
    for (size_t i = 0; i < bag->count; i++) {
        bag->entries[i].entry.context = context;
        (void)allocations_add(kind, bag->entries[i].handle, &bag->entries[i].entry);
    }
    allocations_drop(bag);
}

void allocations_drop(struct allocations_bag *bag)
{
    if (bag->entries)
        (void)munmap(bag->entries, bag->room * sizeof(*bag->entries));
    *bag = (struct allocations_bag){0};
}

void allocations_after_fork(void)
{
    for (unsigned kind = 0; kind < ALLOCATION_KINDS; kind++) {
        for (unsigned i = 0; i < SHARDS; i++)
            shards[kind][i] = (struct shard){.lock = PTHREAD_MUTEX_INITIALIZER};
    }
}
