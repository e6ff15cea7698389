/* SPDX-License-Identifier: Apache-2.0 */

/*
 * kube-scheduler is told of pods that it overlooked: a condition of ours on the pod's status. Any
 * change of a pending pod that an extender refused puts it back into the queue (from Kubernetes
 * 1.32 on; before, such pods wait for the next pod that goes, or five minutes).
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    /* In a second: one that is placed then makes kube-scheduler try all others. */
    REMINDERS_MAX = 4,
    PATCH_MAX = 4096, /* bytes */
};

static void remind_of_next(struct scheduler *scheduler);

/* 422 is said of another uid: the pod was made anew under its name. */
static bool is_gone(const struct kube_answer *answer)
{
    return answer->status == 404 || answer->status == 422;
}

/* Pods that were deleted while they waited are found out here, and do not count. */
static void on_patched(void *data, const struct kube_answer *answer)
{
    struct scheduler *scheduler = data;

    if (kube_answer_ok(answer))
        scheduler->reminders++;
    else if (is_gone(answer))
        remind_of_next(scheduler);
    else
        log_warn("kube-scheduler could not be told of a pod for which there may be room now: %s",
                 answer->why);
}

/* The time makes it a change, however often it is written. */
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

static void remind_of(struct scheduler *scheduler, const struct cluster_refused *pod)
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
    log_debug("pod %s/%s: devices came free after it was refused; kube-scheduler is told",
              pod->namespace, pod->name);
    (void)kube_request(scheduler->kube, &call, on_patched, scheduler, NULL);
}

static void remind_of_next(struct scheduler *scheduler)
{
    struct cluster_refused pod;

    if (cluster_overlooked(scheduler->cluster, clock_now_ns(), scheduler->request_arena, &pod, 1))
        remind_of(scheduler, &pod);
    arena_reset(scheduler->request_arena);
}

void remind(struct scheduler *scheduler)
{
    for (unsigned i = 0; i < REMINDERS_MAX; i++)
        remind_of_next(scheduler);
}
