/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/random_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

struct world world;

unsigned world_draw(unsigned below)
{
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return (unsigned)((world.random >> 20) % below);
}

static void show_node(struct cluster *cluster, const struct api_node *from)
{
    char text[TEXT] = "[";
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "12"}};
    struct node node = {
        .name = from->name,
        .uid = from->name,
        .resource_version = "1",
        .annotations = {pairs, 1},
        .has_status = true,
        .ready = true,
        .allocatable = {resources, 1},
    };

    resources[0].quantity =
        (struct quantity){.form = QUANTITY_WHOLE, .value = from->plugin_away ? 0 : 12};
    for (unsigned c = 0; c < CARDS; c++)
        (void)snprintf(
            text + strlen(text), sizeof(text) - strlen(text),
            "%s{\"id\":\"GPU-%c-%u\",\"index\":%u,\"count\":%d,\"devmem\":%d,"
            "\"devcore\":100,\"type\":\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":%s}",
            c ? "," : "", from->name[5], c, c, CARD_TASKS, CARD_MIB,
            from->sick[c] ? "false" : "true");
    strcat(text, from->garbage ? "!" : "]");
    (void)cluster_set_node(cluster, &node, NULL);
}

void world_show_pod(struct cluster *cluster, const struct api_pod *from, enum show how)
{
    struct text_pair pairs[4];
    bool ours;
    struct pod pod = {
        .namespace = "default",
        .name = from->name,
        .uid = from->uid,
        .resource_version = "1",
        .annotations = {pairs, 0},
    };

    if (!from->node[0])
        return; /* the watch is of bound pods */
    pairs[pod.annotations.count++] = (struct text_pair){KEY_NODE, from->node};
    pairs[pod.annotations.count++] = (struct text_pair){NVIDIA_ALLOCATED_KEY, from->devices};
    if (from->roles[0])
        pairs[pod.annotations.count++] = (struct text_pair){POD_INIT_ROLES, from->roles};
    if (how == SHOW_WATCHED)
        (void)cluster_set_pod(cluster, &pod, NULL);
    else
        (void)cluster_found(cluster, &pod, world.now_ns, &ours, NULL);
}

void world_enqueue(enum event_kind kind, const struct api_node *node, const struct api_pod *pod)
{
    unsigned which = kind == POD_CHANGED || kind == POD_GONE;
    struct event *event = &world.queue[which][world.head[which]++ % QUEUE];

    if (world.head[which] - world.tail[which] >= QUEUE)
        abort();
    event->kind = kind;
    if (node)
        event->node = *node;
    if (pod)
        event->pod = *pod;
}

void world_deliver(unsigned which, unsigned count)
{
    for (; count && world.tail[which] != world.head[which]; count--) {
        const struct event *event = &world.queue[which][world.tail[which]++ % QUEUE];

        switch (event->kind) {
        case NODE_CHANGED:
            show_node(world.cluster, &event->node);
            break;
        case NODE_GONE:
            cluster_delete_node(world.cluster, event->node.name);
            break;
        case POD_CHANGED:
            world_show_pod(world.cluster, &event->pod, SHOW_WATCHED);
            break;
        case POD_GONE:
            cluster_delete_pod(world.cluster, event->pod.uid);
            break;
        }
    }
}

void world_list(struct cluster *cluster)
{
    cluster_begin(cluster, CLUSTER_NODES);
    for (unsigned i = 0; i < NODES; i++) {
        if (world.nodes[i].exists)
            show_node(cluster, &world.nodes[i]);
    }
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    for (unsigned i = 0; i < PODS; i++) {
        if (world.pods[i].exists)
            world_show_pod(cluster, &world.pods[i], SHOW_WATCHED);
    }
    cluster_complete(cluster, CLUSTER_PODS);
}

void world_begin_list(unsigned which)
{
    struct listing *listing = &world.listings[which];

    if (listing->runs)
        return;
    world.tail[which] = world.head[which];
    listing->runs = true;
    listing->next = 0;
    memcpy(listing->nodes, world.nodes, sizeof(world.nodes));
    memcpy(listing->pods, world.pods, sizeof(world.pods));
    cluster_begin(world.cluster, which ? CLUSTER_PODS : CLUSTER_NODES);
}

void world_continue_list(unsigned which, unsigned count)
{
    struct listing *listing = &world.listings[which];
    const unsigned all = which ? PODS : NODES;

    for (; count && listing->next < all; count--, listing->next++) {
        if (which && listing->pods[listing->next].exists)
            world_show_pod(world.cluster, &listing->pods[listing->next], SHOW_WATCHED);
        if (!which && listing->nodes[listing->next].exists)
            show_node(world.cluster, &listing->nodes[listing->next]);
    }
    if (listing->next < all)
        return;
    cluster_complete(world.cluster, which ? CLUSTER_PODS : CLUSTER_NODES);
    listing->runs = false;
}

void world_move_on(unsigned which, unsigned count)
{
    if (world.listings[which].runs)
        world_continue_list(which, count);
    else
        world_deliver(which, count);
}

void world_relist(void)
{
    world.listings[0].runs = world.listings[1].runs = false;
    world.tail[0] = world.head[0];
    world.tail[1] = world.head[1];
    world_list(world.cluster);
}
