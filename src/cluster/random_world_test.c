/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "cluster/random_judge.h"
#include "cluster/random_show.h"
#include "vendor/nvidia/nvidia.h"

struct world world;

const char *const space_names[SPACES + 1] = {"red", "green", "blue", "strange"};

/* The world's plan. */

static const struct {
    unsigned counts[MAKERS];
    bool agent_counts; /* kubelet tells of DCUs */
} plan[NODES] = {
    {{4, 0, 0}, false}, {{3, 0, 0}, false}, {{3, 0, 0}, false}, {{2, 2, 0}, false},
    {{0, 3, 0}, true},  {{0, 0, 4}, false}, {{1, 0, 4}, false},
};

unsigned world_device_count(unsigned node, enum maker maker)
{
    return plan[node].counts[maker];
}

/* On one node each card stands by itself. */
unsigned world_numa_node(unsigned node, unsigned device)
{
    return node ? device / 2 : device;
}

bool world_has_agent(unsigned node)
{
    return plan[node].counts[HYGON] > 0;
}

bool world_counts_dcus(unsigned node)
{
    return plan[node].agent_counts;
}

const char *world_device_name(unsigned node, enum maker maker, unsigned device, char to[64])
{
    static const char *const words[MAKERS][2] = {
        {"GPU-", "-"}, {"DCU-", "-"}, {"node-", "-AWSNeuron-"}};

    (void)snprintf(to, 64, "%s%u%s%u", words[maker][0], node, words[maker][1], device);
    return to;
}

unsigned world_draw(unsigned below)
{
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return (unsigned)((world.random >> 20) % below);
}

/* Vendors. */

extern const struct vendor hygon_vendor, awsneuron_vendor;

static void add_vendor(struct vendor_set *set, const struct vendor *vendor,
                       const char *const (*keys)[2], size_t count, void *config)
{
    struct section_name names[4];
    struct section items[4];
    const struct section section = {
        .kind = SECTION_KEYS, .count = count, .items = items, .names = names};
    const struct section_reading reading = {.file = "d"};

    for (size_t i = 0; i < count; i++) {
        names[i] = (struct section_name){keys[i][0], {1, 1}};
        items[i] = (struct section){.kind = SECTION_TEXT, .text = keys[i][1]};
    }
    vendor->set_missing(config);
    assert_int_equal(vendor->read_section(&reading, &section, config), 0);
    assert_int_equal(vendor->add_instances(set, config), 0);
}

const struct vendor_set *world_load_vendors(void)
{
    static const char *const hygon_keys[][2] = {{"resourceCountName", "hygon.com/dcunum"},
                                                {"resourceMemoryName", "hygon.com/dcumem"},
                                                {"resourceCoreName", "hygon.com/dcucores"},
                                                {"memoryFactor", "2"}};
    static const char *const neuron_keys[][2] = {{"resourceCountName", "aws.amazon.com/neuron"},
                                                 {"resourceCoreName", "aws.amazon.com/neuroncore"}};
    static struct nvidia_config nvidia;
    static _Alignas(16) char hygon[8192], neuron[8192];
    static struct vendor_set set;

    assert_true(hygon_vendor.config_size <= sizeof(hygon) &&
                awsneuron_vendor.config_size <= sizeof(neuron));
    set = (struct vendor_set){0};
    nvidia_config_defaults(&nvidia);
    nvidia.mig_count = 1;
    nvidia.migs[0] = (struct nvidia_mig){
        .name_count = 1,
        .names = {"NVIDIA-M"},
        .geometry = {2, {{1, {{CARD_MIB / 4, 25, 4}}}, {1, {{CARD_MIB / 2, 50, 2}}}}},
    };
    nvidia_add_instance(&set, &nvidia);
    add_vendor(&set, &hygon_vendor, hygon_keys, ARRAY_SIZE(hygon_keys), hygon);
    add_vendor(&set, &awsneuron_vendor, neuron_keys, ARRAY_SIZE(neuron_keys), neuron);
    return &set;
}

/* Objects, as a watch shows them. */

static void show_node(struct cluster *cluster, const struct api_node *from)
{
    static struct shown_node shown;
    const unsigned number = (unsigned)(from->name[5] - '0');

    show_fill_node(from, &shown);
    (void)cluster_set_node(cluster, &shown.node, NULL);
    if (cluster != world.cluster)
        return;
    world.shown[number] = *from;
    judge_sees_node(number);
    locks_see_node(number);
}

