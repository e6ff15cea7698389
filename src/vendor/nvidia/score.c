/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/score.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "model/json.h"
#include "vendor/nvidia/mig.h"
#include "vendor/nvidia/nvidia.h"

/* A node's cards by uuid: what it says of their scores may be tens of thousands of names. */
struct cards {
    const struct device *devices;
    size_t count;
    const struct device **sorted;
};

static int compare_cards(const void *a, const void *b)
{
    const struct device *const *left = a, *const *right = b;

    return strcmp((*left)->uuid, (*right)->uuid);
}

static int compare_uuid(const void *key, const void *card)
{
    const struct device *const *device = card;

    return strcmp(key, (*device)->uuid);
}

static int cards_sort(const struct device *devices, size_t count, struct arena *arena,
                      struct cards *ret_cards)
{
    const struct device **sorted = ARENA_ARRAY(arena, const struct device *, count + 1);

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &devices[i];
    qsort(sorted, count, sizeof(sorted[0]), compare_cards);
    *ret_cards = (struct cards){devices, count, sorted};
    return 0;
}

/* Its position; the count: there is none. */
static size_t find_card(const struct cards *cards, const char *uuid)
{
    const struct device *const *found =
        bsearch(uuid, cards->sorted, cards->count, sizeof(cards->sorted[0]), compare_uuid);

    return found ? (size_t)(*found - cards->devices) : cards->count;
}

/* Facts with a row of scores, all 0. */
static int give_rows(struct device *devices, size_t count, struct arena *arena,
                     struct nvidia_facts **ret_rows)
{
    for (size_t i = 0; i < count; i++) {
        static const struct nvidia_facts none;
        const struct nvidia_facts *known = devices[i].facts ? devices[i].facts : &none;
        struct nvidia_facts *facts =
            nvidia_facts_give(&devices[i], known->profile_count, count, arena);

        if (!facts)
            return -ENOMEM;
        facts->geometry = known->geometry;
        facts->barred = known->barred;
        memcpy(facts->profiles, known->profiles, known->profile_count * sizeof(facts->profiles[0]));
        facts->number = (uint32_t)i;
        ret_rows[i] = facts;
    }
    return 0;
}

static int read_row(yyjson_val *scores, struct nvidia_facts *facts, const struct cards *cards,
                    struct error *err)
{
    yyjson_val *key, *value;
    size_t at, max;

    yyjson_obj_foreach(scores, at, max, key, value)
    {
        const size_t other = find_card(cards, yyjson_get_str(key));

        if (!yyjson_is_int(value) && !yyjson_is_null(value))
            return error_set(err, -EINVAL, "%s: the score of \"%.64s\" is not a whole number",
                             NVIDIA_SCORE_KEY, yyjson_get_str(key));
        if (other < cards->count && facts)
            nvidia_scores(facts)[other] =
                (int32_t)MAX(MIN(yyjson_get_sint(value), (int64_t)INT32_MAX), (int64_t)INT32_MIN);
    }
    return 0;
}

static int read_card(yyjson_val *item, struct nvidia_facts **rows, const struct cards *cards,
                     struct error *err)
{
    yyjson_val *uuid = yyjson_obj_get(item, "uuid"), *scores = yyjson_obj_get(item, "score");
    const char *text = yyjson_is_str(uuid) ? yyjson_get_str(uuid) : "";
    size_t card = find_card(cards, text);

    if (!yyjson_is_obj(item) && !yyjson_is_null(item))
        return error_set(err, -EINVAL, "%s: a card is not an object", NVIDIA_SCORE_KEY);
    if (uuid && !yyjson_is_str(uuid) && !yyjson_is_null(uuid))
        return error_set(err, -EINVAL, "%s: a uuid is not a text", NVIDIA_SCORE_KEY);
    if (scores && !yyjson_is_obj(scores) && !yyjson_is_null(scores))
        return error_set(err, -EINVAL, "%s: the scores of \"%.64s\" are not an object",
                         NVIDIA_SCORE_KEY, text);
    if (!scores)
        return 0;
    return read_row(scores, card < cards->count ? rows[card] : NULL, cards, err);
}

int nvidia_read_scores(const char *text, struct device *devices, size_t count, struct arena *arena,
                       struct error *err)
{
    struct nvidia_facts **rows = ARENA_ARRAY(arena, struct nvidia_facts *, count + 1);
    yyjson_val *root, *item;
    struct cards cards;
    size_t at, max;
    int r = json_parse(text, strlen(text), arena, &root, err);

    if (r < 0)
        return error_wrap(err, r, "%s", NVIDIA_SCORE_KEY);
    if (!yyjson_is_arr(root) && !yyjson_is_null(root))
        return error_set(err, -EINVAL, "%s: it is not a list", NVIDIA_SCORE_KEY);
    r = rows ? give_rows(devices, count, arena, rows) : -ENOMEM;
    if (r == 0)
        r = cards_sort(devices, count, arena, &cards);
    yyjson_arr_foreach(root, at, max, item)
    {
        if (r == 0)
            r = read_card(item, rows, &cards, err);
    }
    return r;
}
