/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "place/place.h"

/* A copy of a node, from which pods are taken off and put back. */
struct clearing {
    struct place_node node; /* its devices are a copy */
    const struct demand *demand;
    const struct place_options *options;
    struct arena *arena;
};

static void take_off(struct clearing *clearing, const struct place_victim *victim)
{
    (void)place_usage_discharge(clearing->node.devices, clearing->node.device_count, victim->usage);
}

static void put_back(struct clearing *clearing, const struct place_victim *victim)
{
    (void)place_usage_charge(clearing->node.devices, clearing->node.device_count, victim->usage);
}

static int demand_fits(struct clearing *clearing)
{
    struct arena_mark mark = arena_mark(clearing->arena);
    struct placement unused;
    int r = place_pod(&clearing->node, clearing->demand, clearing->options, clearing->arena,
                      &unused, NULL);

    arena_rewind(clearing->arena, mark);
    return r;
}

/* The most important potential victim, of equal ones the first. NULL: none is left. */
static struct place_victim *most_important(struct place_victim *victims, size_t count)
{
    struct place_victim *found = NULL;

    for (size_t i = 0; i < count; i++) {
        if (victims[i].state == VICTIM_POTENTIAL &&
            (!found || victims[i].priority > found->priority))
            found = &victims[i];
    }
    return found;
}

/* All potential victims are off the node, and the demand fits: puts back those that need not go. */
static int reprieve(struct clearing *clearing, struct place_victim *victims, size_t count)
{
    struct place_victim *victim;

    while ((victim = most_important(victims, count))) {
        int r;

        put_back(clearing, victim);
        r = demand_fits(clearing);
        if (r < 0)
            return r;
        victim->state = r == PLACE_FITS ? VICTIM_REPRIEVED : VICTIM_EVICTED;
        if (r == PLACE_NO_FIT)
            take_off(clearing, victim);
    }
    return PLACE_FITS;
}

int place_preempt(const struct place_node *node, const struct demand *demand,
                  const struct place_options *options, struct place_victim *victims, size_t count,
                  struct arena *arena, struct placement *ret_placement)
{
    struct clearing clearing = {
        .node = *node, .demand = demand, .options = options, .arena = arena};
    struct device *devices = ARENA_ARRAY(arena, struct device, node->device_count);
    int r;

    if (!devices)
        return -ENOMEM;
    if (node->device_count)
        memcpy(devices, node->devices, node->device_count * sizeof(*devices));
    clearing.node.devices = devices;
    for (size_t i = 0; i < count; i++) {
        if (victims[i].state != VICTIM_REPRIEVED)
            take_off(&clearing, &victims[i]);
    }
    r = demand_fits(&clearing);
    if (r == PLACE_FITS)
        r = reprieve(&clearing, victims, count);
    if (r == PLACE_FITS && ret_placement)
        r = place_pod(&clearing.node, demand, options, arena, ret_placement, NULL);
    return r;
}