static void hide_node(unsigned number)
{
    cluster_delete_node(world.cluster, world.api.nodes[number].name);
    world.shown[number].exists = false;
    judge_sees_node(number);
}

static void show_pod(struct cluster *cluster, const struct api_pod *from)
{
    struct shown_pod shown;

    if (!from->node[0])
        return; /* the watch is of bound pods */
    show_fill_pod(from, &shown);
    (void)cluster_set_pod(cluster, &shown.pod, NULL);
    if (cluster == world.cluster)
        locks_see_pod(from, false);
}

static void hide_pod(const struct api_pod *from)
{
    cluster_delete_pod(world.cluster, from->uid);
    locks_see_pod(from, true);
}

static const char *hard_name(const struct api_quota *from, unsigned at)
{
    static const char *const names[MAKERS][AMOUNT_KINDS][2] = {
        {{"limits.nvidia.com/gpumem", "requests.nvidia.com/gpumem"},
         {"limits.nvidia.com/gpucores", "requests.nvidia.com/gpucores"}},
        {{"limits.hygon.com/dcumem", "requests.hygon.com/dcumem"},
         {"limits.hygon.com/dcucores", "requests.hygon.com/dcucores"}},
        {{"limits.aws.amazon.com/unknown", "requests.aws.amazon.com/unknown"},
         {"limits.aws.amazon.com/neuroncore", "requests.aws.amazon.com/neuroncore"}},
    };

    return names[from->hard[at].maker][from->hard[at].amount][from->hard[at].requests];
}

static void show_quota(struct cluster *cluster, const struct api_quota *from)
{
    const unsigned number = (unsigned)(from->name[1] - '0');
    struct resource hard[HARD];
    struct quota quota = {from->space, from->name, {hard, from->count}};

    for (unsigned i = 0; i < from->count; i++)
        hard[i] = (struct resource){
            .name = hard_name(from, i),
            .text = "",
            .quantity = from->hard[i].fraction
                            ? (struct quantity){QUANTITY_FRACTION, 1}
                            : (struct quantity){QUANTITY_WHOLE, from->hard[i].value},
        };
    (void)cluster_set_quota(cluster, &quota, NULL);
    if (cluster != world.cluster)
        return;
    world.shown_quotas[number] = *from;
    judge_sees_quotas();
}

static void hide_quota(unsigned number)
{
    const struct api_quota *shown = &world.shown_quotas[number];

    if (shown->exists)
        cluster_delete_quota(world.cluster, shown->space, shown->name);
    world.shown_quotas[number].exists = false;
    judge_sees_quotas();
}

/* The watch. */

static struct event *next_event(enum kind kind)
{
    if (world.head[kind] - world.tail[kind] >= QUEUE)
        abort();
    return &world.queue[kind][world.head[kind]++ % QUEUE];
}

void world_node_changed(unsigned node)
{
    struct event *event = next_event(KIND_NODE);

    world.api.nodes[node].version++;
    event->gone = !world.api.nodes[node].exists;
    event->node = world.api.nodes[node];
}

void world_pod_changed(unsigned pod)
{
    struct event *event = next_event(KIND_POD);

    event->gone = !world.api.pods[pod].exists;
    event->pod = world.api.pods[pod];
}

void world_quota_changed(unsigned quota)
{
    struct event *event = next_event(KIND_QUOTA);

    event->gone = !world.api.quotas[quota].exists;
    event->quota = world.api.quotas[quota];
}

static void deliver_one(enum kind kind, const struct event *event)
{
    if (kind == KIND_NODE && event->gone)
        hide_node((unsigned)(event->node.name[5] - '0'));
    else if (kind == KIND_NODE)
        show_node(world.cluster, &event->node);
    else if (kind == KIND_POD && event->gone)
        hide_pod(&event->pod);
    else if (kind == KIND_POD)
        show_pod(world.cluster, &event->pod);
    else if (event->gone)
        hide_quota((unsigned)(event->quota.name[1] - '0'));
    else
        show_quota(world.cluster, &event->quota);
}

