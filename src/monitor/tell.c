/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/tell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "kube/notice.h"
#include "monitor/process.h"

enum {
    PATCH_MAX = 4096,
    MESSAGE_SIZE = 512,
    CASES_MAX = 256, /* shown */
};

/* A condition that was true stays so for this long after the last case. */
#define CALM_NS (60 * NS_PER_S)

/* A write that failed is tried again after so long; others come no closer. */
#define WRITE_NS (5 * NS_PER_S)

struct shown {
    char pod_uid[CONTAINER_UID_SIZE];
    char uuid[LIMITS_UUID_SIZE];
    enum bypass_kind kind;
};

struct tell {
    struct tell_options options;
    size_t shown_count;
    struct shown shown[CASES_MAX];
    struct tell_counts counts;

    /* The Node's condition. */
    bool is_bypassed, written, written_value;
    struct shown first, written_first; /* the case that it names */
    int64_t bypassed_ns, sent_ns;
    char message[2 * MESSAGE_SIZE];
    struct kube_request *request;
};

struct tell *tell_new(const struct tell_options *options)
{
    struct tell *tell = calloc(1, sizeof(*tell));

    if (tell)
        tell->options = *options;
    return tell;
}

void tell_free(struct tell *tell)
{
    if (!tell)
        return;
    kube_request_cancel(tell->request);
    free(tell);
}

/* NULL: the pod is to be left alone. */
static const struct pod_name *find_pod(const struct tell *tell, const char *uid)
{
    const struct pod_name *pod = pod_names_find(tell->options.names, uid);
    const char *exempt = tell->options.exempt;

    for (const char *p = exempt; pod && *p; p += *p == ',') {
        size_t len = strcspn(p, ",");

        if (len && strlen(pod->namespace) == len && memcmp(pod->namespace, p, len) == 0)
            return NULL;
        p += len;
    }
    return pod;
}

static void describe(const struct bypass_case *item, char message[MESSAGE_SIZE])
{
    uint64_t held = item->held >> 20, allowed = item->allowed >> 20;

    switch (item->kind) {
    case BYPASS_NOT_GIVEN:
        (void)snprintf(message, MESSAGE_SIZE,
                       "process %d holds %" PRIu64 " MiB of card %s, which the pod was not given",
                       (int)item->pid, held, item->uuid);
        break;
    case BYPASS_NO_SLOT:
        (void)snprintf(message, MESSAGE_SIZE,
                       "process %d holds %" PRIu64
                       " MiB of card %s past libvgpu.so, which keeps no account of it",
                       (int)item->pid, held, item->uuid);
        break;
    case BYPASS_LEDGER:
        (void)snprintf(message, MESSAGE_SIZE,
                       "process %d holds %" PRIu64 " MiB of card %s, and its account has %" PRIu64
                       " MiB",
                       (int)item->pid, held, item->uuid, allowed);
        break;
    case BYPASS_MEMORY:
        (void)snprintf(message, MESSAGE_SIZE,
                       "its processes hold %" PRIu64 " MiB of card %s, and its limit is %" PRIu64
                       " MiB",
                       held, item->uuid, allowed);
        break;
    default:
        (void)snprintf(message, MESSAGE_SIZE,
                       "its processes use %" PRIu64
                       " percent of the time of card %s, and its limit "
                       "is %" PRIu64 " percent",
                       item->held, item->uuid, item->allowed);
        break;
    }
}

static void tell_pod(const struct tell *tell, const struct pod_name *pod,
                     const struct bypass_case *item)
{
    char message[MESSAGE_SIZE];
    const struct notice notice = {
        .kind = "Pod",
        .namespace = pod->namespace,
        .name = pod->name,
        .uid = item->pod_uid,
        .warns = true,
        .reason = "DeviceBypass",
        .message = message,
        .component = "hami-vgpu-monitor",
        .host = tell->options.node_name,
    };

    describe(item, message);
    log_warn("%s/%s: %s", pod->namespace, pod->name, message);
    notice_write(tell->options.kube, &notice);
}

static void show(struct tell *tell, const struct bypass_case *item)
{
    struct shown *shown = &tell->shown[tell->shown_count];

    if (tell->shown_count == CASES_MAX)
        return;
    *shown = (struct shown){.kind = item->kind};
    COPY_TEXT(shown->pod_uid, item->pod_uid);
    COPY_TEXT(shown->uuid, item->uuid);
    tell->shown_count++;
}

/* What exceeds its time is reported alone: to end it would be out of proportion. */
static void end_processes(struct tell *tell, const struct bypass_look *look)
{
    for (size_t i = 0; i < look->process_count; i++) {
        const struct bypass_process *process = &look->processes[i];
        const struct pod_name *pod;

        if (!process->condemned || process->kind == BYPASS_COMPUTE)
            continue;
        pod = find_pod(tell, process->pod_uid);
        if (!pod || process_kill(tell->options.procfs, process->pid, process->start_ticks) < 0)
            continue;
        log_warn("%s/%s: process %d was ended, by policy", pod->namespace, pod->name,
                 (int)process->pid);
        tell->counts.kills++;
    }
}

