/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random steps against a pretended API server (random_world.h), watched by a judge
 * (random_judge.h). Every so often all is delivered: then the state must equal, byte for byte, one
 * that is built from the objects alone, and what the judge counts; and a pod for which the judge
 * sees room must be placed.
 *
 * usage: cluster_random_test STEPS [SEED]
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_judge.h"
#include "cluster/random_world.h"
#include "cluster/rebuild_test.h"
#include "model/keys.h"
#include "model/mig_allocations.h"
#include "vendor/nvidia/nvidia.h"

enum {
    ACTIONS = 4,        /* of a step */
    SETTLE_STEPS = 400, /* between two looks at all */
    PROBES = 200,       /* pods that are tried then */
    NAMES = 90,
};

/* Of a clock in another zone. */
#define AHEAD_NS (8 * 3600 * SECOND_NS)
/* So long after a Binding was sent without an answer it may be carried out. */
#define SETTLED_NS (20 * SECOND_NS)

static struct api_pod *const pods = world.api.pods;

static bool is_free(const struct api_pod *pod)
{
    return !pod->exists && !pod->binding;
}

static bool is_waiting(const struct api_pod *pod)
{
    return pod->exists && !pod->node[0];
}

static bool is_bound(const struct api_pod *pod)
{
    return pod->exists && pod->node[0] && !pod->garbage;
}

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

static bool does_exist(const struct api_pod *pod)
{
    return pod->exists;
}

/* Some pod of this kind, or NULL. */
static struct api_pod *pick(bool (*is)(const struct api_pod *))
{
    unsigned first = world_draw(PODS);

    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &pods[(first + i) % PODS];

        if (is(pod))
            return pod;
    }
    return NULL;
}

static unsigned number_of(const struct api_pod *pod)
{
    return (unsigned)(pod - pods);
}

/* Pods. */

static int draw_cores(void)
{
    static const int cores[] = {0, 10, 30, 50, 100};

    return world_draw(3) ? cores[world_draw(ARRAY_SIZE(cores))] : (int)world_draw(101);
}

/* Often such that a few of them fill a card to the last MiB, or want one more. */
static int draw_mib(int card_mib)
{
    const int part = card_mib / (int)(1 + world_draw(6));

    return world_draw(2) ? part - 1 + (int)world_draw(3) : 1 + (int)world_draw((unsigned)part);
}

static void ask_nvidia(struct api_pod *pod)
{
    struct ask *ask = &pod->asks[NVIDIA];

    ask->count = 1 + (int)world_draw(3);
    ask->memory = world_draw(4) ? draw_mib(CARD_MIB) : 0;
    ask->percent = !ask->memory && world_draw(2) ? 1 + (int)world_draw(100) : 0;
    ask->cores = world_draw(3) ? draw_cores() : 0;
    pod->one_numa = world_draw(pod->policy == POLICY_CONNECTED ? 2 : 4) == 0;
    if (world_draw(4) == 0)
        pod->list = (enum list)world_draw(LISTS);
}

static void ask_hygon(struct api_pod *pod)
{
    struct ask *ask = &pod->asks[HYGON];

    ask->count = 1 + (int)world_draw(2);
    ask->memory = world_draw(4) ? draw_mib(DCU_MIB / DCU_UNIT_MIB) : 0;
    ask->cores = world_draw(4) ? draw_cores() : -1;
}

static void ask_neuron(struct api_pod *pod)
{
    struct ask *ask = &pod->asks[NEURON];

    if (world_draw(3) == 0)
        ask->count = 1 + (int)world_draw(4);
    else
        ask->cores = world_draw(2) ? 1 : 2 * (1 + (int)world_draw(3));
}

/* Of one vendor, or of two of which a node has both. */
static void ask_for_devices(struct api_pod *pod)
{
    const unsigned kind = world_draw(16);

    if (kind < 8 || kind >= 13)
        ask_nvidia(pod);
    if ((kind >= 8 && kind < 11) || kind == 13 || kind == 14)
        ask_hygon(pod);
    if (kind == 11 || kind == 12 || kind == 15)
        ask_neuron(pod);
}

