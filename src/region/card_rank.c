/* SPDX-License-Identifier: Apache-2.0 */
#include "region/card_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/glibc.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/bucket.h"

#define SLICE_NS INT64_C(2000000) /* in which a device runs one context, as a rule */

#define TURN_NS INT64_C(8000000) /* of equals: a switch between them costs some 0.1 ms */

#define SWITCHES_PART 8 /* of the time of two at once, on top: what switches between them take */

#define LOAD(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

bool card_cell_name(char *text, size_t size, const char *name, int priority, unsigned cores)
{
    int len;

    if (priority == CARD_PRIORITY && !cores)
        len = snprintf(text, size, "%s", name);
    else
        len = snprintf(text, size, "%s.%d.%u", name, priority, cores);
    return len > 0 && (size_t)len < size;
}

bool card_cell_is_of(const char *file, const char *name)
{
    size_t len = strlen(name);

    return strncmp(file, name, len) == 0 && (!file[len] || file[len] == '.');
}

void card_rank_of(const char *name, struct card_other *other)
{
    const char *at = strchr(name, '.');
    unsigned long priority, cores;
    char *end;

    other->priority = CARD_PRIORITY;
    other->believed = 0;
    if (!at || at[1] < '0' || at[1] > '9')
        return;
    priority = strtoul(at + 1, &end, 10);
    if (*end != '.' || end[1] < '0' || end[1] > '9')
        return;
    cores = strtoul(end + 1, &end, 10);
    if (*end || priority > INT16_MAX)
        return;
    other->priority = (int)priority;
    if (cores && cores + CARD_BELIEF_MORE < 100)
        other->believed = bucket_rate((unsigned)cores + CARD_BELIEF_MORE);
}

void card_rank_note(struct card *card)
{
    bool any = false;

    for (unsigned i = 0; i < card->count; i++)
        any |= card->others[i].priority != card->priority;
    STORE(card->has_ranks, any);
    if (any)
        return;
    STORE(card->has_betters, false);
    STORE(card->has_lessers, false);
    STORE(card->yields_until_ns, 0);
}

struct moment {
    int64_t now_ns, looked_ns, own_until_ns;
};

static bool used_lately(const struct card_text *cell, int64_t now_ns)
{
    return cell->wanted_until_ns > now_ns - CARD_LATELY_NS &&
           cell->wanted_until_ns < now_ns + CARD_WANT_MOST_NS;
}

/* Time that was left to it counts, and is earned by its share. */
static bool is_believed(struct card_other *other, int64_t looked_ns, int64_t now_ns)
{
    int64_t left_ns = MIN(now_ns, other->claimed_until_ns) - looked_ns;

    if (!other->believed)
        return true;
    other->zero_ns = MIN(MAX(other->zero_ns, now_ns - CARD_BELIEF_CREDIT_NS), now_ns + NS_PER_S);
    if (left_ns > 0)
        other->zero_ns += left_ns * (int64_t)BUCKET_ONE / other->believed;
    return other->zero_ns < now_ns;
}

/*
 * Two that have work get slices of the device in turn, until one has none left: by what the caller
 * had launched when the other's work was first seen, that is held up.
 */
static int64_t delayed_by_ns(struct card_other *other, const struct card_text *cell,
                             const struct moment *moment)
{
    if (other->since_ns != cell->busy_since_ns) {
        other->since_ns = cell->busy_since_ns;
        other->beside_ns = MAX(moment->own_until_ns - cell->busy_since_ns, INT64_C(0));
        other->beside_ns += other->beside_ns / SWITCHES_PART;
    }
    return MIN(other->beside_ns, cell->busy_until_ns - cell->busy_since_ns + SLICE_NS);
}

