/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/ordered.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "plugin/answer.h"
#include "plugin/give.h"
#include "plugin/match.h"

enum {
    /* In which a card's part is made, or the API server answers; after it kubelet fails the pod. */
    ORDERED_TIMEOUT_MS = 15000,
    LIST_TIMEOUT_MS = 5000,
    AGAIN_FIRST_MS = 50,
    AGAIN_MAX_MS = 800,
    ARENA_MAX = 4 << 20,
    PODS_MAX = 4096,
};

/* An allocation under way. Only the first is worked at, so that each sees what the former got. */
struct ordered {
    struct ordered *next;
    struct plugin *plugin;
    const struct node_resource *resource;
    struct grpc_call *call;
    uv_timer_t timer;
    int64_t deadline_ns;
    size_t count;
    char name[SPEC_NAME_SIZE]; /* of the CDI device that the ids would have */
    struct kube_request *listing;
    unsigned pauses;
    struct error why; /* why it waits */
};

static void ordered_list(struct ordered *ordered);

/* Ends */

static void ordered_on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void ordered_drop(struct ordered *ordered)
{
    struct plugin *plugin = ordered->plugin;
    bool was_first = plugin->ordered == ordered;
    struct ordered **link = &plugin->ordered;

    kube_request_cancel(ordered->listing);
    ordered->listing = NULL;
    while (*link != ordered)
        link = &(*link)->next;
    *link = ordered->next;
    uv_close((uv_handle_t *)&ordered->timer, ordered_on_closed);
    if (was_first && plugin->ordered && !plugin->ending)
        ordered_list(plugin->ordered);
}

static void ordered_refuse(struct ordered *ordered, enum grpc_status status, const char *why)
{
    log_warn("an allocation of %zu devices of %s is refused, and its pod with it: %s",
             ordered->count, ordered->resource->name, why);
    kubelet_allocate_end(ordered->call, NULL, status, why);
    ordered_drop(ordered);
}

static void ordered_on_timer(uv_timer_t *timer)
{
    ordered_list(timer->data);
}

static void ordered_again(struct ordered *ordered, const char *why)
{
    (void)error_set(&ordered->why, 0, "%s", why);
    if (clock_now_ns() >= ordered->deadline_ns) {
        ordered_refuse(ordered, GRPC_UNAVAILABLE, ordered->why.text);
        return;
    }
    (void)uv_timer_start(&ordered->timer, ordered_on_timer,
                         backoff_ms(ordered->pauses++, AGAIN_FIRST_MS, AGAIN_MAX_MS), 0);
}

/* Giving */

/* The container's owner, as a CDI specification of ours has it. */
static int lay_out(const struct match *match, struct spec_edits *edits, struct arena *arena,
                   V1beta1__ContainerAllocateResponse *ret_response, struct error *err)
{
    spec_add_env(edits, SPEC_ENV_POD "%s", match->pod->uid);
    spec_add_env(edits, SPEC_ENV_CONTAINER "%s", match->pod->containers[match->index].name);
    return answer_lay_out(edits, arena, ret_response, err);
}

static int give(struct ordered *ordered, const struct match *match, struct arena *arena,
                struct spec_edits *edits, struct error *err)
{
    struct pod_container *container = &match->pod->containers[match->index];
    const struct giving giving = {
        .plugin = ordered->plugin,
        .resource = ordered->resource,
        .name = ordered->name,
        .laid_out = edits,
    };
    struct pod_devices devices;
    int r;

    container->starting = true;
    plugin_parts_update(ordered->plugin);
    r = pod_grants(match->pod, arena, &devices, err);
    if (r == 0)
        r = give_devices(&giving, match->pod, match->index, &devices, arena, err);
    if (r == -EAGAIN)
        return r;
    container->starting = false;
    if (r < 0)
        plugin_parts_update(ordered->plugin);
    return r;
}

/* Whose allocation it is, is certain: if it fails, its pod's has failed. */
static void give_and_answer(struct ordered *ordered, const struct match *match)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    V1beta1__ContainerAllocateResponse response;
    struct plugin *plugin = ordered->plugin;
    struct error err = ERROR_INIT;
    int r;

    r = arena ? give(ordered, match, arena, &edits, &err) : error_set(&err, -ENOMEM, "no memory");
    if (r == -EAGAIN) {
        ordered_again(ordered, err.text);
        return;
    }
    if (r == 0)
        r = lay_out(match, &edits, arena, &response, &err);
    if (r < 0) {
        (void)error_wrap(&err, r, "%s/%s, %s", match->pod->namespace, match->pod->name,
                         match->pod->containers[match->index].name);
        plugin_phase_fail(plugin, match->pod);
        ordered_refuse(ordered, GRPC_FAILED_PRECONDITION, err.text);
        return;
    }
    plugin_phase_check(plugin, match->pod);
    kubelet_allocate_end(ordered->call, &response, GRPC_OK, NULL);
    ordered_drop(ordered);
}

/* Matching */

