/* SPDX-License-Identifier: Apache-2.0 */

/*
 * HAMi's lock of the node, which HAMi's scheduler writes before each bind; ours does for plugins
 * that match allocations by order. Where this one does (ordered.h) it removes the lock when the
 * pod's allocations are over, well or not; else as soon as the pod is bound, since it needs no
 * order, and init containers may run for long before the last container gets its devices. It goes
 * by what it sees of the Node, so that a lock that was left is found, too.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "model/keys.h"
#include "plugin/plugin.h"

enum {
    PATCH_MAX = 4096,
    PART_SIZE = 256,
};

/* "TIME,NAMESPACE,NAME" */
static bool read_holder(const char *value, char namespace[PART_SIZE], char name[PART_SIZE])
{
    const char *first = strchr(value, ',');
    const char *second = first ? strchr(first + 1, ',') : NULL;

    if (!second || second - first > PART_SIZE || strlen(second + 1) >= PART_SIZE)
        return false;
    copy_text(namespace, (size_t)(second - first), first + 1);
    copy_text(name, PART_SIZE, second + 1);
    return true;
}

/* A lock for another vendor's devices is its agent's to remove. */
static bool is_done_with(const struct plugin *plugin, const struct node_pod *pod)
{
    if (pod->phase_success || pod->phase_failed)
        return true;
    return way_is_late(plugin->way) && pod->allocated[0] && !pod->others_allocate;
}

static void unlock_on_patched(void *data, const struct kube_answer *answer)
{
    struct plugin *plugin = data;

    plugin->lock.request = NULL;
    /* 409: the Node has changed, which the watch shows, and then it is tried again. */
    if (!kube_answer_ok(answer) && answer->status != 409)
        log_warn("cannot remove the node's lock: %s", answer->why);
    plugin_unlock_check(plugin);
}

/* With the version, so that no other pod's lock is removed that was written meanwhile. */
static int unlock_patch(struct plugin *plugin)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    char path[1200], name[sizeof(plugin->options->node_name) * 3];
    struct kube_call call = {.method = KUBE_PATCH, .path = path, .content_type = KUBE_MERGE_PATCH};

    strbuf_add(&patch, "{\"metadata\":{\"resourceVersion\":");
    strbuf_add_json(&patch, plugin->lock.version);
    strbuf_add(&patch, ",\"annotations\":{\"" KEY_NODE_LOCK "\":null}}}");
    if (patch.failed || !kube_escape(plugin->options->node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", name);
    call.body = patch.text;
    call.body_len = patch.len;
    return kube_request(plugin->kube, &call, unlock_on_patched, plugin, &plugin->lock.request);
}

void plugin_unlock_check(struct plugin *plugin)
{
    struct lock_seen *lock = &plugin->lock;
    char namespace[PART_SIZE], name[PART_SIZE];
    const struct node_pod *pod;
    int r;

    if (plugin->ending || !lock->value || lock->request ||
        strcmp(lock->tried, lock->version) == 0 || !read_holder(lock->value, namespace, name))
        return;
    pod = pods_find_name(plugin->pods, namespace, name);
    if (!pod || !is_done_with(plugin, pod))
        return;
    COPY_TEXT(lock->tried, lock->version);
    r = unlock_patch(plugin);
    if (r < 0)
        log_error("cannot remove the node's lock: %s", strerror(-r));
}

void plugin_unlock_seen(struct plugin *plugin, yyjson_val *metadata)
{
    const char *value =
        yyjson_get_str(yyjson_obj_get(yyjson_obj_get(metadata, "annotations"), KEY_NODE_LOCK));
    const char *version = yyjson_get_str(yyjson_obj_get(metadata, "resourceVersion"));
    struct lock_seen *lock = &plugin->lock;

    free(lock->value);
    lock->value = value && version ? strdup(value) : NULL;
    COPY_TEXT(lock->version, version ? version : "");
    plugin_unlock_check(plugin);
}

void plugin_unlock_stop(struct plugin *plugin)
{
    kube_request_cancel(plugin->lock.request);
    plugin->lock.request = NULL;
    free(plugin->lock.value);
    plugin->lock.value = NULL;
}
