/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "place/fit.h"
#include "place/place.h"

enum {
    AHEAD = 3,  /* nodes whose devices are fetched while one is looked into */
    TRIES = 16, /* nodes that are tried before thin_out() goes through all of them */
};

/* What a node must have at least, in the numbers that place_node_update() keeps. */
struct need {
    uint64_t mib[PLACE_STEPS]; /* of one device, of two devices each, of four, of eight */
    unsigned devices, cores, percent;
    uint32_t vendors;
};

struct choosing {
    const struct place_node *const *nodes;
    const struct demand *demand;
    const struct place_options *options;
    struct arena *arena;
    struct need need;
    bool most_used_first;
    const float *costs; /* by seat, the least is the best; NULL: by the nodes' scores */
};

/* The most of 1, 2, 4 and 8 that is not more than so many devices: its place in the row. */
static size_t step_of(unsigned devices)
{
    size_t step = 0;

    while (step + 1 < PLACE_STEPS && devices >> (step + 1))
        step++;
    return step;
}

/* Of a vendor that has a say in what is taken, the count alone. */
static struct need need_of(const struct demand *demand)
{
    struct need need = {0};

    for (size_t i = 0; i < demand->count; i++) {
        for (size_t k = 0; k < demand->containers[i].request_count; k++) {
            const struct request *request = &demand->containers[i].requests[k];
            uint64_t *mib = &need.mib[step_of(request->count)];

            need.devices = MAX(need.devices, request->count);
            need.vendors |= place_vendor_bit(request->vendor);
            if (rules_of(request->vendor)->want || rules_of(request->vendor)->waived)
                continue;
            need.cores = MAX(need.cores, MIN(request->cores, (unsigned)DEVICE_CORES));
            if (request->memory_bytes)
                *mib = MAX(*mib, request->memory_bytes / MIB);
            else
                need.percent = MAX(need.percent, MIN(request->memory_percent, (unsigned)UINT8_MAX));
        }
    }
    return need;
}

static bool may_fit(const struct place_node *node, const struct need *need)
{
    for (size_t step = 0; step < PLACE_STEPS; step++) {
        if (node->free_mib[step] < need->mib[step])
            return false;
    }
    return (need->vendors & ~node->vendors) == 0 && node->usable >= need->devices &&
           node->free_cores >= need->cores && node->free_percent >= need->percent;
}

static bool is_better(const struct choosing *choosing, const struct place_node *a,
                      const struct place_node *b)
{
    if (choosing->costs) {
        if (choosing->costs[a->seat] != choosing->costs[b->seat])
            return choosing->costs[a->seat] < choosing->costs[b->seat];
    } else if (a->score != b->score) {
        return choosing->most_used_first ? a->score > b->score : a->score < b->score;
    }
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

        if (best < count && !is_better(choosing, node, choosing->nodes[best]))
            continue;
        if (may_fit(node, &choosing->need))
            best = i;
    }
    return best;
}

/* A heap of positions, the best node on top. */

static void heap_sink(const struct choosing *choosing, uint32_t *heap, size_t count, size_t at)
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

static void heap_order(const struct choosing *choosing, uint32_t *heap, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        heap_sink(choosing, heap, count, i);
}

static size_t heap_fill(const struct choosing *choosing, size_t count, size_t tried,
                        uint32_t *ret_heap)
{
    size_t filled = 0;

    for (size_t i = 0; i < count; i++) {
        if (i != tried && may_fit(choosing->nodes[i], &choosing->need))
            ret_heap[filled++] = (uint32_t)i;
    }
    heap_order(choosing, ret_heap, filled);
    return filled;
}

/* Whether each request by itself fits: necessary, and for a single request sufficient. */
static bool may_take(const struct choosing *choosing, const struct place_node *node)
{
    const struct demand *demand = choosing->demand;

    for (size_t i = 0; i < demand->count; i++) {
        const struct container_demand *container = &demand->containers[i];

        for (size_t k = 0; k < container->request_count; k++) {
            if (!fit_may_take(node->devices, node->device_count, &container->requests[k],
                              &choosing->options->policy))
                return false;
        }
    }
    return true;
}

static bool has_position(const uint32_t *positions, size_t count, size_t position)
{
    for (size_t i = 0; i < count; i++) {
        if (positions[i] == position)
            return true;
    }
    return false;
}

