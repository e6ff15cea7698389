/* SPDX-License-Identifier: Apache-2.0 */

/* Binds: begun, carried out or not, answered late or never; and terms, which end them all. */

#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_judge.h"
#include "cluster/random_pods.h"
#include "cluster/random_steps.h"
#include "model/keys.h"
#include "model/mig_allocations.h"
#include "vendor/nvidia/nvidia.h"

/* So long after a Binding was sent without an answer it may be carried out. */
#define SETTLED_NS (20 * SECOND_NS)

static struct api_pod *const pods = world.api.pods;

static bool is_decided(const struct api_pod *pod)
{
    return pod->decided && !pod->binding;
}

static bool is_answerable(const struct api_pod *pod)
{
    return pod->binding && !pod->unknown;
}

static bool is_unknown(const struct api_pod *pod)
{
    return pod->unknown;
}

static void take_written(const struct text_pairs *annotations, struct written *ret_written)
{
    static const char *const keys[MAKERS] = {NVIDIA_ALLOCATED_KEY, "hami.io/dcu-devices-allocated",
                                             "hami.io/aws-neuron-devices-allocated"};
    const char *written = text_pairs_get(annotations, POD_INIT_ROLES);

    *ret_written = (struct written){.wall_ns = (WALL_NS + world.now_ns) / SECOND_NS * SECOND_NS};
    COPY_TEXT(ret_written->roles, written ? written : "");
    for (unsigned i = 0; i < MAKERS; i++) {
        written = text_pairs_get(annotations, keys[i]);
        assert_true(!written || strlen(written) < TEXT);
        COPY_TEXT(ret_written->devices[i], written ? written : "");
    }
    written = text_pairs_get(annotations, MIG_ALLOCATIONS_KEY);
    assert_true(!written || strlen(written) < ALLOCATIONS_TEXT);
    COPY_TEXT(ret_written->allocations, written ? written : "");
}

static void count_placed(const struct api_pod *pod)
{
    unsigned vendors = 0;

    for (unsigned i = 0; i < MAKERS; i++) {
        world.covered.placed[i] += pod->binds.devices[i][0] != '\0';
        vendors += pod->binds.devices[i][0] != '\0';
    }
    world.covered.two_vendors += vendors > 1;
    world.covered.one_numa += pod->one_numa && pod->asks[NVIDIA].count > 1;
    world.covered.connected += pod->policy == POLICY_CONNECTED && pod->asks[NVIDIA].count > 1;
}

bool bind_begin(struct api_pod *pod)
{
    const struct cluster_bind bind = {pod->space, pod->name, pod->uid, pod->decided_node};
    struct text_pairs annotations;
    int r;

    arena_reset(world.arena);
    r = cluster_bind(world.cluster, &bind, world.now_ns, WALL_NS + world.now_ns, world.arena,
                     &annotations, NULL);
    pod->decided = false;
    world.covered.no_renewal += r == -ENOSPC;
    if (r < 0)
        return false;
    pod->binding = true;
    pod->tried = pod->told = pod->waits = pod->unknown = false;
    COPY_TEXT(pod->bind_node, pod->decided_node);
    take_written(&annotations, &pod->binds);
    judge_granted(pods_number(pod)); /* only here more is granted than before */
    return true;
}

static void bind_pod(struct api_pod *pod)
{
    if (!bind_begin(pod))
        return;
    count_placed(pod);
    pod->waits = locks_are_needed(pods_number(pod));
    judge_needs_turn(pods_number(pod), pod->waits);
    if (pod->waits)
        locks_enter(pods_number(pod));
}

void step_bind(void)
{
    struct api_pod *pod = pods_pick(is_decided);

    if (pod)
        bind_pod(pod);
}

static bool may_be_sent(const struct api_pod *pod)
{
    return !pod->waits || pod->told;
}

static void carry_out(struct api_pod *pod)
{
    if (!pod->exists || pod->node[0] || !may_be_sent(pod))
        return;
    COPY_TEXT(pod->node, pod->bind_node);
    pod->has = pod->binds;
    pod->turn = pod->waits;
    pod->allocated = pod->failed = false;
    world_pod_changed(pods_number(pod));
    world.covered.bound++;
}

static bool holds(const struct api_pod *pod)
{
    return pods_holds(pod->uid);
}

void bind_end(struct api_pod *pod, enum cluster_bind_end end)
{
    if (pod->waits)
        locks_leave(pods_number(pod), end != CLUSTER_NOT_BOUND);
    cluster_bound(world.cluster, pod->uid, end, world.now_ns);
    assert_true(end != CLUSTER_NOT_BOUND || !holds(pod));
    if (end == CLUSTER_BOUND && pod->exists && world_draw(8) == 0)
        filter_bound(pod);
    pod->waits = pod->told = false;
    pod->unknown = end == CLUSTER_UNKNOWN;
    pod->unknown_ns = world.now_ns;
    pod->binding = pod->unknown;
}

