/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/state.h"

static struct place_node *take_from(struct slab *slab)
{
    for (size_t i = 0; i < ARRAY_SIZE(slab->taken); i++) {
        unsigned bit;

        if (slab->taken[i] == UINT64_MAX)
            continue;
        bit = (unsigned)__builtin_ctzll(~slab->taken[i]);
        slab->taken[i] |= UINT64_C(1) << bit;
        slab->nodes[64 * i + bit] =
            (struct place_node){.seat = slab->seat + (uint32_t)(64 * i + bit)};
        return &slab->nodes[64 * i + bit];
    }
    return NULL;
}

/* Looks into the newest slab first: the others are full, except for nodes that were deleted. */
struct place_node *slab_take(struct slab **slabs)
{
    struct place_node *place;
    struct slab *slab;

    for (slab = *slabs; slab; slab = slab->next) {
        place = take_from(slab);
        if (place)
            return place;
    }
    slab = calloc(1, sizeof(*slab));
    if (!slab)
        return NULL;
    slab->next = *slabs;
    slab->seat = *slabs ? (*slabs)->seat + SLAB_NODES : 0;
    *slabs = slab;
    return take_from(slab);
}

void slab_give(struct slab *slabs, struct place_node *place)
{
    for (struct slab *slab = slabs; slab; slab = slab->next) {
        size_t index = (size_t)(place - slab->nodes);

        if (place < slab->nodes || index >= SLAB_NODES)
            continue;
        slab->taken[index / 64] &= ~(UINT64_C(1) << index % 64);
        return;
    }
}

void slab_free(struct slab *slabs)
{
    while (slabs) {
        struct slab *next = slabs->next;

        free(slabs);
        slabs = next;
    }
}
