/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/links.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "driver/nvml.h"

enum {
    POINTS_PER_NVLINK = 100,
    ANNOTATION_MAX = 256 << 10, /* the bound of an object's annotations */
};

static int points_of_level(int level)
{
    switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
        return 60;
    case NVML_TOPOLOGY_SINGLE:
        return 50;
    case NVML_TOPOLOGY_MULTIPLE:
        return 40;
    case NVML_TOPOLOGY_HOSTBRIDGE:
        return 30;
    case NVML_TOPOLOGY_NODE:
        return 20;
    case NVML_TOPOLOGY_SYSTEM:
        return 10;
    default:
        return 0;
    }
}

static unsigned count_switches(const struct card_links *card)
{
    unsigned count = 0;

    for (size_t i = 0; i < card->count; i++)
        count += card->links[i].to_switch;
    return count;
}

static unsigned count_nvlinks(const struct card_links *from, const struct card_links *to)
{
    unsigned direct = 0;

    for (size_t i = 0; i < from->count; i++)
        direct += !from->links[i].to_switch && to->bus_id[0] &&
                  strcmp(from->links[i].bus_id, to->bus_id) == 0;
    return direct ? direct : MIN(count_switches(from), count_switches(to));
}

int16_t links_score(const struct card_links *from, const struct card_links *to, int level)
{
    unsigned there = count_nvlinks(from, to), back = count_nvlinks(to, from);

    if (!there != !back)
        return 0;
    return (int16_t)(points_of_level(level) + (int)there * POINTS_PER_NVLINK);
}

static bool are_the_same(const struct cards *known, const struct cards *cards)
{
    if (!known || known->count != cards->count)
        return false;
    for (size_t i = 0; i < cards->count; i++) {
        if (strcmp(known->items[i].uuid, cards->items[i].uuid) != 0)
            return false;
    }
    return true;
}

static void score_all(struct nvml *nvml, const struct card_links *found, struct cards *cards)
{
    for (size_t i = 0; i < cards->count; i++) {
        for (size_t k = 0; k < cards->count; k++) {
            struct card *card = &cards->items[i];
            int level;

            if (k == i)
                continue;
            level = nvml_read_ancestor(nvml, card->index, cards->items[k].index);
            card->links[k] = links_score(&found[i], &found[k], level);
            if (i < k && !card->links[k] && level >= 0)
                log_warn("cards %s and %s do not agree on the NVLinks between them: for pods of "
                         "several cards they count as not connected",
                         card->uuid, cards->items[k].uuid);
        }
    }
}

void links_find(struct nvml *nvml, const struct cards *known, struct cards *cards)
{
    AUTOFREE struct card_links *found = NULL;

    if (are_the_same(known, cards)) {
        for (size_t i = 0; i < cards->count; i++)
            memcpy(cards->items[i].links, known->items[i].links, sizeof(known->items[i].links));
        return;
    }
    found = calloc(cards->count + 1, sizeof(*found));
    if (!found)
        return;
    for (size_t i = 0; i < cards->count; i++) {
        (void)nvml_read_bus_id(nvml, cards->items[i].index, found[i].bus_id);
        found[i].count = nvml_read_links(nvml, cards->items[i].index, found[i].links);
    }
    score_all(nvml, found, cards);
}

const char *links_encode(const struct cards *cards, struct arena *arena)
{
    struct strbuf text = STRBUF_IN(arena, ANNOTATION_MAX);
    bool any = false;

    strbuf_add(&text, "[");
    for (size_t i = 0; i < cards->count; i++) {
        const char *separator = "";

        strbuf_add(&text, i ? ",{\"uuid\":" : "{\"uuid\":");
        strbuf_add_json(&text, cards->items[i].uuid);
        strbuf_add(&text, ",\"score\":{");
        for (size_t k = 0; k < cards->count; k++) {
            if (k == i)
                continue;
            any |= cards->items[i].links[k] != 0;
            strbuf_add(&text, separator);
            strbuf_add_json(&text, cards->items[k].uuid);
            strbuf_addf(&text, ":%d", cards->items[i].links[k]);
            separator = ",";
        }
        strbuf_add(&text, "}}");
    }
    strbuf_add(&text, "]");
    return any && !text.failed ? strbuf_text(&text) : NULL;
}
