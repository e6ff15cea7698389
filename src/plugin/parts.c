/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which parts of cards the node's containers are to have, as their annotations name them: those of
 * containers that have their devices or are about to get them. The vendor makes and ends them. An
 * init container that is done has none any more: what comes after it may have been given a part
 * that lies across.
 */

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "kube/notice.h"
#include "plugin/plugin.h"

enum {
    PARTS_MAX = 1024,
    ARENA_MAX = 4 << 20,
};

struct parts {
    struct arena *arena;
    bool incomplete; /* some are missing: nothing is ended, as it may be wanted */
    size_t count;
    const char *names[PARTS_MAX];
};

static bool is_listed(const struct parts *parts, const char *name)
{
    for (size_t i = 0; i < parts->count; i++) {
        if (strcmp(parts->names[i], name) == 0)
            return true;
    }
    return false;
}

static void add_container(struct parts *parts, const struct container_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (!strchr(devices->items[i].uuid, '[') || is_listed(parts, devices->items[i].uuid))
            continue;
        if (parts->count == PARTS_MAX) {
            parts->incomplete = true;
            return;
        }
        parts->names[parts->count++] = devices->items[i].uuid;
    }
}

static bool came_later(const struct pod_container *container, const struct pod_container *other)
{
    return container->starting || (container->ready && container->turn > other->turn);
}

/* An init container and one behind it don't run at once: of those two the last one that got its
 * devices does. Where a sandbox is made anew that is the init container. */
static bool has_parts(const struct node_pod *pod, size_t index)
{
    const struct pod_container *container = &pod->containers[index];

    if (container->starting || !container->ready)
        return container->starting;
    for (size_t i = 0; i < pod->container_count; i++) {
        const struct pod_container *first = &pod->containers[MIN(i, index)];

        if (i != index && first->role == CONTAINER_INIT &&
            came_later(&pod->containers[i], container))
            return false;
    }
    return true;
}

static void add_pod(void *data, struct node_pod *pod)
{
    struct parts *parts = data;
    struct pod_devices devices;
    int r;

    if (pod->over || !strchr(pod->allocated, '['))
        return;
    r = pod_grants(pod, parts->arena, &devices, NULL);
    parts->incomplete |= r == -ENOMEM;
    if (r < 0)
        return;
    for (size_t i = 0; i < devices.count; i++) {
        if (has_parts(pod, i))
            add_container(parts, &devices.containers[i]);
    }
}

/* In the log and on the Node, once while it lasts. */
static void say_full(struct plugin *plugin, bool is_full)
{
    static const char message[] =
        "containers of this node are to have more instances of cards than it can keep account of: "
        "some are not made, and none is ended. Delete pods that can't start";
    const struct notice notice = {
        .kind = "Node",
        .namespace = "",
        .name = plugin->options->node_name,
        .uid = plugin->node_uid,
        .warns = true,
        .reason = "TooManyInstances",
        .message = message,
        .component = "hami-device-plugin",
        .host = plugin->options->node_name,
    };

    if (is_full && !plugin->parts_full) {
        log_error("%s", message);
        notice_write(plugin->kube, &notice);
    }
    plugin->parts_full = is_full;
}

static enum node_want say_parts(struct plugin *plugin)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    AUTOFREE struct parts *parts = calloc(1, sizeof(*parts));
    enum node_want end;

    if (!arena || !parts)
        return NODE_WANT_LATER;
    parts->arena = arena;
    pods_each(plugin->pods, add_pod, parts);
    end = plugin->vendor->want(plugin->node, parts->names, parts->count,
                               plugin->listed && !parts->incomplete);
    say_full(plugin, parts->incomplete || end == NODE_WANT_FULL);
    return end;
}

void plugin_parts_update(struct plugin *plugin)
{
    enum node_want end;

    if (!plugin->vendor->want || plugin->ending)
        return;
    end = say_parts(plugin);
    if (end == NODE_WANT_ADOPT) {
        /* Containers that the other plugin started since we looked. */
        if (plugin->listed)
            plugin_adopt_containers(plugin);
        else
            plugin_adopt_pods(plugin);
        end = say_parts(plugin);
    }
    plugin->parts_wait = end == NODE_WANT_LATER;
    if (end == NODE_WANT_CHANGED || end == NODE_WANT_FULL)
        watchdog_hurry(&plugin->health);
}
