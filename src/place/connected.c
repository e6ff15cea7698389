/* SPDX-License-Identifier: Apache-2.0 */
#include "place/connected.h"

#include <string.h>

#include "base/util.h"

/*
 * Depth first over the sets, in the order of the list, with a bound: to the scores within a partial
 * set come at most, for each device still wanted, the best that any of the rest adds, which is its
 * scores to the set, and half of its best scores to as many others.
 */
struct search {
    size_t count, wanted;
    int32_t scores[CONNECTED_MAX][CONNECTED_MAX]; /* of each pair, from the device that is first */

    /* The sum of each device's so many best scores. */
    int64_t best_of[CONNECTED_MAX][CONNECTED_MAX];

    size_t chosen[CONNECTED_MAX];
    unsigned steps_left;

    int64_t best;
    bool found; /* best is of a set that the search came to; else of a guess */
    size_t best_chosen[CONNECTED_MAX];
};

static void note_best(int32_t *best, size_t count, int32_t score)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t less = MIN(best[i], score);

        best[i] = MAX(best[i], score);
        score = less;
    }
}

static void fill_best_of(struct search *search, size_t device)
{
    const size_t others = search->count - 1;
    int32_t best[CONNECTED_MAX];
    int64_t sum = 0;

    for (size_t i = 0; i < others; i++)
        best[i] = INT32_MIN;
    for (size_t i = 0; i < search->count; i++) {
        if (i != device)
            note_best(best, others, search->scores[device][i]);
    }
    search->best_of[device][0] = 0;
    for (size_t i = 0; i < others; i++) {
        sum += best[i];
        search->best_of[device][i + 1] = sum;
    }
}

static void fill_scores(struct search *search, const struct place_rules *rules,
                        const struct device *devices, const size_t *positions)
{
    for (size_t i = 0; i < search->count; i++) {
        for (size_t k = i + 1; k < search->count; k++) {
            search->scores[i][k] = search->scores[k][i] =
                rules->link(&devices[positions[i]], &devices[positions[k]]);
        }
    }
    for (size_t i = 0; i < search->count; i++)
        fill_best_of(search, i);
}

/* Of a device to the first so many chosen. */
static int64_t score_to_chosen(const struct search *search, size_t device, size_t depth)
{
    int64_t sum = 0;

    for (size_t i = 0; i < depth; i++)
        sum += search->scores[device][search->chosen[i]];
    return sum;
}

/* What the devices from `from` on add at most to a set of this depth. Twice, since halves are. */
static int64_t twice_bound(const struct search *search, size_t depth, size_t from)
{
    const size_t missing = search->wanted - depth;
    int64_t most = INT64_MIN;

    for (size_t i = from; i < search->count; i++) {
        int64_t more =
            2 * score_to_chosen(search, i, depth) + search->best_of[i][missing ? missing - 1 : 0];

        most = MAX(most, more);
    }
    return most * (int64_t)missing;
}

static void note_set(struct search *search, int64_t sum)
{
    if (sum < search->best || (sum == search->best && search->found))
        return;
    search->best = sum;
    search->found = true;
    memcpy(search->best_chosen, search->chosen, search->wanted * sizeof(search->chosen[0]));
}

static void search_from(struct search *search, size_t depth, size_t from, int64_t sum)
{
    int64_t bound;

    if (depth == search->wanted) {
        note_set(search, sum);
        return;
    }
    bound = 2 * sum + twice_bound(search, depth, from);
    if (bound < 2 * search->best || (bound == 2 * search->best && search->found))
        return;
    for (size_t i = from; i + (search->wanted - depth) <= search->count; i++) {
        if (!search->steps_left)
            return;
        search->steps_left--;
        search->chosen[depth] = i;
        search_from(search, depth + 1, i + 1, sum + score_to_chosen(search, i, depth));
    }
}

