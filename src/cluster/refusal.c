/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/refusal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/hash.h"
#include "base/strbuf.h"

enum {
    REFUSALS_MAX = 256,
    KEPT_MAX = 8 << 20,  /* bytes of all: 200 demands over 5,000 nodes */
    KEY_MAX = 256 << 10, /* one selection of devices, and all containers that there may be */
    VERDICTS_FIRST = 16,
    VERDICTS_MAX = 1024, /* of one refusal, with those that no node has any more */
    /* A failure's bytes up to its last member, without padding between: these are compared. */
    FAILURE_SIZE = offsetof(struct place_failure, for_good) + sizeof(bool),
    NONE = UINT32_MAX, /* no verdict yet */
};

/* Why nodes have no room; many nodes share a verdict. */
struct verdict {
    UT_hash_handle hh; /* by failure */
    uint32_t number;
    uint32_t nodes;
    struct place_failure failure;
    char text[]; /* in words */
};

struct judged {
    uint32_t version; /* the node's, then */
    uint32_t verdict; /* its number */
};

struct refusal {
    struct refusals *owner;
    struct refusal *prev, *next; /* the most recently used is the last */
    char *key;
    size_t key_len;
    uint64_t candidates[4];
    size_t bytes;
    struct verdict *verdicts;   /* by failure */
    struct verdict **by_number; /* the same */
    uint32_t verdict_count, verdict_size;
    size_t count;
    struct judged nodes[];
};

struct refusals {
    struct refusal *all;
    size_t count, bytes;
};

struct refusals *refusals_new(void)
{
    return calloc(1, sizeof(struct refusals));
}

static void refusal_free(struct refusal *refusal)
{
    struct verdict *verdict, *next;

    HASH_ITER(hh, refusal->verdicts, verdict, next)
    {
        HASH_DEL(refusal->verdicts, verdict);
        free(verdict);
    }
    free(refusal->by_number);
    free(refusal->key);
    free(refusal);
}

void refusals_drop(struct refusals *refusals, struct refusal *refusal)
{
    DL_DELETE(refusals->all, refusal);
    refusals->count--;
    refusals->bytes -= refusal->bytes;
    refusal_free(refusal);
}

void refusals_free(struct refusals *refusals)
{
    if (!refusals)
        return;
    while (refusals->all)
        refusals_drop(refusals, refusals->all);
    free(refusals);
}

/* Keys */

static void write_policy(struct strbuf *text, const struct place_policy *policy)
{
    strbuf_addf(text, "%d%d%d:%u,%u,%u", policy->order, policy->mutex, policy->connected,
                policy->weights.tasks, policy->weights.cores, policy->weights.memory);
    for (size_t i = 0; i < PLACE_MAX_KEYS; i++)
        strbuf_addf(text, " %d", policy->keys[i]);
    strbuf_addf(text, "\n");
}

static void write_budgets(struct strbuf *text, const struct place_options *options)
{
    for (size_t i = 0; i < options->budget_count; i++) {
        const struct place_budget *budget = &options->budgets[i];

        strbuf_addf(text, "%s %lld %lld\n", budget->vendor->word, (long long)budget->memory_mib,
                    (long long)budget->cores);
    }
}

