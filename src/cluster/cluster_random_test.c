/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random steps against a pretended API server (random_world.h), watched by a judge
 * (random_judge.h). At the end the state must equal, byte for byte, one that is built from the
 * objects alone.
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
#include "cluster/random_judge.h"
#include "cluster/random_world.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static struct nvidia_config config;
static struct vendor_set vendor_set;

static bool is_free(const struct api_pod *pod)
{
    return !pod->exists && !pod->binding;
}

static bool is_waiting(const struct api_pod *pod)
{
    return pod->exists && !pod->node[0];
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
        struct api_pod *pod = &world.pods[(first + i) % PODS];

        if (is(pod))
            return pod;
    }
    return NULL;
}

static void step_create(void)
{
    struct api_pod *pod = pick(is_free);

    if (!pod)
        return;
    memset(pod, 0, sizeof(*pod));
    pod->exists = true;
    (void)snprintf(pod->uid, sizeof(pod->uid), "uid-%u", world.next_uid++);
    (void)snprintf(pod->name, sizeof(pod->name), "pod-%u", world_draw(40));
    pod->count = 1 + (int)world_draw(CARDS);
    pod->memory = world_draw(2) ? 1 + (int)world_draw(CARD_MIB) : 0;
    pod->percent = !pod->memory && world_draw(2) ? 1 + (int)world_draw(100) : 0;
    pod->cores = world_draw(4) ? (int)world_draw(101) : 0;
    pod->inits = world_draw(6) ? 0 : 1 + world_draw(3);
    if (world_draw(25) == 0) { /* somebody else's, with a claim that makes no sense */
        static const char *const claims[] = {"GPU-0-0,NVIDIA,9x9,1:;", "a,b:;", ",,,:", ";;;",
                                             "GPU-0-0,NVIDIA,-5,-5:;"};

        pod->garbage = true;
        strcpy(pod->devices, claims[world_draw(5)]);
        (void)snprintf(pod->node, sizeof(pod->node), "node-%u", world_draw(NODES));
        world_enqueue(POD_CHANGED, NULL, pod);
    }
}

static void delete_pod(struct api_pod *pod)
{
    pod->exists = false;
    if (pod->node[0])
        world_enqueue(POD_GONE, NULL, pod);
    pod->decided = false;
}

static void step_delete(void)
{
    struct api_pod *pod = pick(does_exist);

    if (pod)
        delete_pod(pod);
}

static void add_limit(struct resource *items, size_t *count, const char *name, int value)
{
    if (!value)
        return;
    items[*count].name = name;
    items[*count].text = "";
    items[*count].quantity = (struct quantity){.form = QUANTITY_WHOLE, .value = value};
    ++*count;
}

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
static void check_refusal(const struct pod *refused, const char *const *names, size_t count,
                          const struct cluster_answer *kept)
{
    static unsigned questions;
    struct cluster_answer fresh = {0};
    struct pod pod = *refused;
    const char *more[16];
    char unknown[32], one[TEXT], other[TEXT];

    if (world_draw(4))
        return;
    (void)snprintf(unknown, sizeof(unknown), "unknown-%u", questions++);
    memcpy(more, names, count * sizeof(*names));
    more[count] = unknown;
    pod.uid = "judge";
    assert_int_equal(cluster_filter(world.cluster, &pod, more, count + 1, world.now_ns, world.arena,
                                    &fresh, NULL),
                     CLUSTER_REFUSED);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(reason_of(kept, names[i]), reason_of(&fresh, names[i]));
    assert_string_equal(reasons_of(kept->summary, one), reasons_of(fresh.summary, other));
}

