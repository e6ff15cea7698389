/* SPDX-License-Identifier: Apache-2.0 */

/* Of the judge: nodes' turns and their locks. */

#include <stdio.h>
#include <string.h>

#include "cluster/random_judge.h"
#include "cluster/random_judge_parts.h"

/* A text does not say fractions of a second. */
#define LOCK_NS (299 * SECOND_NS)

static bool is_allocating(const struct api_pod *pod, unsigned node)
{
    return pod->exists && pod->node[0] && node_number(pod->node) == node && pod->turn &&
           !pod->allocated && !pod->failed && world.now_ns - (pod->has.wall_ns - WALL_NS) < LOCK_NS;
}

void judge_needs_turn(unsigned number, bool needs)
{
    const struct api_pod *pod = &world.api.pods[number];
    const unsigned node = node_number(pod->bind_node);
    const bool foreign = pod->binds.devices[NVIDIA][0] && world.shown[node].foreign;
    const bool dcus = pod->binds.devices[HYGON][0];

    const bool chips = pod->binds.devices[NEURON][0];

    judge_looks_at(node);
    if (needs && !foreign && !dcus && !chips)
        judge_wrong("%s waits for a turn that nobody needs", pod->uid);
    if (!needs &&
        ((foreign && judge_is_there(node, NVIDIA)) || (dcus && judge_is_there(node, HYGON)) ||
         (chips && judge_is_there(node, NEURON))))
        judge_wrong("%s is bound without a turn", pod->uid);
}

void judge_turn(unsigned node, unsigned number)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (i != number && is_allocating(&world.api.pods[i], node))
            judge_wrong("node-%u: %s has the turn, and %s's allocations go on", node,
                        world.api.pods[number].uid, world.api.pods[i].uid);
    }
}

static bool names(const char *lock, const char *space, const char *name)
{
    char end[LOCK_TEXT];
    size_t len = (size_t)snprintf(end, sizeof(end), ",%s,%s", space, name);

    return strlen(lock) >= len && strcmp(lock + strlen(lock) - len, end) == 0;
}

static bool is_old(const struct api_node *node)
{
    return world.now_ns - node->lock_ns >= LOCK_NS || world.now_ns - node->lock_since_ns >= LOCK_NS;
}

void judge_lock_written(unsigned number, const char *space, const char *name)
{
    const struct api_node *node = &world.api.nodes[number];

    if (node->locked && !names(node->lock, space, name) && !is_old(node))
        judge_wrong("node-%u: \"%s\" is written over by %s/%s", number, node->lock, space, name);
}

void judge_lock_removed(unsigned number)
{
    const struct api_node *node = &world.api.nodes[number];
    const char *comma = node->locked ? strchr(node->lock, ',') : NULL;

    if (!node->locked || is_old(node))
        return;
    if (!comma || node->lock[0] == 'x')
        judge_wrong("node-%u: \"%s\" is removed early", number, node->lock);
    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *pod = &world.api.pods[i];

        if (is_allocating(pod, number) && names(node->lock, pod->space, pod->name))
            judge_wrong("node-%u: \"%s\" is removed, and allocations go on", number, node->lock);
    }
}
