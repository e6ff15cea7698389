/* SPDX-License-Identifier: Apache-2.0 */

/* A question that carries its nodes with it: what would fit where, and nothing is reserved. */

#include <errno.h>

#include "cluster/quota.h"
#include "cluster/state.h"

bool cluster_knows_node(const struct cluster *cluster, const char *name)
{
    const struct cluster_node *node = node_find(cluster, name);

    return node && node->exists;
}

/* The devices that the node itself tells of, all of them free. Whether its agents are there is not
 * asked: such a node is a template, or has just come. -ENOMEM. */
static int read_carried(const struct cluster *cluster, const struct node *from,
                        struct device room[PLACE_MAX_DEVICES], struct arena *arena,
                        struct place_node *ret_place)
{
    const struct vendor_set *set = cluster->options.vendors;
    struct device *devices;
    size_t count = 0;

    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        size_t added = 0;
        int r = instance->vendor->read_node(instance, from, arena, room + count,
                                            PLACE_MAX_DEVICES - count, &added, NULL);

        if (r == -ENOMEM)
            return r;
        if (r >= 0)
            count += added;
    }
    devices = ARENA_ARRAY(arena, struct device, count);
    if (!devices)
        return -ENOMEM;
    memcpy(devices, room, count * sizeof(*devices));
    *ret_place = (struct place_node){
        .name = from->name,
        .devices = devices,
        .device_count = (uint32_t)count,
    };
    place_node_update(ret_place);
    return 0;
}

static int list_refusals(const struct place_node *const *nodes, size_t count,
                         const struct demand *demand, const struct place_options *options,
                         struct arena *arena, struct cluster_answer *ret_answer)
{
    struct cluster_answer answer = {.failed_count = count, .summary = "no node that is named fits"};
    char text[PLACE_REASON_TEXT_SIZE];

    answer.failed = ARENA_ARRAY(arena, struct cluster_failed_node, count);
    for (size_t i = 0; answer.failed && i < count; i++) {
        struct place_failure failure;
        struct placement unused;
        int r = nodes[i]->device_count
                    ? place_pod(nodes[i], demand, options, arena, &unused, &failure)
                    : PLACE_NO_FIT;

        if (r < 0)
            return r;
        if (nodes[i]->device_count)
            place_reasons_format(&failure, text);
        answer.failed[i].name = nodes[i]->name;
        answer.failed[i].reason = nodes[i]->device_count ? arena_strdup(arena, text)
                                                         : "the node has registered no devices";
        answer.failed[i].for_good = !nodes[i]->device_count || failure.for_good;
        if (!answer.failed[i].reason)
            return -ENOMEM;
    }
    *ret_answer = answer;
    return answer.failed ? CLUSTER_REFUSED : -ENOMEM;
}

static int decide(const struct cluster *cluster, const struct node *carried, size_t count,
                  const struct demand *demand, const struct place_options *options,
                  struct arena *arena, struct cluster_answer *ret_answer)
{
    const struct place_node **nodes = ARENA_ARRAY(arena, const struct place_node *, count);
    struct place_node *made = ARENA_ARRAY(arena, struct place_node, count);
    struct device *room = ARENA_ARRAY(arena, struct device, PLACE_MAX_DEVICES);
    struct placement placement;
    size_t position;
    int r = 0;

    if (!nodes || !made || !room)
        return -ENOMEM;
    for (size_t i = 0; i < count && r == 0; i++) {
        if (cluster_knows_node(cluster, carried[i].name)) {
            nodes[i] = node_find(cluster, carried[i].name)->place;
            continue;
        }
        r = read_carried(cluster, &carried[i], room, arena, &made[i]);
        nodes[i] = &made[i];
    }
    if (r == 0)
        r = place_choose(nodes, count, demand, options, arena, &position, &placement);
    if (r == PLACE_NO_FIT)
        return list_refusals(nodes, count, demand, options, arena, ret_answer);
    if (r < 0)
        return r;
    *ret_answer = (struct cluster_answer){.node = nodes[position]->name};
    return CLUSTER_PLACED;
}

int cluster_try(const struct cluster *cluster, const struct pod *pod, const struct node *nodes,
                size_t count, struct arena *arena, struct cluster_answer *ret_answer,
                struct error *err)
{
    struct place_options options;
    struct demand demand;
    int r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);

    if (r == 0)
        return CLUSTER_NOT_OURS;
    if (!cluster_is_ready(cluster))
        return error_set(err, -EAGAIN, "nodes, pods and resource quotas are not all read yet");
    place_options_read(&pod->annotations, &cluster->options.defaults, &options);
    if (r > 0)
        r = namespace_budgets(cluster, pod->namespace, arena, &options);
    if (r == 0)
        r = decide(cluster, nodes, count, &demand, &options, arena, ret_answer);
    if (r < 0)
        return error_set(err, r, "out of memory, or devices of too many vendors");
    return r;
}
