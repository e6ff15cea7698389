/* SPDX-License-Identifier: Apache-2.0 */

/* Pods that are filtered: placed, refused, asked for again. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_judge.h"
#include "cluster/random_pods.h"
#include "cluster/random_steps.h"

static struct api_pod *const pods = world.api.pods;

static bool is_waiting(const struct api_pod *pod)
{
    return pod->exists && !pod->node[0];
}

static bool is_bound(const struct api_pod *pod)
{
    return pod->exists && pod->node[0] && !pod->garbage;
}

static const char *const names[] = {"node-0", "node-1", "node-2", "node-3",
                                    "node-4", "node-5", "node-6", "node-9"};

static const char *reason_of(const struct cluster_answer *answer, const char *node)
{
    for (size_t i = 0; i < answer->failed_count; i++) {
        if (strcmp(answer->failed[i].name, node) == 0)
            return answer->failed[i].reason;
    }
    return NULL;
}

/* Of "no available node, 7 nodes do not meet: REASONS, 1/7 nodes have no devices": one name is
 * never known. */
static const char *reasons_of(const char *summary, char text[static TEXT])
{
    const char *begin = strstr(summary, "meet: ");
    char *end;

    assert_non_null(begin);
    (void)snprintf(text, TEXT, ", %s", begin + strlen("meet: "));
    end = strrchr(text, ',');
    *end = '\0';
    return text;
}

/* A kept refusal gives the same reasons as a fresh one: with one more node the question is
 * another. */
static void check_refusal(const struct pod *refused, size_t first,
                          const struct cluster_answer *kept)
{
    static unsigned questions;
    const size_t count = ARRAY_SIZE(names) - first;
    struct cluster_answer fresh = {0};
    struct pod pod = *refused;
    const char *more[16];
    char unknown[32], one[TEXT], other[TEXT];

    if (world_draw(4))
        return;
    (void)snprintf(unknown, sizeof(unknown), "unknown-%u", questions++);
    memcpy(more, names + first, count * sizeof(*names));
    more[count] = unknown;
    pod.uid = "judge";
    assert_int_equal(cluster_filter(world.cluster, &pod, more, count + 1, world.now_ns, world.arena,
                                    &fresh, NULL),
                     CLUSTER_REFUSED);
    for (size_t i = first; i < ARRAY_SIZE(names); i++)
        assert_string_equal(reason_of(kept, names[i]), reason_of(&fresh, names[i]));
    assert_string_equal(reasons_of(kept->summary, one), reasons_of(fresh.summary, other));
}

static void note_placed(struct api_pod *from, const char *node)
{
    COPY_TEXT(from->decided_node, node);
    from->decided_ns = world.now_ns;
    judge_decided(pods_number(from));
}

static char why_refused[TEXT]; /* the last refusal's summary */

const char *filter_why(void)
{
    return why_refused;
}

static void note_refused(const struct pod *pod, size_t first, const struct cluster_answer *answer)
{
    assert_int_equal(answer->failed_count, ARRAY_SIZE(names) - first);
    assert_non_null(strstr(answer->summary, "no available node"));
    COPY_TEXT(why_refused, answer->summary);
    world.covered.refused++;
    world.covered.quota_refusals += strstr(answer->summary, "ResourceQuotaNotFit") != NULL;
    /* What is kept for the pod is in the way of another that asks for the same. */
    if (!strstr(answer->summary, "ResourceQuotaNotFit: ") && !pods_holds(pod->uid))
        check_refusal(pod, first, answer);
}

void filter_among(struct api_pod *from, unsigned first)
{
    struct cluster_answer answer = {0};
    struct error err = ERROR_INIT;
    struct sent_pod sent;
    int r;

    pods_fill_sent(from, &sent);
    arena_reset(world.arena);
    r = cluster_filter(world.cluster, &sent.pod, names + first, ARRAY_SIZE(names) - first,
                       world.now_ns, world.arena, &answer, &err);
    if (r == -EBUSY) {
        world.covered.conflicts++;
        return;
    }
    from->decided = r == CLUSTER_PLACED;
    from->refused = r == CLUSTER_REFUSED;
    from->refused_among = first;
    from->refused_ns = world.now_ns;
    if (r == CLUSTER_PLACED) {
        world.covered.rooms += answer.room_made;
        note_placed(from, answer.node);
    } else {
        assert_int_equal(r, CLUSTER_REFUSED);
        note_refused(&sent.pod, first, &answer);
    }
}

void step_filter(void)
{
    struct api_pod *pod = pods_pick(is_waiting);

    if (pod)
        filter_among(pod, world_draw(4) ? 0 : world_draw(NODES));
}

void filter_bound(const struct api_pod *pod)
{
    struct cluster_answer answer;
    struct sent_pod sent;

    pods_fill_sent(pod, &sent);
    arena_reset(world.arena);
    assert_int_equal(cluster_filter(world.cluster, &sent.pod, names, ARRAY_SIZE(names),
                                    world.now_ns, world.arena, &answer, NULL),
                     -EBUSY);
}

void step_filter_bound(void)
{
    const struct api_pod *pod = pods_pick(is_bound);

    if (pod)
        filter_bound(pod);
}

static void take_requeued(int64_t now_ns)
{
    struct cluster_pod_name requeued[8];
    size_t count;

    do {
        arena_reset(world.arena);
        count = cluster_requeue(world.cluster, now_ns, world.arena, requeued, ARRAY_SIZE(requeued));
        for (size_t i = 0; i < count; i++) {
            world.covered.requeued++;
            for (unsigned p = 0; p < PODS; p++) {
                if (strcmp(pods[p].uid, requeued[i].uid) == 0)
                    pods[p].refused = false;
            }
        }
    } while (count == ARRAY_SIZE(requeued));
}

/* A pod that was refused and is not to be requeued would be refused again. */
void step_requeue(void)
{
    cluster_expire(world.cluster, world.now_ns);
    take_requeued(world.now_ns);
    take_requeued(world.now_ns + CLUSTER_REQUEUE_NS);
    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &pods[i];

        if (!is_waiting(pod) || !pod->refused ||
            world.now_ns + CLUSTER_REQUEUE_NS - pod->refused_ns > CLUSTER_REFUSED_KEPT_NS)
            continue;
        filter_among(pod, pod->refused_among);
        assert_false(pod->decided);
    }
}
