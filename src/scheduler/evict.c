/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Evicts pods for a more important one, where devices alone are short (cluster/evict.h). The API
 * server's subresource pods/eviction is asked, which holds PodDisruptionBudgets; the pod that waits
 * is read from there before each step, since pods that wait are not watched.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "scheduler/binding.h"
#include "scheduler/scheduler.h"

enum {
    DUE_MAX = 8,
    EVICTION_MAX = 4096, /* bytes */
    EVICTION_MS = 5000,
    SAID_MAX = 512,
};

/* A request that is not answered yet. Strings are behind the struct. */
struct eviction_call {
    struct eviction_call *prev, *next; /* the scheduler's */
    struct scheduler *scheduler;
    struct cluster_pod_name pod;
    struct cluster_pod_name victim; /* of an eviction */
    bool trial;
    char on_victim[SAID_MAX], on_pod[SAID_MAX]; /* what is said of it when it is done */
};

static size_t size_of(const struct cluster_pod_name *name)
{
    return strlen(name->namespace) + strlen(name->name) + strlen(name->uid) + 3;
}

static const char *put_text(char **at, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *to = memcpy(*at, text, size);

    *at += size;
    return to;
}

static struct cluster_pod_name put_name(char **at, const struct cluster_pod_name *name)
{
    return (struct cluster_pod_name){put_text(at, name->namespace), put_text(at, name->name),
                                     put_text(at, name->uid)};
}

/* NULL: no memory. */
static struct eviction_call *call_new(struct scheduler *scheduler,
                                      const struct cluster_pod_name *pod,
                                      const struct cluster_pod_name *victim)
{
    struct eviction_call *call = calloc(1, sizeof(*call) + size_of(pod) + size_of(victim));
    char *at = call ? (char *)(call + 1) : NULL;

    if (!call)
        return NULL;
    call->scheduler = scheduler;
    call->pod = put_name(&at, pod);
    call->victim = put_name(&at, victim);
    DL_APPEND(scheduler->evictions, call);
    return call;
}

static void call_free(struct eviction_call *call)
{
    DL_DELETE(call->scheduler->evictions, call);
    free(call);
}

void evictions_abandon(struct scheduler *scheduler)
{
    struct eviction_call *call, *next;

    DL_FOREACH_SAFE(scheduler->evictions, call, next)
    {
        call_free(call);
    }
}

/* The eviction. */

/* In kube-apiserver's words (pkg/registry/core/pod/storage, eviction.go), the same since 1.28. */
static bool is_never_done(const struct kube_answer *answer)
{
    return answer->status == 429 || (answer->status == 500 && strstr(answer->why, "more than one "
                                                                                  "PodDisruption"));
}

static bool is_another(const struct kube_answer *answer)
{
    return answer->status == 409 && strstr(answer->why, "UID in precondition");
}

static enum cluster_evicted_end read_end(const struct kube_answer *answer)
{
    if (kube_answer_ok(answer) || binding_says_no_pod(answer) || is_another(answer))
        return CLUSTER_EVICTION_DONE;
    if (answer->error || answer->status == 408 || answer->status == 409)
        return CLUSTER_EVICTION_DOUBTFUL;
    if (is_never_done(answer) || answer->status < 500)
        return CLUSTER_EVICTION_REFUSED;
    return CLUSTER_EVICTION_DOUBTFUL;
}

static bool is_unsent(const struct kube_answer *answer)
{
    return answer->error == -ECONNREFUSED || answer->error == -EKEYREJECTED ||
           answer->error == -ECANCELED;
}

static void tell(struct scheduler *scheduler, const struct cluster_pod_name *pod,
                 const char *reason, const char *text)
{
    const struct event_pod who = {pod->namespace, pod->name, pod->uid, ""};

    events_warn(scheduler->events, &who, reason, 0, text);
}

static void say_refused(const struct eviction_call *call, const char *why)
{
    char text[SAID_MAX];

    (void)snprintf(text, sizeof(text),
                   "no room is made now: a pod of lower priority that holds the devices may not be "
                   "evicted: %s",
                   why);
    log_info("pod %s/%s: pod %s/%s may not be evicted for it: %s", call->pod.namespace,
             call->pod.name, call->victim.namespace, call->victim.name, why);
    tell(call->scheduler, &call->pod, "PreemptionRefused", text);
}

static void say_done(const struct eviction_call *call)
{
    log_info("pod %s/%s: evicted for pod %s/%s", call->victim.namespace, call->victim.name,
             call->pod.namespace, call->pod.name);
    tell(call->scheduler, &call->victim, "Preempted", call->on_victim);
    tell(call->scheduler, &call->pod, "Preempting", call->on_pod);
}

static void count_end(struct scheduler *scheduler, enum cluster_evicted_end end)
{
    scheduler->evictions_done += end == CLUSTER_EVICTION_DONE;
    scheduler->evictions_refused += end == CLUSTER_EVICTION_REFUSED;
    scheduler->evictions_unknown += end == CLUSTER_EVICTION_DOUBTFUL;
}

static void on_evicted(void *data, const struct kube_answer *answer)
{
    struct eviction_call *call = data;
    struct scheduler *scheduler = call->scheduler;
    const enum cluster_evicted_end end = read_end(answer);

    if (is_unsent(answer)) {
        cluster_evict_unknown(scheduler->cluster, call->pod.uid, clock_now_ns());
    } else {
        cluster_evicted(scheduler->cluster, call->pod.uid, call->victim.uid, end, call->trial,
                        clock_now_ns());
        if (!call->trial || end != CLUSTER_EVICTION_DONE)
            count_end(scheduler, end);
        if (end == CLUSTER_EVICTION_REFUSED)
            say_refused(call, answer->why);
        else if (end == CLUSTER_EVICTION_DOUBTFUL)
            log_warn("pod %s/%s: whether it was evicted is not known: %s", call->victim.namespace,
                     call->victim.name, answer->why);
        else if (!call->trial && kube_answer_ok(answer))
            say_done(call);
    }
    call_free(call);
    evictions_look(scheduler);
}

