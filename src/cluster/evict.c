/* SPDX-License-Identifier: Apache-2.0 */

/* One step after the other, until a pod has its room. */

#include "cluster/evict.h"

#include <errno.h>
#include <utlist.h>

#include "cluster/quota.h"

#define SEARCH_NS NS_PER_S     /* between two searches */
#define FIRST_LOOK_NS NS_PER_S /* kube-scheduler asks for victims of its own before */
#define LOOK_NS (2 * NS_PER_S) /* while victims go */
#define FREE_LOOK_NS (5 * NS_PER_S)
#define BUSY_NS (5 * NS_PER_S)    /* before another try, where room is made on enough nodes */
#define GOING_NS (600 * NS_PER_S) /* the room is kept at most, until it is there */
#define ROOM_NS (60 * NS_PER_S)   /* and from then on */
#define DOUBT_NS (15 * NS_PER_S)
#define GUARD_NS (60 * NS_PER_S)
#define STUCK_NS (600 * NS_PER_S)

/* After a refusal. */

static bool may_preempt(const struct cluster *cluster, const struct pod *pod)
{
    return cluster->options.evicts && pod->has_spec && pod->has_priority && !pod->never_preempts &&
           !pod->nominated && !pod->deleting && pod->priority > cluster->lowest_priority;
}

static void postpone(struct preemptor *preemptor, int64_t until_ns)
{
    preemptor->until_ns = until_ns;
    preemptor->requeue = true;
}

static void begin(struct preemptor *preemptor, const struct room *room, int64_t now_ns)
{
    char *name = strdup(room->node->place->name);

    if (!name) {
        postpone(preemptor, now_ns + BUSY_NS);
        return;
    }
    preemptor->node = name;
    preemptor->cordoned = room->node->cordoned;
    preemptor->look_ns = now_ns + FIRST_LOOK_NS;
    preemptor->until_ns = now_ns + GOING_NS;
    preemptor->requeue = false;
    preemptor->searched = 0;
}

void evict_note(struct cluster *cluster, const struct pod *pod, const struct demand *demand,
                int64_t now_ns, struct arena *arena)
{
    struct preemptor *preemptor = preemptor_find(cluster, pod->uid);
    struct evicting evicting = {.cluster = cluster, .pod = pod, .demand = demand, .arena = arena};
    struct room room = {.node = NULL};
    size_t searched = 0;
    int r;

    if (!may_preempt(cluster, pod)) {
        evict_leave_to_kube(cluster, pod->uid);
        return;
    }
    preemptor = preemptor_get(cluster, pod);
    if (!preemptor)
        return;
    preemptor->noted_ns = now_ns;
    preemptor->priority = pod->priority;
    if (preemptor->node || now_ns < preemptor->until_ns)
        return;
    if (now_ns < cluster->search_ns || preemptors_count_nodes(cluster) == EVICT_NODES_MAX) {
        postpone(preemptor, now_ns + (now_ns < cluster->search_ns ? SEARCH_NS : BUSY_NS));
        return;
    }
    cluster->search_ns = now_ns + SEARCH_NS;
    place_options_read(&pod->annotations, &cluster->options.defaults, &evicting.options);
    r = namespace_budgets(cluster, pod->namespace, arena, &evicting.options);
    if (r == 0)
        r = victims_search(&evicting, &room, &searched);
    if (r == PLACE_FITS)
        begin(preemptor, &room, now_ns);
    else if ((preemptor->searched += searched) < cluster->candidates.count)
        postpone(preemptor, now_ns + SEARCH_NS);
    else if (!preemptor->failures)
        preemptor_free(cluster, preemptor);
    else
        preemptor->searched = 0;
}

/* With the pod as the API server has it. */

/* Whether it is known by now what became of an eviction whose answer was not certain. */
static bool is_certain(const struct cluster *cluster, struct preemptor *preemptor)
{
    for (size_t i = 0; i < preemptor->victim_count; i++) {
        struct asked_victim *asked = &preemptor->victims[i];
        const struct cluster_pod *victim = pod_find(cluster, asked->uid);

        if (!asked->doubtful)
            continue;
        if (victim && !victim->deleting)
            return false;
        asked->accepted = true;
        asked->doubtful = false;
    }
    preemptor->doubt_ns = 0;
    return true;
}

/* Keeps what the pod will take from other pods. What was kept before and is the same stays. */
static int hold(struct evicting *evicting, const struct room *room)
{
    struct cluster *cluster = evicting->cluster;
    const uint64_t freed = cluster->freed;
    struct cluster_node *node = node_find(cluster, room->node->place->name);
    struct cluster_pod *pod = pod_find(cluster, evicting->pod->uid);
    CLEANUP(grant_freep) struct grant *before = NULL;
    int r;

    if (pod && pod->state != POD_HELD && pod_holds(pod))
        return -EBUSY;
    if (pod)
        before = pod_take_back(cluster, pod);
    r = filter_take(cluster, evicting->pod, node, &room->placement, POD_HELD, evicting->arena);
    if (r < 0)
        return r;
    pod = pod_find(cluster, evicting->pod->uid);
    if (before && grant_is_same(before, pod->grant))
        cluster->freed = freed;
    return 0;
}

