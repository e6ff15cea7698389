/* SPDX-License-Identifier: Apache-2.0 */

/* Whether nodes may be patched (deploy/other-agents.yaml). */

#include "base/log.h"
#include "base/util.h"
#include "scheduler/lock_rooms.h"
#include "scheduler/scheduler.h"

enum {
    ASK_RIGHTS_S = 30,
    ASK_UNANSWERED_S = 5,
    FIRST_ANSWER_S = 10, /* for which the start waits */
};

static const char question[] =
    "{\"apiVersion\":\"authorization.k8s.io/v1\","
    "\"kind\":\"SelfSubjectAccessReview\",\"spec\":{"
    "\"resourceAttributes\":{\"verb\":\"patch\",\"resource\":\"nodes\"}}}";

void rights_note(struct locks *locks, bool allowed, const char *why)
{
    struct scheduler *scheduler = locks->scheduler;

    locks->asked_ns = clock_now_ns();
    if (locks->known && !locks->assumed && locks->allowed == allowed)
        return;
    locks->assumed = false;
    if (!allowed)
        log_warn("nodes may not be patched (deploy/other-agents.yaml), so nodes whose device "
                 "plugin waits for a lock have no devices: %s",
                 why);
    else if (locks->known)
        log_info("nodes may be patched now");
    locks->allowed = allowed;
    cluster_allow_locks(scheduler->cluster, allowed);
    if (locks->known && scheduler->nodes)
        kube_watch_list_again(scheduler->nodes);
    locks->known = true;
}

static void on_review(void *data, const struct kube_answer *answer)
{
    struct locks *locks = data;
    yyjson_doc *doc = lock_read_answer(answer);
    yyjson_val *status = yyjson_obj_get(yyjson_doc_get_root(doc), "status");

    locks->asking = false;
    locks->asked_ns = clock_now_ns();
    if (doc)
        rights_note(locks, yyjson_get_bool(yyjson_obj_get(status, "allowed")), "patch on nodes");
    else if (lock_is_refused(answer))
        rights_note(locks, false, answer->why);
    else if (!kube_client_is_unreachable(locks->scheduler->kube)) /* which has been said */
        log_warn("whether nodes may be patched can't be asked: %s", answer->why);
    yyjson_doc_free(doc);
}

static void ask_rights(struct locks *locks)
{
    const struct kube_call call = {
        .method = KUBE_POST,
        .path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        .body = question,
        .body_len = sizeof(question) - 1,
        .timeout_ms = LOCK_REQUEST_MS,
    };

    locks->asked_ns = clock_now_ns();
    locks->asking = kube_request(locks->scheduler->kube, &call, on_review, locks, NULL) == 0;
}

/* The start goes on without an answer, which on_review() gets at last. */
static void assume_none(struct locks *locks)
{
    log_warn("until the API server says whether nodes may be patched, nodes whose device plugin "
             "waits for a lock have no devices");
    locks->known = locks->assumed = true;
    cluster_allow_locks(locks->scheduler->cluster, false);
}

static int pause_s(const struct locks *locks)
{
    if (!locks->known)
        return 1;
    return locks->assumed ? ASK_UNANSWERED_S : ASK_RIGHTS_S;
}

/* The scheduler's tick wakes the loop each second at least. */
void locks_ask_rights(struct locks *locks)
{
    const int64_t pause_ns = pause_s(locks) * NS_PER_S;
    const int64_t until_ns = clock_now_ns() + FIRST_ANSWER_S * NS_PER_S;

    do {
        if (!locks->asking && (!locks->asked_ns || clock_now_ns() - locks->asked_ns >= pause_ns))
            ask_rights(locks);
        if (!locks->known)
            (void)uv_run(&locks->scheduler->loop, UV_RUN_ONCE);
    } while (!locks->known && !locks->scheduler->stopping && clock_now_ns() < until_ns);
    if (!locks->known && !locks->scheduler->stopping)
        assume_none(locks);
}
