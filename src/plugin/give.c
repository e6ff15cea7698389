/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/give.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "plugin/pick.h"

enum {
    RECORD_MAX = 512 << 10,
};

struct others {
    struct plugin *plugin;
    const struct node_pod *but;
    struct arena *arena;
    const char *uuid;
    struct card_use use;
};

static void add_other(void *data, struct node_pod *pod)
{
    struct others *others = data;
    struct pod_devices devices;

    if (pod == others->but || !pod_holds_devices(pod))
        return;
    if (pod_grants(pod, others->arena, &devices, NULL) == 0)
        pick_add_use(pod, &devices, others->uuid, &others->use);
}

static void use_of_others(void *data, const char *uuid, struct card_use *ret_use)
{
    struct others *others = data;
    struct arena_mark mark = arena_mark(others->arena);

    others->uuid = uuid;
    others->use = (struct card_use){0};
    pods_each(others->plugin->pods, add_other, others);
    arena_rewind(others->arena, mark);
    *ret_use = others->use;
}

/* A part of a card has its own uuid and memory, and all of its time. -EAGAIN: it is being made. */
static int take_part(const struct plugin *plugin, const char *name, struct granted_device *device,
                     struct error *err)
{
    struct node_part part;
    int r = plugin->vendor->find_part ? plugin->vendor->find_part(plugin->node, name, &part, err)
                                      : error_set(err, -EINVAL, "%s is no card", name);

    if (r == 0)
        return error_set(err, -EAGAIN, "instance %s is not made yet", name);
    if (r < 0)
        return error_wrap(err, r, "instance %s can't be made", name);
    COPY_TEXT(device->uuid, part.uuid);
    device->memory_bytes = MIN(device->memory_bytes, part.memory_bytes);
    device->cores = 0;
    device->is_instance = true;
    device->gpu_instance = part.gpu_instance;
    device->compute_instance = part.compute_instance;
    return 0;
}

static int make_grant(const struct giving *giving, const struct node_pod *pod, size_t index,
                      const struct pod_devices *devices, struct container_grant *grant,
                      struct error *err)
{
    const struct plugin *plugin = giving->plugin;
    unsigned resource = (unsigned)(giving->resource - plugin->offer.resources);
    const struct container_devices *mine = &devices->containers[index];
    int r = 0;

    if (mine->count > ARRAY_SIZE(grant->devices))
        return error_set(err, -E2BIG, "a container can't have more than %zu cards",
                         ARRAY_SIZE(grant->devices));
    *grant = (struct container_grant){
        .pod_uid = pod->uid,
        .container = pod->containers[index].name,
        .priority = pod->containers[index].priority,
        .device_count = mine->count,
    };
    for (size_t i = 0; i < mine->count; i++) {
        const struct card *card = cards_get(&plugin->cards, mine->items[i].uuid);
        struct granted_device *device = &grant->devices[i];

        if (card->resource != resource)
            return error_set(err, -EINVAL, "%s is not given out as %s", card->uuid,
                             giving->resource->name);
        COPY_TEXT(device->uuid, card->uuid);
        device->memory_bytes = (uint64_t)mine->items[i].memory_mib * MIB;
        device->cores = (unsigned)mine->items[i].cores;
        device->index = card->index;
        device->has_minor = card->has_minor;
        device->minor = card->minor;
        device->is_instance = card->is_instance;
        device->gpu_instance = card->gpu_instance;
        device->compute_instance = card->compute_instance;
        if (card->has_parts)
            r = take_part(plugin, mine->items[i].uuid, device, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A container that had the same device ids before no longer owns the name. */
static void forget_name(void *data, struct node_pod *pod)
{
    const struct giving *giving = data;

    for (size_t i = 0; i < pod->container_count; i++) {
        if (strcmp(pod->containers[i].cdi_name, giving->name) == 0)
            pod->containers[i].cdi_name[0] = '\0';
    }
}

int give_devices(const struct giving *giving, struct node_pod *pod, size_t index,
                 const struct pod_devices *devices, struct arena *arena, struct error *err)
{
    struct plugin *plugin = giving->plugin;
    struct others others = {.plugin = plugin, .but = pod, .arena = arena};
    CLEANUP(strbuf_deinit) struct strbuf record = STRBUF_INIT(RECORD_MAX);
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    struct container_grant grant;
    char folder[PATH_MAX];
    int r;

    r = pick_check(pod, devices, index, &plugin->cards, use_of_others, &others, err);
    if (r == 0)
        r = make_grant(giving, pod, index, devices, &grant, err);
    pods_record(plugin->pods, pod, &record);
    if (r == 0 && record.failed)
        r = error_set(err, -ENOMEM, "what the pod was given is too long");
    grant.record = strbuf_text(&record);
    if (r == 0)
        r = host_prepare(&plugin->host, &grant, folder, err);
    if (r == 0)
        r = plugin->vendor->prepare(plugin->node, &grant, &plugin->cards, folder, &edits, err);
    if (r == 0)
        r = host_write_spec(&plugin->host, &grant, giving->name, &edits, err);
    if (r < 0)
        return r;
    pods_each(plugin->pods, forget_name, (void *)giving);
    pod->containers[index].ready = true;
    COPY_TEXT(pod->containers[index].cdi_name, giving->name);
    log_info("%s/%s, %s: starts with %zu device%s of %s", pod->namespace, pod->name,
             pod->containers[index].name, grant.device_count, grant.device_count == 1 ? "" : "s",
             giving->name);
    return 0;
}
