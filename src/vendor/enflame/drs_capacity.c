/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/enflame/drs_capacity.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/util.h"
#include "model/codec.h"
#include "model/device.h"
#include "model/json.h"
#include "vendor/enflame/enflame.h"

/* A short name, or a number as one; "" where there is none. -EINVAL. */
static int read_name(yyjson_val *value, char ret_name[DRS_NAME_SIZE])
{
    const char *text = yyjson_get_str(value);

    *ret_name = '\0';
    if (!value)
        return 0;
    if (yyjson_is_uint(value)) {
        (void)snprintf(ret_name, DRS_NAME_SIZE, "%llu", (unsigned long long)yyjson_get_uint(value));
        return 0;
    }
    if (!text || strlen(text) != yyjson_get_len(value) || strlen(text) >= DRS_NAME_SIZE)
        return -EINVAL;
    for (const char *p = text; *p; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("-_.", *p))
            return -EINVAL;
    }
    copy_text(ret_name, DRS_NAME_SIZE, text);
    return 0;
}

static bool read_slices(yyjson_val *value, uint32_t *ret_slices)
{
    char text[DRS_NAME_SIZE];
    uint64_t slices;

    if (read_name(value, text) < 0 || parse_u64(text, &slices) < 0 || !slices ||
        slices > ENFLAME_SLICES_MAX)
        return false;
    *ret_slices = (uint32_t)slices;
    return true;
}

static bool is_listed(const struct drs_capacity *capacity, const char *index)
{
    for (size_t i = 0; i < capacity->card_count; i++) {
        if (strcmp(capacity->cards[i].index, index) == 0)
            return true;
    }
    return false;
}

static int add_card(struct drs_capacity *capacity, yyjson_val *value, struct error *err)
{
    struct drs_card *card = &capacity->cards[capacity->card_count];

    if (capacity->card_count == DRS_CARDS_MAX)
        return error_set(err, -E2BIG, "more than %d cards", DRS_CARDS_MAX);
    if (!yyjson_is_obj(value) || read_name(yyjson_obj_get(value, "index"), card->index) < 0 ||
        read_name(yyjson_obj_get(value, "minor"), card->minor) < 0 || !card->index[0])
        return error_set(err, -EINVAL, "a card without an index, or with none that can be one");
    if (!read_slices(yyjson_obj_get(value, "capacity"), &card->slices))
        return error_set(err, -EINVAL, "card %s has no capacity", card->index);
    if (!card->minor[0])
        COPY_TEXT(card->minor, card->index);
    if (is_listed(capacity, card->index))
        return error_set(err, CODEC_MENDED, "card %s is listed twice", card->index);
    capacity->card_count++;
    return CODEC_EXACT;
}

/* A number in front of a unit, as in "21gb". */
static bool read_amount(const char *text, const char *unit, uint32_t max, uint32_t *ret_amount)
{
    size_t digits = strspn(text, "0123456789");

    if (!digits || digits > 6 || strcasecmp(text + digits, unit) != 0)
        return false;
    *ret_amount = (uint32_t)strtoul(text, NULL, 10);
    return *ret_amount <= max;
}

/* "3g.21gb", or "3g", whose memory is not told. */
static bool read_profile(const char *text, struct drs_profile *profile)
{
    char slices[DRS_NAME_SIZE];
    const char *dot = strchr(text, '.');

    if (strlen(text) >= DRS_NAME_SIZE)
        return false;
    COPY_TEXT(profile->name, text);
    copy_text(slices, dot ? (size_t)(dot - text) + 1 : sizeof(slices), text);
    if (!read_amount(slices, "g", ENFLAME_SLICES_MAX, &profile->slices) || !profile->slices)
        return false;
    return !dot || read_amount(dot + 1, "gb", DEVICE_MAX_MIB / 1024, &profile->gib);
}

static bool goes_before(const struct drs_profile *a, const struct drs_profile *b)
{
    return a->slices != b->slices ? a->slices < b->slices : a->gib < b->gib;
}

static void insert_profile(struct drs_capacity *capacity, const struct drs_profile *profile)
{
    size_t i = capacity->profile_count++;

    for (; i > 0 && goes_before(profile, &capacity->profiles[i - 1]); i--)
        capacity->profiles[i] = capacity->profiles[i - 1];
    capacity->profiles[i] = *profile;
}

static int add_profile(struct drs_capacity *capacity, yyjson_val *key, yyjson_val *value,
                       struct error *err)
{
    struct drs_profile profile = {.gib = 0};
    const char *text = yyjson_get_str(key);

    if (strlen(text) != yyjson_get_len(key) || !read_profile(text, &profile) ||
        read_name(value, profile.id) < 0)
        return error_set(err, CODEC_MENDED, "a profile that is none: \"%.32s\"", text);
    if (capacity->profile_count == DRS_PROFILES_MAX)
        return error_set(err, -E2BIG, "more than %d profiles", DRS_PROFILES_MAX);
    insert_profile(capacity, &profile);
    return CODEC_EXACT;
}

static int read_cards(yyjson_val *list, struct drs_capacity *capacity, struct error *err)
{
    int outcome = CODEC_EXACT;
    yyjson_val *value;
    size_t at, max;

    yyjson_arr_foreach(list, at, max, value)
    {
        int r = add_card(capacity, value, err);

        if (r < 0)
            return r;
        outcome = MAX(outcome, r);
    }
    return capacity->card_count ? outcome : error_set(err, -EINVAL, "no card");
}

static int read_profiles(yyjson_val *object, struct drs_capacity *capacity, struct error *err)
{
    int outcome = CODEC_EXACT;
    yyjson_val *key, *value;
    size_t at, max;

    if (!object)
        return error_set(err, -EINVAL, "no profiles");
    yyjson_obj_foreach(object, at, max, key, value)
    {
        int r = add_profile(capacity, key, value, err);

        if (r < 0)
            return r;
        outcome = MAX(outcome, r);
    }
    return capacity->profile_count ? outcome : error_set(err, -EINVAL, "no profile that is one");
}

/* As in HAMi, slices count as GiB where no profile tells its memory. */
static void complete(struct drs_capacity *capacity)
{
    for (size_t i = 0; i < capacity->profile_count; i++) {
        capacity->max_slices = MAX(capacity->max_slices, capacity->profiles[i].slices);
        capacity->max_gib = MAX(capacity->max_gib, capacity->profiles[i].gib);
    }
    for (size_t i = 0; !capacity->max_gib && i < capacity->profile_count; i++)
        capacity->profiles[i].gib = capacity->profiles[i].slices;
    capacity->max_gib = capacity->max_gib ? capacity->max_gib : capacity->max_slices;
}

int drs_capacity_parse(const char *text, struct arena *arena, struct drs_capacity *ret_capacity,
                       struct error *err)
{
    struct drs_capacity *capacity = ARENA_NEW(arena, struct drs_capacity);
    yyjson_val *root;
    int cards, profiles;

    if (!capacity)
        return error_set(err, -ENOMEM, "no memory");
    if (strlen(text) > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "too long");
    cards = json_parse(text, strlen(text), arena, &root, err);
    if (cards < 0)
        return cards;
    cards = read_cards(yyjson_obj_get(root, "devices"), capacity, err);
    if (cards < 0)
        return cards;
    profiles = read_profiles(yyjson_obj_get(root, "profiles"), capacity, err);
    if (profiles < 0)
        return profiles;
    complete(capacity);
    *ret_capacity = *capacity;
    return MAX(cards, profiles);
}
