/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /filter: which node, and which devices there.
 *
 * kube-scheduler tries a refused pod again when it sees another pod deleted, and its request may
 * arrive a fraction of a millisecond before our watch reports the deletion. So a pod that would be
 * refused again, with nothing known to have come free, waits a moment for the watches; one pod at a
 * time, and a tenth of the time at most, since kube-scheduler asks about one pod after the other.
 */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

enum {
    ANSWER_MAX = 64 << 20,
    WAIT_MS = 5,
    WAIT_EVERY_MS = 50,
};

/* The buffer's text becomes the answer. */
static void filter_answer(struct http_request *request, struct strbuf *body)
{
    if (body->failed)
        http_answer(request, 503, HTTP_TEXT, "out of memory\n", 14);
    else
        http_answer_take(request, 200, HTTP_JSON, TAKE(body->text), body->len);
    strbuf_deinit(body);
}

/* The pod asks for no device: all nodes, or those on which it costs least. Nodes that were sent
 * whole go back whole, and all of them. */
static void answer_not_ours(struct http_request *request, const struct filter_args *args,
                            const struct cluster_answer *decision)
{
    struct strbuf body = STRBUF_INIT(ANSWER_MAX);

    if (args->nodes)
        wire_write_nodes(&body, args->wholes, args->count);
    else if (decision->kept)
        wire_write_names(&body, decision->kept, decision->kept_count);
    else
        wire_write_names(&body, args->names, args->count);
    filter_answer(request, &body);
}

/* All of the nodes that were named, or the one that is chosen. */
static void answer_nodes(struct http_request *request, const struct filter_args *args,
                         const char *chosen)
{
    struct strbuf body = STRBUF_INIT(ANSWER_MAX);
    size_t from = 0, count = args->count;

    if (chosen && args->nodes) {
        while (strcmp(args->names[from], chosen) != 0)
            from++;
        count = 1;
    }
    if (args->nodes)
        wire_write_nodes(&body, args->wholes + from, count);
    else if (chosen)
        wire_write_names(&body, &chosen, 1);
    else
        wire_write_names(&body, args->names, count);
    filter_answer(request, &body);
}

static void answer_refused(struct http_request *request, const struct cluster_answer *refusal)
{
    struct strbuf body = STRBUF_INIT(ANSWER_MAX);

    wire_write_failed(&body, refusal);
    filter_answer(request, &body);
}

static void tell_user(struct scheduler *scheduler, const struct pod *pod, const char *reason,
                      uint64_t kinds, const char *message)
{
    const struct event_pod who = {pod->namespace, pod->name, pod->uid, pod->resource_version};

    events_warn(scheduler->events, &who, reason, kinds, message);
}

/* Whether the nodes that were sent whole are those of the cluster: then a scheduler asks that is
 * not told of nodeCacheCapable, and a bind will follow. Else somebody tries what would be. */
static bool are_known(const struct scheduler *scheduler, const struct filter_args *args)
{
    for (size_t i = 0; i < args->count; i++) {
        if (!cluster_knows_node(scheduler->cluster, args->names[i]))
            return false;
    }
    return true;
}

static void answer_trial(struct scheduler *scheduler, struct http_request *request,
                         const struct filter_args *args)
{
    struct error err = ERROR_INIT;
    struct cluster_answer decision;
    int r = cluster_try(scheduler->cluster, &args->pod, args->nodes, args->count,
                        scheduler->request_arena, &decision, &err);

    if (r < 0)
        answer_error(request, err.text);
    else if (r == CLUSTER_REFUSED)
        answer_refused(request, &decision);
    else
        answer_nodes(request, args, r == CLUSTER_PLACED ? decision.node : NULL);
}

/* False: the pod is to wait, the request is not answered. */
static bool filter_decide(struct scheduler *scheduler, struct http_request *request,
                          const struct filter_args *args, bool may_wait)
{
    const struct pod *pod = &args->pod;
    struct error err = ERROR_INIT;
    struct cluster_answer decision;
    int r;

    work_note_policy(scheduler, pod);
    cluster_hold(scheduler->cluster,
                 leader_may_decide(scheduler) ? NULL : leader_why_not(scheduler));
    r = cluster_filter(scheduler->cluster, pod, args->names, args->count, clock_now_ns(),
                       scheduler->request_arena, &decision, &err);
    /* A pod that runs, or is about to, is asked about to see where it could go. */
    if (r == -EBUSY && args->nodes) {
        answer_trial(scheduler, request, args);
    } else if (r < 0) {
        scheduler->filters_failed++;
        log_warn("pod %s/%s: no decision: %s", pod->namespace, pod->name, err.text);
        answer_error(request, err.text);
    } else if (r == CLUSTER_NOT_OURS) {
        answer_not_ours(request, args, &decision);
    } else if (r == CLUSTER_PLACED) {
        scheduler->filters_placed++;
        events_forget(scheduler->events, pod->uid);
        scheduler->rooms_made += decision.room_made;
        log_info("pod %s/%s: node %s%s", pod->namespace, pod->name, decision.node,
                 decision.room_made ? ", where others were evicted for it" : "");
        answer_nodes(request, args, decision.node);
    } else if (decision.again && may_wait) {
        return false;
    } else {
        scheduler->filters_refused++;
        tell_user(scheduler, pod, "FilteringFailed", decision.reasons, decision.summary);
        log_debug("pod %s/%s: %s", pod->namespace, pod->name, decision.summary);
        answer_refused(request, &decision);
    }
    return true;
}

static bool filter_try(struct scheduler *scheduler, struct http_request *request, bool may_wait)
{
    struct filter_args args;
    struct error err = ERROR_INIT;
    bool answered = true;
    yyjson_doc *doc;

    doc = read_body(scheduler, request, &err);
    if (!doc || wire_read_filter(yyjson_doc_get_root(doc), &scheduler->vendors.kept,
                                 scheduler->request_arena, &args, &err) < 0) {
        scheduler->filters_failed++;
        log_warn("/filter: %s", err.text);
        answer_error(request, err.text);
    } else if (args.nodes && !are_known(scheduler, &args)) {
        answer_trial(scheduler, request, &args);
    } else {
        answered = filter_decide(scheduler, request, &args, may_wait);
    }
    free_body(scheduler, doc);
    arena_reset(scheduler->request_arena);
    return answered;
}

void filter_end_wait(struct scheduler *scheduler)
{
    uint64_t begun_ns = (uint64_t)clock_now_ns();

    if (!scheduler->waiting.request)
        return;
    (void)filter_try(scheduler, TAKE(scheduler->waiting.request), false);
    latency_note(&scheduler->filter, begun_ns);
}

static void on_waited(uv_timer_t *timer)
{
    filter_end_wait(timer->data);
}

/* A request that waits is counted and timed when its wait ends. The loop's time is updated, since
 * it is from before the decision. */
void handle_filter(void *data, struct http_request *request)
{
    struct scheduler *scheduler = data;
    struct waiting_filter *waiting = &scheduler->waiting;
    uint64_t begun_ns = (uint64_t)clock_now_ns();
    bool may_wait = !waiting->request && begun_ns - waiting->last_ns >= WAIT_EVERY_MS * NS_PER_MS;

    if (filter_try(scheduler, request, may_wait)) {
        latency_note(&scheduler->filter, begun_ns);
        return;
    }
    waiting->request = request;
    waiting->last_ns = begun_ns;
    uv_update_time(&scheduler->loop);
    (void)uv_timer_start(&waiting->until, on_waited, WAIT_MS, 0);
}