/* Reads the pods into the table; the count of those that could be read. */
static size_t read_pods(struct plugin *plugin, yyjson_val *list, const char **uids)
{
    size_t index, max, count = 0;
    yyjson_val *item;

    yyjson_arr_foreach(yyjson_obj_get(list, "items"), index, max, item)
    {
        const char *uid = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(item, "metadata"), "uid"));
        struct error err = ERROR_INIT;
        struct node_pod *pod;

        if (!uid || count == PODS_MAX)
            continue;
        if (pods_put(plugin->pods, item, false, &pod, &err) < 0) {
            log_warn("pod %s can't be read: %s", uid, err.text);
            continue;
        }
        plugin_say_altered(plugin, pod);
        uids[count++] = uid;
    }
    return count;
}

static int find_match(struct ordered *ordered, yyjson_val *list, struct match *ret_match,
                      struct error *err)
{
    AUTOFREE struct node_pod **pods = calloc(PODS_MAX, sizeof(*pods));
    AUTOFREE const char **uids = calloc(PODS_MAX, sizeof(*uids));
    size_t count;

    if (!pods || !uids)
        return error_set(err, -ENOMEM, "no memory");
    count = read_pods(ordered->plugin, list, uids);
    for (size_t i = 0; i < count; i++)
        pods[i] = pods_find(ordered->plugin->pods, uids[i]);
    return match_container(pods, count, ordered->name, ordered->count, ret_match, err);
}

static void ordered_on_listed(void *data, const struct kube_answer *answer)
{
    struct ordered *ordered = data;
    struct error err = ERROR_INIT;
    struct match match;
    yyjson_doc *doc;
    int r;

    ordered->listing = NULL;
    if (!kube_answer_ok(answer)) {
        (void)error_set(&err, 0, "this node's pods can't be listed: %s", answer->why);
        ordered_again(ordered, err.text);
        return;
    }
    doc = yyjson_read(answer->body, answer->len, 0);
    r = find_match(ordered, yyjson_doc_get_root(doc), &match, &err);
    yyjson_doc_free(doc);
    if (r == MATCH_FOUND)
        give_and_answer(ordered, &match);
    else
        ordered_refuse(ordered, GRPC_FAILED_PRECONDITION, err.text);
}

/* From the API server, whose answer is newer than the Binding; the watch may be behind. */
static void ordered_list(struct ordered *ordered)
{
    char path[1200], node[NODE_NAME_SIZE * 3];
    const struct kube_call call = {.method = KUBE_GET, .path = path, .timeout_ms = LIST_TIMEOUT_MS};
    const struct plugin *plugin = ordered->plugin;
    int r = -EINVAL;

    plugin_pods_leave(ordered->plugin);
    if (!plugin->listed) {
        ordered_again(ordered, "this node's pods could not be listed yet");
        return;
    }
    if (kube_escape(plugin->options->node_name, node, sizeof(node))) {
        (void)snprintf(path, sizeof(path), "/api/v1/pods?fieldSelector=spec.nodeName%%3D%s", node);
        r = kube_request(plugin->kube, &call, ordered_on_listed, ordered, &ordered->listing);
    }
    if (r < 0)
        ordered_refuse(ordered, GRPC_INTERNAL, strerror(-r));
}

void ordered_begin(struct plugin *plugin, const struct node_resource *resource,
                   struct grpc_call *call, const char *const *ids, size_t count)
{
    struct ordered *ordered = NULL;
    struct ordered **link = &plugin->ordered;

    if (resource->is_direct) {
        kubelet_allocate_end(call, NULL, GRPC_FAILED_PRECONDITION,
                             "devices that kubelet chooses by itself are handed over by CDI alone, "
                             "which does not reach containers here");
        return;
    }
    if (count)
        ordered = calloc(1, sizeof(*ordered));

    if (!ordered) {
        kubelet_allocate_end(
            call, NULL, count ? GRPC_RESOURCE_EXHAUSTED : GRPC_UNIMPLEMENTED,
            count ? "no memory" : "without CDI, devices are allocated to one container at a time");
        return;
    }
    ordered->plugin = plugin;
    ordered->resource = resource;
    ordered->call = call;
    ordered->count = count;
    ordered->deadline_ns = clock_now_ns() + ORDERED_TIMEOUT_MS * NS_PER_MS;
    spec_device_name(ids, count, ordered->name);
    (void)uv_timer_init(plugin->loop, &ordered->timer);
    ordered->timer.data = ordered;
    while (*link)
        link = &(*link)->next;
    *link = ordered;
    if (plugin->ordered == ordered)
        ordered_list(ordered);
}

void ordered_gone(struct plugin *plugin, struct grpc_call *call)
{
    for (struct ordered *it = plugin->ordered; it; it = it->next) {
        if (it->call == call) {
            ordered_drop(it);
            return;
        }
    }
}

void ordered_stop(struct plugin *plugin)
{
    while (plugin->ordered)
        ordered_refuse(plugin->ordered, GRPC_UNAVAILABLE, "the device plugin is ending");
}
