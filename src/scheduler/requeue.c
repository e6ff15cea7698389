/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes kube-scheduler requeue pods for which devices came free: writes a condition of ours to the
 * pod's status. Any change of a pending pod that an extender refused puts it back into the active
 * queue (from Kubernetes 1.32 on; before, such a pod waits until another pod goes, or five
 * minutes).
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    /* In a second: when one of them is placed, kube-scheduler tries all others by itself. */
    REQUEUES_MAX = 4,
    PATCH_MAX = 4096, /* bytes */
};

static void requeue_next(struct scheduler *scheduler);

/* 422 means another uid: the pod was made anew under its name. */
static bool is_gone(const struct kube_answer *answer)
{
    return answer->status == 404 || answer->status == 422;
}

/* A pod that was deleted while it waited does not count: the next one is requeued instead. */
static void on_patched(void *data, const struct kube_answer *answer)
{
    struct scheduler *scheduler = data;

    if (kube_answer_ok(answer))
        scheduler->requeues++;
    else if (is_gone(answer))
        requeue_next(scheduler);
    else
        log_warn("a pod for which there may be room now could not be requeued: %s", answer->why);
}

/* The time makes each patch a change of the pod, however often it is written. */
static void write_patch(struct strbuf *patch, const char *uid)
{
    char now[CLOCK_UTC_SIZE];

    strbuf_add(patch, "{\"metadata\":{\"uid\":");
    strbuf_add_json(patch, uid);
    strbuf_addf(patch,
                "},\"status\":{\"conditions\":[{\"type\":\"" CONDITION_DEVICES_FREED
                "\",\"status\":\"True\",\"lastTransitionTime\":\"%s\",\"reason\":\"DevicesFreed\","
                "\"message\":\"devices came free after the pod was refused\"}]}}",
                clock_format_utc(time(NULL), now));
}

static void requeue_pod(struct scheduler *scheduler, const struct cluster_pod_name *pod,
                        kube_answer_fn on_answer)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = kube_pod_path(pod->namespace, pod->name, "/status", path),
        .content_type = KUBE_STRATEGIC_PATCH,
    };

    write_patch(&patch, pod->uid);
    if (!call.path || patch.failed)
        return;
    call.body = patch.text;
    call.body_len = patch.len;
    log_debug("pod %s/%s: devices came free after it was refused; it is requeued", pod->namespace,
              pod->name);
    (void)kube_request(scheduler->kube, &call, on_answer, scheduler, NULL);
}

static void on_patched_alone(void *data, const struct kube_answer *answer)
{
    if (!is_gone(answer))
        on_patched(data, answer);
}

void requeue_now(struct scheduler *scheduler, const struct cluster_pod_name *pod)
{
    requeue_pod(scheduler, pod, on_patched_alone);
}

static void requeue_next(struct scheduler *scheduler)
{
    struct cluster_pod_name pod;

    if (cluster_requeue(scheduler->cluster, clock_now_ns(), scheduler->request_arena, &pod, 1))
        requeue_pod(scheduler, &pod, on_patched);
    arena_reset(scheduler->request_arena);
}

void requeue_pods(struct scheduler *scheduler)
{
    for (unsigned i = 0; i < REQUEUES_MAX; i++)
        requeue_next(scheduler);
}