static void deliver(enum kind kind, unsigned count)
{
    for (; count && world.tail[kind] != world.head[kind]; count--)
        deliver_one(kind, &world.queue[kind][world.tail[kind]++ % QUEUE]);
}

/* Lists. */

static const enum cluster_kind cluster_kinds[KINDS] = {
    [KIND_NODE] = CLUSTER_NODES, [KIND_POD] = CLUSTER_PODS, [KIND_QUOTA] = CLUSTER_QUOTAS};
static const unsigned counts[KINDS] = {
    [KIND_NODE] = NODES, [KIND_POD] = PODS, [KIND_QUOTA] = QUOTAS};

static void list_one(struct cluster *cluster, const struct api_objects *from, enum kind kind,
                     unsigned at)
{
    if (kind == KIND_NODE && from->nodes[at].exists)
        show_node(cluster, &from->nodes[at]);
    else if (kind == KIND_POD && from->pods[at].exists)
        show_pod(cluster, &from->pods[at]);
    else if (kind == KIND_QUOTA && from->quotas[at].exists)
        show_quota(cluster, &from->quotas[at]);
}

/* What the list does not have is gone. */
static void complete_list(struct cluster *cluster, const struct api_objects *from, enum kind kind)
{
    cluster_complete(cluster, cluster_kinds[kind]);
    if (cluster != world.cluster)
        return;
    for (unsigned i = 0; i < NODES && kind == KIND_NODE; i++) {
        world.shown[i].exists &= from->nodes[i].exists;
        judge_sees_node(i);
    }
    for (unsigned i = 0; i < QUOTAS && kind == KIND_QUOTA; i++)
        world.shown_quotas[i].exists &= from->quotas[i].exists;
    judge_sees_quotas();
}

void world_list(struct cluster *cluster)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        cluster_begin(cluster, cluster_kinds[kind]);
        for (unsigned i = 0; i < counts[kind]; i++)
            list_one(cluster, &world.api, kind, i);
        complete_list(cluster, &world.api, kind);
    }
}

void world_begin_list(enum kind kind)
{
    struct listing *listing = &world.listings[kind];

    if (listing->runs)
        return;
    world.tail[kind] = world.head[kind];
    *listing = (struct listing){.runs = true};
    world.listed[kind] = world.api;
    cluster_begin(world.cluster, cluster_kinds[kind]);
}

static void continue_list(enum kind kind, unsigned count)
{
    struct listing *listing = &world.listings[kind];

    for (; count && listing->next < counts[kind]; count--)
        list_one(world.cluster, &world.listed[kind], kind, listing->next++);
    if (listing->next < counts[kind])
        return;
    complete_list(world.cluster, &world.listed[kind], kind);
    listing->runs = false;
}

void world_move_on(enum kind kind, unsigned count)
{
    if (world.listings[kind].runs)
        continue_list(kind, count);
    else
        deliver(kind, count);
}

void world_deliver_all(enum kind kind)
{
    while (world.listings[kind].runs)
        continue_list(kind, 1);
    deliver(kind, QUEUE);
}

void world_relist(void)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        world.listings[kind].runs = false;
        world.tail[kind] = world.head[kind];
    }
    world_list(world.cluster);
}

void world_read_pod(const struct api_pod *from)
{
    struct shown_pod shown;
    bool ours;

    show_fill_pod(from, &shown);
    (void)cluster_found(world.cluster, &shown.pod, world.now_ns, &ours, NULL);
}

/* Agents. */

void world_pass(int64_t ns)
{
    world.now_ns += ns;
    for (unsigned i = 0; i < NODES; i++) {
        struct api_node *node = &world.api.nodes[i];

        if (!world_has_agent(i) || !node->exists || world.silent[i] ||
            world.now_ns - world.beat_ns[i] < 30 * SECOND_NS)
            continue;
        world.beat_ns[i] = node->word_ns = world.now_ns;
        node->word = WORD_OWN;
        world_node_changed(i);
    }
}