/* No two pods of a namespace have one name. */
static void name_pod(struct api_pod *pod)
{
    bool used;

    do {
        (void)snprintf(pod->name, sizeof(pod->name), "pod-%u", world_draw(NAMES));
        used = false;
        for (unsigned i = 0; i < PODS; i++)
            used |= &pods[i] != pod && pods[i].exists && strcmp(pods[i].name, pod->name) == 0;
    } while (used);
    (void)snprintf(pod->uid, sizeof(pod->uid), "uid-%u", world.next_uid++);
}

static void make_pod(struct api_pod *pod)
{
    memset(pod, 0, sizeof(*pod));
    name_pod(pod);
    COPY_TEXT(pod->space, space_names[world_draw(SPACES)]);
    pod->shape = world_draw(3) ? SHAPE_APP : (enum shape)world_draw(SHAPES);
    pod->first_only = pod->shape != SHAPE_APP && world_draw(3) == 0;
    pod->policy = world_draw(2) ? POLICY_NONE : (enum policy)world_draw(POLICIES);
    ask_for_devices(pod);
    pod->priority = world.evicts ? (int)world_draw(4) : 0;
}

/* Somebody else's, with a claim that makes no sense. */
static void make_garbage(struct api_pod *pod)
{
    static const char *const claims[] = {"GPU-0-0,NVIDIA,9x9,1:;", "a,b:;", ",,,:", ";;;",
                                         "GPU-0-0,NVIDIA,-5,-5:;"};

    pod->garbage = true;
    COPY_TEXT(pod->space, space_names[SPACES]);
    COPY_TEXT(pod->has.devices[NVIDIA], claims[world_draw(5)]);
    (void)snprintf(pod->node, sizeof(pod->node), "node-%u", world_draw(NODES));
    world_pod_changed(number_of(pod));
}

static void step_create(void)
{
    struct api_pod *pod = pick(is_free);

    if (!pod)
        return;
    make_pod(pod);
    pod->exists = true;
    if (world_draw(25) == 0)
        make_garbage(pod);
}

static void delete_pod(struct api_pod *pod)
{
    pod->exists = false;
    if (pod->node[0])
        world_pod_changed(number_of(pod));
    pod->decided = false;
}

static void step_delete(void)
{
    struct api_pod *pod = pick(does_exist);

    if (pod)
        delete_pod(pod);
}

/* A pod as kube-scheduler sends it. */

struct sent {
    struct pod pod;
    struct text_pair annotations[6];
    struct container containers[3];
    struct resource limits[8];
};

static void add_limit(struct sent *sent, const char *name, int value)
{
    struct resource_list *limits = &sent->containers[0].limits;

    sent->limits[limits->count++] = (struct resource){
        .name = name,
        .text = "",
        .quantity = {.form = QUANTITY_WHOLE, .value = value},
    };
}

static void add_limits(struct sent *sent, const struct ask *asks)
{
    const struct {
        const char *name;
        int value;
        bool given;
    } rows[] = {
        {"nvidia.com/gpu", asks[NVIDIA].count, asks[NVIDIA].count},
        {"nvidia.com/gpumem", asks[NVIDIA].memory, asks[NVIDIA].memory},
        {"nvidia.com/gpumem-percentage", asks[NVIDIA].percent, asks[NVIDIA].percent},
        {"nvidia.com/gpucores", asks[NVIDIA].cores, asks[NVIDIA].cores},
        {"hygon.com/dcunum", asks[HYGON].count, asks[HYGON].count},
        {"hygon.com/dcumem", asks[HYGON].memory, asks[HYGON].memory},
        {"hygon.com/dcucores", asks[HYGON].cores, asks[HYGON].count && asks[HYGON].cores >= 0},
        {"aws.amazon.com/neuron", asks[NEURON].count, asks[NEURON].count},
        {"aws.amazon.com/neuroncore", asks[NEURON].cores, asks[NEURON].cores > 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].given)
            add_limit(sent, rows[i].name, rows[i].value);
    }
}

