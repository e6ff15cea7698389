/* SPDX-License-Identifier: Apache-2.0 */

/* The API server's answer to a GET of a pod. */

#include <string.h>

#include "scheduler/binding.h"
#include "scheduler/scheduler.h"

static enum found judge_pod(const struct pod *pod, const char *uid)
{
    if (strcmp(pod->uid, uid) != 0 || pod_is_over(pod))
        return FOUND_NONE;
    return pod->node_name[0] ? FOUND_BOUND : FOUND_UNBOUND;
}

enum found read_found_pod(struct scheduler *scheduler, const struct kube_answer *answer,
                          const char *uid, struct pod *ret_pod)
{
    enum found found = FOUND_UNKNOWN;
    yyjson_doc *doc;

    if (binding_says_no_pod(answer))
        return FOUND_NONE;
    if (!kube_answer_ok(answer))
        return FOUND_UNKNOWN;
    doc = yyjson_read(answer->body, answer->len, 0);
    if (!doc)
        return FOUND_UNKNOWN;
    arena_reset(scheduler->object_arena);
    if (pod_read(yyjson_doc_get_root(doc), &scheduler->vendors.kept, scheduler->object_arena,
                 ret_pod, NULL) == 0)
        found = judge_pod(ret_pod, uid);
    yyjson_doc_free(doc);
    return found;
}