/* It is asked for among the nodes from the first on. */
static void filter_among(struct api_pod *from, size_t first)
{
    static const char *const names[] = {"node-0", "node-1", "node-2", "node-3",
                                        "node-4", "node-5", "node-9"};
    struct text_pair policy[1] = {{KEY_NODE_POLICY, world_draw(2) ? "spread" : "binpack"}};
    struct resource limits[4];
    static const enum container_role roles[][3] = {
        {CONTAINER_APP},
        {CONTAINER_INIT, CONTAINER_APP},
        {CONTAINER_SIDECAR, CONTAINER_APP},
        {CONTAINER_SIDECAR, CONTAINER_INIT, CONTAINER_APP},
    };
    const size_t init_count = (from->inits + 1) / 2;
    struct container containers[3] = {0};
    struct cluster_answer answer = {0};
    struct error err = ERROR_INIT;
    struct pod pod = {
        .namespace = "default",
        .name = from->name,
        .uid = from->uid,
        .resource_version = "1",
        .annotations = {policy, world_draw(2)},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .containers = containers,
    };
    size_t limit_count = 0;
    int r;

    add_limit(limits, &limit_count, "nvidia.com/gpu", from->count);
    add_limit(limits, &limit_count, "nvidia.com/gpumem", from->memory);
    add_limit(limits, &limit_count, "nvidia.com/gpumem-percentage", from->percent);
    add_limit(limits, &limit_count, "nvidia.com/gpucores", from->cores);
    for (size_t i = 0; i <= init_count; i++) {
        containers[i] = (struct container){
            .name = "c",
            .role = roles[from->inits][i],
            .has_resources = true,
            .has_limits = true,
            .limits = {limits, limit_count},
        };
    }
    pod.init_count = init_count;
    pod.container_count = 1 + init_count;

    arena_reset(world.arena);
    r = cluster_filter(world.cluster, &pod, names + first, ARRAY_SIZE(names) - first, world.now_ns,
                       world.arena, &answer, &err);
    if (r == -EBUSY) {
        world.conflicts++;
        return;
    }
    from->decided = r == CLUSTER_PLACED;
    from->refused = r == CLUSTER_REFUSED;
    from->refused_among = first;
    from->refused_ns = world.now_ns;
    if (r == CLUSTER_PLACED) {
        world.placed++;
        COPY_TEXT(from->decided_node, answer.node);
    } else {
        assert_int_equal(r, CLUSTER_REFUSED);
        assert_int_equal(answer.failed_count, ARRAY_SIZE(names) - first);
        assert_non_null(strstr(answer.summary, "no available node"));
        check_refusal(&pod, names + first, ARRAY_SIZE(names) - first, &answer);
        world.refused++;
    }
}

static void filter(struct api_pod *pod)
{
    filter_among(pod, world_draw(3));
}

static void step_filter(void)
{
    struct api_pod *pod = pick(is_waiting);

    if (pod)
        filter(pod);
}

static void take_requeued(int64_t now_ns)
{
    struct cluster_pod_name pods[8];
    size_t count;

    do {
        arena_reset(world.arena);
        count = cluster_requeue(world.cluster, now_ns, world.arena, pods, ARRAY_SIZE(pods));
        for (size_t i = 0; i < count; i++) {
            world.requeued++;
            for (unsigned p = 0; p < PODS; p++) {
                if (strcmp(world.pods[p].uid, pods[i].uid) == 0)
                    world.pods[p].refused = false;
            }
        }
    } while (count == ARRAY_SIZE(pods));
}

/* A pod that was refused and is not to be requeued would be refused again. */
static void step_requeue(void)
{
    cluster_expire(world.cluster, world.now_ns);
    take_requeued(world.now_ns);
    take_requeued(world.now_ns + CLUSTER_REQUEUE_NS);
    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &world.pods[i];

        if (!is_waiting(pod) || !pod->refused ||
            world.now_ns + CLUSTER_REQUEUE_NS - pod->refused_ns > CLUSTER_REFUSED_KEPT_NS)
            continue;
        filter_among(pod, pod->refused_among);
        assert_false(pod->decided);
    }
}

