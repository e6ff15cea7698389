/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card.h"

#include <string.h>

const struct card *cards_get(const struct cards *cards, const char *uuid)
{
    for (size_t i = 0; i < cards->count; i++) {
        if (strcmp(cards->items[i].uuid, uuid) == 0)
            return &cards->items[i];
    }
    return NULL;
}

static bool card_equal(const struct card *left, const struct card *right)
{
    return strcmp(left->uuid, right->uuid) == 0 && strcmp(left->type, right->type) == 0 &&
           left->index == right->index && left->has_minor == right->has_minor &&
           left->minor == right->minor && left->resource == right->resource &&
           left->numa_node == right->numa_node && left->memory_mib == right->memory_mib &&
           left->cores == right->cores && left->max_tasks == right->max_tasks &&
           left->healthy == right->healthy &&
           memcmp(left->links, right->links, sizeof(left->links)) == 0;
}

bool cards_equal(const struct cards *left, const struct cards *right)
{
    if (left->count != right->count || left->present != right->present)
        return false;
    for (size_t i = 0; i < left->count; i++) {
        if (!card_equal(&left->items[i], &right->items[i]))
            return false;
    }
    return true;
}

bool cards_any_healthy(const struct cards *cards, unsigned resource)
{
    for (size_t i = 0; i < cards->count; i++) {
        if (cards->items[i].resource == resource && cards->items[i].healthy)
            return true;
    }
    return false;
}

void cards_set_unhealthy(struct cards *cards)
{
    for (size_t i = 0; i < cards->count; i++)
        cards->items[i].healthy = false;
}
