/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/feedback.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"
#include "monitor/containers.h"
#include "region/view.h"

/* The rule */

/* Active containers of one priority on one card. */
struct level {
    struct {
        unsigned card;
        int priority;
    } key;
    unsigned count;
    UT_hash_handle hh;
};

/* The most important of the active containers on a card. */
struct top {
    unsigned card;
    int priority;
    UT_hash_handle hh;
};

struct active {
    struct level *levels;
    struct top *tops;
};

static void active_deinit(struct active *active)
{
    struct level *level, *next_level;
    struct top *top, *next_top;

    HASH_ITER(hh, active->levels, level, next_level)
    {
        HASH_DEL(active->levels, level);
        free(level);
    }
    HASH_ITER(hh, active->tops, top, next_top)
    {
        HASH_DEL(active->tops, top);
        free(top);
    }
}

static struct level *find_level(const struct active *active, unsigned card, int priority)
{
    struct level *level, wanted = {.key = {card, priority}};

    HASH_FIND(hh, active->levels, &wanted.key, sizeof(wanted.key), level);
    return level;
}

static bool raise_top(struct active *active, unsigned card, int priority)
{
    struct top *top;

    HASH_FIND(hh, active->tops, &card, sizeof(card), top);
    if (!top) {
        top = calloc(1, sizeof(*top));
        if (!top)
            return false;
        *top = (struct top){.card = card, .priority = priority};
        HASH_ADD(hh, active->tops, card, sizeof(top->card), top);
    }
    if (priority < top->priority)
        top->priority = priority;
    return true;
}

static bool count_active(struct active *active, unsigned card, int priority)
{
    struct level *level = find_level(active, card, priority);

    if (!level) {
        level = calloc(1, sizeof(*level));
        if (!level)
            return false;
        level->key.card = card;
        level->key.priority = priority;
        HASH_ADD(hh, active->levels, key, sizeof(level->key), level);
    }
    level->count++;
    return raise_top(active, card, priority);
}

static bool find_active(const struct feedback_container *containers, size_t count,
                        struct active *active)
{
    for (size_t i = 0; i < count; i++) {
        const struct feedback_container *container = &containers[i];

        /* After this round's one is off. */
        if (container->recent_kernel <= 1 || container->priority < 0)
            continue;
        for (unsigned k = 0; k < container->card_count; k++) {
            if (!count_active(active, container->cards[k], container->priority))
                return false;
        }
    }
    return true;
}

static bool is_outranked(const struct active *active, const struct feedback_container *container)
{
    for (unsigned i = 0; i < container->card_count; i++) {
        const struct top *top;

        HASH_FIND(hh, active->tops, &container->cards[i], sizeof(container->cards[i]), top);
        if (top && top->priority < container->priority)
            return true;
    }
    return false;
}

static bool has_equals(const struct active *active, const struct feedback_container *container)
{
    for (unsigned i = 0; i < container->card_count; i++) {
        const struct level *level = find_level(active, container->cards[i], container->priority);

        if (level && level->count > 1)
            return true;
    }
    return false;
}

static void decide_one(const struct active *active, struct feedback_container *container)
{
    const bool outranked = is_outranked(active, container);

    if (container->recent_kernel > 0)
        container->recent_kernel--;
    if (outranked)
        container->recent_kernel = -1;
    else if (container->recent_kernel < 0)
        container->recent_kernel = 0;
    container->utilization_switch = outranked || has_equals(active, container);
}

bool feedback_decide(struct feedback_container *containers, size_t count)
{
    CLEANUP(active_deinit) struct active active = {NULL, NULL};

    if (!find_active(containers, count, &active))
        return false;
    for (size_t i = 0; i < count; i++)
        decide_one(&active, &containers[i]);
    return true;
}

/* Regions */

struct card {
    char uuid[REGION_UUID_SIZE + 1];
    unsigned number;
    UT_hash_handle hh;
};

struct feedback {
    struct feedback_container *containers;
    struct target {
        char *path;
        struct region_words seen;
    } * targets; /* as many */
    size_t count, size;
    struct card *cards;
    bool failed;
};

struct feedback *feedback_new(void)
{
    return calloc(1, sizeof(struct feedback));
}

void feedback_free(struct feedback *feedback)
{
    struct card *card, *next;

    if (!feedback)
        return;

    for (size_t i = 0; i < feedback->count; i++)
        free(feedback->targets[i].path);
    free(feedback->containers);
    free(feedback->targets);
    HASH_ITER(hh, feedback->cards, card, next)
    {
        HASH_DEL(feedback->cards, card);
        free(card);
    }
    free(feedback);
}

static bool make_room(struct feedback *feedback)
{
    size_t size = feedback->size ? 2 * feedback->size : 16;
    void *containers, *targets;

    if (feedback->count < feedback->size)
        return true;
    containers = realloc(feedback->containers, size * sizeof(*feedback->containers));
    if (!containers)
        return false;
    feedback->containers = containers;
    targets = realloc(feedback->targets, size * sizeof(*feedback->targets));
    if (!targets)
        return false;
    feedback->targets = targets;
    feedback->size = size;
    return true;
}

static bool add_card(struct feedback *feedback, struct feedback_container *container,
                     const char *uuid)
{
    struct card *card;

    if (!uuid[0])
        return true;
    HASH_FIND_STR(feedback->cards, uuid, card);
    if (!card) {
        card = calloc(1, sizeof(*card));
        if (!card)
            return false;
        COPY_TEXT(card->uuid, uuid);
        card->number = HASH_COUNT(feedback->cards);
        HASH_ADD_STR(feedback->cards, uuid, card);
    }
    container->cards[container->card_count++] = card->number;
    return true;
}

/* Where there is a limits file, it says which cards and which priority: the region is the tenant's
 * to write. */
static bool add_container(struct feedback *feedback, const struct container_use *use,
                          const char *path, const struct region_view *view)
{
    struct feedback_container *container;
    struct target *target;
    bool added = true;

    if (!make_room(feedback))
        return false;
    container = &feedback->containers[feedback->count];
    target = &feedback->targets[feedback->count];
    *container = (struct feedback_container){
        .priority = use->priority,
        .recent_kernel = view->recent_kernel,
        .utilization_switch = view->utilization_switch,
    };
    *target = (struct target){
        .path = strdup(path),
        .seen = {view->recent_kernel, view->utilization_switch},
    };
    if (!target->path)
        return false;
    feedback->count++;
    for (unsigned i = 0; i < use->card_count && added; i++)
        added = add_card(feedback, container, use->cards[i].uuid);
    return added;
}

static bool wants_all(void *data, const char *pod_uid)
{
    (void)data;
    (void)pod_uid;
    return true;
}

static void visit(void *data, const struct container_use *use, const char *region_path,
                  const struct region_view *view)
{
    struct feedback *feedback = data;

    if (view && !feedback->failed)
        feedback->failed = !add_container(feedback, use, region_path, view);
}

struct containers_visitor feedback_visitor(struct feedback *feedback)
{
    return (struct containers_visitor){wants_all, visit, feedback};
}

void feedback_tell(struct feedback *feedback)
{
    if (feedback->failed || !feedback_decide(feedback->containers, feedback->count)) {
        log_warn("no memory to look at the containers' priorities");
        return;
    }
    for (size_t i = 0; i < feedback->count; i++) {
        const struct region_words words = {feedback->containers[i].recent_kernel,
                                           feedback->containers[i].utilization_switch};

        (void)region_tell_words(feedback->targets[i].path, &feedback->targets[i].seen, &words);
    }
}