/* Whether the pod fits as things are, but for what is kept for it. */
static int fits_now(const struct evicting *evicting, const struct cluster_node *node)
{
    const struct cluster_pod *own = pod_find(evicting->cluster, evicting->pod->uid);
    struct place_victim victim = {.state = VICTIM_EVICTED};

    if (!own || own->node != node)
        return PLACE_NO_FIT;
    victim.usage = &own->grant->usage;
    return place_preempt(node->place, evicting->demand, &evicting->options, &victim, 1,
                         evicting->arena, NULL);
}

/* The next victim to be asked to go: all have to be tried first where there are several, since one
 * that may not go makes the others go in vain. */
static enum cluster_evict_step next_victim(struct preemptor *preemptor, const struct room *room,
                                           struct cluster_eviction *eviction)
{
    struct cluster_pod *least = NULL, *untried = NULL;

    for (size_t i = 0; i < room->count; i++) {
        const struct asked_victim *asked = preemptor_find_asked(preemptor, room->victims[i]->uid);

        if (!asked || !asked->tried)
            untried = room->victims[i];
        if (!least || room->victims[i]->priority < least->priority)
            least = room->victims[i];
    }
    if (room->count == 1 || preemptor_has_evicted(preemptor))
        untried = NULL;
    if (untried)
        least = untried;
    eviction->victim = (struct cluster_pod_name){least->namespace, least->name, least->uid};
    eviction->victim_priority = least->priority;
    return untried ? CLUSTER_EVICT_TRY : CLUSTER_EVICT;
}

static bool note_asked(struct preemptor *preemptor, const char *uid)
{
    if (preemptor_find_asked(preemptor, uid))
        return true;
    if (preemptor->victim_count == EVICT_VICTIMS_MAX)
        return false;
    preemptor->victims[preemptor->victim_count] = (struct asked_victim){.tried = false};
    COPY_TEXT(preemptor->victims[preemptor->victim_count].uid, uid);
    preemptor->victim_count++;
    return true;
}

/* Takes the node from less important pods for which room is made there. False: a more important
 * one has it. */
static bool take_node(struct evicting *evicting, const struct preemptor *preemptor, int64_t now_ns)
{
    struct preemptor *other;

    while ((other = preemptor_find_other(evicting->cluster, preemptor->node, preemptor->uid))) {
        if (other->priority >= preemptor->priority)
            return false;
        preemptor_fail(evicting->cluster, other, now_ns);
    }
    return true;
}

/* CLUSTER_EVICT_OVER: the room can't be made there any more. */
static int make_room(struct evicting *evicting, struct preemptor *preemptor, int64_t now_ns,
                     struct cluster_eviction *ret_eviction)
{
    struct cluster_node *node = node_find(evicting->cluster, preemptor->node);
    struct room room;
    int r;

    if (!node || node->absent || (node->cordoned && !preemptor->cordoned) ||
        !take_node(evicting, preemptor, now_ns))
        return CLUSTER_EVICT_OVER;
    r = victims_find(evicting, node, &room);
    if (r == PLACE_NO_FIT)
        return CLUSTER_EVICT_OVER;
    if (r == PLACE_FITS)
        r = hold(evicting, &room);
    if (r < 0)
        return r;
    ret_eviction->node = node->place->name;
    ret_eviction->count = room.count;
    if (room.count) {
        const enum cluster_evict_step step = next_victim(preemptor, &room, ret_eviction);

        return note_asked(preemptor, ret_eviction->victim.uid) ? step : CLUSTER_EVICT_OVER;
    }
    r = fits_now(evicting, node);
    if (r < 0)
        return r;
    if (r == PLACE_NO_FIT)
        return CLUSTER_EVICT_WAIT;
    if (!preemptor->free)
        preemptor->until_ns = now_ns + ROOM_NS;
    preemptor->free = true;
    return CLUSTER_EVICT_FREE;
}

/* What is kept for the pod is no part of what its namespace has. */
static int read_budgets(struct evicting *evicting)
{
    struct cluster *cluster = evicting->cluster;
    struct cluster_pod *own = pod_find(cluster, evicting->pod->uid);
    const bool held = own && own->state == POD_HELD;
    bool failed = false;
    const char *why;
    int r;

    if (held)
        namespace_charge(cluster, own->space, &own->grant->usage, -1);
    why = namespace_refuses(cluster, evicting->pod->namespace, evicting->demand, evicting->arena,
                            &failed);
    r = failed ? -ENOMEM
               : namespace_budgets(cluster, evicting->pod->namespace, evicting->arena,
                                   &evicting->options);
    if (held)
        namespace_charge(cluster, own->space, &own->grant->usage, 1);
    return r < 0 ? r : why ? PLACE_NO_FIT : PLACE_FITS;
}

