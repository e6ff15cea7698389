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

/* Moves the best chosen to the front; the others follow in their order. */
static void put_first(const struct search *search, size_t *positions)
{
    size_t moved[CONNECTED_MAX], count = 0, next = 0;

    for (size_t i = 0; i < search->wanted; i++)
        moved[count++] = positions[search->best_chosen[i]];
    for (size_t i = 0; i < search->count; i++) {
        if (next < search->wanted && search->best_chosen[next] == i)
            next++;
        else
            moved[count++] = positions[i];
    }
    memcpy(positions, moved, count * sizeof(moved[0]));
}

static void sort_chosen(struct search *search)
{
    size_t count = 0;

    for (size_t i = 0; i < search->count; i++) {
        if (is_chosen(search, i, search->wanted))
            search->best_chosen[count++] = i;
    }
}

/* From each device in turn the set that grows by the device that adds most: a good first bound. */
static void guess(struct search *search)
{
    search->best = INT64_MIN;
    for (size_t first = 0; first < search->count; first++) {
        int64_t sum = 0;

        search->chosen[0] = first;
        for (size_t depth = 1; depth < search->wanted; depth++) {
            int64_t most = INT64_MIN;

            for (size_t i = 0; i < search->count; i++) {
                int64_t more = score_to_chosen(search, i, depth);

                if (more <= most || is_chosen(search, i, depth))
                    continue;
                most = more;
                search->chosen[depth] = i;
            }
            sum += most;
        }
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

void connected_choose(const struct place_rules *rules, const struct device *devices,
                      size_t *positions, size_t count, size_t wanted)
{
    struct search search = {
        .count = MIN(count, (size_t)CONNECTED_MAX),
        .wanted = wanted,
        .steps_left = CONNECTED_STEPS,
    };

    if (!rules->link || wanted >= search.count)
        return;
    if (wanted == 1) {
        search.best_chosen[0] = find_worst(rules, devices, positions, search.count);
    } else {
        fill_scores(&search, rules, devices, positions);
        guess(&search);
        search_from(&search, 0, 0, 0);
    }
    put_first(&search, positions);
}
