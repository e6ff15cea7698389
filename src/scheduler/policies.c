/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether what a pod's annotations say can be believed. Where the cluster has the policies of
 * deploy/policy.yaml nobody but us writes them, and metadata are all that is read of bound pods.
 * Elsewhere they are read whole, and held against what runs where and what it asks for.
 */

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

#define BINDINGS "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"

static const char *const paths[] = {BINDINGS "hami-device-plugin", BINDINGS "hami-pod-grants"};

struct policy_question {
    struct scheduler *scheduler;
    size_t asked; /* of paths: how many there are */
    bool known, in_force, waiting;
    int64_t again_ns; /* not before */
};

static void on_policy(void *data, const struct kube_answer *answer)
{
    struct policy_question *question = data;

    question->waiting = false;
    if (kube_answer_ok(answer)) {
        question->asked++;
        question->known = question->in_force = question->asked == ARRAY_SIZE(paths);
    } else if (answer->status == 404 || answer->status == 403) {
        question->known = true;
        log_warn("the policies of deploy/policy.yaml are not in force, so pods are read whole: %s",
                 answer->why);
    } else {
        log_warn("the admission policies can't be read: %s", answer->why);
        question->again_ns = clock_now_ns() + NS_PER_S;
    }
}

static void ask_for_policy(struct policy_question *question)
{
    const struct kube_call call = {
        .method = KUBE_GET,
        .path = paths[question->asked],
        .accept = KUBE_METADATA_ONLY,
    };

    if (kube_request(question->scheduler->kube, &call, on_policy, question, NULL) == 0)
        question->waiting = true;
    else
        question->again_ns = clock_now_ns() + NS_PER_S;
}

/* The loop's tick wakes it each second at least. */
bool policies_in_force(struct scheduler *scheduler)
{
    struct policy_question question = {.scheduler = scheduler};

    while (!question.known && !scheduler->stopping) {
        if (!question.waiting && clock_now_ns() >= question.again_ns)
            ask_for_policy(&question);
        (void)uv_run(&scheduler->loop, UV_RUN_ONCE);
    }
    return question.in_force;
}
