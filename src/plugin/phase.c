/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "model/keys.h"
#include "plugin/plugin.h"

enum {
    ARENA_MAX = 4 << 20,
    PATCH_MAX = 64 << 10,
};

/* A patch under way. */
struct phase {
    struct phase *next, **link;
    struct plugin *plugin;
    char *uid;
    char *parts; /* what the patch says of the pod's parts; NULL: nothing */
    bool failed; /* it says that the allocation failed */
    struct kube_request *request;
};

static void phase_free(struct phase *phase)
{
    *phase->link = phase->next;
    if (phase->next)
        phase->next->link = phase->link;
    free(phase->uid);
    free(phase->parts);
    free(phase);
}

static bool is_under_way(const struct plugin *plugin, const char *uid)
{
    for (const struct phase *phase = plugin->phases; phase; phase = phase->next) {
        if (strcmp(phase->uid, uid) == 0)
            return true;
    }
    return false;
}

/* The pod is as the patch says. */
static void phase_apply(struct phase *phase, struct node_pod *pod)
{
    pod->allocating = false;
    if (phase->failed) {
        pod->phase_failed = true;
        return;
    }
    pod->phase_success = pod->labelled = true;
    pod->to_allocate = false;
    free(pod->parts_told);
    pod->parts_told = TAKE(phase->parts);
}

static void phase_on_patched(void *data, const struct kube_answer *answer)
{
    struct phase *phase = data;
    struct node_pod *pod = pods_find(phase->plugin->pods, phase->uid);

    /*
     * A pod that is gone, or was made anew (422: another uid), needs no patch; after any other
     * failure the next check sends it again.
     */
    if (!kube_answer_ok(answer) && answer->status != 404 && answer->status != 422)
        log_warn("cannot tell that pod %s has %s: %s", phase->uid,
                 phase->failed ? "failed" : "its devices", answer->why);
    else if (pod)
        phase_apply(phase, pod);
    plugin_unlock_check(phase->plugin);
    phase_free(phase);
}

/* With the uid the patch fails if the pod was made anew under its name. */
static void write_patch(const struct plugin *plugin, const struct node_pod *pod, size_t containers,
                        const struct node_note *parts, struct strbuf *patch)
{
    strbuf_add(patch, "{\"metadata\":{\"uid\":");
    strbuf_add_json(patch, pod->uid);
    strbuf_add(patch, ",\"annotations\":{\"" KEY_BIND_PHASE "\":\"" BIND_PHASE_SUCCESS "\",");
    strbuf_add_json(patch, plugin->vendor->to_allocate_key);
    strbuf_add(patch, ":\"");
    for (size_t i = 0; i < containers; i++)
        strbuf_add(patch, ";");
    strbuf_add(patch, "\"");
    if (parts->value) {
        strbuf_add(patch, ",");
        strbuf_add_json(patch, parts->key);
        strbuf_add(patch, ":");
        strbuf_add_json(patch, parts->value);
    }
    strbuf_add(patch, "}");
    if (!pod->labelled) {
        strbuf_add(patch, ",\"labels\":{\"" KEY_NODE "\":");
        strbuf_add_json(patch, plugin->options->node_name);
        strbuf_add(patch, "}");
    }
    strbuf_add(patch, "}}");
}

static void write_failure(const struct node_pod *pod, struct strbuf *patch)
{
    strbuf_add(patch, "{\"metadata\":{\"uid\":");
    strbuf_add_json(patch, pod->uid);
    strbuf_add(patch, ",\"annotations\":{\"" KEY_BIND_PHASE "\":\"" BIND_PHASE_FAILED "\"}}}");
}

static int phase_send(struct phase *phase, const struct node_pod *pod, const struct strbuf *patch)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = kube_pod_path(pod->namespace, pod->name, "", path),
        .content_type = KUBE_MERGE_PATCH,
    };

    if (patch->failed || !call.path)
        return -ENOMEM;
    call.body = patch->text;
    call.body_len = patch->len;
    return kube_request(phase->plugin->kube, &call, phase_on_patched, phase, &phase->request);
}

static int phase_patch(struct phase *phase, const struct node_pod *pod, size_t containers,
                       const struct node_note *parts)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);

    write_patch(phase->plugin, pod, containers, parts, &patch);
    phase->parts = parts->value ? strdup(parts->value) : NULL;
    if (parts->value && !phase->parts)
        return -ENOMEM;
    return phase_send(phase, pod, &patch);
}

static bool is_told(const struct node_pod *pod)
{
    return pod->phase_success && pod->labelled && !pod->to_allocate;
}

/* What is to be said of the pod's parts; nothing where it was said. */
static struct node_note describe_parts(const struct plugin *plugin, const struct node_pod *pod,
                                       const struct pod_devices *devices, struct arena *arena)
{
    struct node_note note = {.value = NULL};

    if (!strchr(pod->allocated, '[') || !plugin->vendor->describe_parts ||
        plugin->vendor->describe_parts(plugin->node, devices, arena, &note) <= 0 ||
        (pod->parts_told && strcmp(pod->parts_told, note.value) == 0))
        note.value = NULL;
    return note;
}

static struct phase *phase_new(struct plugin *plugin, const struct node_pod *pod)
{
    struct phase *phase = calloc(1, sizeof(*phase));

    if (!phase)
        return NULL;
    phase->plugin = plugin;
    phase->uid = strdup(pod->uid);
    phase->next = plugin->phases;
    phase->link = &plugin->phases;
    if (phase->next)
        phase->next->link = &phase->next;
    plugin->phases = phase;
    return phase;
}

void plugin_phase_fail(struct plugin *plugin, struct node_pod *pod)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    struct phase *phase;
    int r;

    if (is_under_way(plugin, pod->uid))
        return;
    phase = phase_new(plugin, pod);
    if (!phase)
        return;
    phase->failed = true;
    write_failure(pod, &patch);
    r = phase->uid ? phase_send(phase, pod, &patch) : -ENOMEM;
    if (r < 0) {
        log_error("cannot tell that %s/%s has failed: %s", pod->namespace, pod->name, strerror(-r));
        phase_free(phase);
    }
}

void plugin_phase_check(struct plugin *plugin, struct node_pod *pod)
{
    CLEANUP(arena_freep) struct arena *arena = NULL;
    struct pod_devices devices;
    struct node_note parts;
    struct phase *phase;
    int r;

    if (!pod->allocated[0] || pod->over || pod->leaving ||
        (is_told(pod) && !strchr(pod->allocated, '[')) || is_under_way(plugin, pod->uid))
        return;
    arena = arena_new(ARENA_MAX);
    if (!arena || pod_grants(pod, arena, &devices, NULL) < 0 || !pod_is_ready(pod, &devices))
        return;
    parts = describe_parts(plugin, pod, &devices, arena);
    if (is_told(pod) && !parts.value)
        return;
    phase = phase_new(plugin, pod);
    if (!phase)
        return;
    r = phase->uid ? phase_patch(phase, pod, devices.count, &parts) : -ENOMEM;
    if (r < 0) {
        log_error("cannot tell that %s/%s has its devices: %s", pod->namespace, pod->name,
                  strerror(-r));
        phase_free(phase);
    }
}

void plugin_phase_stop(struct plugin *plugin)
{
    while (plugin->phases) {
        kube_request_cancel(plugin->phases->request);
        phase_free(plugin->phases);
    }
}
