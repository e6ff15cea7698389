/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bind's answer may arrive after the watch has shown the pod and its deletion, or after a list
 * that no longer has the pod. Such a pod would hold its devices until the next list, so it is read
 * by name.
 */

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/scheduler.h"

enum {
    ASKED_MAX = 16, /* in a second */
};

struct question {
    struct question *prev, *next; /* the scheduler's, not answered yet */
    struct scheduler *scheduler;
    char uid[];
};

static void unseen_on_pod(void *data, const struct kube_answer *answer)
{
    struct question *question = data;
    struct scheduler *scheduler = question->scheduler;
    struct pod pod;
    enum found found = read_found_pod(scheduler, answer, question->uid, &pod);

    if (found == FOUND_NONE || found == FOUND_UNBOUND) {
        log_info("pod of uid %s: bound, and gone before the watch showed it", question->uid);
        cluster_gone(scheduler->cluster, question->uid);
    }
    DL_DELETE(scheduler->questions, question);
    free(question);
}

/* On failure it is tried again half a minute later. */
static void ask_about(struct scheduler *scheduler, const struct cluster_pod_name *unseen)
{
    struct question *question = malloc(sizeof(*question) + strlen(unseen->uid) + 1);
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_GET,
        .path = kube_pod_path(unseen->namespace, unseen->name, "", path),
    };

    if (!question)
        return;
    question->scheduler = scheduler;
    strcpy(question->uid, unseen->uid);
    if (!call.path || kube_request(scheduler->kube, &call, unseen_on_pod, question, NULL) < 0)
        free(question);
    else
        DL_APPEND(scheduler->questions, question);
}

void ask_about_unseen(struct scheduler *scheduler)
{
    struct cluster_pod_name pods[ASKED_MAX];
    size_t count;

    count = cluster_unseen(scheduler->cluster, clock_now_ns(), scheduler->request_arena, pods,
                           ASKED_MAX);
    for (size_t i = 0; i < count; i++)
        ask_about(scheduler, &pods[i]);
    arena_reset(scheduler->request_arena);
}

void unseen_abandon(struct scheduler *scheduler)
{
    struct question *question, *next;

    DL_FOREACH_SAFE(scheduler->questions, question, next)
    {
        DL_DELETE(scheduler->questions, question);
        free(question);
    }
}