static bool is_chosen(const struct search *search, size_t device, size_t depth)
{
    for (size_t i = 0; i < depth; i++) {
        if (search->chosen[i] == device)
            return true;
    }
    return false;
}

static void sort_chosen(struct search *search)
{
    size_t count = 0;

    for (size_t i = 0; i < search->count; i++) {
        if (is_chosen(search, i, search->wanted))
            search->best_chosen[count++] = i;
    }
}

/* A set that grows from one device, by the device that adds most. Returns the sum of its scores. */
static int64_t grow_from(struct search *search, size_t first)
{
    int64_t to_chosen[CONNECTED_MAX], sum = 0;
    bool chosen[CONNECTED_MAX] = {false};

    for (size_t i = 0; i < search->count; i++)
        to_chosen[i] = search->scores[first][i];
    search->chosen[0] = first;
    chosen[first] = true;
    for (size_t depth = 1; depth < search->wanted; depth++) {
        size_t next = search->count;

        for (size_t i = 0; i < search->count; i++) {
            if (!chosen[i] && (next == search->count || to_chosen[i] > to_chosen[next]))
                next = i;
        }
        sum += to_chosen[next];
        search->chosen[depth] = next;
        chosen[next] = true;
        for (size_t i = 0; i < search->count; i++)
            to_chosen[i] += search->scores[next][i];
    }
    return sum;
}

/* A good first bound. */
static void guess(struct search *search)
{
    search->best = INT64_MIN;
    for (size_t first = 0; first < search->count; first++) {
        const int64_t sum = grow_from(search, first);

        if (sum <= search->best)
            continue;
        search->best = sum;
        sort_chosen(search);
    }
}

static size_t find_worst(const struct place_rules *rules, const struct device *devices,
                         const size_t *positions, size_t count)
{
    int64_t least = INT64_MAX;
    size_t worst = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;

        for (size_t k = 0; k < count; k++)
            sum += k == i ? 0 : rules->link(&devices[positions[i]], &devices[positions[k]]);
        if (sum >= least)
            continue;
        least = sum;
        worst = i;
    }
    return worst;
}

/* The chosen ones ascend; the others keep their order behind them. */
static void move_to_front(size_t *positions, size_t count, const size_t *chosen,
                          size_t chosen_count)
{
    size_t moved[CONNECTED_MAX], front = 0, behind = chosen_count;

    for (size_t i = 0; i < count; i++) {
        const bool is_front = front < chosen_count && chosen[front] == i;

        moved[is_front ? front++ : behind++] = positions[i];
    }
    memcpy(positions, moved, count * sizeof(moved[0]));
}

/* False: there are too few, and none is left. */
static bool take_looks(unsigned *looks_left, unsigned looks)
{
    const bool enough = *looks_left >= looks;

    *looks_left = enough ? *looks_left - looks : 0;
    return enough;
}

void connected_choose(const struct place_rules *rules, const struct device *devices,
                      size_t *positions, size_t count, size_t wanted, unsigned *looks_left)
{
    unsigned own = count <= CONNECTED_EXACT ? CONNECTED_STEPS : CONNECTED_STEPS_MORE;
    struct search search = {.count = MIN(count, (size_t)CONNECTED_MAX), .wanted = wanted};

    if (!rules->link || wanted >= search.count)
        return;
    /* Reading the scores, and a guess, are looks into each pair. */
    if (looks_left && !take_looks(looks_left, (unsigned)(search.count * search.count)))
        return;
    search.steps_left = looks_left ? MIN(*looks_left, own) : own;
    own = search.steps_left;
    if (wanted == 1) {
        search.best_chosen[0] = find_worst(rules, devices, positions, search.count);
    } else {
        fill_scores(&search, rules, devices, positions);
        guess(&search);
        search_from(&search, 0, 0, 0);
    }
    if (looks_left)
        (void)take_looks(looks_left, own - search.steps_left);
    move_to_front(positions, search.count, search.best_chosen, wanted);
}