/* The API server does it, or not; its answer comes at once, later, or is lost. */
static void answer_bind(struct api_pod *pod)
{
    if (!may_be_sent(pod)) {
        if (world_draw(12) == 0) {
            world.covered.gave_up++;
            bind_end(pod, CLUSTER_NOT_BOUND);
        }
        return;
    }
    if (!pod->tried && world_draw(5))
        carry_out(pod);
    pod->tried = true;
    if (world_draw(3) == 0)
        return;
    if (world_draw(5)) {
        world.covered.late += pod->node[0] && !pod->exists;
        bind_end(pod, pod->node[0] ? CLUSTER_BOUND : CLUSTER_NOT_BOUND);
    } else {
        pod->turn = pod->waits;
        bind_end(pod, CLUSTER_UNKNOWN);
    }
}

void step_bind_answer(void)
{
    struct api_pod *pod = pods_pick(is_answerable);

    if (pod)
        answer_bind(pod);
}

/* Bound and gone by the next list, before the bind's answer is here. */
void step_late_answer(void)
{
    struct api_pod *pod = pods_pick(is_answerable);

    if (!pod || !may_be_sent(pod))
        return;
    carry_out(pod);
    pod->tried = true;
    pods_delete(pod);
    world_relist();
    answer_bind(pod);
}

void bind_read(struct api_pod *pod)
{
    if (!pod->unknown)
        return;
    if (world_draw(2) && !pod->node[0] && world.now_ns - pod->unknown_ns < SETTLED_NS) {
        const bool turn = pod->turn;

        carry_out(pod);
        pod->turn = turn;
    }
    if (pod->exists && pod->node[0])
        world_read_pod(pod);
    else
        cluster_bound(world.cluster, pod->uid, CLUSTER_NOT_BOUND, world.now_ns);
    assert_true(pod->exists || pod->node[0] || !holds(pod));
    assert_true(!pod->exists || holds(pod) == (pod->node[0] != '\0'));
    pod->binding = pod->unknown = false;
}

void step_read(void)
{
    struct api_pod *pod = pods_pick(is_unknown);

    if (pod)
        bind_read(pod);
}

static void ask_about(const struct cluster_pod_name *unseen)
{
    for (unsigned i = 0; i < PODS; i++) {
        if (pods[i].exists && pods[i].node[0] && strcmp(pods[i].uid, unseen->uid) == 0)
            return;
    }
    world.covered.gone++;
    cluster_gone(world.cluster, unseen->uid);
}

void step_unseen(void)
{
    struct cluster_pod_name unseen[4];
    size_t count;

    do {
        arena_reset(world.arena);
        count =
            cluster_unseen(world.cluster, world.now_ns, world.arena, unseen, ARRAY_SIZE(unseen));
        for (size_t i = 0; i < count; i++)
            ask_about(&unseen[i]);
    } while (count == ARRAY_SIZE(unseen));
}

/* Another scheduler may have decided, or this one was stopped: binds on their way are carried out,
 * or not. */
void step_term(void)
{
    if (world_draw(60))
        return;
    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &pods[i];

        if (pod->binding && world_draw(2))
            carry_out(pod);
        pod->binding = pod->unknown = pod->decided = pod->waits = pod->told = false;
    }
    locks_reset();
    for (unsigned i = 0; i < NODES; i++) {
        world.api.nodes[i].locked &= world_draw(2); /* an agent is done with one container */
        world_node_changed(i);
    }
    cluster_begin_term(world.cluster);
    world_relist();
    assert_int_equal(cluster_count(world.cluster).reserved, 0);
    world.covered.terms++;
}

/* Another pod that asks for the same, where the first one was to go. */
static void filter_twin(const struct api_pod *of, unsigned node)
{
    struct api_pod *twin = pods_pick(pods_is_free);

    if (!twin)
        return;
    *twin = *of;
    twin->decided = false;
    pods_name(twin);
    filter_among(twin, node);
}

/* Instances may not fit in their card, nor a card's mode what was promised. */
static void change_mig_node(struct api_node *node)
{
    if (world_draw(2))
        node->cards[NVIDIA][1 + world_draw(2)].mig ^= true;
    else
        node->small = !node->small;
}

/* The reservation's time is over, and meanwhile others were placed, a quota or the node changed. */
void step_late_bind(void)
{
    struct api_pod *pod = pods_pick(is_decided);
    unsigned node;

    if (!pod)
        return;
    node = (unsigned)(pod->decided_node[5] - '0');
    world_pass(CLUSTER_RESERVATION_NS);
    cluster_expire(world.cluster, world.now_ns);
    for (unsigned i = world_draw(4); i; i--)
        filter_twin(pod, node);
    if (world_draw(node == 1 ? 2 : 3) == 0) {
        nodes_change(node);
        if (node == 1)
            change_mig_node(&world.api.nodes[node]);
        world_node_changed(node);
        world_deliver_all(KIND_NODE);
    }
    if (world_draw(3) == 0) {
        step_quota();
        world_deliver_all(KIND_QUOTA);
    }
    if (pod->decided && pod->exists)
        bind_pod(pod);
}
