/* SPDX-License-Identifier: Apache-2.0 */

/* Evictions for more important pods, which the API server carries out, or not. */

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_pods.h"
#include "cluster/random_steps.h"

static struct api_pod *const pods = world.api.pods;

static bool is_going(const struct api_pod *pod)
{
    return pod->exists && pod->going;
}

static struct api_pod *find_pod(const char *uid)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (pods[i].exists && strcmp(pods[i].uid, uid) == 0)
            return &pods[i];
    }
    return NULL;
}

/* The API server evicts the victim, or not, and says so, or not. */
static void evict(const struct api_pod *pod, const struct cluster_eviction *eviction, bool trial)
{
    const char *uid = eviction->victim.uid;
    struct api_pod *victim = find_pod(uid);
    enum cluster_evicted_end end =
        world_draw(3) ? CLUSTER_EVICTION_DONE : CLUSTER_EVICTION_DOUBTFUL;

    assert_true(eviction->victim_priority < pod->priority);
    assert_true(pods_holds(uid) && pods_holds(pod->uid));
    if (world_draw(6) == 0)
        end = CLUSTER_EVICTION_REFUSED;
    if (victim && !trial &&
        (end == CLUSTER_EVICTION_DONE || (end == CLUSTER_EVICTION_DOUBTFUL && world_draw(2)))) {
        assert_int_equal(victim->priority, eviction->victim_priority);
        victim->going = true;
        world_pod_changed(pods_number(victim));
    }
    world.covered.evicted += !trial && end == CLUSTER_EVICTION_DONE;
    world.covered.not_evicted += end != CLUSTER_EVICTION_DONE;
    cluster_evicted(world.cluster, pod->uid, uid, end, trial, world.now_ns);
}

static void look_at_waiting(const char *uid)
{
    const struct api_pod *pod = find_pod(uid);
    struct cluster_eviction eviction;
    struct sent_pod sent;
    int step;

    if (!pod || pod->node[0]) {
        cluster_evict_over(world.cluster, uid);
        return;
    }
    if (world_draw(10) == 0) {
        cluster_evict_unknown(world.cluster, uid, world.now_ns);
        return;
    }
    pods_fill_sent(pod, &sent);
    arena_reset(world.arena);
    step = cluster_evict(world.cluster, &sent.pod, world.now_ns, world.arena, &eviction);
    world.covered.held += step == CLUSTER_EVICT_WAIT || step == CLUSTER_EVICT_FREE;
    if (step == CLUSTER_EVICT || step == CLUSTER_EVICT_TRY)
        evict(pod, &eviction, step == CLUSTER_EVICT_TRY);
    else if (step == CLUSTER_EVICT_FREE && world_draw(4))
        filter_among(&pods[pod - pods], 0);
    else if (step < 0)
        cluster_evict_unknown(world.cluster, uid, world.now_ns);
}

void step_evict(void)
{
    struct cluster_eviction_due due[4];
    struct api_pod *going = pods_pick(is_going);
    char uids[ARRAY_SIZE(due)][32];
    size_t count;

    if (!world.evicts)
        return;
    if (going && world_draw(3) == 0)
        pods_delete(going);
    arena_reset(world.arena);
    count = cluster_evictions(world.cluster, world.now_ns, world.arena, due, ARRAY_SIZE(due));
    for (size_t i = 0; i < count; i++)
        COPY_TEXT(uids[i], due[i].requeue ? "" : due[i].pod.uid);
    for (size_t i = 0; i < count; i++) {
        if (uids[i][0])
            look_at_waiting(uids[i]);
    }
}

void evictions_end(void)
{
    const int64_t later_ns = world.now_ns + 10 * SECOND_NS;
    struct cluster_eviction_due due[4];
    size_t count;

    do {
        arena_reset(world.arena);
        count = cluster_evictions(world.cluster, later_ns, world.arena, due, ARRAY_SIZE(due));
        for (size_t i = 0; i < count; i++)
            cluster_evict_over(world.cluster, due[i].pod.uid);
    } while (count);
}
