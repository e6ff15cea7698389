/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /preempt: kube-scheduler found victims whose eviction would make room for a pod, as far as it
 * counts. Where devices are short, too, more victims are added; where not even that would help, no
 * pod is evicted in vain.
 */

#include <errno.h>

#include "base/log.h"
#include "base/strbuf.h"
#include "scheduler/scheduler.h"

enum {
    ANSWER_MAX = 64 << 20,
};

static void preempt_answer(struct http_request *request, const struct preempt_args *args)
{
    struct strbuf body = STRBUF_INIT(ANSWER_MAX);

    wire_write_victims(&body, args);
    if (body.failed)
        http_answer(request, 503, HTTP_TEXT, "out of memory\n", 14);
    else
        http_answer_take(request, 200, HTTP_JSON, TAKE(body.text), body.len);
    strbuf_deinit(&body);
}

/* The verb's answer has no place for an error: kube-scheduler takes any other status for one. */
void handle_preempt(void *data, struct http_request *request)
{
    struct scheduler *scheduler = data;
    struct preempt_args args;
    struct error err = ERROR_INIT;
    yyjson_doc *doc;
    int r = -EINVAL;

    doc = read_body(scheduler, request, &err);
    if (doc)
        r = wire_read_preempt(yyjson_doc_get_root(doc), &scheduler->vendors.kept,
                              scheduler->request_arena, &args, &err);
    if (r == 0 && !leader_may_decide(scheduler))
        r = error_set(&err, -EAGAIN, "%s", leader_why_not(scheduler));
    if (r == 0)
        r = cluster_preempt(scheduler->cluster, &args.pod, args.victims, &args.count,
                            scheduler->request_arena, &err);
    if (r < 0) {
        log_warn("/preempt: %s", err.text);
        http_answer(request, 500, HTTP_TEXT, err.text, strlen(err.text));
    } else {
        log_info("pod %s/%s: pods may be evicted for it on %zu nodes", args.pod.namespace,
                 args.pod.name, args.count);
        preempt_answer(request, &args);
    }
    free_body(scheduler, doc);
    arena_reset(scheduler->request_arena);
}
