/* SPDX-License-Identifier: Apache-2.0 */
#include "place/scarcity.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

enum {
    ALWAYS = 1 << 20, /* copies, of a class that asks for no processors */
    BLOCK = 4,        /* classes */
    MULTI = 4,        /* of classes with several devices */
};

_Static_assert(SCARCITY_CLASSES % BLOCK == 0, "the arrays hold whole blocks");

#define FLOOR_K 0.01

/* floor(left / share), both in steps. */
static inline uint32_t copies_of(uint32_t left, uint32_t share)
{
    static const uint8_t quotients[SCARCITY_STEPS + 1][SCARCITY_STEPS + 1] = {
#define QUOTIENT(left, share) ((share) ? (left) / ((share) ? (share) : 1) : 0)
#define ROW(n)                                                                                     \
    {0,                                                                                            \
     QUOTIENT(n, 1),                                                                               \
     QUOTIENT(n, 2),                                                                               \
     QUOTIENT(n, 3),                                                                               \
     QUOTIENT(n, 4),                                                                               \
     QUOTIENT(n, 5),                                                                               \
     QUOTIENT(n, 6),                                                                               \
     QUOTIENT(n, 7),                                                                               \
     QUOTIENT(n, 8),                                                                               \
     QUOTIENT(n, 9),                                                                               \
     QUOTIENT(n, 10),                                                                              \
     QUOTIENT(n, 11),                                                                              \
     QUOTIENT(n, 12),                                                                              \
     QUOTIENT(n, 13),                                                                              \
     QUOTIENT(n, 14),                                                                              \
     QUOTIENT(n, 15),                                                                              \
     QUOTIENT(n, 16),                                                                              \
     QUOTIENT(n, 17),                                                                              \
     QUOTIENT(n, 18),                                                                              \
     QUOTIENT(n, 19),                                                                              \
     QUOTIENT(n, 20)}
        ROW(0),  ROW(1),  ROW(2),  ROW(3),  ROW(4),  ROW(5),  ROW(6),
        ROW(7),  ROW(8),  ROW(9),  ROW(10), ROW(11), ROW(12), ROW(13),
        ROW(14), ROW(15), ROW(16), ROW(17), ROW(18), ROW(19), ROW(20),
    };

    return quotients[left][share];
}

static uint32_t up_to(uint32_t amount, uint32_t step)
{
    return (amount + step - 1) / step * step;
}

struct scarcity_demand scarcity_class_of(const struct scarcity_demand *demand)
{
    struct scarcity_demand class = *demand;

    class.cpu_milli = up_to(demand->cpu_milli, SCARCITY_CPU_STEP);
    class.memory_mib = up_to(demand->memory_mib, SCARCITY_MEMORY_STEP);
    for (size_t i = 0; i < SCARCITY_TYPES; i++)
        class.shares[i] = (uint16_t)up_to(demand->shares[i], SCARCITY_STEP);
    return class;
}

/* Prices */

static bool is_of_group(const struct scarcity_demand *a, const struct scarcity_demand *b)
{
    return a->count == b->count && memcmp(a->shares, b->shares, sizeof(a->shares)) == 0;
}

/* How many copies a bound of the node allows. Half of a unit keeps the rounding of floats from the
 * border of two numbers. */
static void set_rate(uint32_t amount, float *ret_rate, float *ret_base)
{
    *ret_rate = amount ? 1.0f / (float)amount : 0;
    *ret_base = amount ? 0.5f / (float)amount : (float)ALWAYS;
}

static void add_class(struct scarcity_prices *prices, const struct scarcity_demand *class,
                      size_t given)
{
    const size_t at = prices->class_count++;

    set_rate(class->cpu_milli, &prices->cpu_rate[at], &prices->cpu_base[at]);
    set_rate(class->memory_mib, &prices->memory_rate[at], &prices->memory_base[at]);
    prices->price[at] = 0;
    prices->given[at] = (uint16_t)given;
}

void scarcity_prices_init(struct scarcity_prices *ret_prices, const struct scarcity_demand *classes,
                          size_t count)
{
    bool taken[SCARCITY_CLASSES] = {false};

    assert(count <= SCARCITY_CLASSES);
    *ret_prices = (struct scarcity_prices){0};
    for (size_t i = 0; i < count; i++) {
        struct scarcity_group *group = &ret_prices->groups[ret_prices->group_count];

        if (taken[i])
            continue;
        assert(classes[i].count);
        ret_prices->group_count++;
        group->count = classes[i].count;
        group->first = (uint16_t)ret_prices->class_count;
        for (size_t k = 0; k < SCARCITY_TYPES; k++)
            group->steps[k] = (uint8_t)(classes[i].shares[k] / SCARCITY_STEP);
        for (size_t k = i; k < count; k++) {
            if (taken[k] || !is_of_group(&classes[i], &classes[k]))
                continue;
            taken[k] = true;
            add_class(ret_prices, &classes[k], k);
        }
        group->last = (uint16_t)ret_prices->class_count;
    }
}

/* Newton's; of numbers from a thousandth to a few hundred. */
static double root_of(double square)
{
    double root = 1;

    for (int i = 0; i < 20; i++)
        root = (root + square / root) / 2;
    return root;
}

