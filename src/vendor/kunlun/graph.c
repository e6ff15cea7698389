/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which cards make a set. Eight cards stand in two wings of four; within a wing all are connected,
 * and each card is connected to the one opposite. 1, 2, 4 or 8 cards are given out: of one wing,
 * and of the one that is used up best by it, else as a ring across both.
 *
 * As in HAMi, a wing is four places in the order of preference, while a ring is told by the cards'
 * numbers.
 */

#include <string.h>

#include "base/util.h"
#include "vendor/kunlun/kunlun.h"

enum {
    WING = 4,
    PLACES = 2 * WING,
    RING = 4,
};

/* The cards that fit, by their places: of more than eight, those of the first eight places. */
struct board {
    const struct place_set *set;
    size_t places;
};

static bool fits(const struct board *board, size_t place)
{
    return place < board->places && board->set->fits[board->set->order[place]];
}

static unsigned number(const struct board *board, size_t place)
{
    return board->set->devices[board->set->order[place]].index;
}

static size_t count_wing(const struct board *board, size_t first)
{
    size_t count = 0;

    for (size_t i = first; i < first + WING; i++)
        count += fits(board, i);
    return count;
}

/* Of the places from first on. */
static bool take_first(const struct board *board, size_t first, size_t count, size_t *ret_chosen)
{
    size_t taken = 0;

    for (size_t i = first; i < PLACES && taken < count; i++) {
        if (fits(board, i))
            ret_chosen[taken++] = board->set->order[i];
    }
    return taken == count;
}

/* How many cards of a wing may be left for so many: the fewest first, but that a single card
 * rather breaks three than two. */
static bool take_wing(const struct board *board, size_t count, size_t *ret_chosen)
{
    static const size_t of_one[] = {1, 3, 2, 4};
    const size_t left = count_wing(board, 0), right = count_wing(board, WING);

    for (size_t size = count; size <= WING; size++) {
        const size_t wanted = count == 1 ? of_one[size - 1] : size;

        if (left == wanted)
            return take_first(board, 0, count, ret_chosen);
        if (right == wanted)
            return take_first(board, WING, count, ret_chosen);
    }
    return false;
}

/* The device of a number that fits, or false. */
static bool find_number(const struct board *board, unsigned wanted, size_t *ret_device)
{
    for (size_t i = 0; i < board->places; i++) {
        if (fits(board, i) && number(board, i) == wanted) {
            *ret_device = board->set->order[i];
            return true;
        }
    }
    return false;
}

/* The first card whose opposite is free, too. */
static bool take_bridge(const struct board *board, size_t *ret_chosen)
{
    for (size_t i = 0; i < board->places; i++) {
        const unsigned from = number(board, i);

        if (!fits(board, i) || from >= PLACES)
            continue;
        ret_chosen[0] = board->set->order[i];
        if (find_number(board, (from + WING) % PLACES, &ret_chosen[1]))
            return true;
    }
    return false;
}

static bool is_in(const unsigned *ring, unsigned card)
{
    for (size_t i = 0; i < RING; i++) {
        if (ring[i] == card)
            return true;
    }
    return false;
}

/* Whether the two cards that a ring leaves of six are connected. */
static bool leaves_a_pair(const struct board *board, const unsigned *ring)
{
    unsigned rest[2] = {0};
    size_t count = 0, unused;

    for (unsigned card = 0; card < PLACES && count < 2; card++) {
        if (!is_in(ring, card) && find_number(board, card, &unused))
            rest[count++] = card;
    }
    return count == 2 && (rest[1] - rest[0] == WING || rest[0] / WING == rest[1] / WING);
}

static bool take_ring(const struct board *board, size_t *ret_chosen)
{
    static const unsigned rings[][RING] = {{0, 1, 4, 5}, {2, 3, 6, 7}, {0, 2, 4, 6},
                                           {1, 3, 5, 7}, {0, 3, 4, 7}, {1, 2, 5, 6}};
    const size_t left = count_wing(board, 0) + count_wing(board, WING);
    bool found = false;

    for (size_t i = 0; i < ARRAY_SIZE(rings); i++) {
        size_t ring[RING], have = 0;

        while (have < RING && find_number(board, rings[i][have], &ring[have]))
            have++;
        if (have < RING)
            continue;
        memcpy(ret_chosen, ring, sizeof(ring));
        found = true;
        if (left != RING + 2 || leaves_a_pair(board, rings[i]))
            return true;
    }
    return found;
}

/* By their numbers. */
static bool take_all(const struct board *board, size_t *ret_chosen)
{
    for (unsigned i = 0; i < PLACES; i++) {
        if (!find_number(board, i, &ret_chosen[i]))
            return false;
    }
    return true;
}

bool kunlun_choose(const struct place_step *step, const struct place_set *set, size_t *ret_chosen,
                   struct place_failure *failure)
{
    const struct board board = {set, MIN(set->count, (size_t)PLACES)};
    const size_t count = step->request->count;

    if (count == PLACES && take_all(&board, ret_chosen))
        return true;
    if ((count == 1 || count == 2 || count == 4) && take_wing(&board, count, ret_chosen))
        return true;
    if (count == 2 && take_bridge(&board, ret_chosen))
        return true;
    if (count == RING && take_ring(&board, ret_chosen))
        return true;
    failure->for_good = count != 1 && count != 2 && count != 4 && count != PLACES;
    return false;
}

/* One reason for all cards, as in HAMi: a set is found or not. */
void kunlun_tell(const struct place_step *step, struct place_failure *failure)
{
    const unsigned avoided = failure->reasons[PLACE_CARD_UUID_MISMATCH];
    const unsigned used = failure->reasons[PLACE_CARD_EXCLUSIVE];

    memset(failure->reasons, 0, sizeof(failure->reasons));
    if (step->policy->mutex && used)
        failure->reasons[PLACE_CARD_EXCLUSIVE] = used;
    else if (avoided)
        failure->reasons[PLACE_CARD_UUID_MISMATCH] = avoided;
    else
        failure->reasons[PLACE_NUMA_NOT_FIT] = 1;
}
