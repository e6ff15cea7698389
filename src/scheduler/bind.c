/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /bind: one write binds the pod and records its grant, since the API server lays a Binding's
 * annotations over the pod. After an answer that is not certain (binding.h) the Binding may still
 * be carried out, even after the pod was read and had no node. So the pod is read, and as long as
 * it has no node the Binding is sent again: the server binds a pod once, whichever try comes first,
 * and its answer then is certain. Until the end is known the devices stay reserved.
 *
 * On a node whose agents wait for a lock, the bind first waits for the node's turn (locks.h).
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/binding.h"
#include "scheduler/scheduler.h"

enum {
    BINDING_MAX = 1 << 20,
    WHY_SIZE = 256,
    PAUSE_FIRST_MS = 50, /* before the first retry; doubled each time */
    PAUSE_MAX_MS = 1600,
    ANSWER_MS = 10000, /* then the caller gets an answer, even if the end is unknown */
    TURN_MS = 8000,    /* so long a bind waits for a node's turn; then kube-scheduler tries again */
    RETRY_AFTER_MAX_S = 30,
    GRACE_MS = 2000, /* for the answer's way back, beyond the server's own time */
};

struct bind {
    struct bind *prev, *next;
    struct scheduler *scheduler;
    struct http_request *request; /* NULL: answered */
    uint64_t begun_ns;
    uv_timer_t pause;
    void (*after_pause)(struct bind *bind);
    unsigned pauses;
    struct bind_args args;
    struct lock_wait turn; /* of the node, if it has turns */
    struct strbuf body;
    struct kube_request *running; /* NULL: none */
    bool doubtful;                /* a try may still be carried out */
    char why[WHY_SIZE];
};

static void bind_free(struct bind *bind)
{
    strbuf_deinit(&bind->body);
    free(bind);
}

static void bind_on_closed(uv_handle_t *handle)
{
    bind_free(handle->data);
}

static void bind_end(struct bind *bind, enum cluster_bind_end how)
{
    struct scheduler *scheduler = bind->scheduler;

    cluster_bound(scheduler->cluster, bind->args.uid, how, clock_now_ns());
    locks_leave(&bind->turn, how != CLUSTER_NOT_BOUND);
    DL_DELETE(scheduler->binds, bind);
    uv_close((uv_handle_t *)&bind->pause, bind_on_closed);
}

static void bind_answer(struct bind *bind, const char *error)
{
    struct scheduler *scheduler = bind->scheduler;

    if (!bind->request)
        return;
    answer_error(bind->request, error);
    bind->request = NULL;
    latency_note(&scheduler->bind, bind->begun_ns);
    if (!error[0]) {
        scheduler->binds_done++;
        return;
    }
    scheduler->binds_failed++;
    log_warn("pod %s/%s: not bound to node %s: %s", bind->args.namespace, bind->args.name,
             bind->args.node, error);
    events_warn(scheduler->events,
                &(struct event_pod){bind->args.namespace, bind->args.name, bind->args.uid, ""},
                "BindingFailed", 1, error);
}

static void bind_read_pod(struct bind *bind);
static void bind_post_again(struct bind *bind);

static void on_pause(uv_timer_t *timer)
{
    struct bind *bind = timer->data;

    bind->after_pause(bind);
}

/* Never empty: an empty text means that the pod is bound. */
static const char *why_of(const struct bind *bind)
{
    return bind->why[0] ? bind->why : "the pod could not be bound";
}

static bool is_overdue(const struct bind *bind)
{
    return (uint64_t)clock_now_ns() - bind->begun_ns > ANSWER_MS * (uint64_t)NS_PER_MS;
}

static void pause_before(struct bind *bind, void (*what)(struct bind *bind), unsigned at_least_s)
{
    unsigned ms = backoff_ms(bind->pauses, PAUSE_FIRST_MS, PAUSE_MAX_MS);

    if (is_overdue(bind))
        bind_answer(bind, why_of(bind));
    bind->pauses++;
    bind->after_pause = what;
    (void)uv_timer_start(&bind->pause, on_pause, MAX(ms, at_least_s * 1000), 0);
}

static void on_bound(struct bind *bind, enum cluster_bind_end how)
{
    log_info("pod %s/%s: bound to node %s", bind->args.namespace, bind->args.name, bind->args.node);
    bind_answer(bind, "");
    bind_end(bind, how);
}

static void on_not_bound(struct bind *bind, enum cluster_bind_end how)
{
    bind_answer(bind, why_of(bind));
    bind_end(bind, how);
}

/* The pod has a node: the cluster takes over its annotations. */
static void on_assigned(struct bind *bind, const struct pod *pod)
{
    struct error err = ERROR_INIT;
    bool ours;

    if (cluster_found(bind->scheduler->cluster, pod, clock_now_ns(), &ours, &err) == -ENOMEM)
        pause_before(bind, bind_read_pod, 0);
    else if (ours)
        on_bound(bind, CLUSTER_UNKNOWN);
    else
        on_not_bound(bind, CLUSTER_UNKNOWN);
}