/* Devices of a copy, by the mean of its shares over the types that it may have. */
static double size_of(const struct scarcity_demand *class)
{
    unsigned sum = 0, types = 0;

    for (size_t i = 0; i < SCARCITY_TYPES; i++) {
        sum += class->shares[i];
        types += class->shares[i] > 0;
    }
    return types ? (double)class->count * sum / types / SCARCITY_WHOLE : 0;
}

void scarcity_set_prices(struct scarcity_prices *prices, const struct scarcity_demand *classes,
                         const double *arrivals, const double *fills, double capacity)
{
    double price[SCARCITY_CLASSES], wanted = 0, sum = 0;

    for (size_t i = 0; i < prices->class_count; i++) {
        const size_t given = prices->given[i];
        const double size = size_of(&classes[given]);
        const double left = capacity > 0 ? fills[given] / capacity + FLOOR_K : 1;
        double base = size > 0 ? arrivals[given] / root_of(size) : 0;

        base *= classes[given].count > 1 ? MULTI : 1;
        price[i] = base / (left * left * left);
        wanted += base;
        sum += price[i];
    }
    for (size_t i = 0; i < prices->class_count; i++)
        prices->price[i] = sum > 0 ? (float)(price[i] * wanted / sum) : 0;
}

/* Nodes */

static void see_group(const struct scarcity_group *group, const struct scarcity_room *room,
                      struct scarcity_group_sight *ret_sight)
{
    uint32_t copies = 0, fitting = 0, left = 0, steps = 0, devices = 0;

    for (uint32_t i = 0; i < room->count; i++) {
        const struct scarcity_entry *entry = &room->entries[i];
        const uint32_t share = group->steps[entry->type];
        const uint32_t found = copies_of(entry->left / SCARCITY_STEP, share);

        if (!share)
            continue;
        devices += entry->count;
        steps += entry->count * share;
        if (!found)
            continue;
        copies += entry->count * found;
        fitting += entry->count;
        left += (uint32_t)entry->count * entry->left;
    }
    *ret_sight = (struct scarcity_group_sight){
        .copies_by_one = copies,
        .fitting = fitting,
        .left = (float)left,
        .size = devices ? (float)(group->count * SCARCITY_STEP) * (float)steps / (float)devices : 0,
    };
}

/* Four numbers, for one instruction of the processor. */
typedef float floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(16)));

static inline floats whole(floats amount, const float *rates, const float *bases)
{
    const floats exact = amount * *(const floats *)rates + *(const floats *)bases;

    return __builtin_convertvector(__builtin_convertvector(exact, ints), floats);
}

/* How many copies of each class processors and memory of a node allow. Most of a cost's time is
 * spent here. */
static void count_by_node(const struct scarcity_prices *prices, uint32_t cpu_milli,
                          uint32_t memory_mib, float *ret_counts)
{
    const floats cpu = (floats){} + (float)cpu_milli, memory = (floats){} + (float)memory_mib;

    for (size_t i = 0; i < prices->class_count; i += BLOCK) {
        const floats by_cpu = whole(cpu, &prices->cpu_rate[i], &prices->cpu_base[i]);
        const floats by_memory = whole(memory, &prices->memory_rate[i], &prices->memory_base[i]);
        const ints less = by_cpu < by_memory;

        *(floats *)&ret_counts[i] = (floats)((less & (ints)by_cpu) | (~less & (ints)by_memory));
    }
}

/* The sum of price * (fill + usable) over a group. */
static double value_of_group(const struct scarcity_prices *prices,
                             const struct scarcity_group *group,
                             const struct scarcity_group_sight *sight, const float *counts)
{
    const float copies = (float)(sight->copies_by_one / group->count);
    const float usable = sight->fitting >= group->count ? sight->left : 0;
    float filled = 0, priced = 0;

    if (!sight->copies_by_one)
        return 0;
    for (size_t i = group->first; i < group->last; i++) {
        filled += prices->price[i] * (counts[i] < copies ? counts[i] : copies);
        priced += counts[i] >= 1 ? prices->price[i] : 0;
    }
    return (double)filled * (double)sight->size + (double)priced * (double)usable;
}

void scarcity_see(const struct scarcity_prices *prices, const struct scarcity_room *room,
                  struct scarcity_sight *ret_sight)
{
    float counts[SCARCITY_CLASSES];

    ret_sight->prices = prices;
    ret_sight->room = room;
    ret_sight->value = 0;
    count_by_node(prices, room->cpu_milli, room->memory_mib, counts);
    for (size_t i = 0; i < prices->group_count; i++) {
        see_group(&prices->groups[i], room, &ret_sight->groups[i]);
        ret_sight->value +=
            value_of_group(prices, &prices->groups[i], &ret_sight->groups[i], counts);
    }
}

