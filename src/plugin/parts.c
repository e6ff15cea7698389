/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which parts of cards the node's containers are to have, as their annotations name them: those of
 * containers that have their devices or are about to get them. The vendor makes and ends them.
 */

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "plugin/plugin.h"

enum {
    PARTS_MAX = 1024,
    ARENA_MAX = 4 << 20,
};

struct parts {
    struct arena *arena;
    bool incomplete; /* some are missing: what is not named may be wanted */
    size_t count;
    const char *names[PARTS_MAX];
};

static void add_container(struct parts *parts, const struct container_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (!strchr(devices->items[i].uuid, '['))
            continue;
        if (parts->count == PARTS_MAX) {
            parts->incomplete = true;
            return;
        }
        parts->names[parts->count++] = devices->items[i].uuid;
    }
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
        if (pod->containers[i].ready || pod->containers[i].starting)
            add_container(parts, &devices.containers[i]);
    }
}

static enum node_want say_parts(struct plugin *plugin)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    AUTOFREE struct parts *parts = calloc(1, sizeof(*parts));

    if (!arena || !parts)
        return NODE_WANT_LATER;
    parts->arena = arena;
    pods_each(plugin->pods, add_pod, parts);
    if (parts->incomplete) {
        log_error("instances of cards are left as they are: there are too many to be compared");
        return NODE_WANT_SAME;
    }
    return plugin->vendor->want(plugin->node, parts->names, parts->count, plugin->listed);
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
    if (end == NODE_WANT_CHANGED)
        watchdog_hurry(&plugin->health);
}
