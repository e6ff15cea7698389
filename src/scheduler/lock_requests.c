/* SPDX-License-Identifier: Apache-2.0 */

/* The requests that a node's turns need, and what their answers say. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/lock_rooms.h"
#include "scheduler/scheduler.h"

yyjson_doc *lock_read_answer(const struct kube_answer *answer)
{
    return kube_answer_ok(answer) ? yyjson_read(answer->body, answer->len, 0) : NULL;
}

bool lock_is_refused(const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status >= 400 && answer->status < 500 &&
           answer->status != 408 && answer->status != 409 && answer->status != 429;
}

static bool is_none(const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status == 404;
}

static void on_node(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    struct scheduler *scheduler = scheduler_of(node);
    yyjson_doc *doc = lock_read_answer(answer);
    struct node read = {.resource_version = ""};
    bool good = is_none(answer); /* a node that is gone has no lock */

    node->running = NULL;
    arena_reset(scheduler->object_arena);
    if (doc)
        good = node_read(yyjson_doc_get_root(doc), &scheduler->vendors.kept,
                         scheduler->object_arena, &read, NULL) == 0;
    node_lock_read(node->lock, good ? &read : NULL, clock_now_ns(), wall_ns());
    yyjson_doc_free(doc);
    locks_advance(node);
}

static void on_pod(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    struct scheduler *scheduler = scheduler_of(node);
    enum lock_progress progress = LOCK_UNKNOWN;
    yyjson_doc *doc = lock_read_answer(answer);
    struct pod pod;

    node->running = NULL;
    arena_reset(scheduler->object_arena);
    if (is_none(answer))
        progress = LOCK_GONE;
    else if (doc && pod_read(yyjson_doc_get_root(doc), &scheduler->vendors.kept,
                             scheduler->object_arena, &pod, NULL) == 0)
        progress = lock_pod_progress(&scheduler->vendors, &pod, &node->lock->turn, node->name);
    node_lock_looked(node->lock, progress, clock_now_ns());
    yyjson_doc_free(doc);
    locks_advance(node);
}

static struct lock_pod name_of(const struct pod *pod)
{
    struct lock_pod name;

    COPY_TEXT(name.namespace, pod->namespace);
    COPY_TEXT(name.name, pod->name);
    COPY_TEXT(name.uid, pod->uid);
    return name;
}

/* Of the list's pods whose allocations go on the one that was bound last. */
static bool find_allocating(const struct locked_node *node, yyjson_val *list,
                            struct lock_pod *ret_pod, int64_t *ret_age_ns)
{
    struct scheduler *scheduler = scheduler_of(node);
    yyjson_val *item;
    bool any = false;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(list, "items"), at, max, item)
    {
        struct pod pod;
        int64_t age_ns;

        arena_reset(scheduler->object_arena);
        if (pod_read(item, &scheduler->vendors.kept, scheduler->object_arena, &pod, NULL) < 0 ||
            !lock_pod_waits(&scheduler->vendors, &pod, node->name, wall_ns(), &age_ns) ||
            (any && age_ns >= *ret_age_ns))
            continue;
        *ret_pod = name_of(&pod);
        *ret_age_ns = age_ns;
        any = true;
    }
    return any;
}

static void on_pods(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    yyjson_doc *doc = lock_read_answer(answer);
    const struct lock_set locks = cluster_node_locks(scheduler_of(node)->cluster, node->name);
    struct lock_pod found;
    int64_t age_ns = 0;
    bool any;

    node->running = NULL;
    any = doc && find_allocating(node, yyjson_doc_get_root(doc), &found, &age_ns);
    node_lock_listed(node->lock, doc != NULL, any ? &found : NULL, age_ns, &locks, clock_now_ns());
    yyjson_doc_free(doc);
    locks_advance(node);
}

static void on_patched(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    struct lock_wait *first = node->queue;
    const bool removes = node->lock->taken;

    node->running = NULL;
    node_lock_patched(node->lock, kube_answer_ok(answer), clock_now_ns());
    if (answer->status == 403)
        rights_note(node->locks, false, answer->why);
    if (lock_is_refused(answer) && !removes && first &&
        strcmp(first->pod.uid, node->lock->wrote.uid) == 0) {
        locks_leave(first, false);
        first->on_refused(first, answer->why);
        return;
    }
    if (kube_answer_ok(answer))
        log_debug("node %s: lock %s", node->name, removes ? "removed" : "written");
    locks_advance(node);
}

/* Starts a request; when it can't be started, it is as if it had failed. */
static void locked_send(struct locked_node *node, struct kube_call *call, kube_answer_fn fn)
{
    const struct kube_answer failed = {.error = -ENOMEM, .why = "out of memory", .body = ""};

    call->timeout_ms = LOCK_REQUEST_MS;
    if (!call->path || kube_request(scheduler_of(node)->kube, call, fn, node, &node->running) < 0)
        fn(node, &failed);
}

const char *lock_node_path(const char *node_name, const char *before, const char *behind,
                           char to[static KUBE_PATH_SIZE])
{
    char name[KUBE_PATH_SIZE - 128];

    if (!kube_escape(node_name, name, sizeof(name)))
        return NULL;
    (void)snprintf(to, KUBE_PATH_SIZE, "%s%s%s", before, name, behind);
    return to;
}

static void get_node(struct locked_node *node)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = lock_node_path(node->name, "/api/v1/nodes/", "", path),
        .accept = KUBE_METADATA_ONLY,
    };

    locked_send(node, &call, on_node);
}

static void get_pod(struct locked_node *node)
{
    const struct lock_pod *pod = &node->lock->turn;
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = kube_pod_path(pod->namespace, pod->name, "", path),
    };

    locked_send(node, &call, on_pod);
}

static void list_pods(struct locked_node *node)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = lock_node_path(node->name, "/api/v1/pods?fieldSelector=spec.nodeName%3D",
                               "%2Cstatus.phase%3DPending", path),
    };

    locked_send(node, &call, on_pods);
}

static void patch_node(struct locked_node *node)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(LOCK_PATCH_MAX);
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = lock_node_path(node->name, "/api/v1/nodes/", "", path),
        .content_type = KUBE_MERGE_PATCH,
        .accept = KUBE_METADATA_ONLY,
    };

    node_lock_write_patch(node->lock, wall_ns(), &patch);
    if (node->lock->taken && node->lock->turn.name[0])
        log_info("node %s: the lock of pod %s/%s is left over and is removed", node->name,
                 node->lock->turn.namespace, node->lock->turn.name);
    call.body = patch.text;
    call.body_len = patch.len;
    if (patch.failed)
        call.path = NULL;
    locked_send(node, &call, on_patched);
}

void lock_request(struct locked_node *node, enum lock_step step)
{
    if (step == LOCK_LIST_PODS)
        list_pods(node);
    else if (step == LOCK_GET_NODE)
        get_node(node);
    else if (step == LOCK_GET_POD)
        get_pod(node);
    else
        patch_node(node);
}