static void bind_on_pod(void *data, const struct kube_answer *reply)
{
    struct bind *bind = data;
    struct pod pod;

    bind->running = NULL;
    switch (read_found_pod(bind->scheduler, reply, bind->args.uid, &pod)) {
    case FOUND_NONE:
        on_not_bound(bind, CLUSTER_NOT_BOUND);
        return;
    case FOUND_BOUND:
        on_assigned(bind, &pod);
        return;
    case FOUND_UNBOUND:
        /* A pod that is being deleted will never be bound. */
        if (pod.deleting)
            on_not_bound(bind, CLUSTER_NOT_BOUND);
        else
            pause_before(bind, bind_post_again, 0);
        return;
    case FOUND_UNKNOWN:
        pause_before(bind, bind_read_pod, 0);
        return;
    }
}

static void bind_read_pod(struct bind *bind)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = kube_pod_path(bind->args.namespace, bind->args.name, "", path),
    };

    if (!call.path ||
        kube_request(bind->scheduler->kube, &call, bind_on_pod, bind, &bind->running) < 0)
        pause_before(bind, bind_read_pod, 0);
}

static void on_refused(struct bind *bind)
{
    if (bind->doubtful)
        pause_before(bind, bind_read_pod, 0);
    else
        on_not_bound(bind, CLUSTER_NOT_BOUND);
}

/* No earlier try is doubtful, so we may give up after a while. */
static void on_asked_to_wait(struct bind *bind, unsigned retry_after_s)
{
    if (is_overdue(bind))
        on_not_bound(bind, CLUSTER_NOT_BOUND);
    else
        pause_before(bind, bind_post_again, MIN(retry_after_s, (unsigned)RETRY_AFTER_MAX_S));
}

static void on_binding(void *data, const struct kube_answer *reply)
{
    struct bind *bind = data;
    enum binding_end how = binding_read(reply);

    bind->running = NULL;
    if (reply->error == -ECANCELED && !bind->why[0])
        COPY_TEXT(bind->why, leader_why_not(bind->scheduler));
    if (how != BINDING_DONE && !bind->why[0])
        COPY_TEXT(bind->why, reply->why);
    bind->doubtful |= how == BINDING_DOUBTFUL;
    switch (how) {
    case BINDING_DONE:
        on_bound(bind, CLUSTER_BOUND);
        return;
    case BINDING_NEVER:
        on_not_bound(bind, CLUSTER_NOT_BOUND);
        return;
    case BINDING_ASSIGNED:
        bind_read_pod(bind);
        return;
    case BINDING_REFUSED:
        on_refused(bind);
        return;
    case BINDING_LATER:
        if (!bind->doubtful) {
            on_asked_to_wait(bind, reply->retry_after_s);
            return;
        }
        pause_before(bind, bind_read_pod, MIN(reply->retry_after_s, (unsigned)RETRY_AFTER_MAX_S));
        return;
    case BINDING_DOUBTFUL:
        pause_before(bind, bind_read_pod, 0);
        return;
    }
}

static bool may_send(void *data)
{
    const struct bind *bind = data;

    return leader_may_decide(bind->scheduler);
}

/* The server gives up within the time that a next leader waits (term.h), and we soon after it. */
static int bind_post(struct bind *bind)
{
    unsigned timeout_ms = bind->scheduler->options.bind_timeout_ms;
    char part[64], path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_POST,
        .body = strbuf_text(&bind->body),
        .body_len = bind->body.len,
        .timeout_ms = timeout_ms + GRACE_MS,
        .may_send = may_send,
    };

    (void)snprintf(part, sizeof(part), "/binding?timeout=%ums", timeout_ms);
    call.path = kube_pod_path(bind->args.namespace, bind->args.name, part, path);
    if (bind->body.failed || !call.path)
        return -ENOMEM;
    return kube_request(bind->scheduler->kube, &call, on_binding, bind, &bind->running);
}

static void bind_post_again(struct bind *bind)
{
    if (bind_post(bind) < 0)
        pause_before(bind, bind_post_again, 0);
}

/* The turn of a node whose agents wait for a lock. */

static struct bind *bind_of(struct lock_wait *turn)
{
    return (struct bind *)((char *)turn - offsetof(struct bind, turn));
}

static void on_turn(struct lock_wait *turn)
{
    struct bind *bind = bind_of(turn);

    (void)uv_timer_stop(&bind->pause);
    bind_post_again(bind);
}

static void on_turn_refused(struct lock_wait *turn, const char *why)
{
    struct bind *bind = bind_of(turn);

    (void)snprintf(bind->why, sizeof(bind->why), "node %.64s could not be locked: %s",
                   bind->args.node, why);
    on_not_bound(bind, CLUSTER_NOT_BOUND);
}