/* The Node's condition */

static void tell_on_patched(void *data, const struct kube_answer *answer)
{
    struct tell *tell = data;

    tell->request = NULL;
    tell->written = kube_answer_ok(answer);
    if (!tell->written)
        log_warn("cannot write the node's condition " TELL_CONDITION ": %s", answer->why);
}

static int send_condition(struct tell *tell, bool value, bool turns)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    char path[1200], name[800], now[CLOCK_UTC_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH, .path = path, .content_type = KUBE_STRATEGIC_PATCH};

    (void)clock_format_utc(time(NULL), now);
    strbuf_addf(&patch,
                "{\"status\":{\"conditions\":[{\"type\":\"" TELL_CONDITION
                "\",\"status\":\"%s\",\"reason\":\"%s\",\"message\":",
                value ? "True" : "False", value ? "DeviceBypass" : "Compared");
    strbuf_add_json(&patch, value
                                ? tell->message
                                : "what processes use of the cards is what their pods were given");
    strbuf_addf(&patch, ",\"lastHeartbeatTime\":\"%s\"", now);
    if (turns)
        strbuf_addf(&patch, ",\"lastTransitionTime\":\"%s\"", now);
    strbuf_add(&patch, "}]}}");
    if (patch.failed || !kube_escape(tell->options.node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s/status", name);
    call.body = patch.text;
    call.body_len = patch.len;
    return kube_request(tell->options.kube, &call, tell_on_patched, tell, &tell->request);
}

static bool is_same(const struct shown *left, const struct shown *right)
{
    return left->kind == right->kind && strcmp(left->pod_uid, right->pod_uid) == 0 &&
           strcmp(left->uuid, right->uuid) == 0;
}

/* That a bypass began is written at once; all else waits for the last write to be a while ago. */
static void check_condition(struct tell *tell, int64_t now_ns)
{
    bool value = tell->is_bypassed || (tell->bypassed_ns && now_ns - tell->bypassed_ns < CALM_NS);
    bool turns = !tell->written || tell->written_value != value;
    int64_t least_ns = value && turns ? NS_PER_S : WRITE_NS;

    if (tell->request || (!turns && (!value || is_same(&tell->first, &tell->written_first))) ||
        (tell->sent_ns && now_ns - tell->sent_ns < least_ns))
        return;
    tell->sent_ns = now_ns;
    tell->written_value = value;
    tell->written_first = tell->first;
    tell->written = false;
    if (send_condition(tell, value, turns) < 0)
        log_error("cannot write the node's condition: no memory");
}

/* The Node names one of them. */
static void note_first(struct tell *tell, const struct pod_name *pod,
                       const struct bypass_case *item)
{
    char message[MESSAGE_SIZE];

    describe(item, message);
    tell->first = (struct shown){.kind = item->kind};
    COPY_TEXT(tell->first.pod_uid, item->pod_uid);
    COPY_TEXT(tell->first.uuid, item->uuid);
    (void)snprintf(tell->message, sizeof(tell->message), "pod %.64s/%.253s: %s", pod->namespace,
                   pod->name, message);
}

void tell_act(struct tell *tell, struct bypass *bypass, const struct bypass_look *look)
{
    tell->shown_count = 0;
    tell->is_bypassed = false;
    for (size_t i = 0; i < bypass->count; i++) {
        struct bypass_case *item = &bypass->cases[i];
        const struct pod_name *pod = item->lasts ? find_pod(tell, item->pod_uid) : NULL;

        if (!pod)
            continue;
        show(tell, item);
        tell->counts.found[item->kind] += !item->counted;
        item->counted = true;
        if (bypass_take_news(item, look->now_ns))
            tell_pod(tell, pod, item);
        if (!tell->is_bypassed)
            note_first(tell, pod, item);
        tell->is_bypassed = true;
        tell->bypassed_ns = look->now_ns;
    }
    tell->counts.own = bypass->own;
    if (tell->options.kills)
        end_processes(tell, look);
    check_condition(tell, look->now_ns);
}

size_t tell_read(const struct tell *tell, struct tell_case *ret_cases, size_t max,
                 struct tell_counts *ret_counts)
{
    size_t count = 0;

    for (size_t i = 0; i < tell->shown_count && count < max; i++) {
        const struct shown *shown = &tell->shown[i];
        const struct pod_name *pod = pod_names_find(tell->options.names, shown->pod_uid);

        if (pod)
            ret_cases[count++] =
                (struct tell_case){pod->namespace, pod->name, shown->uuid, shown->kind};
    }
    *ret_counts = tell->counts;
    return count;
}