/* Keeps the nodes on which each request by itself fits. Goes through them in memory order, since it
 * reads all. */
static size_t thin_out(const struct choosing *choosing, size_t count, const uint32_t *tried,
                       size_t tried_count, uint32_t *ret_heap)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        const struct place_node *node = choosing->nodes[i];

        if (i + AHEAD < count && may_fit(choosing->nodes[i + AHEAD], &choosing->need))
            place_node_prefetch(choosing->nodes[i + AHEAD]);
        if (may_fit(node, &choosing->need) && may_take(choosing, node) &&
            !has_position(tried, tried_count, i))
            ret_heap[kept++] = (uint32_t)i;
    }
    heap_order(choosing, ret_heap, kept);
    return kept;
}

/* Leaves nothing in the arena unless it fits. */
static int try_node(const struct choosing *choosing, size_t position, size_t *ret_position,
                    struct placement *ret_placement)
{
    struct arena_mark mark = arena_mark(choosing->arena);
    int r = place_pod(choosing->nodes[position], choosing->demand, choosing->options,
                      choosing->arena, ret_placement, NULL);

    if (r == PLACE_FITS)
        *ret_position = position;
    else
        arena_rewind(choosing->arena, mark);
    return r;
}

/* The first of the heap that fits, after the best did not. */
static int try_others(const struct choosing *choosing, size_t count, size_t best,
                      size_t *ret_position, struct placement *ret_placement)
{
    uint32_t *heap = ARENA_ARRAY(choosing->arena, uint32_t, count);
    uint32_t tried[TRIES] = {(uint32_t)best};
    size_t tries = 1, left;
    int r;

    if (!heap)
        return -ENOMEM;
    left = heap_fill(choosing, count, best, heap);
    while (left) {
        if (tries == TRIES) {
            left = thin_out(choosing, count, tried, tries, heap);
            if (!left)
                return PLACE_NO_FIT;
        }
        r = try_node(choosing, heap[0], ret_position, ret_placement);
        if (r != PLACE_NO_FIT)
            return r;
        if (tries < TRIES)
            tried[tries] = heap[0];
        tries++;
        heap[0] = heap[--left];
        heap_sink(choosing, heap, left, 0);
    }
    return PLACE_NO_FIT;
}

/* What vendors may add to the nodes' scores, so that the best is not known before others are tried.
 */
struct more {
    float least, most;
};

/* False: they add nothing. */
static bool vendors_score(const struct demand *demand, struct more *ret_more)
{
    bool any = false;

    *ret_more = (struct more){0, 0};
    for (size_t i = 0; i < demand->count; i++) {
        for (size_t k = 0; k < demand->containers[i].request_count; k++) {
            const struct place_rules *rules = rules_of(demand->containers[i].requests[k].vendor);
            const bool known = rules->score_least < 0 || rules->score_most > 0;

            if (!rules->score_node)
                continue;
            any = true;
            ret_more->least += known ? rules->score_least : -INFINITY;
            ret_more->most += known ? rules->score_most : INFINITY;
        }
    }
    return any;
}

static bool is_better_by(const struct choosing *choosing, const struct place_node *a,
                         const struct place_node *b, float more_of_a, float more_of_b)
{
    const float left = a->score + more_of_a, right = b->score + more_of_b;

    if (left != right)
        return choosing->most_used_first ? left > right : left < right;
    return a->rank != b->rank ? a->rank < b->rank : strcmp(a->name, b->name) < 0;
}

/* Where the costs are those of a demand that is alike, the best by its own: of so many nodes that
 * are best by them, and of so many that they know no cost of. */
enum {
    REFINED = 16,
    REFINED_UNKNOWN = 48,
};

struct refining {
    uint32_t best[REFINED + REFINED_UNKNOWN]; /* the best of them first, and behind them unknown */
    size_t known, unknown;
};

