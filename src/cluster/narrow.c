/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which nodes are looked into for a pod of many requests.
 *
 * Each of its requests is fitted on each node until one finds no room, and Kubernetes allows a pod
 * hundreds of containers: over thousands of nodes that takes seconds, in which no other pod is
 * placed. So one question about such a pod looks into so many nodes only: those that it has not
 * looked into yet, the emptiest first, since that is where it fits if it does anywhere. The next
 * question goes on with the others, as the refusal remembers what was looked into. For victims,
 * with each of which such a pod is fitted anew, the same bound holds.
 */

#include <errno.h>
#include <stdlib.h>

#include "cluster/state.h"

enum {
    REQUESTS_FEW = 4, /* a pod of no more looks into all nodes */
};

struct near {
    uint32_t position;
    bool judged;
    float score;
};

static size_t count_requests(const struct demand *demand)
{
    size_t count = 0;

    for (size_t i = 0; i < demand->count; i++)
        count += demand->containers[i].request_count;
    return count;
}

static int compare_near(const void *a, const void *b)
{
    const struct near *left = a, *right = b;

    if (left->judged != right->judged)
        return left->judged - right->judged;
    if (left->score != right->score)
        return left->score < right->score ? -1 : 1;
    return (left->position > right->position) - (left->position < right->position);
}

size_t narrow_victim_looks(const struct demand *demand, const struct cluster_node *node)
{
    const size_t requests = count_requests(demand);

    return requests > REQUESTS_FEW ? requests * node->place->device_count * (node_pods(node) + 1)
                                   : 0;
}

bool narrow_is_large(const struct demand *demand, const struct candidates *candidates)
{
    const size_t requests = count_requests(demand);
    size_t looks = 0;

    if (requests <= REQUESTS_FEW)
        return false;
    for (size_t i = 0; i < candidates->count && looks <= NARROW_LOOKS_MAX; i++)
        looks += requests * candidates->nodes[i]->device_count;
    return looks > NARROW_LOOKS_MAX;
}

int narrow(const struct demand *demand, const struct candidates *candidates,
           const struct refusal *refusal, struct arena *arena, uint32_t *positions, size_t *count)
{
    struct near *nodes = ARENA_ARRAY(arena, struct near, *count);
    const size_t requests = count_requests(demand);
    size_t looks = 0, taken = 0;

    if (!nodes)
        return -ENOMEM;
    for (size_t i = 0; i < *count; i++)
        nodes[i] = (struct near){
            .position = positions[i],
            .judged = refusal && refusal_has(refusal, positions[i]),
            .score = candidates->nodes[positions[i]]->score,
        };
    qsort(nodes, *count, sizeof(nodes[0]), compare_near);
    for (; taken < *count && (!taken || looks < NARROW_LOOKS_MAX); taken++) {
        positions[taken] = nodes[taken].position;
        looks += requests * candidates->nodes[positions[taken]]->device_count;
    }
    *count = taken;
    return 0;
}
