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

void plugin_parts_update(struct plugin *plugin)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    AUTOFREE struct parts *parts = calloc(1, sizeof(*parts));
    int r;

    if (!plugin->vendor->want || !arena || !parts || plugin->ending)
        return;
    parts->arena = arena;
    pods_each(plugin->pods, add_pod, parts);
    if (parts->incomplete) {
        log_error("instances of cards are left as they are: there are too many to be compared");
        return;
    }
    r = plugin->vendor->want(plugin->node, parts->names, parts->count, plugin->listed);
    if (r > 0)
        watchdog_hurry(&plugin->health);
}