static void refine_note(const struct choosing *choosing, struct refining *refining, size_t position)
{
    const struct place_node *node = choosing->nodes[position];
    size_t at = refining->known;

    if (isinf(choosing->costs[node->seat])) {
        if (refining->unknown < REFINED_UNKNOWN && may_fit(node, &choosing->need))
            refining->best[REFINED + refining->unknown++] = (uint32_t)position;
        return;
    }
    if (at == REFINED && !is_better(choosing, node, choosing->nodes[refining->best[at - 1]]))
        return;
    if (!may_fit(node, &choosing->need))
        return;
    at = MIN(at, (size_t)REFINED - 1);
    for (; at > 0 && is_better(choosing, node, choosing->nodes[refining->best[at - 1]]); at--)
        refining->best[at] = refining->best[at - 1];
    refining->best[at] = (uint32_t)position;
    refining->known = MIN(refining->known + 1, (size_t)REFINED);
}

static float own_cost(const struct choosing *choosing, size_t position)
{
    const struct place_scarcity *scarcity = choosing->options->scarcity;
    struct scarcity_sight sight;

    scarcity_see(scarcity->prices, &scarcity->rooms[choosing->nodes[position]->seat], &sight);
    return scarcity_cost(&sight, &scarcity->demand, NULL);
}

/* The best that may fit; count when there is none. */
static size_t find_best_by_own_cost(const struct choosing *choosing, size_t count)
{
    struct refining refining = {.known = 0};
    float least = INFINITY;
    size_t best = count;

    for (size_t i = 0; i < count; i++)
        refine_note(choosing, &refining, i);
    for (size_t i = 0; i < refining.known + refining.unknown; i++) {
        const size_t position =
            refining.best[i < refining.known ? i : REFINED + i - refining.known];
        const float cost = own_cost(choosing, position);

        if (best < count && (cost > least || (cost == least && choosing->nodes[position]->rank >=
                                                                   choosing->nodes[best]->rank)))
            continue;
        best = position;
        least = cost;
    }
    return best;
}

/* Nodes in the order of their own scores, until what vendors may add can make none of the rest the
 * best. */
static int try_scored(const struct choosing *choosing, size_t count, const struct more *more,
                      size_t *ret_position, struct placement *ret_placement)
{
    const float hoped = choosing->most_used_first ? more->most : more->least;
    uint32_t *heap = ARENA_ARRAY(choosing->arena, uint32_t, count);
    size_t best = count, left, position;
    float more_of_best = 0;

    if (!heap)
        return -ENOMEM;
    left = heap_fill(choosing, count, count, heap);
    for (; left; heap[0] = heap[--left], heap_sink(choosing, heap, left, 0)) {
        const struct arena_mark mark = arena_mark(choosing->arena);
        const struct place_node *node = choosing->nodes[heap[0]];
        int r;

        if (best < count &&
            !is_better_by(choosing, node, choosing->nodes[best], hoped, more_of_best))
            break;
        r = try_node(choosing, heap[0], &position, ret_placement);
        arena_rewind(choosing->arena, mark);
        if (r < 0)
            return r;
        if (r == PLACE_NO_FIT ||
            (best < count && !is_better_by(choosing, node, choosing->nodes[best],
                                           ret_placement->score, more_of_best)))
            continue;
        best = heap[0];
        more_of_best = ret_placement->score;
    }
    return best < count ? try_node(choosing, best, ret_position, ret_placement) : PLACE_NO_FIT;
}

int place_choose(const struct place_node *const *nodes, size_t count, const struct demand *demand,
                 const struct place_options *options, struct arena *arena, size_t *ret_position,
                 struct placement *ret_placement)
{
    const struct choosing choosing = {
        .nodes = nodes,
        .demand = demand,
        .options = options,
        .arena = arena,
        .need = need_of(demand),
        .most_used_first = options->node_order != PLACE_SPREAD,
        .costs = options->scarcity ? options->scarcity->costs : NULL,
    };
    struct more more;
    size_t best;
    int r;

    if (count > UINT32_MAX)
        return -E2BIG;
    if (!choosing.costs && vendors_score(demand, &more))
        return try_scored(&choosing, count, &more, ret_position, ret_placement);
    best = choosing.costs && !options->scarcity->exact ? find_best_by_own_cost(&choosing, count)
                                                       : find_best(&choosing, count);
    if (best == count)
        return PLACE_NO_FIT;
    r = try_node(&choosing, best, ret_position, ret_placement);
    if (r != PLACE_NO_FIT)
        return r;
    return try_others(&choosing, count, best, ret_position, ret_placement);
}