/* Pods that were to end and did not are not waited for again soon. */
static void guard_stuck(struct cluster *cluster, const struct preemptor *preemptor, int64_t now_ns)
{
    const struct cluster_node *node = node_find(cluster, preemptor->node);
    const struct cluster_pod *pod;

    if (!node)
        return;
    DL_FOREACH(node->pods, pod)
    {
        if (pod->deleting)
            preemptor_guard(cluster, pod->uid, now_ns + STUCK_NS);
    }
}

static int evict_step(struct cluster *cluster, struct preemptor *preemptor, const struct pod *pod,
                      int64_t now_ns, struct arena *arena, struct cluster_eviction *ret_eviction)
{
    struct evicting evicting = {
        .cluster = cluster, .pod = pod, .preemptor = preemptor, .arena = arena};
    struct demand demand;
    int r;

    if (now_ns >= preemptor->until_ns) {
        guard_stuck(cluster, preemptor, now_ns);
        return CLUSTER_EVICT_OVER;
    }
    if (preemptor->doubt_ns && !is_certain(cluster, preemptor))
        return now_ns < preemptor->doubt_ns ? CLUSTER_EVICT_WAIT : CLUSTER_EVICT_OVER;
    r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);
    if (r < 0)
        return r;
    if (r == 0)
        return CLUSTER_EVICT_OVER;
    evicting.demand = &demand;
    place_options_read(&pod->annotations, &cluster->options.defaults, &evicting.options);
    r = read_budgets(&evicting);
    if (r != PLACE_FITS)
        return r < 0 ? r : CLUSTER_EVICT_OVER;
    return make_room(&evicting, preemptor, now_ns, ret_eviction);
}

int cluster_evict(struct cluster *cluster, const struct pod *pod, int64_t now_ns,
                  struct arena *arena, struct cluster_eviction *ret_eviction)
{
    struct preemptor *preemptor = preemptor_find(cluster, pod->uid);
    struct cluster_eviction eviction = {.node = NULL};
    int step;

    if (!preemptor || !preemptor->node)
        return CLUSTER_EVICT_OVER;
    preemptor->busy = false;
    preemptor->look_ns = now_ns + LOOK_NS;
    if (!may_preempt(cluster, pod) && !preemptor_has_evicted(preemptor)) {
        preemptor_free(cluster, preemptor);
        return CLUSTER_EVICT_OVER;
    }
    if (!cluster_is_ready(cluster) || cluster->held)
        return CLUSTER_EVICT_WAIT;
    step = evict_step(cluster, preemptor, pod, now_ns, arena, &eviction);
    if (step == CLUSTER_EVICT_OVER)
        preemptor_fail(cluster, preemptor, now_ns);
    if (step == CLUSTER_EVICT_TRY || step == CLUSTER_EVICT)
        preemptor->busy = true;
    if (step == CLUSTER_EVICT_FREE)
        preemptor->look_ns = now_ns + FREE_LOOK_NS;
    if (step > 0)
        *ret_eviction = eviction;
    return step;
}

void cluster_evict_unknown(struct cluster *cluster, const char *uid, int64_t now_ns)
{
    struct preemptor *preemptor = preemptor_find(cluster, uid);

    if (!preemptor || !preemptor->node)
        return;
    preemptor->busy = false;
    preemptor->look_ns = now_ns + LOOK_NS;
    if (now_ns >= preemptor->until_ns)
        preemptor_fail(cluster, preemptor, now_ns);
}

void cluster_evict_over(struct cluster *cluster, const char *uid)
{
    (void)evict_end(cluster, uid, NULL);
}

void cluster_evicted(struct cluster *cluster, const char *uid, const char *victim,
                     enum cluster_evicted_end end, bool trial, int64_t now_ns)
{
    struct preemptor *preemptor = preemptor_find(cluster, uid);
    struct asked_victim *asked = preemptor_find_asked(preemptor, victim);

    if (end == CLUSTER_EVICTION_REFUSED)
        preemptor_guard(cluster, victim, now_ns + GUARD_NS);
    if (!preemptor || !asked)
        return;
    preemptor->busy = false;
    preemptor->look_ns = now_ns;
    if (end == CLUSTER_EVICTION_REFUSED || (trial && end == CLUSTER_EVICTION_DOUBTFUL)) {
        preemptor_fail(cluster, preemptor, now_ns);
        return;
    }
    if (end == CLUSTER_EVICTION_DOUBTFUL) {
        asked->doubtful = true;
        preemptor->doubt_ns = now_ns + DOUBT_NS;
        preemptor->look_ns = now_ns + LOOK_NS;
    } else if (trial) {
        asked->tried = true;
    } else {
        asked->accepted = true;
    }
}
