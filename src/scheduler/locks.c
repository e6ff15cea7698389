/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/locks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    REQUEST_MS = 5000,
    PATCH_MAX = 4096, /* bytes */
    ASK_RIGHTS_S = 30,
    FIRST_ANSWER_S = 10,                                   /* for which the start waits */
    HANDSHAKES_MAX = 64,                                   /* that are written in a second */
    FOUND_MAX = sizeof(((struct lock_value *)NULL)->text), /* bytes of a lock that are kept */
};

struct locked_node {
    UT_hash_handle hh; /* by name */
    struct locks *locks;
    char *name;
    bool listed;                           /* in this term: see node_lock.listed */
    struct text_pair found[LOCK_KEYS_MAX]; /* the locks on it, as the watch showed them last */
    size_t found_count;

    struct node_lock *lock; /* NULL: nothing goes on */
    struct lock_wait *queue;
    struct kube_request *running;
    struct locked_node *prev_active, *next_active;
};

struct locks {
    struct scheduler *scheduler;
    struct locked_node *nodes, *active;
    uv_timer_t timer;
    bool known, allowed, asking;
    int64_t asked_ns;
};

static const char question[] =
    "{\"apiVersion\":\"authorization.k8s.io/v1\","
    "\"kind\":\"SelfSubjectAccessReview\",\"spec\":{"
    "\"resourceAttributes\":{\"verb\":\"patch\",\"resource\":\"nodes\"}}}";

static void locks_advance(struct locked_node *node);

static int64_t wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

/* Nodes. */

static struct locked_node *find_locked(const struct locks *locks, const char *name)
{
    struct locked_node *node;

    HASH_FIND_STR(locks->nodes, name, node);
    return node;
}

static struct locked_node *get_locked(struct locks *locks, const char *name)
{
    struct locked_node *node = find_locked(locks, name);

    if (node)
        return node;
    node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->name = strdup(name);
    if (!node->name) {
        free(node);
        return NULL;
    }
    node->locks = locks;
    HASH_ADD_KEYPTR(hh, locks->nodes, node->name, strlen(node->name), node);
    return node;
}

static void forget_found(struct locked_node *node)
{
    while (node->found_count)
        free((char *)node->found[--node->found_count].value);
}

static void free_locked(struct locked_node *node)
{
    HASH_DEL(node->locks->nodes, node);
    forget_found(node);
    free(node->name);
    free(node);
}

/* Begins to do something for the node. False: no memory. */
static bool wake(struct locked_node *node)
{
    if (node->lock)
        return true;
    node->lock = calloc(1, sizeof(*node->lock));
    if (!node->lock)
        return false;
    node->lock->listed = node->listed;
    DL_APPEND2(node->locks->active, node, prev_active, next_active);
    return true;
}

static void sleep_again(struct locked_node *node)
{
    node->listed = node->lock->listed;
    DL_DELETE2(node->locks->active, node, prev_active, next_active);
    free(node->lock);
    node->lock = NULL;
    if (!node->listed && !node->found_count)
        free_locked(node);
}

/* Requests. */

static struct scheduler *scheduler_of(const struct locked_node *node)
{
    return node->locks->scheduler;
}

/* NULL: the answer is no such object. */
static yyjson_doc *read_answer(const struct kube_answer *answer)
{
    return kube_answer_ok(answer) ? yyjson_read(answer->body, answer->len, 0) : NULL;
}

static bool is_none(const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status == 404;
}

/* The server says that this will not be done, whenever it is asked. */
static bool is_refused(const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status >= 400 && answer->status < 500 &&
           answer->status != 408 && answer->status != 409 && answer->status != 429;
}

