/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whether pods' annotations can be trusted. On a cluster with the policies of deploy/policy.yaml
 * only we can write them, and reading the metadata of bound pods is enough. Elsewhere pods are read
 * whole, and their annotations are checked against node and spec. The policies that nothing here
 * rests on are asked for as well, so that it is said what their absence allows.
 */

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

#define BINDINGS "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"

static const struct policy {
    const char *path;
    bool is_needed;
    const char *without; /* what anybody can do then */
} policies[] = {
    {BINDINGS "hami-device-plugin", true, "pods are read whole"},
    {BINDINGS "hami-pod-grants", true, "pods are read whole"},
    {BINDINGS "hami-shares", false,
     "whoever may create pods can have a share placed past this scheduler"},
    {BINDINGS "hami-bindings", false,
     "whoever may bind pods in a namespace can have a share placed past this scheduler"},
};

struct policy_question {
    struct scheduler *scheduler;
    size_t asked; /* how many of them are known */
    bool in_force;
    struct kube_request *request; /* NULL: none waits for its answer */
    int64_t again_ns;             /* not before */
};

static void on_policy(void *data, const struct kube_answer *answer)
{
    struct policy_question *question = data;
    const struct policy *policy = &policies[question->asked];

    question->request = NULL;
    if (!kube_answer_ok(answer) && answer->status != 404 && answer->status != 403) {
        if (!kube_client_is_unreachable(question->scheduler->kube)) /* which has been said */
            log_warn("the admission policies can't be read: %s", answer->why);
        question->again_ns = clock_now_ns() + NS_PER_S;
        return;
    }
    question->asked++;
    if (kube_answer_ok(answer))
        return;
    question->in_force &= !policy->is_needed;
    log_warn("the policy %s of deploy/policy.yaml is not in force, so %s: %s",
             policy->path + strlen(BINDINGS), policy->without, answer->why);
}

static void ask_for_policy(struct policy_question *question)
{
    const struct kube_call call = {
        .method = KUBE_GET,
        .path = policies[question->asked].path,
        .accept = KUBE_METADATA_ONLY,
    };

    if (kube_request(question->scheduler->kube, &call, on_policy, question, &question->request) < 0)
        question->again_ns = clock_now_ns() + NS_PER_S;
}

/* The scheduler's tick wakes the loop each second at least. */
bool policies_in_force(struct scheduler *scheduler)
{
    struct policy_question question = {.scheduler = scheduler, .in_force = true};

    while (question.asked < ARRAY_SIZE(policies) && !scheduler->stopping) {
        if (!question.request && clock_now_ns() >= question.again_ns)
            ask_for_policy(&question);
        (void)uv_run(&scheduler->loop, UV_RUN_ONCE);
    }
    /* Where the scheduler is stopping. Its answer would be written to this call's frame. */
    kube_request_cancel(question.request);
    return question.in_force && question.asked == ARRAY_SIZE(policies);
}