static void add_annotations(struct sent *sent, const struct api_pod *from)
{
    static const char *const policies[POLICIES] = {NULL, "binpack", "mutex", "topology-aware"};
    static const char *const orders[] = {"spread", "binpack", "scarcity"};
    static const char seconds[] = "GPU-0-1,GPU-1-1,GPU-2-1,GPU-3-1";
    static const struct text_pair lists[LISTS] = {
        [LIST_USE] = {NVIDIA_USE_UUID_KEY, seconds},
        [LIST_AVOID] = {NVIDIA_AVOID_UUID_KEY, seconds},
        [LIST_TYPE] = {NVIDIA_USE_TYPE_KEY, "-M"},
        [LIST_NOT_TYPE] = {NVIDIA_AVOID_TYPE_KEY, "nvidia-m"},
    };
    struct text_pairs *all = &sent->pod.annotations;

    if (world_draw(2))
        sent->annotations[all->count++] =
            (struct text_pair){KEY_NODE_POLICY, orders[world_draw(ARRAY_SIZE(orders))]};
    if (policies[from->policy])
        sent->annotations[all->count++] =
            (struct text_pair){KEY_DEVICE_POLICY, policies[from->policy]};
    if (from->list != LIST_NONE)
        sent->annotations[all->count++] = lists[from->list];
    if (from->one_numa)
        sent->annotations[all->count++] = (struct text_pair){NVIDIA_NUMA_BIND_KEY, "true"};
}

static const struct {
    size_t count, inits;
    enum container_role roles[3];
} shapes[SHAPES] = {
    [SHAPE_APP] = {1, 0, {CONTAINER_APP}},
    [SHAPE_INIT] = {2, 1, {CONTAINER_INIT, CONTAINER_APP}},
    [SHAPE_SIDECAR] = {2, 1, {CONTAINER_SIDECAR, CONTAINER_APP}},
    [SHAPE_BOTH] = {3, 2, {CONTAINER_SIDECAR, CONTAINER_INIT, CONTAINER_APP}},
    [SHAPE_APPS] = {2, 0, {CONTAINER_APP, CONTAINER_APP}},
};

static void fill_sent(const struct api_pod *from, struct sent *sent)
{
    memset(sent, 0, sizeof(*sent));
    sent->containers[0].limits.items = sent->limits;
    add_limits(sent, from->asks);
    for (size_t i = 0; i < shapes[from->shape].count; i++)
        sent->containers[i] = (struct container){
            .name = "c",
            .role = shapes[from->shape].roles[i],
            .has_resources = true,
            .has_limits = true,
            .limits = i && from->first_only ? (struct resource_list){NULL, 0}
                                            : sent->containers[0].limits,
        };
    sent->pod = (struct pod){
        .namespace = from->space,
        .name = from->name,
        .uid = from->uid,
        .resource_version = "1",
        .annotations = {sent->annotations, 0},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .containers = sent->containers,
        .container_count = shapes[from->shape].count,
        .init_count = shapes[from->shape].inits,
        .has_priority = world.evicts,
        .priority = from->priority,
        .amounts = world_amounts(from),
    };
    add_annotations(sent, from);
}

/* Filters. */

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
    judge_decided(number_of(from));
}

static bool holds_uid(const char *uid)
{
    struct cluster_pod_view view;

    return cluster_find_pod(world.cluster, uid, &view);
}

static char why_refused[TEXT]; /* the last refusal's summary */

static void note_refused(const struct pod *pod, size_t first, const struct cluster_answer *answer)
{
    assert_int_equal(answer->failed_count, ARRAY_SIZE(names) - first);
    assert_non_null(strstr(answer->summary, "no available node"));
    COPY_TEXT(why_refused, answer->summary);
    world.covered.refused++;
    world.covered.quota_refusals += strstr(answer->summary, "ResourceQuotaNotFit") != NULL;
    /* What is kept for the pod is in the way of another that asks for the same. */
    if (!strstr(answer->summary, "ResourceQuotaNotFit: ") && !holds_uid(pod->uid))
        check_refusal(pod, first, answer);
}