static void bind_pod(struct api_pod *pod)
{
    const struct cluster_bind bind = {"default", pod->name, pod->uid, pod->decided_node};
    struct text_pairs annotations;
    const char *roles;
    int r;

    arena_reset(world.arena);
    r = cluster_bind(world.cluster, &bind, world.now_ns, 1700000000 * NS_PER_S, world.arena,
                     &annotations, NULL);
    pod->decided = false;
    if (r < 0)
        return;
    roles = text_pairs_get(&annotations, POD_INIT_ROLES);
    pod->binding = true;
    pod->tried = false;
    COPY_TEXT(pod->bind_node, pod->decided_node);
    COPY_TEXT(pod->bind_devices, text_pairs_get(&annotations, NVIDIA_ALLOCATED_KEY));
    COPY_TEXT(pod->bind_roles, roles ? roles : "");
    judge_grants(); /* only here more is granted than before */
}

static void step_bind(void)
{
    struct api_pod *pod = pick(is_decided);

    if (pod)
        bind_pod(pod);
}

static void carry_out(struct api_pod *pod)
{
    if (!pod->exists || pod->node[0])
        return;
    COPY_TEXT(pod->node, pod->bind_node);
    COPY_TEXT(pod->devices, pod->bind_devices);
    COPY_TEXT(pod->roles, pod->bind_roles);
    world_enqueue(POD_CHANGED, NULL, pod);
    world.bound++;
}

/* The API server does it, or not; its answer comes at once, later, or is lost. */
static void answer_bind(struct api_pod *pod)
{
    if (!pod->tried && world_draw(5))
        carry_out(pod);
    pod->tried = true;
    if (world_draw(3) == 0)
        return;
    if (world_draw(5)) {
        world.late += pod->node[0] && !pod->exists;
        cluster_bound(world.cluster, pod->uid, pod->node[0] ? CLUSTER_BOUND : CLUSTER_NOT_BOUND,
                      world.now_ns);
        pod->binding = false;
    } else {
        cluster_bound(world.cluster, pod->uid, CLUSTER_UNKNOWN, world.now_ns);
        pod->unknown = true;
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

    if (!pod)
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
    if (world_draw(2))
        carry_out(pod);
    if (pod->exists && pod->node[0])
        world_show_pod(world.cluster, pod, SHOW_READ);
    else
        cluster_bound(world.cluster, pod->uid, CLUSTER_NOT_BOUND, world.now_ns);
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
        const struct api_pod *pod = &world.pods[i];

        if (pod->exists && pod->node[0] && strcmp(pod->uid, unseen->uid) == 0)
            return;
    }
    world.gone++;
    cluster_gone(world.cluster, unseen->uid);
}

static void step_unseen(void)
{
    struct cluster_pod_name pods[4];
    size_t count;

    do {
        arena_reset(world.arena);
        count = cluster_unseen(world.cluster, world.now_ns, world.arena, pods, ARRAY_SIZE(pods));
        for (size_t i = 0; i < count; i++)
            ask_about(&pods[i]);
    } while (count == ARRAY_SIZE(pods));
}

/* Another scheduler may have decided, or this one was stopped: binds on their way are carried out,
 * or not. */
static void step_term(void)
{
    if (world_draw(200))
        return;
    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &world.pods[i];

        if (pod->binding && world_draw(2))
            carry_out(pod);
        pod->binding = pod->unknown = pod->decided = false;
    }
    cluster_begin_term(world.cluster);
    world_relist();
    world.terms++;
}

static void step_node(void)
{
    struct api_node *node = &world.nodes[world_draw(NODES)];

    switch (world_draw(5)) {
    case 0:
        node->exists = !node->exists;
        break;
    case 1:
        node->garbage = !node->garbage;
        break;
    case 2:
        node->plugin_away = !node->plugin_away;
        break;
    default:
        node->sick[world_draw(CARDS)] ^= world_draw(2);
        break;
    }
    if (world_draw(2)) { /* mended */
        const unsigned index = (unsigned)(node - world.nodes);

        memset(node, 0, sizeof(*node));
        (void)snprintf(node->name, sizeof(node->name), "node-%u", index);
        node->exists = true;
    }
    world_enqueue(node->exists ? NODE_CHANGED : NODE_GONE, node, NULL);
}