/* A lease that was lost meanwhile lets nothing go out. */
static bool may_send(void *data)
{
    const struct eviction_call *call = data;

    return leader_may_decide(call->scheduler);
}

static void write_eviction(struct strbuf *body, const struct eviction_call *call)
{
    strbuf_add(body, "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":");
    strbuf_add_json(body, call->victim.name);
    strbuf_add(body, ",\"namespace\":");
    strbuf_add_json(body, call->victim.namespace);
    strbuf_add(body, "},\"deleteOptions\":{\"preconditions\":{\"uid\":");
    strbuf_add_json(body, call->victim.uid);
    strbuf_add(body, call->trial ? "},\"dryRun\":[\"All\"]}}" : "}}}");
}

static void write_words(struct eviction_call *call, const struct pod *pod,
                        const struct cluster_eviction *eviction)
{
    (void)snprintf(call->on_victim, sizeof(call->on_victim),
                   "evicted from node %.256s for a pod of priority %d (uid %.64s), which needs its "
                   "devices; its own is %d. A PodDisruptionBudget or a PriorityClass protects pods",
                   eviction->node, pod->priority, pod->uid, eviction->victim_priority);
    (void)snprintf(call->on_pod, sizeof(call->on_pod),
                   "a pod of priority %d was evicted from node %.256s; its devices are kept for "
                   "this pod when it has ended",
                   eviction->victim_priority, eviction->node);
}

/* False: it can't be sent. */
static bool send_eviction(struct scheduler *scheduler, const struct pod *pod,
                          const struct cluster_eviction *eviction, bool trial)
{
    CLEANUP(strbuf_deinit) struct strbuf body = STRBUF_INIT(EVICTION_MAX);
    const struct cluster_pod_name name = {pod->namespace, pod->name, pod->uid};
    struct eviction_call *call = call_new(scheduler, &name, &eviction->victim);
    char path[KUBE_PATH_SIZE];
    struct kube_call request = {
        .method = KUBE_POST,
        .path = kube_pod_path(eviction->victim.namespace, eviction->victim.name, "/eviction", path),
        .timeout_ms = EVICTION_MS,
        .may_send = may_send,
    };

    if (!call)
        return false;
    call->trial = trial;
    write_words(call, pod, eviction);
    write_eviction(&body, call);
    request.body = body.text;
    request.body_len = body.len;
    if (request.path && !body.failed &&
        kube_request(scheduler->kube, &request, on_evicted, call, NULL) == 0)
        return true;
    call_free(call);
    return false;
}

/* The pod that waits. */

static void take_step(struct scheduler *scheduler, const struct pod *pod)
{
    const struct cluster_pod_name name = {pod->namespace, pod->name, pod->uid};
    struct cluster_eviction eviction;
    const int step =
        cluster_evict(scheduler->cluster, pod, clock_now_ns(), scheduler->request_arena, &eviction);
    const bool trial = step == CLUSTER_EVICT_TRY;

    if (step == CLUSTER_EVICT_FREE)
        requeue_now(scheduler, &name);
    else if ((trial || step == CLUSTER_EVICT) && !send_eviction(scheduler, pod, &eviction, trial))
        cluster_evict_unknown(scheduler->cluster, pod->uid, clock_now_ns());
    arena_reset(scheduler->request_arena);
}

static void on_waiting_pod(void *data, const struct kube_answer *answer)
{
    struct eviction_call *call = data;
    struct scheduler *scheduler = call->scheduler;
    struct pod pod;
    const enum found found = read_found_pod(scheduler, answer, call->pod.uid, &pod);

    if (found == FOUND_NONE || found == FOUND_BOUND || (found == FOUND_UNBOUND && pod.deleting))
        cluster_evict_over(scheduler->cluster, call->pod.uid);
    else if (found == FOUND_UNKNOWN || !leader_may_decide(scheduler))
        cluster_evict_unknown(scheduler->cluster, call->pod.uid, clock_now_ns());
    else
        take_step(scheduler, &pod);
    call_free(call);
}

static void look_at(struct scheduler *scheduler, const struct cluster_pod_name *pod)
{
    const struct cluster_pod_name nobody = {"", "", ""};
    struct eviction_call *call = call_new(scheduler, pod, &nobody);
    char path[KUBE_PATH_SIZE];
    const struct kube_call request = {
        .method = KUBE_GET,
        .path = kube_pod_path(pod->namespace, pod->name, "", path),
        .timeout_ms = EVICTION_MS,
    };

    if (call && request.path &&
        kube_request(scheduler->kube, &request, on_waiting_pod, call, NULL) == 0)
        return;
    if (call)
        call_free(call);
    cluster_evict_unknown(scheduler->cluster, pod->uid, clock_now_ns());
}

void evictions_look(struct scheduler *scheduler)
{
    struct cluster_eviction_due due[DUE_MAX];
    size_t count;

    if (!scheduler->options.evict_for_devices || scheduler->stopping ||
        !leader_may_decide(scheduler))
        return;
    count = cluster_evictions(scheduler->cluster, clock_now_ns(), scheduler->request_arena, due,
                              DUE_MAX);
    for (size_t i = 0; i < count; i++) {
        if (due[i].requeue)
            requeue_now(scheduler, &due[i].pod);
        else
            look_at(scheduler, &due[i].pod);
    }
    arena_reset(scheduler->request_arena);
}