static void on_no_turn(struct bind *bind)
{
    char holder[384];

    (void)snprintf(bind->why, sizeof(bind->why), "node %.64s is not free to bind to: %.160s",
                   bind->args.node, locks_holder(&bind->turn, holder, sizeof(holder)));
    on_not_bound(bind, CLUSTER_NOT_BOUND);
}

static int wait_for_turn(struct bind *bind)
{
    struct lock_wait *turn = &bind->turn;

    COPY_TEXT(turn->pod.namespace, bind->args.namespace);
    COPY_TEXT(turn->pod.name, bind->args.name);
    COPY_TEXT(turn->pod.uid, bind->args.uid);
    turn->on_turn = on_turn;
    turn->on_refused = on_turn_refused;
    bind->after_pause = on_no_turn;
    (void)uv_timer_start(&bind->pause, on_pause, TURN_MS, 0);
    return locks_wait(bind->scheduler->locks, turn, bind->args.node);
}

static int read_arguments(struct scheduler *scheduler, struct http_request *request,
                          struct bind_args *args, struct error *err)
{
    yyjson_doc *doc = read_body(scheduler, request, err);
    int r = -EINVAL;

    if (doc)
        r = wire_read_bind(yyjson_doc_get_root(doc), args, err);
    free_body(scheduler, doc);
    return r;
}

static int bind_begin(struct scheduler *scheduler, struct bind *bind, struct error *err)
{
    const struct cluster_bind what = {bind->args.namespace, bind->args.name, bind->args.uid,
                                      bind->args.node};
    struct text_pairs annotations;
    int r;

    if (scheduler->stopping)
        return error_set(err, -ESHUTDOWN, "the scheduler is stopping");
    if (!leader_may_decide(scheduler))
        return error_set(err, -EAGAIN, "%s", leader_why_not(scheduler));
    r = cluster_bind(scheduler->cluster, &what, clock_now_ns(), clock_read_ns(CLOCK_REALTIME),
                     scheduler->request_arena, &annotations, err);
    if (r < 0)
        return r;
    binding_write(&bind->body, &bind->args, &annotations);
    bind->turn.locks = cluster_pod_locks(scheduler->cluster, bind->args.uid);
    r = bind->turn.locks.count ? wait_for_turn(bind) : bind_post(bind);
    arena_reset(scheduler->request_arena);
    if (r < 0) {
        cluster_bound(scheduler->cluster, bind->args.uid, CLUSTER_NOT_BOUND, clock_now_ns());
        return error_set(err, r, "the binding could not be sent");
    }
    return 0;
}

/* The request names no pod, so there is no event. */
static void bind_refuse(struct scheduler *scheduler, struct http_request *request, const char *why)
{
    scheduler->binds_failed++;
    log_warn("/bind: %s", why);
    answer_error(request, why);
}

void handle_bind(void *data, struct http_request *request)
{
    struct scheduler *scheduler = data;
    struct bind *bind = calloc(1, sizeof(*bind));
    struct error err = ERROR_INIT;

    if (!bind) {
        bind_refuse(scheduler, request, "out of memory");
        return;
    }
    bind->scheduler = scheduler;
    bind->request = request;
    bind->body = (struct strbuf)STRBUF_INIT(BINDING_MAX);
    bind->begun_ns = (uint64_t)clock_now_ns();
    if (read_arguments(scheduler, request, &bind->args, &err) < 0) {
        bind_refuse(scheduler, request, err.text);
        bind_free(bind);
        return;
    }
    (void)uv_timer_init(&scheduler->loop, &bind->pause);
    bind->pause.data = bind;
    if (bind_begin(scheduler, bind, &err) < 0) {
        bind_answer(bind, err.text);
        uv_close((uv_handle_t *)&bind->pause, bind_on_closed);
        return;
    }
    DL_APPEND(scheduler->binds, bind);
}

static void leave_all(struct scheduler *scheduler, const char *why)
{
    struct bind *bind, *next;

    DL_FOREACH_SAFE(scheduler->binds, bind, next)
    {
        log_warn("pod %s/%s: its bind to node %s is left alone", bind->args.namespace,
                 bind->args.name, bind->args.node);
        kube_request_cancel(TAKE(bind->running));
        locks_leave(&bind->turn, true);
        bind_answer(bind, why);
        DL_DELETE(scheduler->binds, bind);
        uv_close((uv_handle_t *)&bind->pause, bind_on_closed);
    }
    locks_reset(scheduler->locks);
}

void binds_abandon(struct scheduler *scheduler)
{
    leave_all(scheduler, "the scheduler is stopping");
}

void binds_lose(struct scheduler *scheduler)
{
    leave_all(scheduler, "this scheduler is no longer the leader");
}
