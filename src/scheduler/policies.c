/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether pods' annotations can be trusted. On a cluster with the policies of deploy/policy.yaml
 * only we can write them, and reading the metadata of bound pods is enough. Elsewhere pods are read
 * whole, and their annotations are checked against node and spec.
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
    size_t asked; /* how many of the paths exist */
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

/* The scheduler's tick wakes the loop each second at least. */
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
