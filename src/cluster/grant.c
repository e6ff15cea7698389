/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/state.h"

static size_t pairs_size(const struct text_pairs *pairs)
{
    size_t size = pairs->count * sizeof(struct text_pair);

    for (size_t i = 0; i < pairs->count; i++)
        size += strlen(pairs->items[i].key) + strlen(pairs->items[i].value) + 2;
    return size;
}

static size_t usage_size(const struct place_usage *usage)
{
    size_t size =
        usage->count * sizeof(struct place_share) + usage->total_count * sizeof(struct place_total);

    for (size_t i = 0; i < usage->count; i++)
        size += strlen(usage->shares[i].uuid) + 1;
    return size;
}

/* Copies text to *at and moves it on. */
static char *put_text(char **at, const char *text)
{
    char *copy = *at;
    size_t size = strlen(text) + 1;

    memcpy(copy, text, size);
    *at += size;
    return copy;
}

void grant_add_text(struct strbuf *text, const char *key, const char *value)
{
    strbuf_add(text, text->len ? "," : "");
    strbuf_add_json(text, key);
    strbuf_add(text, ":");
    strbuf_add_json(text, value);
}

void grant_add_recalled(struct strbuf *text, const struct vendor_instance *instance,
                        const struct text_pairs *annotations)
{
    const char *const *keys = instance->vendor->recalled;

    for (size_t i = 0; keys && keys[i]; i++) {
        const char *value = text_pairs_get(annotations, keys[i]);

        if (value)
            grant_add_text(text, keys[i], value);
    }
}

struct grant *grant_new(const struct place_usage *usage, const struct text_pairs *annotations,
                        const char *text)
{
    struct grant *grant;
    struct text_pair *pairs;
    char *at;

    grant = malloc(sizeof(*grant) + usage_size(usage) + pairs_size(annotations) + strlen(text) + 1);
    if (!grant)
        return NULL;

    grant->usage.alone = usage->alone;
    grant->usage.count = usage->count;
    grant->usage.shares = (struct place_share *)(grant + 1);
    grant->usage.total_count = usage->total_count;
    grant->usage.totals = (struct place_total *)(grant->usage.shares + usage->count);
    for (size_t i = 0; i < usage->total_count; i++)
        grant->usage.totals[i] = usage->totals[i];
    pairs = (struct text_pair *)(grant->usage.totals + usage->total_count);
    grant->annotations = (struct text_pairs){pairs, annotations->count};
    at = (char *)(pairs + annotations->count);

    for (size_t i = 0; i < usage->count; i++) {
        grant->usage.shares[i] = usage->shares[i];
        grant->usage.shares[i].uuid = put_text(&at, usage->shares[i].uuid);
    }
    for (size_t i = 0; i < annotations->count; i++) {
        pairs[i].key = put_text(&at, annotations->items[i].key);
        pairs[i].value = put_text(&at, annotations->items[i].value);
    }
    grant->text = put_text(&at, text);
    return grant;
}

static bool share_is_same(const struct place_share *a, const struct place_share *b)
{
    return a->vendor == b->vendor && strcmp(a->uuid, b->uuid) == 0 &&
           a->usage.tasks == b->usage.tasks && a->usage.cores == b->usage.cores &&
           a->usage.memory_bytes == b->usage.memory_bytes && a->usage.parts == b->usage.parts;
}

static bool has_share(const struct place_usage *usage, const struct place_share *share)
{
    for (size_t i = 0; i < usage->count; i++) {
        if (share_is_same(&usage->shares[i], share))
            return true;
    }
    return false;
}

/* Each uuid of a vendor stands in a usage once. */
bool grant_is_same(const struct grant *a, const struct grant *b)
{
    if (a->usage.count != b->usage.count)
        return false;
    for (size_t i = 0; i < a->usage.count; i++) {
        if (!share_is_same(&a->usage.shares[i], &b->usage.shares[i]) &&
            !has_share(&b->usage, &a->usage.shares[i]))
            return false;
    }
    return true;
}

void grant_free(struct grant *grant)
{
    free(grant);
}