static void on_node(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    struct scheduler *scheduler = scheduler_of(node);
    yyjson_doc *doc = read_answer(answer);
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
    yyjson_doc *doc = read_answer(answer);
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
    yyjson_doc *doc = read_answer(answer);
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

static void note_right(struct locks *locks, bool allowed, const char *why);

static void on_patched(void *data, const struct kube_answer *answer)
{
    struct locked_node *node = data;
    struct lock_wait *first = node->queue;
    const bool removes = node->lock->taken;

    node->running = NULL;
    node_lock_patched(node->lock, kube_answer_ok(answer), clock_now_ns());
    if (answer->status == 403)
        note_right(node->locks, false, answer->why);
    if (is_refused(answer) && !removes && first &&
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

    call->timeout_ms = REQUEST_MS;
    if (!call->path || kube_request(scheduler_of(node)->kube, call, fn, node, &node->running) < 0)
        fn(node, &failed);
}

/* NULL: the name is too long. */
static const char *node_path(const struct locked_node *node, const char *before, const char *behind,
                             char to[static KUBE_PATH_SIZE])
{
    char name[KUBE_PATH_SIZE - 128];

    if (!kube_escape(node->name, name, sizeof(name)))
        return NULL;
    (void)snprintf(to, KUBE_PATH_SIZE, "%s%s%s", before, name, behind);
    return to;
}

static void get_node(struct locked_node *node)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = node_path(node, "/api/v1/nodes/", "", path),
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
        .path = node_path(node, "/api/v1/pods?fieldSelector=spec.nodeName%3D",
                          "%2Cstatus.phase%3DPending", path),
    };

    locked_send(node, &call, on_pods);
}

static void patch_node(struct locked_node *node)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = node_path(node, "/api/v1/nodes/", "", path),
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

/* What is to be done next, and when to look again. */

static void give_turn(struct locked_node *node)
{
    struct lock_wait *first = node->queue;

    first->has_turn = true;
    first->on_turn(first);
}

static void on_timer(uv_timer_t *timer);

static void wake_at(struct locks *locks, int64_t until_ns)
{
    const int64_t ms = MAX((until_ns - clock_now_ns()) / NS_PER_MS, INT64_C(0)) + 1;

    uv_update_time(&locks->scheduler->loop);
    if (uv_is_active((uv_handle_t *)&locks->timer) &&
        uv_timer_get_due_in(&locks->timer) <= (uint64_t)ms)
        return;
    (void)uv_timer_start(&locks->timer, on_timer, (uint64_t)ms, 0);
}

static void advance_once(struct locked_node *node)
{
    int64_t until_ns = 0;

    switch (node_lock_step(node->lock, clock_now_ns(), &until_ns)) {
    case LOCK_REST:
        if (until_ns)
            wake_at(node->locks, until_ns);
        return;
    case LOCK_LIST_PODS:
        list_pods(node);
        return;
    case LOCK_GET_NODE:
        get_node(node);
        return;
    case LOCK_GET_POD:
        get_pod(node);
        return;
    case LOCK_PATCH:
        patch_node(node);
        return;
    case LOCK_BIND:
        give_turn(node);
        return;
    }
}

/* The first of the queue wants the turn as long as it does not have it. */
static void locks_advance(struct locked_node *node)
{
    struct lock_wait *first = node->queue;

    if (first && !first->has_turn && !node->lock->wanted && !node->lock->binding)
        node_lock_want(node->lock, &first->pod, &first->locks, clock_now_ns());
    if (node_lock_is_idle(node->lock))
        sleep_again(node);
    else
        advance_once(node);
}

static void advance_all(struct locks *locks)
{
    struct locked_node *node, *next;

    DL_FOREACH_SAFE2(locks->active, node, next, next_active)
    {
        locks_advance(node);
    }
}

static void on_timer(uv_timer_t *timer)
{
    advance_all(timer->data);
}

/* The queue. */

int locks_wait(struct locks *locks, struct lock_wait *wait, const char *name)
{
    struct locked_node *node = get_locked(locks, name);

    if (!node || !wake(node))
        return -ENOMEM;
    wait->node = node;
    wait->has_turn = false;
    DL_APPEND(node->queue, wait);
    wake_at(locks, clock_now_ns());
    return 0;
}

void locks_leave(struct lock_wait *wait, bool bound)
{
    struct locked_node *node = TAKE(wait->node);

    if (!node)
        return;
    if (wait->has_turn)
        node_lock_bound(node->lock, bound, clock_now_ns());
    else if (node->queue == wait)
        node_lock_give_up(node->lock, clock_now_ns());
    DL_DELETE(node->queue, wait);
    wait->has_turn = false;
    wake_at(node->locks, clock_now_ns());
}

