/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/place.h"

/* The least that a node must have, in what place_node_update() keeps of it. */
struct need {
    uint64_t mib;
    unsigned devices, cores, percent;
};

struct choosing {
    const struct place_node *const *nodes;
    struct need need;
    bool most_used_first;
};

static struct need need_of(const struct demand *demand)
{
    struct need need = {0};

    for (size_t i = 0; i < demand->count; i++) {
        for (size_t k = 0; k < demand->containers[i].request_count; k++) {
            const struct request *request = &demand->containers[i].requests[k];

            need.devices = MAX(need.devices, request->count);
            need.cores = MAX(need.cores, MIN(request->cores, (unsigned)DEVICE_CORES));
            if (request->memory_bytes)
                need.mib = MAX(need.mib, request->memory_bytes / MIB);
            else
                need.percent = MAX(need.percent, MIN(request->memory_percent, (unsigned)UINT8_MAX));
        }
    }
    return need;
}

static bool may_fit(const struct place_node *node, const struct need *need)
{
    return node->usable >= need->devices && node->free_mib >= need->mib &&
           node->free_cores >= need->cores && node->free_percent >= need->percent;
}

static bool is_better(const struct choosing *choosing, const struct place_node *a,
                      const struct place_node *b)
{
    if (a->score != b->score)
        return choosing->most_used_first ? a->score > b->score : a->score < b->score;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return strcmp(a->name, b->name) < 0;
}

/* The best that may fit; count when there is none. */
static size_t find_best(const struct choosing *choosing, size_t count)
{
    size_t best = count;

    for (size_t i = 0; i < count; i++) {
        const struct place_node *node = choosing->nodes[i];

        if (!may_fit(node, &choosing->need))
            continue;
        if (best == count || is_better(choosing, node, choosing->nodes[best]))
            best = i;
    }
    return best;
}

/* A heap of positions, the best node on top. */

static void sink(const struct choosing *choosing, uint32_t *heap, size_t count, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        uint32_t moved;

        if (child >= count)
            return;
        if (child + 1 < count &&
            is_better(choosing, choosing->nodes[heap[child + 1]], choosing->nodes[heap[child]]))
            child++;
        if (!is_better(choosing, choosing->nodes[heap[child]], choosing->nodes[heap[at]]))
            return;
        moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static size_t fill_heap(const struct choosing *choosing, size_t count, size_t tried,
                        uint32_t *ret_heap)
{
    size_t filled = 0;

    for (size_t i = 0; i < count; i++) {
        if (i != tried && may_fit(choosing->nodes[i], &choosing->need))
            ret_heap[filled++] = (uint32_t)i;
    }
    for (size_t i = filled / 2; i-- > 0;)
        sink(choosing, ret_heap, filled, i);
    return filled;
}

/* Leaves nothing in the arena unless it fits. */
static int try_node(const struct place_node *node, const struct demand *demand,
                    const struct place_options *options, struct arena *arena,
                    struct placement *ret_placement)
{
    struct arena_mark mark = arena_mark(arena);
    int r = place_pod(node, demand, options, arena, ret_placement, NULL);

    if (r != PLACE_FITS)
        arena_rewind(arena, mark);
    return r;
}

int place_choose(const struct place_node *const *nodes, size_t count, const struct demand *demand,
                 const struct place_options *options, struct arena *arena, size_t *ret_position,
                 struct placement *ret_placement)
{
    const struct choosing choosing = {
        .nodes = nodes,
        .need = need_of(demand),
        .most_used_first = options->node_order == PLACE_BINPACK,
    };
    size_t best, left;
    uint32_t *heap;
    int r;

    if (count > UINT32_MAX)
        return -E2BIG;
    best = find_best(&choosing, count);
    if (best == count)
        return PLACE_NO_FIT;
    r = try_node(nodes[best], demand, options, arena, ret_placement);
    if (r != PLACE_NO_FIT) {
        if (r == PLACE_FITS)
            *ret_position = best;
        return r;
    }

    heap = ARENA_ARRAY(arena, uint32_t, count);
    if (!heap)
        return -ENOMEM;
    left = fill_heap(&choosing, count, best, heap);
    while (left) {
        r = try_node(nodes[heap[0]], demand, options, arena, ret_placement);
        if (r == PLACE_FITS)
            *ret_position = heap[0];
        if (r != PLACE_NO_FIT)
            return r;
        heap[0] = heap[--left];
        sink(&choosing, heap, left, 0);
    }
    return PLACE_NO_FIT;
}