void scarcity_add_fill(const struct scarcity_prices *prices, const struct scarcity_room *room,
                       double *fills)
{
    float counts[SCARCITY_CLASSES];

    count_by_node(prices, room->cpu_milli, room->memory_mib, counts);
    for (size_t i = 0; i < prices->group_count; i++) {
        const struct scarcity_group *group = &prices->groups[i];
        struct scarcity_group_sight sight;
        float copies;

        see_group(group, room, &sight);
        copies = (float)(sight.copies_by_one / group->count);
        for (size_t k = group->first; k < group->last; k++)
            fills[prices->given[k]] +=
                (double)(counts[k] < copies ? counts[k] : copies) * (double)sight.size;
    }
}

/* Costs */

/* A group's sight after one device of an entry was left with less. */
static struct scarcity_group_sight see_less(const struct scarcity_group *group,
                                            const struct scarcity_group_sight *sight,
                                            const struct scarcity_entry *entry, uint32_t left)
{
    const uint32_t share = group->steps[entry->type];
    const uint32_t before = copies_of(entry->left / SCARCITY_STEP, share);
    const uint32_t after = copies_of(left / SCARCITY_STEP, share);
    struct scarcity_group_sight less = *sight;

    less.copies_by_one += after - before;
    less.fitting += (after > 0) - (before > 0);
    less.left += (float)((after ? (int32_t)left : 0) - (before ? (int32_t)entry->left : 0));
    return less;
}

static uint32_t less_by(uint32_t left, uint32_t taken)
{
    return left - MIN(left, taken);
}

/* Counts by processors and memory once the demand's are gone. */
static void count_after(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                        float ret_counts[static SCARCITY_CLASSES])
{
    count_by_node(sight->prices, less_by(sight->room->cpu_milli, demand->cpu_milli),
                  less_by(sight->room->memory_mib, demand->memory_mib), ret_counts);
}

static float cost_with(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                       const float *counts, size_t position)
{
    const struct scarcity_prices *prices = sight->prices;
    const struct scarcity_entry *entry = &sight->room->entries[position];
    const uint32_t left = less_by(entry->left, demand->shares[entry->type]);
    double value = 0;

    for (size_t i = 0; i < prices->group_count; i++) {
        const struct scarcity_group_sight less =
            see_less(&prices->groups[i], &sight->groups[i], entry, left);

        value += value_of_group(prices, &prices->groups[i], &less, counts);
    }
    return (float)(sight->value - value);
}

static bool fits(const struct scarcity_entry *entry, const struct scarcity_demand *demand)
{
    return demand->shares[entry->type] && entry->left >= demand->shares[entry->type];
}

static float cost_of_one(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                         const float *counts, size_t *ret_entry)
{
    float least = INFINITY;

    for (size_t i = 0; i < sight->room->count; i++) {
        float cost;

        if (!fits(&sight->room->entries[i], demand))
            continue;
        cost = cost_with(sight, demand, counts, i);
        if (cost >= least)
            continue;
        least = cost;
        if (ret_entry)
            *ret_entry = i;
    }
    return least;
}

/* The entry with the least left that has enough, among those that have devices left to take; count:
 * none. */
static size_t find_tightest(const struct scarcity_room *room, const struct scarcity_demand *demand,
                            const uint8_t *taken)
{
    size_t found = room->count;

    for (size_t i = 0; i < room->count; i++) {
        const struct scarcity_entry *entry = &room->entries[i];

        if (taken[i] < entry->count && fits(entry, demand) &&
            (found == room->count || entry->left < room->entries[found].left))
            found = i;
    }
    return found;
}

/* Several devices, or none. */
static float cost_of_many(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                          const float *counts)
{
    const struct scarcity_prices *prices = sight->prices;
    uint8_t taken[SCARCITY_ENTRIES] = {0};
    uint32_t wanted = demand->count;
    double value = 0;

    while (wanted) {
        const size_t at = find_tightest(sight->room, demand, taken);
        uint32_t count;

        if (at == sight->room->count)
            return INFINITY;
        count = MIN(wanted, (uint32_t)(sight->room->entries[at].count - taken[at]));
        taken[at] = (uint8_t)(taken[at] + count);
        wanted -= count;
    }
    for (size_t i = 0; i < prices->group_count; i++) {
        const struct scarcity_group *group = &prices->groups[i];
        struct scarcity_group_sight less = sight->groups[i];

        for (size_t k = 0; k < sight->room->count; k++) {
            const struct scarcity_entry *entry = &sight->room->entries[k];
            const uint32_t left = less_by(entry->left, demand->shares[entry->type]);

            for (unsigned n = 0; n < taken[k]; n++)
                less = see_less(group, &less, entry, left);
        }
        value += value_of_group(prices, group, &less, counts);
    }
    return (float)(sight->value - value);
}

float scarcity_cost(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                    size_t *ret_entry)
{
    float counts[SCARCITY_CLASSES];

    count_after(sight, demand, counts);
    return demand->count == 1 ? cost_of_one(sight, demand, counts, ret_entry)
                              : cost_of_many(sight, demand, counts);
}

float scarcity_cost_of(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                       size_t entry)
{
    float counts[SCARCITY_CLASSES];

    if (!fits(&sight->room->entries[entry], demand))
        return INFINITY;
    count_after(sight, demand, counts);
    return cost_with(sight, demand, counts, entry);
}
