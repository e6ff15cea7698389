/* SPDX-License-Identifier: Apache-2.0 */

/* Which pods would have to go for another. */

#include <errno.h>
#include <utlist.h>

#include "cluster/evict.h"

enum {
    FOUND_MAX = 100, /* nodes among which the best is chosen, as kube-scheduler has it */
};

/* Room that is kept for a less important pod is not in the way. Nobody is asked to go while it is
 * being bound, but when room is looked for a first time it counts: by the next look it is bound. */
static enum place_victim_state state_of(const struct evicting *evicting,
                                        const struct cluster_pod *other)
{
    const struct asked_victim *asked = preemptor_find_asked(evicting->preemptor, other->uid);
    const struct pod *pod = evicting->pod;

    if (strcmp(other->uid, pod->uid) == 0 || (asked && asked->accepted))
        return VICTIM_EVICTED;
    if (other->state == POD_HELD)
        return other->priority < pod->priority ? VICTIM_EVICTED : VICTIM_REPRIEVED;
    if (other->state != POD_PLACED && evicting->preemptor)
        return VICTIM_REPRIEVED;
    if (other->deleting)
        return other->guarded ? VICTIM_REPRIEVED : VICTIM_EVICTED;
    if (other->has_priority && other->priority < pod->priority && !other->guarded &&
        strlen(other->uid) < EVICT_UID_SIZE)
        return VICTIM_POTENTIAL;
    return VICTIM_REPRIEVED;
}

static struct place_victim *list_victims(const struct evicting *evicting,
                                         const struct cluster_node *node, size_t *ret_count)
{
    const size_t count = node_pods(node);
    struct place_victim *victims = ARENA_ARRAY(evicting->arena, struct place_victim, count);
    const struct cluster_pod *other;
    size_t i = 0;

    if (!victims)
        return NULL;
    DL_FOREACH(node->pods, other)
    {
        victims[i++] = (struct place_victim){
            .usage = &other->grant->usage,
            .priority = other->priority,
            .state = state_of(evicting, other),
        };
    }
    *ret_count = count;
    return victims;
}

static bool any_goes(const struct place_victim *victims, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (victims[i].state != VICTIM_REPRIEVED)
            return true;
    }
    return false;
}

/* PLACE_NO_FIT also where too many would have to go. */
static int read_victims(struct cluster_node *node, const struct place_victim *before,
                        const struct place_victim *after, struct room *room)
{
    struct cluster_pod *other;
    size_t i = 0;

    room->node = node;
    room->highest = INT32_MIN;
    DL_FOREACH(node->pods, other)
    {
        const bool goes = before[i].state == VICTIM_POTENTIAL && after[i].state == VICTIM_EVICTED;

        i++;
        if (!goes)
            continue;
        if (room->count == EVICT_VICTIMS_MAX)
            return PLACE_NO_FIT;
        room->victims[room->count++] = other;
        room->highest = MAX(room->highest, other->priority);
        room->sum += (uint64_t)((int64_t)other->priority - INT32_MIN);
    }
    return PLACE_FITS;
}

int victims_find(const struct evicting *evicting, struct cluster_node *node, struct room *ret_room)
{
    struct place_victim *before, *after;
    struct room room = {.node = node};
    size_t count = 0;
    int r;

    before = list_victims(evicting, node, &count);
    after = ARENA_ARRAY(evicting->arena, struct place_victim, count);
    if (!before || !after)
        return -ENOMEM;
    if (!any_goes(before, count) && !evicting->preemptor)
        return PLACE_NO_FIT;
    if (count)
        memcpy(after, before, count * sizeof(*after));
    r = place_preempt(node->place, evicting->demand, &evicting->options, after, count,
                      evicting->arena, &room.placement);
    if (r != PLACE_FITS)
        return r;
    r = read_victims(node, before, after, &room);
    if (r == PLACE_FITS)
        *ret_room = room;
    return r;
}

static bool is_better(const struct room *a, const struct room *b)
{
    if (a->highest != b->highest)
        return a->highest < b->highest;
    if (a->sum != b->sum)
        return a->sum < b->sum;
    return strcmp(a->node->place->name, b->node->place->name) < 0;
}

/* Where room is being made for another pod already, only a more important one comes between. */
static bool is_taken(const struct evicting *evicting, const struct cluster_node *node)
{
    const struct preemptor *other =
        preemptor_find_other(evicting->cluster, node->place->name, evicting->pod->uid);

    return other && other->priority >= evicting->pod->priority;
}

int victims_search(const struct evicting *evicting, struct room *ret_best, size_t *ret_searched)
{
    struct cluster *cluster = evicting->cluster;
    const struct candidates *candidates = &cluster->candidates;
    const size_t count = MIN(candidates->count, (size_t)EVICT_SEARCHED_MAX);
    size_t found = 0, looks = 0, i;

    for (i = 0; i < count && found < FOUND_MAX && looks < NARROW_LOOKS_MAX; i++) {
        const size_t at = (cluster->search_from + i) % candidates->count;
        struct cluster_node *node = node_find(cluster, candidates->nodes[at]->name);
        const struct arena_mark mark = arena_mark(evicting->arena);
        struct room room;
        int r;

        if (!node || node->absent || is_taken(evicting, node))
            continue;
        looks += narrow_victim_looks(evicting->demand, node);
        r = victims_find(evicting, node, &room);
        arena_rewind(evicting->arena, mark);
        if (r == -ENOMEM)
            return r;
        if (r == PLACE_FITS && (found++ == 0 || is_better(&room, ret_best)))
            *ret_best = room;
    }
    *ret_searched = i;
    cluster->search_from = candidates->count ? (cluster->search_from + i) % candidates->count : 0;
    return found ? PLACE_FITS : PLACE_NO_FIT;
}
