/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/notice.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"

enum {
    NOTICE_MAX = 8192,
    MESSAGE_MAX = 1024, /* Kubernetes' bound */
};

static void notice_on_written(void *data, const struct kube_answer *answer)
{
    (void)data;
    if (!kube_answer_ok(answer))
        log_warn("an event could not be written: %s", answer->why);
}

static void add_field(struct strbuf *body, const char *name, const char *value)
{
    strbuf_addf(body, "\"%s\":", name);
    strbuf_add_json(body, value);
    strbuf_add(body, ",");
}

/* Events of objects without a namespace are in "default", where kubectl looks for them. */
static const char *namespace_of(const struct notice *notice)
{
    return notice->namespace[0] ? notice->namespace : "default";
}

static void write_body(struct strbuf *body, const struct notice *notice)
{
    static uint64_t written; /* makes names differ; events are written by the loop's thread */
    char name[320], now[CLOCK_UTC_SIZE], cut[MESSAGE_MAX];
    time_t seconds = time(NULL);

    (void)clock_format_utc(seconds, now);
    (void)snprintf(name, sizeof(name), "%.220s.%" PRIx64 "%08" PRIx64, notice->name,
                   (uint64_t)seconds, ++written);
    COPY_TEXT(cut, notice->message);
    strbuf_add(body, "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"count\":1,\"metadata\":{");
    add_field(body, "namespace", namespace_of(notice));
    strbuf_add(body, "\"name\":");
    strbuf_add_json(body, name);
    strbuf_add(body, "},\"involvedObject\":{\"apiVersion\":\"v1\",");
    add_field(body, "kind", notice->kind);
    if (notice->namespace[0])
        add_field(body, "namespace", notice->namespace);
    add_field(body, "uid", notice->uid);
    strbuf_add(body, "\"name\":");
    strbuf_add_json(body, notice->name);
    strbuf_add(body, "},");
    add_field(body, "type", notice->warns ? "Warning" : "Normal");
    add_field(body, "reason", notice->reason);
    add_field(body, "message", cut);
    add_field(body, "firstTimestamp", now);
    add_field(body, "lastTimestamp", now);
    add_field(body, "reportingComponent", notice->component);
    add_field(body, "reportingInstance", notice->host);
    strbuf_add(body, "\"source\":{\"component\":");
    strbuf_add_json(body, notice->component);
    strbuf_add(body, ",\"host\":");
    strbuf_add_json(body, notice->host);
    strbuf_add(body, "}}");
}

void notice_write(struct kube_client *kube, const struct notice *notice)
{
    CLEANUP(strbuf_deinit) struct strbuf body = STRBUF_INIT(NOTICE_MAX);
    char path[800], namespace[768];
    struct kube_call call = {.method = KUBE_POST, .path = path};

    write_body(&body, notice);
    if (body.failed || !kube_escape(namespace_of(notice), namespace, sizeof(namespace)))
        return;
    (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/events", namespace);
    call.body = strbuf_text(&body);
    call.body_len = body.len;
    (void)kube_request(kube, &call, notice_on_written, NULL, NULL);
}
