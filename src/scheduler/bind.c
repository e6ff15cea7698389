/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /bind: one write binds the pod and records what it was given, since the API server lays a
 * Binding's annotations over the pod. Where no answer came, it may still be carried out, even after
 * the pod was read and not bound: so it is sent again. The server binds a pod once, whichever comes
 * first, and what it says to the second holds. Till it is known the devices stay reserved.
 */

#include <errno.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    BINDING_MAX = 1 << 20,
    WHY_SIZE = 256,
    PAUSE_FIRST_MS = 50, /* before it is tried again; doubled each time */
    PAUSE_DOUBLINGS = 5,
    ANSWER_MS = 10000, /* from then on who asked is not kept waiting for certainty */
    LABEL_MAX = 63, /* a label's value; a node's name may be longer, then the label is left out */
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
    struct strbuf body;
    bool doubtful; /* no answer came to a try: it may still be carried out */
    char why[WHY_SIZE];
};

static void bind_free(struct bind *bind)
{
    strbuf_deinit(&bind->body);
    free(bind);
}

static void on_closed(uv_handle_t *handle)
{
    bind_free(handle->data);
}

static void end(struct bind *bind, enum cluster_bind_end how)
{
    struct scheduler *scheduler = bind->scheduler;

    cluster_bound(scheduler->cluster, bind->args.uid, how);
    DL_DELETE(scheduler->binds, bind);
    uv_close((uv_handle_t *)&bind->pause, on_closed);
    if (scheduler->stopping && !scheduler->binds)
        uv_stop(&scheduler->loop);
}

static void answer(struct bind *bind, const char *error)
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

static void read_pod(struct bind *bind);
static int post(struct bind *bind);

static void on_pause(uv_timer_t *timer)
{
    struct bind *bind = timer->data;

    bind->after_pause(bind);
}

static void pause_before(struct bind *bind, void (*what)(struct bind *bind))
{
    unsigned ms = PAUSE_FIRST_MS << MIN(bind->pauses, (unsigned)PAUSE_DOUBLINGS);

    if ((uint64_t)clock_now_ns() - bind->begun_ns > ANSWER_MS * (uint64_t)NS_PER_MS)
        answer(bind, bind->why);
    bind->pauses++;
    bind->after_pause = what;
    (void)uv_timer_start(&bind->pause, on_pause, ms, 0);
}

static void on_bound(struct bind *bind)
{
    log_info("pod %s/%s: bound to node %s", bind->args.namespace, bind->args.name, bind->args.node);
    answer(bind, "");
    end(bind, CLUSTER_BOUND);
}

static void on_not_bound(struct bind *bind)
{
    answer(bind, bind->why);
    end(bind, CLUSTER_NOT_BOUND);
}

/* Whether the pod is bound to our node; not when it does not exist any more, or is another. */
static int is_bound(const struct bind *bind, const struct kube_answer *answer, bool *ret_bound)
{
    yyjson_doc *doc;
    yyjson_val *root;

    *ret_bound = false;
    if (answer->error == 0 && answer->status == 404)
        return 0;
    if (!kube_answer_ok(answer))
        return -EAGAIN;
    doc = yyjson_read(answer->body, answer->len, 0);
    if (!doc)
        return -EAGAIN;
    root = yyjson_doc_get_root(doc);
    *ret_bound = strcmp(wire_text(wire_get(root, "metadata"), "uid"), bind->args.uid) == 0 &&
                 strcmp(wire_text(wire_get(root, "spec"), "nodeName"), bind->args.node) == 0;
    yyjson_doc_free(doc);
    return 0;
}

static void on_pod(void *data, const struct kube_answer *reply)
{
    struct bind *bind = data;
    bool bound;

    if (is_bound(bind, reply, &bound) < 0)
        pause_before(bind, read_pod);
    else if (bound)
        on_bound(bind);
    else
        on_not_bound(bind);
}

static void read_pod(struct bind *bind)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = kube_pod_path(bind->args.namespace, bind->args.name, "", path),
    };

    if (!call.path || kube_request(bind->scheduler->kube, &call, on_pod, bind, NULL) < 0)
        pause_before(bind, read_pod);
}

static void post_again(struct bind *bind)
{
    if (post(bind) < 0)
        pause_before(bind, post_again);
}

/* That it is bound already: a transport may have sent the Binding twice, and ours may be the first.
 */
#define CONFLICT 409

/* 502 and 504 are said by who is in between, or of what goes on. */
static bool is_silent(const struct kube_answer *reply)
{
    return reply->error || reply->status == 502 || reply->status == 504;
}