/* It is asked for among the nodes from the first on. */
static void filter_among(struct api_pod *from, unsigned first)
{
    struct cluster_answer answer = {0};
    struct error err = ERROR_INIT;
    struct sent sent;
    int r;

    fill_sent(from, &sent);
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

static void step_filter(void)
{
    struct api_pod *pod = pick(is_waiting);

    if (pod)
        filter_among(pod, world_draw(4) ? 0 : world_draw(NODES));
}

/* kube-scheduler's view may be older than the bind. */
static void filter_bound(const struct api_pod *pod)
{
    struct cluster_answer answer;
    struct sent sent;

    fill_sent(pod, &sent);
    arena_reset(world.arena);
    assert_int_equal(cluster_filter(world.cluster, &sent.pod, names, ARRAY_SIZE(names),
                                    world.now_ns, world.arena, &answer, NULL),
                     -EBUSY);
}

static void step_filter_bound(void)
{
    const struct api_pod *pod = pick(is_bound);

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
static void step_requeue(void)
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

/* Binds. */

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

/* Whether its bind began. */
static bool begin_bind(struct api_pod *pod)
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
    judge_granted(number_of(pod)); /* only here more is granted than before */
    return true;
}

static void bind_pod(struct api_pod *pod)
{
    if (!begin_bind(pod))
        return;
    count_placed(pod);
    pod->waits = locks_are_needed(number_of(pod));
    judge_needs_turn(number_of(pod), pod->waits);
    if (pod->waits)
        locks_enter(number_of(pod));
}

static void step_bind(void)
{
    struct api_pod *pod = pick(is_decided);

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
    world_pod_changed(number_of(pod));
    world.covered.bound++;
}

static bool holds(const struct api_pod *pod)
{
    return holds_uid(pod->uid);
}

static void end_bind(struct api_pod *pod, enum cluster_bind_end end)
{
    if (pod->waits)
        locks_leave(number_of(pod), end != CLUSTER_NOT_BOUND);
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
            end_bind(pod, CLUSTER_NOT_BOUND);
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
        end_bind(pod, pod->node[0] ? CLUSTER_BOUND : CLUSTER_NOT_BOUND);
    } else {
        pod->turn = pod->waits;
        end_bind(pod, CLUSTER_UNKNOWN);
    }
}

static void step_bind_answer(void)
{
    struct api_pod *pod = pick(is_answerable);

    if (pod)
        answer_bind(pod);
}

/* Bound and gone by the next list, before the bind's answer is here. */
static void step_late_answer(void)
{
    struct api_pod *pod = pick(is_answerable);

    if (!pod || !may_be_sent(pod))
        return;
    carry_out(pod);
    pod->tried = true;
    delete_pod(pod);
    world_relist();
    answer_bind(pod);
}

static void read_after_unknown(struct api_pod *pod)
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

static void step_read(void)
{
    struct api_pod *pod = pick(is_unknown);

    if (pod)
        read_after_unknown(pod);
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

static void step_unseen(void)
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
static void step_term(void)
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

/* Evictions. */

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
    assert_true(holds_uid(uid) && holds(pod));
    if (world_draw(6) == 0)
        end = CLUSTER_EVICTION_REFUSED;
    if (victim && !trial &&
        (end == CLUSTER_EVICTION_DONE || (end == CLUSTER_EVICTION_DOUBTFUL && world_draw(2)))) {
        assert_int_equal(victim->priority, eviction->victim_priority);
        victim->going = true;
        world_pod_changed(number_of(victim));
    }
    world.covered.evicted += !trial && end == CLUSTER_EVICTION_DONE;
    world.covered.not_evicted += end != CLUSTER_EVICTION_DONE;
    cluster_evicted(world.cluster, pod->uid, uid, end, trial, world.now_ns);
}

