/* SPDX-License-Identifier: Apache-2.0 */

/* /webhook: completes pods for us, or denies them, as they are created. */

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/scheduler.h"

static int find_bounds(const void *data, const char *namespace, struct arena *arena,
                       const struct place_budget **ret_bounds, size_t *ret_count)
{
    return cluster_quota_bounds(data, namespace, arena, ret_bounds, ret_count);
}

void handle_webhook(void *data, struct http_request *request)
{
    struct scheduler *scheduler = data;
    const struct admit_options options = {
        .scheduler_name = scheduler->options.scheduler_name,
        .overwrite_default_scheduler = scheduler->options.overwrite_default_scheduler,
        .find_bounds = find_bounds,
        .data = scheduler->cluster,
    };
    uint64_t begun = (uint64_t)clock_now_ns();
    struct error err = ERROR_INIT;
    const char *body, *answer;
    size_t len, answer_len;

    body = http_request_body(request, &len);
    if (admit_review(&options, &scheduler->vendors, body, len, scheduler->webhook_arena, &answer,
                     &answer_len, &err) < 0) {
        log_warn("/webhook: %s", err.text);
        http_answer(request, 400, HTTP_TEXT, err.text, strlen(err.text));
    } else {
        http_answer(request, 200, HTTP_JSON, answer, answer_len);
    }
    arena_reset(scheduler->webhook_arena);
    latency_note(&scheduler->webhook, begun);
}
