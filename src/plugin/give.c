/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/give.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
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

/* For whom a name is forgotten. */
struct forgetting {
    const struct giving *giving;
    const struct node_pod *but;
};

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
        .laid_out = giving->laid_out != NULL,
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

/*
 * Of a container whose edits kubelet keeps: the name of its ids, and which device nodes its cards
 * had. After a reboot they may have others.
 */
static void write_laid_out(const struct giving *giving, const struct container_grant *grant,
                           struct strbuf *text)
{
    strbuf_addf(text, "%s\n", giving->name);
    for (size_t i = 0; i < grant->device_count; i++) {
        const struct granted_device *device = &grant->devices[i];

        strbuf_addf(text, "%s", device->uuid);
        if (device->has_minor)
            strbuf_addf(text, " nvidia%u", device->minor);
        if (device->is_instance)
            strbuf_addf(text, " %u %u", device->gpu_instance, device->compute_instance);
        strbuf_add(text, "\n");
    }
}

static int keep_laid_out(const struct giving *giving, const struct container_grant *grant,
                         const char *folder, struct error *err)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(RECORD_MAX);
    char path[PATH_MAX];
    int r;

    write_laid_out(giving, grant, &text);
    if (text.failed)
        return error_set(err, -ENOMEM, "no memory");
    host_sweep(folder, GIVE_STARTED_FILE, "");
    r = file_path(path, err, "%s/" GIVE_ORDERED_FILE, folder);
    return r < 0 ? r : host_write_file(path, text.text, text.len, 0444, err);
}

static int keep_started(const char *folder, struct error *err)
{
    char path[PATH_MAX];
    int r = file_path(path, err, "%s/" GIVE_STARTED_FILE, folder);

    return r < 0 || access(path, F_OK) == 0 ? r : host_write_file(path, "", 0, 0444, err);
}

static int check_laid_out(const struct giving *giving, const struct container_grant *grant,
                          const char *folder, struct error *err)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(RECORD_MAX);
    AUTOFREE char *have = NULL;
    int r;

    write_laid_out(giving, grant, &text);
    r = host_read_record(&giving->plugin->host, strrchr(folder, '/') + 1, GIVE_ORDERED_FILE, &have,
                         err);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0 && strcmp(have, strbuf_text(&text)) == 0)
        return 0;
    return error_set(err, -ESTALE,
                     "its cards have other device nodes than when kubelet asked for them, and "
                     "kubelet keeps the old ones: delete the pod");
}

/* A container that had the same device ids before no longer owns the name. Containers of one pod
 * may have the same, one after the other. */
static void forget_name(void *data, struct node_pod *pod)
{
    const struct forgetting *forgetting = data;
    const struct giving *giving = forgetting->giving;

    if (giving->laid_out && pod == forgetting->but)
        return;
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
    struct forgetting forgetting = {.giving = giving, .but = pod};
    CLEANUP(strbuf_deinit) struct strbuf record = STRBUF_INIT(RECORD_MAX);
    CLEANUP(spec_edits_deinit) struct spec_edits own = SPEC_EDITS_INIT;
    struct spec_edits *edits = giving->laid_out ? giving->laid_out : &own;
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
    if (r == 0 && giving->laid_out && giving->again)
        r = check_laid_out(giving, &grant, folder, err);
    if (r == 0)
        r = plugin->vendor->prepare(plugin->node, &grant, &plugin->cards, folder, edits, err);
    if (r == 0 && giving->laid_out && giving->again)
        r = keep_started(folder, err);
    if (r == 0 && giving->laid_out && !giving->again)
        r = keep_laid_out(giving, &grant, folder, err);
    if (r == 0 && !giving->laid_out) {
        host_sweep(folder, GIVE_ORDERED_FILE, "");
        r = host_write_spec(&plugin->host, &grant, giving->name, edits, err);
    }
    if (r < 0)
        return r;
    pods_each(plugin->pods, forget_name, &forgetting);
    pod->refusal = 0;
    pod->containers[index].ready = true;
    pod->containers[index].turn = ++pod->turns;
    pod->containers[index].ended_before = pod->containers[index].ended;
    pod->containers[index].ordered = giving->laid_out != NULL;
    pod->containers[index].started = giving->again;
    COPY_TEXT(pod->containers[index].cdi_name, giving->name);
    log_info("%s/%s, %s: %s %zu device%s of %s", pod->namespace, pod->name,
             pod->containers[index].name,
             giving->laid_out && !giving->again ? "is handed" : "starts with", grant.device_count,
             grant.device_count == 1 ? "" : "s", giving->name);
    return 0;
}
