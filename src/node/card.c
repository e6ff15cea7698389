/* SPDX-License-Identifier: Apache-2.0 */
#include "node/card.h"

#include <string.h>

#include "base/util.h"

const struct card *cards_get(const struct cards *cards, const char *uuid)
{
    size_t len = strcspn(uuid, "[");

    for (size_t i = 0; i < cards->count; i++) {
        const char *mine = cards->items[i].uuid;

        if (strncmp(mine, uuid, len) == 0 && !mine[len])
            return &cards->items[i];
    }
    return NULL;
}

bool cards_have_instance(const struct cards *cards, unsigned index)
{
    for (size_t i = 0; i < cards->count; i++) {
        if (cards->items[i].is_instance && cards->items[i].index == index)
            return true;
    }
    return false;
}

static bool card_equal(const struct card *left, const struct card *right)
{
    return strcmp(left->uuid, right->uuid) == 0 && strcmp(left->type, right->type) == 0 &&
           left->index == right->index && left->has_minor == right->has_minor &&
           left->minor == right->minor && left->is_instance == right->is_instance &&
           left->has_parts == right->has_parts && left->gpu_instance == right->gpu_instance &&
           left->compute_instance == right->compute_instance && left->resource == right->resource &&
           left->numa_node == right->numa_node && left->memory_mib == right->memory_mib &&
           left->cores == right->cores && left->max_tasks == right->max_tasks &&
           left->healthy == right->healthy && strcmp(left->why, right->why) == 0 &&
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

void cards_set_unhealthy(struct cards *cards, const char *why)
{
    for (size_t i = 0; i < cards->count; i++) {
        if (cards->items[i].healthy)
            COPY_TEXT(cards->items[i].why, why);
        cards->items[i].healthy = false;
    }
}