static void take_write(const struct cluster_handshake *write)
{
    const unsigned number = (unsigned)(write->node[5] - '0');
    struct api_node *node = &world.api.nodes[number];
    const bool asks = strncmp(write->value, "Requesting_", 11) == 0;

    assert_string_equal(write->key, "hami.io/node-handshake-dcu");
    assert_true(asks || strncmp(write->value, "Deleted_", 8) == 0);
    assert_true(world_has_agent(number));
    world.covered.asked += asks;
    world.covered.silent += !asks;
    if (!node->exists)
        return;
    node->word = asks ? WORD_ASKED : WORD_DELETED;
    node->word_ns = world.now_ns / SECOND_NS * SECOND_NS;
    world_node_changed(number);
}

void world_look_at_agents(bool loses_writes)
{
    struct cluster_handshake writes[NODES];
    size_t count;

    count = cluster_handshakes(world.cluster, world.now_ns, WALL_NS + world.now_ns, writes,
                               ARRAY_SIZE(writes));
    judge_looks_at_agents();
    for (size_t i = 0; i < count; i++) {
        if (!loses_writes || world_draw(5))
            take_write(&writes[i]);
    }
}

/* For the judge. */

struct device_state world_device_state(unsigned node, const char *uuid)
{
    const struct place_node *place = cluster_find_node(world.cluster, world.api.nodes[node].name);
    struct device_state state = {.there = false};

    for (uint32_t i = 0; place && i < place->device_count; i++) {
        const struct device *device = &place->devices[i];

        if (strcmp(device->uuid, uuid) != 0)
            continue;
        state = (struct device_state){
            .there = true,
            .healthy = device->healthy,
            .tasks = device->used.tasks,
            .cores = device->used.cores,
            .mib = (long)(device->used.memory_bytes / MIB),
            .parts = device->used.parts,
        };
    }
    return state;
}

bool world_quota_state(const char *space, enum maker maker, enum amount amount, long *ret_bound,
                       long *ret_used)
{
    static const char *const names[MAKERS][AMOUNT_KINDS] = {
        {"nvidia.com/gpumem", "nvidia.com/gpucores"},
        {"hygon.com/dcumem", "hygon.com/dcucores"},
        {"", "aws.amazon.com/neuroncore"},
    };
    struct cluster_quota_view *rows;
    size_t count;

    arena_reset(world.arena);
    assert_int_equal(cluster_list_quotas(world.cluster, world.arena, &rows, &count), 0);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].namespace, space) != 0 ||
            strcmp(rows[i].resource, names[maker][amount]) != 0)
            continue;
        *ret_bound = (long)(rows[i].bound * rows[i].unit_mib);
        *ret_used = (long)rows[i].used;
        return true;
    }
    return false;
}

/* Begin and end. */

struct amounts world_amounts(const struct api_pod *pod)
{
    const uint64_t hash = hash_bytes(pod->uid, strlen(pod->uid));

    return (struct amounts){.cpu_milli = 500 * (hash % 9), .memory_mib = 512 * (hash / 9 % 7)};
}

struct cluster *world_new_cluster(void)
{
    const struct cluster_options options = {
        .vendors = world.vendors,
        .has_quotas = true,
        .evicts = world.evicts,
        .defaults = {.node_order = world.scarcity ? PLACE_SCARCITY : PLACE_SPREAD},
    };

    return cluster_new(&options);
}

void world_set_up(const struct vendor_set *vendors, uint64_t seed, bool scarcity, bool evicts)
{
    judge_begin();
    world.vendors = vendors;
    world.scarcity = scarcity;
    world.evicts = evicts;
    world.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world.cluster = world_new_cluster();
    world.arena = arena_new(64 << 20);
    for (unsigned i = 0; i < NODES; i++) {
        struct api_node *node = &world.api.nodes[i];

        (void)snprintf(node->name, sizeof(node->name), "node-%u", i);
        node->exists = true;
        node->foreign = i == 2;
        node->cards[NVIDIA][1].mig = node->cards[NVIDIA][2].mig = i == 1;
        world.shown[i] = *node;
        world.shown[i].exists = false;
    }
    for (unsigned i = 0; i < QUOTAS; i++)
        (void)snprintf(world.api.quotas[i].name, sizeof(world.api.quotas[i].name), "q%u", i);
    world_pass(30 * SECOND_NS);
    world_relist();
}

/* But for what was covered, the next world begins anew. */
void world_tear_down(void)
{
    const struct covered covered = world.covered;

    locks_reset();
    cluster_free(world.cluster);
    arena_free(world.arena);
    world = (struct world){.covered = covered};
}
