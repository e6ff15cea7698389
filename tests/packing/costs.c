/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The prices and costs of scarcity for worlds that standard input tells of, in numbers:
 * "CLASSES NODES PODS CAPACITY", then a row for each class "ARRIVALS COUNT CPU MEMORY SHARES...",
 * for each node "CPU MEMORY ENTRIES" and for each entry "TYPE LEFT COUNT", for each pod
 * "COUNT CPU MEMORY SHARES...". Prints the price of each class, and then for each node the cost of
 * each pod.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "place/scarcity.h"

enum {
    TYPES = 3,
    NODES_MAX = 64,
    PODS_MAX = 64,
};

static unsigned next(void)
{
    unsigned value;

    if (scanf("%u", &value) != 1)
        exit(EXIT_FAILURE);
    return value;
}

static struct scarcity_demand next_demand(void)
{
    struct scarcity_demand demand = {.count = next()};

    demand.cpu_milli = next();
    demand.memory_mib = next();
    for (size_t i = 0; i < TYPES; i++)
        demand.shares[i] = (uint16_t)next();
    return demand;
}

static struct scarcity_room next_room(void)
{
    struct scarcity_room room = {.cpu_milli = next()};

    room.memory_mib = next();
    room.count = next();
    for (size_t i = 0; i < room.count; i++) {
        room.entries[i].type = (uint8_t)next();
        room.entries[i].left = (uint16_t)next();
        room.entries[i].count = (uint8_t)next();
    }
    return room;
}

static void print_costs(const struct scarcity_sight *sight, const struct scarcity_demand *pods,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t entry = SIZE_MAX;
        const float cost = scarcity_cost(sight, &pods[i], &entry);

        if (isinf(cost))
            printf(" inf");
        else
            printf(" %.9g", (double)cost);
        if (entry != SIZE_MAX && scarcity_cost_of(sight, &pods[i], entry) != cost)
            abort();
    }
    printf("\n");
}

int main(void)
{
    static struct scarcity_demand given[SCARCITY_CLASSES], classes[SCARCITY_CLASSES];
    static struct scarcity_demand pods[PODS_MAX];
    static struct scarcity_room rooms[NODES_MAX];
    static struct scarcity_prices prices;
    static struct scarcity_sight sight;
    unsigned class_count;

    while (scanf("%u", &class_count) == 1) {
        const unsigned node_count = next(), pod_count = next(), capacity = next();
        double arrivals[SCARCITY_CLASSES], fills[SCARCITY_CLASSES] = {0};

        if (class_count > SCARCITY_CLASSES || node_count > NODES_MAX || pod_count > PODS_MAX)
            return EXIT_FAILURE;
        for (size_t i = 0; i < class_count; i++) {
            arrivals[i] = next();
            given[i] = next_demand();
            classes[i] = scarcity_class_of(&given[i]);
        }
        for (size_t i = 0; i < node_count; i++)
            rooms[i] = next_room();
        for (size_t i = 0; i < pod_count; i++)
            pods[i] = next_demand();
        scarcity_prices_init(&prices, classes, class_count);
        for (size_t i = 0; i < node_count; i++)
            scarcity_add_fill(&prices, &rooms[i], fills);
        scarcity_set_prices(&prices, classes, arrivals, fills, capacity);
        for (size_t i = 0; i < class_count; i++) {
            for (size_t k = 0; k < class_count; k++) {
                if (prices.given[k] == i)
                    printf(" %.9g", (double)prices.price[k]);
            }
        }
        printf("\n");
        for (size_t i = 0; i < node_count; i++) {
            scarcity_see(&prices, &rooms[i], &sight);
            print_costs(&sight, pods, pod_count);
        }
    }
    return 0;
}