static int64_t claim_of(struct card_other *other, const struct card_text *cell,
                        const struct moment *moment)
{
    const bool believed = is_believed(other, moment->looked_ns, moment->now_ns);
    const int64_t least_ns = moment->now_ns - CARD_CLAIM_NS,
                  most_ns = moment->now_ns + CARD_CLAIM_NS;
    int64_t until_ns;

    other->claimed_until_ns = 0;
    if (!believed || cell->busy_until_ns < least_ns ||
        cell->busy_until_ns > most_ns + CARD_WANT_NS || cell->busy_since_ns > cell->busy_until_ns ||
        cell->busy_since_ns < 0)
        return 0;
    until_ns = MIN(cell->busy_until_ns + delayed_by_ns(other, cell, moment), most_ns);
    if (until_ns <= moment->now_ns)
        return 0;
    other->claimed_until_ns = until_ns;
    return until_ns;
}

/*
 * Equals that have one of higher priority beside them take turns: if all of them had something on
 * the device when that comes, it would wait for each, and for the switches between them. Who goes
 * first is drawn anew for each turn, so that of those who have work each has its part.
 */
static uint64_t place_in_turn(uint64_t inode, int64_t turn)
{
    uint64_t bits = inode * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)turn;

    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9); /* as splitmix64 does */
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/* Whether an equal goes before this container, while it has work. */
static bool has_turn(const struct card *card, const struct card_other *other, int64_t turn)
{
    return LOAD(card->has_betters) &&
           place_in_turn(other->cell.ino, turn) < place_in_turn(card->own_inode, turn);
}

/*
 * What another says; false where that is no cell: unlike an idle card, a priority is for who says
 * so. One that can't be reached says as much as is believed: else who closes our descriptors would
 * go first.
 */
static bool hears(const struct card_other *other, int64_t now_ns, struct card_text *ret_cell)
{
    const struct card_text most = {CARD_CELL_MAGIC, now_ns + CARD_WANT_NS, now_ns + CARD_CLAIM_NS,
                                   now_ns};
    ssize_t n = kept_read(&other->cell, ret_cell, sizeof(*ret_cell));

    if (n < 0)
        *ret_cell = most;
    return n < 0 || (n == (ssize_t)sizeof(*ret_cell) && ret_cell->magic == CARD_CELL_MAGIC);
}

static void look(struct card *card, const struct moment *moment)
{
    const int64_t turn = moment->now_ns / TURN_NS, turn_end_ns = (turn + 1) * TURN_NS;
    bool betters = false, lessers = false;
    int64_t until_ns = 0;

    for (unsigned i = 0; i < card->count; i++) {
        struct card_other *other = &card->others[i];
        const bool equal = other->priority == card->priority;
        struct card_text cell;

        if ((equal && !has_turn(card, other, turn)) || !hears(other, moment->now_ns, &cell))
            continue;
        if (other->priority > card->priority) {
            lessers |= used_lately(&cell, moment->now_ns);
            continue;
        }
        betters |= !equal && used_lately(&cell, moment->now_ns);
        until_ns =
            MAX(until_ns, MIN(claim_of(other, &cell, moment), equal ? turn_end_ns : INT64_MAX));
    }
    STORE(card->has_betters, betters);
    STORE(card->has_lessers, lessers);
    STORE(card->yields_until_ns, until_ns);
}

bool card_yields(struct card *card, int64_t now_ns, int64_t own_until_ns, int64_t *ret_until_ns)
{
    int64_t looked_ns = LOAD(card->rank_looked_ns);
    int64_t until_ns;

    if (!card->own || !LOAD(card->has_ranks))
        return false;
    if (now_ns - looked_ns >= (LOAD(card->has_betters) ? CARD_RANK_LOOK_NS : CARD_LOOK_NS) &&
        lock_try_mutex(&card->lock)) {
        look(card, &(struct moment){now_ns, looked_ns, own_until_ns});
        STORE(card->rank_looked_ns, now_ns);
        unlock_mutex(&card->lock);
    } else if (now_ns - looked_ns >= CARD_STALE_NS) {
        *ret_until_ns = now_ns + CARD_LOOK_NS;
        return true;
    }
    until_ns = LOAD(card->yields_until_ns);
    if (until_ns <= now_ns)
        return false;
    *ret_until_ns = until_ns;
    return true;
}
