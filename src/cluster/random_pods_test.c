/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_pods.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_steps.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

enum {
    NAMES = 90,
};

static struct api_pod *const pods = world.api.pods;

bool pods_is_free(const struct api_pod *pod)
{
    return !pod->exists && !pod->binding;
}

static bool does_exist(const struct api_pod *pod)
{
    return pod->exists;
}

struct api_pod *pods_pick(bool (*is)(const struct api_pod *))
{
    unsigned first = world_draw(PODS);

    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = &pods[(first + i) % PODS];

        if (is(pod))
            return pod;
    }
    return NULL;
}

static int draw_cores(void)
{
    static const int cores[] = {0, 10, 30, 50, 100};

    return world_draw(3) ? cores[world_draw(ARRAY_SIZE(cores))] : (int)world_draw(101);
}

int pods_draw_mib(int card_mib)
{
    const int part = card_mib / (int)(1 + world_draw(6));

    return world_draw(2) ? part - 1 + (int)world_draw(3) : 1 + (int)world_draw((unsigned)part);
}

static void ask_nvidia(struct api_pod *pod)
{
    struct ask *ask = &pod->asks[NVIDIA];

    ask->count = 1 + (int)world_draw(3);
    ask->memory = world_draw(4) ? pods_draw_mib(CARD_MIB) : 0;
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
    ask->memory = world_draw(4) ? pods_draw_mib(DCU_MIB / DCU_UNIT_MIB) : 0;
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

void pods_name(struct api_pod *pod)
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

void pods_make(struct api_pod *pod)
{
    memset(pod, 0, sizeof(*pod));
    pods_name(pod);
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
    world_pod_changed(pods_number(pod));
}

void step_create(void)
{
    struct api_pod *pod = pods_pick(pods_is_free);

    if (!pod)
        return;
    pods_make(pod);
    pod->exists = true;
    if (world_draw(25) == 0)
        make_garbage(pod);
}

void pods_delete(struct api_pod *pod)
{
    pod->exists = false;
    if (pod->node[0])
        world_pod_changed(pods_number(pod));
    pod->decided = false;
}

void step_delete(void)
{
    struct api_pod *pod = pods_pick(does_exist);

    if (pod)
        pods_delete(pod);
}

/* A pod as kube-scheduler sends it. */

static void add_limit(struct sent_pod *sent, const char *name, int value)
{
    struct resource_list *limits = &sent->containers[0].limits;

    sent->limits[limits->count++] = (struct resource){
        .name = name,
        .text = "",
        .quantity = {.form = QUANTITY_WHOLE, .value = value},
    };
}

static void add_limits(struct sent_pod *sent, const struct ask *asks)
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

static void add_annotations(struct sent_pod *sent, const struct api_pod *from)
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

void pods_fill_sent(const struct api_pod *from, struct sent_pod *sent)
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

bool pods_holds(const char *uid)
{
    struct cluster_pod_view view;

    return cluster_find_pod(world.cluster, uid, &view);
}