static void look_at_waiting(const char *uid)
{
    const struct api_pod *pod = find_pod(uid);
    struct cluster_eviction eviction;
    struct sent sent;
    int step;

    if (!pod || pod->node[0]) {
        cluster_evict_over(world.cluster, uid);
        return;
    }
    if (world_draw(10) == 0) {
        cluster_evict_unknown(world.cluster, uid, world.now_ns);
        return;
    }
    fill_sent(pod, &sent);
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

static void step_evict(void)
{
    struct cluster_eviction_due due[4];
    struct api_pod *going = pick(is_going);
    char uids[ARRAY_SIZE(due)][32];
    size_t count;

    if (!world.evicts)
        return;
    if (going && world_draw(3) == 0)
        delete_pod(going);
    arena_reset(world.arena);
    count = cluster_evictions(world.cluster, world.now_ns, world.arena, due, ARRAY_SIZE(due));
    for (size_t i = 0; i < count; i++)
        COPY_TEXT(uids[i], due[i].requeue ? "" : due[i].pod.uid);
    for (size_t i = 0; i < count; i++) {
        if (uids[i][0])
            look_at_waiting(uids[i]);
    }
}

/* Nobody waits for room any more. */
static void end_evictions(void)
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

/* Nodes, quotas, time. */

static void mend_node(unsigned number)
{
    struct api_node *node = &world.api.nodes[number];

    node->exists = true;
    node->small = node->badly_scored = false;
    node->scored = world_draw(2) ? world_draw(20) : 0;
    node->foreign = number == 2 || world_draw(3) == 0;
    node->profiles = world_draw(2);
    memset(node->garbage, 0, sizeof(node->garbage));
    memset(node->away, 0, sizeof(node->away));
    memset(node->cards, 0, sizeof(node->cards));
    node->cards[NVIDIA][1].mig = node->cards[NVIDIA][2].mig = number == 1;
}

static void count_misuse(unsigned number)
{
    for (unsigned i = 0; i < PODS; i++)
        world.covered.misused += pods[i].exists && pods[i].node[0] && number == 1 &&
                                 strcmp(pods[i].node, world.api.nodes[number].name) == 0;
}

static void change_node(unsigned number)
{
    struct api_node *node = &world.api.nodes[number];
    struct api_card *card = &node->cards[world_draw(MAKERS)][world_draw(DEVICES)];

    switch (world_draw(10)) {
    case 0:
        node->exists = !node->exists;
        break;
    case 1:
        node->garbage[world_draw(2)] ^= true;
        break;
    case 2:
        node->away[world_draw(MAKERS)] ^= true;
        break;
    case 3:
        node->small = !node->small;
        break;
    case 4:
        node->scored = 1 + world_draw(20);
        node->badly_scored = world_draw(3) == 0;
        break;
    case 5:
        if (world_draw(2))
            node->foreign = !node->foreign;
        else
            node->profiles = !node->profiles;
        count_misuse(number);
        break;
    case 6:
        node->cards[NVIDIA][world_draw(DEVICES)].cordoned ^= true;
        break;
    case 7:
        node->cards[NVIDIA][1 + world_draw(2)].mig ^= number == 1;
        count_misuse(number);
        break;
    default:
        card->sick = !card->sick;
        break;
    }
}

static void step_node(void)
{
    const unsigned number = world_draw(NODES);

    if (world_draw(2))
        mend_node(number);
    else
        change_node(number);
    world.covered.changed++;
    world_node_changed(number);
}

/* Its node's agent falls silent, or comes back; or somebody asks it. */
static void step_agent(void)
{
    const unsigned number = world_draw(NODES);
    struct api_node *node = &world.api.nodes[number];

    if (!world_has_agent(number))
        return;
    /* Asked after Deleted was written, it stays gone for those who saw that, and only for those,
     * unless kubelet has devices of it. */
    if ((node->word != WORD_DELETED || world_counts_dcus(number)) && world_draw(8) == 0) {
        node->word = WORD_ASKED;
        node->word_ns = world_draw(2) ? INT64_MIN : world.now_ns / SECOND_NS * SECOND_NS + AHEAD_NS;
        world_node_changed(number);
        return;
    }
    if (world_counts_dcus(number) && world_draw(2)) {
        node->away[HYGON] = !node->away[HYGON];
        world_node_changed(number);
    }
    world.silent[number] = !world.silent[number] && world_draw(2);
}

static void write_hard(struct api_quota *quota)
{
    quota->count = world_draw(HARD + 1);
    for (unsigned i = 0; i < quota->count; i++) {
        const enum maker maker = (enum maker)world_draw(MAKERS);
        const enum amount amount = (enum amount)world_draw(AMOUNT_KINDS);
        static const unsigned largest[MAKERS][AMOUNT_KINDS] = {
            {4 * CARD_MIB, 500}, {DCU_MIB, 400}, {1, 12}};

        quota->hard[i].requests = world_draw(2);
        quota->hard[i].maker = maker;
        quota->hard[i].amount = amount;
        quota->hard[i].value = world_draw(8) ? (long)world_draw(largest[maker][amount] + 1) : 0;
        if (amount == MEMORY && world_draw(2)) /* a few that ask for a part of a card */
            quota->hard[i].value = (long)draw_mib(CARD_MIB) * (1 + (long)world_draw(4));
        quota->hard[i].fraction = world_draw(12) == 0;
    }
}

/* It comes, changes, goes. */
static void step_quota(void)
{
    const unsigned number = world_draw(QUOTAS);
    struct api_quota *quota = &world.api.quotas[number];

    if (quota->exists && world_draw(2)) {
        quota->exists = false;
    } else {
        if (!quota->exists)
            COPY_TEXT(quota->space, space_names[world_draw(SPACES)]);
        world.covered.quotas_lowered += quota->exists;
        quota->exists = true;
        write_hard(quota);
    }
    world_quota_changed(number);
}

static void step_time(void)
{
    const unsigned longest = world_draw(8) ? 20 : 120;

    world_pass((int64_t)world_draw(longest) * SECOND_NS);
    cluster_expire(world.cluster, world.now_ns);
    world_look_at_agents(true);
}

/* Another pod that asks for the same, where the first one was to go. */
static void filter_twin(const struct api_pod *of, unsigned node)
{
    struct api_pod *twin = pick(is_free);

    if (!twin)
        return;
    *twin = *of;
    twin->decided = false;
    name_pod(twin);
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
static void step_late_bind(void)
{
    struct api_pod *pod = pick(is_decided);
    unsigned node;

    if (!pod)
        return;
    node = (unsigned)(pod->decided_node[5] - '0');
    world_pass(CLUSTER_RESERVATION_NS);
    cluster_expire(world.cluster, world.now_ns);
    for (unsigned i = world_draw(4); i; i--)
        filter_twin(pod, node);
    if (world_draw(node == 1 ? 2 : 3) == 0) {
        change_node(node);
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

static void step_turns(void)
{
    for (unsigned i = 0; i < NODES; i++)
        locks_step(i);
}

static void step_allocate(void)
{
    locks_allocate(world_draw(NODES));
}

static void step_disturb(void)
{
    locks_disturb(world_draw(NODES));
}

static const struct {
    void (*run)(void);
    unsigned weight;
} steps[] = {
    {step_create, 20}, {step_delete, 14},   {step_filter, 30},      {step_bind, 25},
    {step_read, 10},   {step_node, 3},      {step_bind_answer, 35}, {step_time, 6},
    {step_requeue, 2}, {step_unseen, 5},    {step_term, 5},         {step_late_answer, 1},
    {step_agent, 2},   {step_quota, 2},     {step_turns, 40},       {step_allocate, 12},
    {step_disturb, 1}, {step_late_bind, 4}, {step_filter_bound, 1}, {step_evict, 12},
};

/* What happened just before it the watch does not bring any more. */
static void begin_list(enum kind kind)
{
    static void (*const change[KINDS])(void) = {
        [KIND_NODE] = step_node, [KIND_POD] = step_delete, [KIND_QUOTA] = step_quota};

    for (unsigned i = 0; i < 3; i++)
        change[kind]();
    world_begin_list(kind);
}

static void act(void)
{
    unsigned total = 0, chosen;

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        total += steps[i].weight;
    chosen = world_draw(total);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (chosen < steps[i].weight) {
            steps[i].run();
            break;
        }
        chosen -= steps[i].weight;
    }
    for (enum kind kind = 0; kind < KINDS; kind++)
        world_move_on(kind, world_draw(3));
    if (world_draw(300) == 0)
        begin_list((enum kind)world_draw(KINDS));
}

static void take_step(void)
{
    for (unsigned i = 0; i < ACTIONS; i++)
        act();
}

/* Looks at all. */

static void deliver_all(void)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        world_deliver_all(kind);
}

/* What is written of handshakes is written, and shown. */
static void settle_agents(void)
{
    for (unsigned i = 0; i < 8; i++) {
        world_pass(20 * SECOND_NS);
        deliver_all();
        world_look_at_agents(false);
        judge_counts(); /* before the watch shows what was written */
        deliver_all();
    }
}

static void settle(void)
{
    end_evictions();
    for (unsigned i = 0; i < PODS; i++)
        read_after_unknown(&pods[i]);
    deliver_all();
    for (unsigned i = 0; i < PODS; i++) {
        pods[i].decided = false;
        if (pods[i].binding)
            end_bind(&pods[i], pods[i].node[0] ? CLUSTER_BOUND : CLUSTER_NOT_BOUND);
    }
    world_pass(CLUSTER_RESERVATION_NS);
    cluster_expire(world.cluster, world.now_ns);
    step_unseen();
    deliver_all();
    settle_agents();
}

/* A line each for a node, a pod, a quota. */
static void check_same(const char *kept, const char *built)
{
    while (*kept && *built) {
        const size_t len = strcspn(kept, "\n"), other = strcspn(built, "\n");

        if (len != other || memcmp(kept, built, len) != 0)
            fail_msg("%.*s\nis when it is built anew\n%.*s", (int)len, kept, (int)other, built);
        kept += len + (kept[len] != '\0');
        built += other + (built[other] != '\0');
    }
    assert_string_equal(kept, built);
}

static void check_rebuilt(void)
{
    CLEANUP(cluster_freep) struct cluster *fresh = world_new_cluster();
    struct strbuf kept = STRBUF_INIT(16 << 20), built = STRBUF_INIT(16 << 20);
    struct cluster_handshake writes[NODES];

    world_list(fresh);
    (void)cluster_handshakes(fresh, world.now_ns, WALL_NS + world.now_ns, writes, 0);
    cluster_view(world.cluster, &kept);
    cluster_view(fresh, &built);
    check_same(strbuf_text(&kept), strbuf_text(&built));
    strbuf_deinit(&kept);
    strbuf_deinit(&built);
}

/* What it shows as objects, too, makes the same cluster. */
static void check_objects(void)
{
    CLEANUP(cluster_freep) struct cluster *fresh = world_new_cluster();

    rebuild_from_objects(world.cluster, world.vendors, fresh);
    rebuild_check_same(world.cluster, fresh);
}

static void fail_seen(const struct api_pod *pod)
{
    const struct ask *gpu = &pod->asks[NVIDIA], *dcu = &pod->asks[HYGON],
                     *chip = &pod->asks[NEURON];
    struct strbuf view = STRBUF_INIT(1 << 20);

    cluster_view(world.cluster, &view);
    (void)fprintf(stderr,
                  "the judge sees room for %s in %s: %d GPUs of %d MiB, %d %%, %d cores, NUMA %d, "
                  "list %d; %d DCUs of %d, %d; %d chips or %d cores; policy %d, shape %d: %s\n%s",
                  pod->uid, pod->space, gpu->count, gpu->memory, gpu->percent, gpu->cores,
                  pod->one_numa, pod->list, dcu->count, dcu->memory, dcu->cores, chip->count,
                  chip->cores, pod->policy, pod->shape, why_refused, strbuf_text(&view));
    fail();
}

/* Some pod is tried: a refusal must be right, and so must be what is given. */
static void probe(void)
{
    const unsigned first = world_draw(4) ? 0 : world_draw(NODES);
    struct api_pod *pod = pick(is_free);
    bool room;

    if (!pod)
        return;
    make_pod(pod);
    pod->exists = true;
    room = judge_has_room(pod, first);
    filter_among(pod, first);
    if (room && !pod->decided)
        fail_seen(pod);
    world.covered.probes_placed += pod->decided;
    world.covered.probes_refused += !pod->decided;
    if (pod->decided && world_draw(2)) {
        assert_true(begin_bind(pod));
        judge_is_alone(number_of(pod));
        end_bind(pod, CLUSTER_NOT_BOUND);
    }
    cluster_delete_pod(world.cluster, pod->uid);
    pod->decided = pod->exists = false;
}

static void look_at_all(void)
{
    settle();
    check_rebuilt();
    check_objects();
    judge_counts();
    for (unsigned i = 0; i < PROBES; i++)
        probe();
    check_rebuilt();
}

static void check_covered(uint64_t step_count)
{
    const struct covered *covered = &world.covered;
    const struct {
        const char *what;
        uint64_t count;
    } rows[] = {
        {"grants of NVIDIA", covered->placed[NVIDIA]},
        {"of Hygon", covered->placed[HYGON]},
        {"of Neuron", covered->placed[NEURON]},
        {"of two vendors", covered->two_vendors},
        {"MIG instances", covered->instances},
        {"of one geometry", covered->groups[0]},
        {"of the other", covered->groups[1]},
        {"by profile", covered->groups[2]},
        {"of one NUMA node", covered->one_numa},
        {"topology-aware", covered->connected},
        {"refused", covered->refused},
        {"refused by quota", covered->quota_refusals},
        {"grants up to a quota", covered->quotas_full},
        {"quotas changed", covered->quotas_lowered},
        {"bound", covered->bound},
        {"asked again during a bind", covered->conflicts},
        {"requeued", covered->requeued},
        {"answered late", covered->late},
        {"found gone", covered->gone},
        {"terms", covered->terms},
        {"renewed", covered->renewed},
        {"not renewed", covered->no_renewal},
        {"turns of nodes", covered->turns},
        {"binds that waited for one", covered->waited},
        {"that gave up", covered->gave_up},
        {"locks found", covered->locks_found},
        {"broken", covered->locks_broken},
        {"left behind", covered->locks_left},
        {"failed allocations", covered->failed},
        {"agents asked", covered->asked},
        {"silent", covered->silent},
        {"back", covered->back},
        {"nodes changed", covered->changed},
        {"pods on cards that changed their mode", covered->misused},
        {"evicted", covered->evicted},
        {"not evicted", covered->not_evicted},
        {"rooms kept", covered->held},
        {"taken by whom they were made for", covered->rooms},
        {"probes placed", covered->probes_placed},
        {"probes refused", covered->probes_refused},
    };

    printf("%" PRIu64 " steps:", step_count);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        printf("%s %" PRIu64 " %s", i ? "," : "", rows[i].count, rows[i].what);
    printf("\n");
    /* A test in which nothing happens shows nothing. */
    for (size_t i = 0; i < ARRAY_SIZE(rows) && step_count >= 50000; i++) {
        if (!rows[i].count)
            fail_msg("there were no %s", rows[i].what);
    }
}

static uint64_t step_count = 100000, seed = 1;

enum {
    WORLDS = 4,
    SCARCITY_WORLD = 1,
    EVICTING_WORLD = 3,
};

/* Of four worlds one places by scarcity, whose work between decisions is done now and then; in
 * another pods are evicted for more important ones. */
static void live_through(const struct vendor_set *vendors, unsigned number)
{
    world_set_up(vendors, seed + number, number == SCARCITY_WORLD, number == EVICTING_WORLD);
    for (uint64_t i = 0; i < step_count / WORLDS; i++) {
        take_step();
        if (number == SCARCITY_WORLD && world_draw(3) == 0)
            (void)cluster_work(world.cluster, world_draw(20));
        if (i % SETTLE_STEPS == SETTLE_STEPS - 1)
            look_at_all();
    }
    look_at_all();
    world_tear_down();
}

static void test_random_steps(void **state)
{
    const struct vendor_set *vendors = world_load_vendors();

    (void)state;
    for (unsigned number = 0; number < WORLDS; number++)
        live_through(vendors, number);
    check_covered(step_count);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_steps)};

    if (argc > 1)
        step_count = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
