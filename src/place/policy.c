/* SPDX-License-Identifier: Apache-2.0 */

/* Policies as they are written: in a flag, or on a pod. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "model/codec_number.h"
#include "model/keys.h"
#include "place/place.h"

/* The pieces of "mutex, binpack", one after the other; false at the end. */
static bool next_word(const char **rest, const char **ret_word, size_t *ret_len)
{
    *ret_word = *rest + strspn(*rest, ", ");
    *ret_len = strcspn(*ret_word, ", ");
    *rest = *ret_word + *ret_len;
    return *ret_len > 0;
}

static bool is_word(const char *word, size_t len, const char *wanted)
{
    return len == strlen(wanted) && strncmp(word, wanted, len) == 0;
}

static enum place_key key_of(const char *word, size_t len)
{
    if (is_word(word, len, "binpack"))
        return PLACE_KEY_BINPACK;
    if (is_word(word, len, "spread"))
        return PLACE_KEY_SPREAD;
    return is_word(word, len, "numa") ? PLACE_KEY_NUMA : PLACE_KEY_NONE;
}

static bool has_key(const enum place_key *keys, enum place_key wanted)
{
    for (size_t i = 0; i < PLACE_MAX_KEYS; i++) {
        if (keys[i] == wanted)
            return true;
    }
    return false;
}

/* A chain sorts by its words in their order; without one that sorts, it spreads. */
static void read_chain(const char *text, enum place_key *keys)
{
    const char *word;
    size_t len, count = 0;

    while (next_word(&text, &word, &len)) {
        enum place_key key = key_of(word, len);

        if (key != PLACE_KEY_NONE && !has_key(keys, key))
            keys[count++] = key;
    }
    if (!count)
        keys[0] = PLACE_KEY_SPREAD;
}

bool place_node_order_read(const char *text, enum place_order *ret_order)
{
    static const struct {
        const char *word;
        enum place_order order;
    } rows[] = {
        {"binpack", PLACE_BINPACK},
        {"spread", PLACE_SPREAD},
        {"scarcity", PLACE_SCARCITY},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strcmp(text, rows[i].word) != 0)
            continue;
        *ret_order = rows[i].order;
        return true;
    }
    return false;
}

/* HAMi reads an unknown word as binpack of nodes, and as spread of devices. */
static enum place_order node_order_of(const char *text)
{
    enum place_order order = PLACE_BINPACK;

    (void)place_node_order_read(text, &order);
    return order;
}

void place_policy_read(const char *text, struct place_policy *policy)
{
    struct place_policy read = {.order = PLACE_SPREAD, .weights = policy->weights};
    enum place_key key = PLACE_KEY_NONE;
    const char *rest = text, *word;
    size_t len, words = 0;

    while (next_word(&rest, &word, &len)) {
        key = key_of(word, len);
        read.mutex |= is_word(word, len, "mutex");
        read.connected |= is_word(word, len, "topology-aware");
        words++;
    }
    if (words > 1 || key == PLACE_KEY_NUMA)
        read_chain(text, read.keys);
    else if (key == PLACE_KEY_BINPACK)
        read.order = PLACE_BINPACK;
    *policy = read;
}

bool place_policy_check(const char *text)
{
    static const char *const words[] = {"binpack", "spread",         "mutex",
                                        "numa",    "topology-aware", NULL};

    return text_is_made_of(text, words);
}

/* One piece of "slot=1,core=0,memory=2". */
static int read_weight(const char *piece, size_t len, const uint32_t **seen,
                       struct place_weights *weights, struct error *err)
{
    const struct {
        const char *name;
        uint32_t *weight;
    } rows[] = {
        {"slot", &weights->tasks},
        {"core", &weights->cores},
        {"memory", &weights->memory},
    };
    const char *equals = memchr(piece, '=', len);
    const size_t name_len = equals ? (size_t)(equals - piece) : len;
    int64_t value;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!equals || !is_word(piece, name_len, rows[i].name))
            continue;
        if (seen[i])
            return error_set(err, -EINVAL, "%s has two weights", rows[i].name);
        if (!codec_number(equals + 1, len - name_len - 1, 0, PLACE_WEIGHT_MAX, &value))
            return error_set(err, -EINVAL, "the weight of %s is not a number from 0 to %d",
                             rows[i].name, PLACE_WEIGHT_MAX);
        *rows[i].weight = (uint32_t)value;
        seen[i] = rows[i].weight;
        return 0;
    }
    return error_set(err, -EINVAL, "\"%.*s\" is none of slot=N, core=N, memory=N",
                     (int)MIN(len, (size_t)64), piece);
}

int place_weights_read(const char *text, struct place_weights *ret_weights, struct error *err)
{
    const uint32_t *seen[3] = {NULL};
    struct place_weights weights = {0};
    const char *word;
    size_t len;
    int r;

    while (next_word(&text, &word, &len)) {
        r = read_weight(word, len, seen, &weights, err);
        if (r < 0)
            return r;
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return error_set(err, -EINVAL, "weights of slot, core and memory are needed");
    if (!(weights.tasks | weights.cores | weights.memory))
        return error_set(err, -EINVAL, "at least one weight must be more than 0");
    *ret_weights = weights;
    return 0;
}

void place_options_read(const struct text_pairs *annotations, const struct place_options *defaults,
                        struct place_options *ret_options)
{
    const char *node = text_pairs_get(annotations, KEY_NODE_POLICY);
    const char *device = text_pairs_get(annotations, KEY_DEVICE_POLICY);
    const char *weights = text_pairs_get(annotations, KEY_DEVICE_WEIGHTS);
    struct place_options options = *defaults;

    if (node)
        options.node_order = node_order_of(node);
    if (device)
        place_policy_read(device, &options.policy);
    if (weights)
        (void)place_weights_read(weights, &options.policy.weights, NULL);
    *ret_options = options;
}