const char *locks_holder(const struct lock_wait *wait, char *to, size_t size)
{
    const struct node_lock *lock = wait->node ? wait->node->lock : NULL;

    if (!lock || !lock->taken)
        (void)snprintf(to, size, "its lock could not be written in time");
    else if (!lock->turn.name[0])
        (void)snprintf(to, size, "it is locked, by whom is not known: \"%.64s\"", lock->found);
    else
        (void)snprintf(to, size, "it is locked for pod %.64s/%.256s", lock->turn.namespace,
                       lock->turn.name);
    return to;
}

/* The watches. */

static bool keep_found(struct locked_node *node, const char *key, const char *text)
{
    char *copy = strndup(text, FOUND_MAX);

    if (!copy)
        return false;
    node->found[node->found_count++] = (struct text_pair){key, copy};
    return true;
}

/* A lock that a watch showed is looked at while this scheduler decides. */
static void look_at_found(struct locked_node *node)
{
    const struct lock_set locks = cluster_node_locks(scheduler_of(node)->cluster, node->name);
    const struct node seen = {
        .name = node->name,
        .resource_version = "",
        .annotations = {node->found, node->found_count},
    };

    if (!leader_may_decide(scheduler_of(node)) || !node->locks->allowed)
        return;
    if (!node->lock && (!node->found_count || !locks.count || !wake(node)))
        return;
    node_lock_see_node(node->lock, &seen, &locks, clock_now_ns(), wall_ns());
    wake_at(node->locks, clock_now_ns());
}

void locks_see_node(struct locks *locks, const struct node *from)
{
    struct lock_set keys = cluster_node_locks(locks->scheduler->cluster, from->name);
    struct locked_node *node = find_locked(locks, from->name);
    bool any = false;

    if (!lock_set_is_written(&keys))
        keys.count = 0;
    for (size_t i = 0; i < keys.count; i++)
        any |= text_pairs_get(&from->annotations, keys.items[i]->key) != NULL;
    if (!node && any)
        node = get_locked(locks, from->name);
    if (!node)
        return;
    forget_found(node);
    for (size_t i = 0; i < keys.count; i++) {
        const char *text = text_pairs_get(&from->annotations, keys.items[i]->key);

        if (text)
            (void)keep_found(node, keys.items[i]->key, text);
    }
    if (!node->lock && !node->listed && !node->found_count)
        free_locked(node);
    else
        look_at_found(node);
}

bool locks_busy(const struct locks *locks)
{
    return locks->active != NULL;
}

void locks_see_pod(struct locks *locks, const struct pod *pod, bool deleted)
{
    const char *name = pod->has_spec ? pod->node_name : text_pairs_get(&pod->annotations, KEY_NODE);
    struct locked_node *node = name ? find_locked(locks, name) : NULL;

    if (!node || !node->lock)
        return;
    if (deleted)
        node_lock_see_deleted(node->lock, pod->uid);
    else
        node_lock_see_pod(node->lock, &locks->scheduler->vendors, pod, name, clock_now_ns());
    wake_at(locks, clock_now_ns());
}

/* Handshakes. */

static void on_greeted(void *data, const struct kube_answer *answer)
{
    struct locks *locks = data;

    if (kube_answer_ok(answer))
        return;
    if (answer->status == 403)
        note_right(locks, false, answer->why);
    log_warn("a node's handshake could not be written: %s", answer->why);
}

static void write_handshake(struct locks *locks, const struct cluster_handshake *handshake)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    const struct locked_node node = {.name = (char *)handshake->node};
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = node_path(&node, "/api/v1/nodes/", "", path),
        .content_type = KUBE_MERGE_PATCH,
        .accept = KUBE_METADATA_ONLY,
        .timeout_ms = REQUEST_MS,
    };

    strbuf_add(&patch, "{\"metadata\":{\"annotations\":{");
    strbuf_add_json(&patch, handshake->key);
    strbuf_add(&patch, ":");
    strbuf_add_json(&patch, handshake->value);
    strbuf_add(&patch, "}}}");
    if (!call.path || patch.failed)
        return;
    call.body = patch.text;
    call.body_len = patch.len;
    log_info("node %s: %s is \"%s\" now", handshake->node, handshake->key, handshake->value);
    (void)kube_request(locks->scheduler->kube, &call, on_greeted, locks, NULL);
}

