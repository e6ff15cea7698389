/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"

enum {
    REMEMBERED_MAX = 10000, /* pods; the oldest is forgotten first */
    EVENT_MAX = 8192,       /* bytes of one */
    MESSAGE_MAX = 1024,     /* Kubernetes' bound */
};

/* The last event of a pod. */
struct said {
    UT_hash_handle hh; /* in the order of their first events */
    uint64_t kinds;
    char reason[32];
    char uid[];
};

struct events {
    struct kube_client *kube;
    char *component;
    char host[256];
    struct said *said;
    uint64_t written; /* makes names of events differ */
};

struct events *events_new(struct kube_client *kube, const char *component)
{
    struct events *events = calloc(1, sizeof(*events));

    if (!events)
        return NULL;
    events->kube = kube;
    events->component = strdup(component[0] ? component : "hami-scheduler");
    if (!events->component) {
        free(events);
        return NULL;
    }
    (void)gethostname(events->host, sizeof(events->host) - 1);
    return events;
}

static void said_free(struct events *events, struct said *said)
{
    HASH_DEL(events->said, said);
    free(said);
}

void events_free(struct events *events)
{
    struct said *said, *next;

    if (!events)
        return;
    HASH_ITER(hh, events->said, said, next)
    {
        said_free(events, said);
    }
    free(events->component);
    free(events);
}

void events_forget(struct events *events, const char *uid)
{
    struct said *said;

    HASH_FIND_STR(events->said, uid, said);
    if (said)
        said_free(events, said);
}

/* Whether the event is new; remembers it then. */
static bool is_new(struct events *events, const char *uid, const char *reason, uint64_t kinds)
{
    struct said *said;

    HASH_FIND_STR(events->said, uid, said);
    if (said && said->kinds == kinds && strcmp(said->reason, reason) == 0)
        return false;
    if (!said) {
        if (HASH_COUNT(events->said) >= REMEMBERED_MAX)
            said_free(events, events->said);
        said = malloc(sizeof(*said) + strlen(uid) + 1);
        if (!said)
            return true;
        strcpy(said->uid, uid);
        HASH_ADD_KEYPTR(hh, events->said, said->uid, strlen(said->uid), said);
    }
    said->kinds = kinds;
    COPY_TEXT(said->reason, reason);
    return true;
}

static void on_written(void *data, const struct kube_answer *answer)
{
    (void)data;
    if (!kube_answer_ok(answer))
        log_warn("an event could not be written: %s", answer->why);
}

static void add_field(struct strbuf *buf, const char *name, const char *value)
{
    strbuf_addf(buf, "\"%s\":", name);
    strbuf_add_json(buf, value);
}

static void write_body(struct strbuf *buf, const struct events *events, const struct event_pod *pod,
                       const char *reason, const char *message)
{
    char name[320], now[CLOCK_UTC_SIZE], cut[MESSAGE_MAX];
    time_t seconds = time(NULL);

    (void)clock_format_utc(seconds, now);
    (void)snprintf(name, sizeof(name), "%.220s.%" PRIx64 "%08" PRIx64, pod->name, (uint64_t)seconds,
                   events->written);
    COPY_TEXT(cut, message);

    strbuf_add(buf, "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"type\":\"Warning\",\"count\":1,");
    strbuf_add(buf, "\"metadata\":{");
    add_field(buf, "name", name);
    strbuf_add(buf, ",");
    add_field(buf, "namespace", pod->namespace);
    strbuf_add(buf, "},\"involvedObject\":{\"apiVersion\":\"v1\",\"kind\":\"Pod\",");
    add_field(buf, "namespace", pod->namespace);
    strbuf_add(buf, ",");
    add_field(buf, "name", pod->name);
    strbuf_add(buf, ",");
    add_field(buf, "uid", pod->uid);
    strbuf_add(buf, ",");
    add_field(buf, "resourceVersion", pod->resource_version);
    strbuf_add(buf, "},");
    add_field(buf, "reason", reason);
    strbuf_add(buf, ",");
    add_field(buf, "message", cut);
    strbuf_addf(buf, ",\"firstTimestamp\":\"%s\",\"lastTimestamp\":\"%s\",\"source\":{", now, now);
    add_field(buf, "component", events->component);
    strbuf_add(buf, "},");
    add_field(buf, "reportingComponent", events->component);
    strbuf_add(buf, ",");
    add_field(buf, "reportingInstance", events->host);
    strbuf_add(buf, "}");
}

void events_warn(struct events *events, const struct event_pod *pod, const char *reason,
                 uint64_t kinds, const char *message)
{
    struct strbuf body = STRBUF_INIT(EVENT_MAX);
    char path[512], namespace[256];
    struct kube_call call = {.method = KUBE_POST, .path = path};

    if (!is_new(events, pod->uid, reason, kinds))
        return;
    events->written++;
    write_body(&body, events, pod, reason, message);
    if (!body.failed && kube_escape(pod->namespace, namespace, sizeof(namespace))) {
        (void)snprintf(path, sizeof(path), "/api/v1/namespaces/%s/events", namespace);
        call.body = strbuf_text(&body);
        call.body_len = body.len;
        (void)kube_request(events->kube, &call, on_written, NULL, NULL);
    }
    strbuf_deinit(&body);
}
