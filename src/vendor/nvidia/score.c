/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/score.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "model/json.h"
#include "vendor/nvidia/mig.h"
#include "vendor/nvidia/nvidia.h"

static size_t find_card(const struct device *devices, size_t count, const char *uuid)
{
    size_t i = 0;

    while (i < count && strcmp(devices[i].uuid, uuid) != 0)
        i++;
    return i;
}

/* Facts with a row of scores, all 0. */
static int give_rows(struct device *devices, size_t count, struct arena *arena,
                     struct nvidia_facts **ret_rows)
{
    const size_t size = sizeof(struct nvidia_facts) + count * sizeof(int32_t);

    for (size_t i = 0; i < count; i++) {
        const struct nvidia_facts *known = devices[i].facts;
        struct nvidia_facts *facts = arena_alloc(arena, size);

        if (!facts)
            return -ENOMEM;
        facts->geometry = known ? known->geometry : NULL;
        facts->number = (uint32_t)i;
        facts->score_count = (uint32_t)count;
        devices[i].facts = ret_rows[i] = facts;
        devices[i].facts_size = (uint32_t)size;
    }
    return 0;
}

static int read_row(yyjson_val *scores, struct nvidia_facts *facts, const struct device *devices,
                    size_t count, struct error *err)
{
    yyjson_val *key, *value;
    size_t at, max;

    yyjson_obj_foreach(scores, at, max, key, value)
    {
        const size_t other = find_card(devices, count, yyjson_get_str(key));

        if (!yyjson_is_int(value) && !yyjson_is_null(value))
            return error_set(err, -EINVAL, "%s: the score of \"%.64s\" is not a whole number",
                             NVIDIA_SCORE_KEY, yyjson_get_str(key));
        if (other < count && facts)
            facts->scores[other] =
                (int32_t)MAX(MIN(yyjson_get_sint(value), (int64_t)INT32_MAX), (int64_t)INT32_MIN);
    }
    return 0;
}

static int read_card(yyjson_val *item, struct nvidia_facts **rows, const struct device *devices,
                     size_t count, struct error *err)
{
    yyjson_val *uuid = yyjson_obj_get(item, "uuid"), *scores = yyjson_obj_get(item, "score");
    const char *text = yyjson_is_str(uuid) ? yyjson_get_str(uuid) : "";
    size_t card = find_card(devices, count, text);

    if (!yyjson_is_obj(item) && !yyjson_is_null(item))
        return error_set(err, -EINVAL, "%s: a card is not an object", NVIDIA_SCORE_KEY);
    if (uuid && !yyjson_is_str(uuid) && !yyjson_is_null(uuid))
        return error_set(err, -EINVAL, "%s: a uuid is not a text", NVIDIA_SCORE_KEY);
    if (scores && !yyjson_is_obj(scores) && !yyjson_is_null(scores))
        return error_set(err, -EINVAL, "%s: the scores of \"%.64s\" are not an object",
                         NVIDIA_SCORE_KEY, text);
    if (!scores)
        return 0;
    return read_row(scores, card < count ? rows[card] : NULL, devices, count, err);
}

int nvidia_read_scores(const char *text, struct device *devices, size_t count, struct arena *arena,
                       struct error *err)
{
    struct nvidia_facts **rows = ARENA_ARRAY(arena, struct nvidia_facts *, count + 1);
    yyjson_val *root, *item;
    size_t at, max;
    int r = json_parse(text, strlen(text), arena, &root, err);

    if (r < 0)
        return error_wrap(err, r, "%s", NVIDIA_SCORE_KEY);
    if (!yyjson_is_arr(root) && !yyjson_is_null(root))
        return error_set(err, -EINVAL, "%s: it is not a list", NVIDIA_SCORE_KEY);
    r = rows ? give_rows(devices, count, arena, rows) : -ENOMEM;
    yyjson_arr_foreach(root, at, max, item)
    {
        if (r == 0)
            r = read_card(item, rows, devices, count, err);
    }
    return r;
}