static void look_at_handshakes(struct locks *locks)
{
    const bool may_write = locks->allowed && leader_may_decide(locks->scheduler);
    struct cluster_handshake writes[HANDSHAKES_MAX];
    size_t count;

    count = cluster_handshakes(locks->scheduler->cluster, clock_now_ns(), wall_ns(), writes,
                               may_write ? HANDSHAKES_MAX : 0);
    for (size_t i = 0; i < count; i++)
        write_handshake(locks, &writes[i]);
}

/* Rights. */

static void note_right(struct locks *locks, bool allowed, const char *why)
{
    struct scheduler *scheduler = locks->scheduler;

    locks->asked_ns = clock_now_ns();
    if (locks->known && locks->allowed == allowed)
        return;
    if (!allowed)
        log_warn("nodes may not be patched (deploy/other-agents.yaml), so nodes whose device "
                 "plugin waits for a lock have no devices: %s",
                 why);
    else if (locks->known)
        log_info("nodes may be patched now");
    locks->allowed = allowed;
    cluster_allow_locks(scheduler->cluster, allowed);
    if (locks->known && scheduler->nodes)
        kube_watch_list_again(scheduler->nodes);
    locks->known = true;
}

static void on_review(void *data, const struct kube_answer *answer)
{
    struct locks *locks = data;
    yyjson_doc *doc = read_answer(answer);
    yyjson_val *status = yyjson_obj_get(yyjson_doc_get_root(doc), "status");

    locks->asking = false;
    locks->asked_ns = clock_now_ns();
    if (doc)
        note_right(locks, yyjson_get_bool(yyjson_obj_get(status, "allowed")), "patch on nodes");
    else if (is_refused(answer))
        note_right(locks, false, answer->why);
    else
        log_warn("whether nodes may be patched can't be asked: %s", answer->why);
    yyjson_doc_free(doc);
}

static void ask_rights(struct locks *locks)
{
    const struct kube_call call = {
        .method = KUBE_POST,
        .path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        .body = question,
        .body_len = sizeof(question) - 1,
        .timeout_ms = REQUEST_MS,
    };

    locks->asked_ns = clock_now_ns();
    locks->asking = kube_request(locks->scheduler->kube, &call, on_review, locks, NULL) == 0;
}

/* The scheduler's tick wakes the loop each second at least. */
void locks_ask_rights(struct locks *locks)
{
    const int64_t pause_ns = (locks->known ? ASK_RIGHTS_S : 1) * NS_PER_S;
    const int64_t until_ns = clock_now_ns() + FIRST_ANSWER_S * NS_PER_S;

    do {
        if (!locks->asking && (!locks->asked_ns || clock_now_ns() - locks->asked_ns >= pause_ns))
            ask_rights(locks);
        if (!locks->known)
            (void)uv_run(&locks->scheduler->loop, UV_RUN_ONCE);
    } while (!locks->known && !locks->scheduler->stopping && clock_now_ns() < until_ns);
    if (!locks->known && !locks->scheduler->stopping)
        note_right(locks, false, "the API server does not say whether they may");
}

void locks_tick(struct locks *locks)
{
    struct locked_node *node, *next;

    HASH_ITER(hh, locks->nodes, node, next)
    {
        if (!node->lock && !cluster_knows_node(locks->scheduler->cluster, node->name))
            free_locked(node);
        else if (!node->lock && node->found_count)
            look_at_found(node);
    }
    look_at_handshakes(locks);
    if (locks->known && !locks->allowed)
        locks_ask_rights(locks);
}

/* Begin and end. */

struct locks *locks_new(struct scheduler *scheduler)
{
    struct locks *locks = calloc(1, sizeof(*locks));

    if (!locks)
        return NULL;
    locks->scheduler = scheduler;
    (void)uv_timer_init(&scheduler->loop, &locks->timer);
    locks->timer.data = locks;
    return locks;
}

void locks_reset(struct locks *locks)
{
    struct locked_node *node, *next;

    if (!locks)
        return;
    HASH_ITER(hh, locks->nodes, node, next)
    {
        kube_request_cancel(TAKE(node->running));
        node->listed = false;
        if (!node->lock)
            continue;
        node->lock->listed = false;
        sleep_again(node);
    }
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void locks_free(struct locks *locks)
{
    struct locked_node *node, *next;

    locks_reset(locks);
    if (!locks)
        return;
    HASH_ITER(hh, locks->nodes, node, next)
    {
        free_locked(node);
    }
    uv_close((uv_handle_t *)&locks->timer, on_closed);
}