static void step_time(void)
{
    world.now_ns += (int64_t)world_draw(20) * 1000000000;
    cluster_expire(world.cluster, world.now_ns);
}

static const struct {
    void (*run)(void);
    unsigned weight;
} steps[] = {
    {step_create, 20}, {step_delete, 9}, {step_filter, 30},      {step_bind, 25},
    {step_read, 10},   {step_node, 3},   {step_bind_answer, 35}, {step_time, 4},
    {step_requeue, 2}, {step_unseen, 5}, {step_term, 5},         {step_late_answer, 1},
};

static void take_step(void)
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
    world_move_on(0, world_draw(3));
    world_move_on(1, world_draw(3));
    if (world_draw(500) == 0)
        world_begin_list(world_draw(2));
}

static void check_rebuilt(void)
{
    const struct cluster_options options = {.vendors = &vendor_set};
    CLEANUP(cluster_freep) struct cluster *fresh = cluster_new(&options);
    struct strbuf kept = STRBUF_INIT(16 << 20), built = STRBUF_INIT(16 << 20);

    for (unsigned i = 0; i < PODS; i++)
        read_after_unknown(&world.pods[i]);
    for (unsigned which = 0; which < ARRAY_SIZE(world.listings); which++)
        while (world.listings[which].runs)
            world_continue_list(which, 1);
    world_deliver(0, QUEUE);
    world_deliver(1, QUEUE);
    world.now_ns += INT64_C(1000) * CLUSTER_RESERVATION_NS;
    cluster_expire(world.cluster, world.now_ns);
    for (unsigned i = 0; i < PODS; i++) {
        if (world.pods[i].binding) {
            if (!world.pods[i].node[0])
                cluster_bound(world.cluster, world.pods[i].uid, CLUSTER_NOT_BOUND, world.now_ns);
            else
                cluster_bound(world.cluster, world.pods[i].uid, CLUSTER_BOUND, world.now_ns);
            world.pods[i].binding = false;
        }
    }
    world.now_ns += CLUSTER_UNSEEN_NS;
    step_unseen();
    world_list(fresh);
    cluster_view(world.cluster, &kept);
    cluster_view(fresh, &built);
    assert_string_equal(strbuf_text(&kept), strbuf_text(&built));
    strbuf_deinit(&kept);
    strbuf_deinit(&built);
}

static uint64_t step_count = 100000, seed = 1;

static void test_random_steps(void **state)
{
    const struct cluster_options options = {.vendors = &vendor_set};

    (void)state;
    nvidia_config_defaults(&config);
    vendor_set = (struct vendor_set){0};
    nvidia_add_instance(&vendor_set, &config);
    world.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world.cluster = cluster_new(&options);
    world.arena = arena_new(64 << 20);
    for (unsigned i = 0; i < NODES; i++) {
        (void)snprintf(world.nodes[i].name, sizeof(world.nodes[i].name), "node-%u", i);
        world.nodes[i].exists = true;
    }
    world_relist();

    for (uint64_t i = 0; i < step_count; i++) {
        take_step();
        if (i % 10000 == 9999)
            check_rebuilt();
    }
    check_rebuilt();
    printf("%" PRIu64 " steps: %" PRIu64 " placed, %" PRIu64 " refused, %" PRIu64 " bound, %" PRIu64
           " asked again during a bind, %" PRIu64 " requeued, %" PRIu64 " answered late, %" PRIu64
           " of them found gone, %" PRIu64 " terms\n",
           step_count, world.placed, world.refused, world.bound, world.conflicts, world.requeued,
           world.late, world.gone, world.terms);
    /* A test in which nothing happens shows nothing. */
    assert_true(step_count < 10000 ||
                (world.placed > step_count / 100 && world.refused > step_count / 100 &&
                 world.bound > step_count / 100 && world.requeued > step_count / 1000 &&
                 world.gone > 0 && world.terms > 0));
    cluster_free(world.cluster);
    arena_free(world.arena);
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
