/* SPDX-License-Identifier: Apache-2.0 */

/*
 * kube-scheduler is told of pods that it overlooked: a condition of ours on the pod's status. Any
 * change of a pending pod that an extender refused puts it back into the queue (from Kubernetes
 * 1.32 on; before, such pods wait for the next pod that goes, or five minutes).
 */

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    PODS_MAX = 10,    /* at a time; one that is placed then makes kube-scheduler try all others */
    PATCH_MAX = 4096, /* bytes */
};

static void on_patched(void *data, const struct kube_answer *answer)
{
    (void)data;
    if (!kube_answer_ok(answer) && answer->status != 404 && answer->status != 409)
        log_warn("kube-scheduler could not be told of a pod for which there may be room now: %s",
                 answer->why);
}

static void write_patch(struct strbuf *patch, const char *uid)
{
    time_t seconds = time(NULL);
    struct tm utc;
    char now[32];

    (void)strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    strbuf_add(patch, "{\"metadata\":{\"uid\":");
    strbuf_add_json(patch, uid);
    strbuf_addf(patch,
                "},\"status\":{\"conditions\":[{\"type\":\"" CONDITION_DEVICES_FREED
                "\",\"status\":\"True\",\"lastTransitionTime\":\"%s\",\"reason\":\"DevicesFreed\","
                "\"message\":\"devices came free after the pod was refused\"}]}}",
                now);
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
    log_info("pod %s/%s: devices came free after it was refused; kube-scheduler is told",
             pod->namespace, pod->name);
    scheduler->reminders++;
    (void)kube_request(scheduler->kube, &call, on_patched, NULL, NULL);
}

void remind(struct scheduler *scheduler)
{
    struct cluster_refused pods[PODS_MAX];
    size_t count;

    count = cluster_overlooked(scheduler->cluster, clock_now_ns(), scheduler->request_arena, pods,
                               ARRAY_SIZE(pods));
    for (size_t i = 0; i < count; i++)
        remind_of(scheduler, &pods[i]);
    arena_reset(scheduler->request_arena);
}