static void write_list(struct strbuf *text, const struct text_list *list)
{
    strbuf_addf(text, "%zu", list->count);
    for (size_t i = 0; i < list->count; i++)
        strbuf_addf(text, ":%zu:%s", strlen(list->items[i]), list->items[i]);
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same_list(const struct text_list *a, const struct text_list *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

static bool is_same_selection(const struct request *a, const struct request *b)
{
    return is_same_list(&a->use_uuids, &b->use_uuids) &&
           is_same_list(&a->avoid_uuids, &b->avoid_uuids) &&
           is_same_list(&a->use_types, &b->use_types) &&
           is_same_list(&a->avoid_types, &b->avoid_types) && is_same_text(a->modes, b->modes);
}

static void write_wishes(struct strbuf *text, const struct request *request)
{
    const unsigned char *wishes = request->wishes;

    for (size_t i = 0; i < request->wishes_size; i++)
        strbuf_addf(text, "%02x", wishes[i]);
    strbuf_add(text, " ");
}

/* A pod's requests mostly share one selection of devices, which may be long: it is written once. */
static void write_request(struct strbuf *text, const struct request *request,
                          const struct request *before)
{
    strbuf_addf(text, "%s %u %llu %u %u %d ", request->vendor->word, request->count,
                (unsigned long long)request->memory_bytes, request->memory_percent, request->cores,
                request->one_numa_node);
    write_wishes(text, request);
    if (before && is_same_selection(request, before)) {
        strbuf_add(text, "=\n");
        return;
    }
    write_list(text, &request->use_uuids);
    write_list(text, &request->avoid_uuids);
    write_list(text, &request->use_types);
    write_list(text, &request->avoid_types);
    strbuf_addf(text, "%s\n", request->modes ? request->modes : "\r");
}

int refusal_write_demand(const struct demand *demand, const struct place_options *options,
                         struct arena *arena, struct refusal_key *ret_key)
{
    struct strbuf text = STRBUF_IN(arena, KEY_MAX);
    const struct request *before = NULL;

    /* The order of nodes says which is chosen, not whether there is one. */
    write_policy(&text, &options->policy);
    write_budgets(&text, options);
    for (size_t i = 0; i < demand->count; i++) {
        const struct container_demand *container = &demand->containers[i];

        strbuf_addf(&text, "%d %zu\n", container->role, container->request_count);
        for (size_t k = 0; k < container->request_count; k++) {
            write_request(&text, &container->requests[k], before);
            before = &container->requests[k];
        }
    }
    if (text.failed)
        return -ENOMEM;
    ret_key->text = text.text;
    ret_key->len = text.len;
    return 0;
}

_Static_assert(offsetof(struct place_failure, too_few_devices) ==
                   (1 + PLACE_REASON_COUNT) * sizeof(unsigned),
               "a failure's bytes can be compared");

static bool is_for(const struct refusal *refusal, const struct refusal_key *key)
{
    return refusal->key_len == key->len && memcmp(refusal->key, key->text, key->len) == 0 &&
           memcmp(refusal->candidates, key->candidates, sizeof(key->candidates)) == 0;
}

struct refusal *refusals_find(struct refusals *refusals, const struct refusal_key *key)
{
    struct refusal *refusal;

    DL_FOREACH(refusals->all, refusal)
    {
        if (!is_for(refusal, key))
            continue;
        if (refusal->verdict_count > VERDICTS_MAX) {
            refusals_drop(refusals, refusal);
            return NULL;
        }
        DL_DELETE(refusals->all, refusal);
        DL_APPEND(refusals->all, refusal);
        return refusal;
    }
    return NULL;
}

struct refusal *refusals_add(struct refusals *refusals, const struct refusal_key *key, size_t count)
{
    size_t bytes = sizeof(struct refusal) + count * sizeof(struct judged) + key->len;
    struct refusal *refusal = malloc(sizeof(*refusal) + count * sizeof(struct judged));
    char *copy = malloc(key->len + 1);

    if (!refusal || !copy) {
        free(refusal);
        free(copy);
        return NULL;
    }
    while (refusals->all && (refusals->count >= REFUSALS_MAX || refusals->bytes + bytes > KEPT_MAX))
        refusals_drop(refusals, refusals->all);
    *refusal = (struct refusal){
        .owner = refusals,
        .key = memcpy(copy, key->text, key->len),
        .key_len = key->len,
        .bytes = bytes,
        .count = count,
    };
    memcpy(refusal->candidates, key->candidates, sizeof(key->candidates));
    for (size_t i = 0; i < count; i++)
        refusal->nodes[i].verdict = NONE;
    DL_APPEND(refusals->all, refusal);
    refusals->count++;
    refusals->bytes += bytes;
    return refusal;
}

/* Nodes */

size_t refusal_find_stale(const struct refusal *refusal, const struct place_node *const *nodes,
                          uint32_t *ret_positions)
{
    size_t found = 0;

    for (size_t i = 0; i < refusal->count; i++) {
        const struct judged *judged = &refusal->nodes[i];

        if (judged->version != nodes[i]->version || judged->verdict == NONE)
            ret_positions[found++] = (uint32_t)i;
    }
    return found;
}

static int verdicts_grow(struct refusal *refusal)
{
    uint32_t size = refusal->verdict_size ? 2 * refusal->verdict_size : VERDICTS_FIRST;
    struct verdict **grown;

    if (refusal->verdict_count < refusal->verdict_size)
        return 0;
    grown = reallocarray(refusal->by_number, size, sizeof(struct verdict *));
    if (!grown)
        return -ENOMEM;
    refusal->by_number = grown;
    refusal->verdict_size = size;
    return 0;
}

static struct verdict *verdict_add(struct refusal *refusal, const struct place_failure *failure)
{
    char text[PLACE_REASON_TEXT_SIZE];
    struct verdict *verdict;
    size_t len, size;

    place_reasons_format(failure, text);
    len = strlen(text);
    size = sizeof(*verdict) + len + 1;
    if (verdicts_grow(refusal) < 0)
        return NULL;
    verdict = calloc(1, size);
    if (!verdict)
        return NULL;
    refusal->bytes += size;
    refusal->owner->bytes += size;
    memcpy(verdict->text, text, len + 1);
    verdict->failure = *failure;
    verdict->number = refusal->verdict_count;
    refusal->by_number[refusal->verdict_count++] = verdict;
    HASH_ADD(hh, refusal->verdicts, failure, FAILURE_SIZE, verdict);
    return verdict;
}

int refusal_set(struct refusal *refusal, size_t position, const struct place_node *node,
                const struct place_failure *failure)
{
    struct judged *judged = &refusal->nodes[position];
    struct verdict *verdict;

    HASH_FIND(hh, refusal->verdicts, failure, FAILURE_SIZE, verdict);
    if (!verdict)
        verdict = verdict_add(refusal, failure);
    if (!verdict)
        return -ENOMEM;
    if (judged->verdict != NONE)
        refusal->by_number[judged->verdict]->nodes--;
    verdict->nodes++;
    *judged = (struct judged){node->version, verdict->number};
    return 0;
}

bool refusal_has(const struct refusal *refusal, size_t position)
{
    return refusal->nodes[position].verdict != NONE;
}

size_t refusal_list(const struct refusal *refusal, const struct place_node *const *nodes,
                    struct cluster_failed_node *ret_failed)
{
    size_t left = 0;

    for (size_t i = 0; i < refusal->count; i++) {
        const struct verdict *verdict;

        if (!refusal_has(refusal, i)) {
            ret_failed[i] = (struct cluster_failed_node){nodes[i]->name, REFUSAL_LATER, false};
            left++;
            continue;
        }
        verdict = refusal->by_number[refusal->nodes[i].verdict];
        ret_failed[i] =
            (struct cluster_failed_node){nodes[i]->name, verdict->text, verdict->failure.for_good};
    }
    return left;
}

void refusal_add_up(const struct refusal *refusal, struct place_totals *totals)
{
    for (uint32_t i = 0; i < refusal->verdict_count; i++) {
        const struct verdict *verdict = refusal->by_number[i];

        if (verdict->nodes)
            place_totals_add(totals, &verdict->failure, verdict->nodes);
    }
}