static void on_binding(void *data, const struct kube_answer *reply)
{
    struct bind *bind = data;

    if (kube_answer_ok(reply)) {
        on_bound(bind);
        return;
    }
    if (!bind->why[0])
        COPY_TEXT(bind->why, reply->why);
    bind->doubtful |= is_silent(reply);
    if (reply->status == 404)
        on_not_bound(bind);
    else if (bind->doubtful && (is_silent(reply) || reply->status >= 500 || reply->status == 429))
        pause_before(bind, post_again);
    else if (bind->doubtful || reply->status == CONFLICT || reply->status >= 500)
        read_pod(bind);
    else
        on_not_bound(bind);
}

static void write_binding(struct strbuf *body, const struct bind *bind,
                          const struct text_pairs *annotations)
{
    strbuf_add(body, "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":");
    strbuf_add_json(body, bind->args.name);
    strbuf_add(body, ",\"namespace\":");
    strbuf_add_json(body, bind->args.namespace);
    strbuf_add(body, ",\"uid\":");
    strbuf_add_json(body, bind->args.uid);
    if (annotations->count && strlen(bind->args.node) <= LABEL_MAX) {
        strbuf_add(body, ",\"labels\":{\"" KEY_NODE "\":");
        strbuf_add_json(body, bind->args.node);
        strbuf_add(body, "}");
    }
    strbuf_add(body, ",\"annotations\":{");
    for (size_t i = 0; i < annotations->count; i++) {
        strbuf_add(body, i ? "," : "");
        strbuf_add_json(body, annotations->items[i].key);
        strbuf_add(body, ":");
        strbuf_add_json(body, annotations->items[i].value);
    }
    strbuf_add(body, "}},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
    strbuf_add_json(body, bind->args.node);
    strbuf_add(body, "}}");
}

static int post(struct bind *bind)
{
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_POST,
        .path = kube_pod_path(bind->args.namespace, bind->args.name, "/binding", path),
        .body = strbuf_text(&bind->body),
        .body_len = bind->body.len,
    };

    if (bind->body.failed || !call.path)
        return -ENOMEM;
    return kube_request(bind->scheduler->kube, &call, on_binding, bind, NULL);
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

static int begin(struct scheduler *scheduler, struct bind *bind, struct error *err)
{
    const struct cluster_bind what = {bind->args.namespace, bind->args.name, bind->args.uid,
                                      bind->args.node};
    struct text_pairs annotations;
    int r;

    if (scheduler->stopping)
        return error_set(err, -ESHUTDOWN, "the scheduler is stopping");
    r = cluster_bind(scheduler->cluster, &what, clock_now_ns(), (int64_t)time(NULL),
                     scheduler->request_arena, &annotations, err);
    if (r < 0)
        return r;
    write_binding(&bind->body, bind, &annotations);
    r = post(bind);
    arena_reset(scheduler->request_arena);
    if (r < 0) {
        cluster_bound(scheduler->cluster, bind->args.uid, CLUSTER_NOT_BOUND);
        return error_set(err, r, "the binding could not be sent");
    }
    return 0;
}

/* Of no pod that could be named, so there is no event. */
static void refuse(struct scheduler *scheduler, struct http_request *request, const char *why)
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
        refuse(scheduler, request, "out of memory");
        return;
    }
    bind->scheduler = scheduler;
    bind->request = request;
    bind->body = (struct strbuf)STRBUF_INIT(BINDING_MAX);
    bind->begun_ns = (uint64_t)clock_now_ns();
    if (read_arguments(scheduler, request, &bind->args, &err) < 0) {
        refuse(scheduler, request, err.text);
        bind_free(bind);
        return;
    }
    if (begin(scheduler, bind, &err) < 0) {
        answer(bind, err.text);
        bind_free(bind);
        return;
    }
    DL_APPEND(scheduler->binds, bind);
    (void)uv_timer_init(&scheduler->loop, &bind->pause);
    bind->pause.data = bind;
}

void binds_abandon(struct scheduler *scheduler)
{
    struct bind *bind, *next;

    DL_FOREACH_SAFE(scheduler->binds, bind, next)
    {
        log_warn("pod %s/%s: its bind to node %s is left alone", bind->args.namespace,
                 bind->args.name, bind->args.node);
        answer(bind, "the scheduler is stopping");
        DL_DELETE(scheduler->binds, bind);
        uv_close((uv_handle_t *)&bind->pause, on_closed);
    }
}
