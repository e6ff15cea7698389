/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "kube/internal.h"
#include "kube/transport.h"

enum {
    WHY_MAX = 512,
};

struct kube_request {
    struct transfer transfer;
    struct kube_client *client;
    struct kube_request *next, **link; /* in the client's list */

    struct transfer_spec spec; /* its texts are ours */
    size_t max_answer;
    int64_t deadline_ns;
    int64_t retry_ns; /* when to try again; 0: it is under way */
    unsigned attempt;
    bool token_refused;

    char *body;
    size_t len, size;
    bool too_long;

    kube_answer_fn fn;
    void *data;
};

struct kube_client {
    struct transport *transport;
    uv_timer_t timer; /* the earliest retry */
    bool closed;
    struct kube_request *requests;
    struct kube_counts counts;
};

struct transport *kube_client_transport(struct kube_client *client)
{
    return client->transport;
}

bool kube_client_is_unreachable(const struct kube_client *client)
{
    return transport_is_unreachable(client->transport);
}

static void request_free(struct kube_request *request)
{
    transfer_stop(&request->transfer);
    *request->link = request->next;
    if (request->next)
        request->next->link = request->link;
    request->client->counts.running--;
    free((char *)request->spec.path);
    free((char *)request->spec.body);
    free((char *)request->spec.content_type);
    free((char *)request->spec.accept);
    free(request->body);
    free(request);
}

void kube_request_cancel(struct kube_request *request)
{
    if (request)
        request_free(request);
}

/* The message of the API server's Status object. */
static void read_status(const char *body, size_t len, char why[WHY_MAX])
{
    yyjson_doc *doc = len ? yyjson_read(body, len, 0) : NULL;
    const char *message = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "message"));

    if (message && *message)
        copy_text(why, WHY_MAX, message);
    yyjson_doc_free(doc);
}

void kube_describe_failure(unsigned status, const char *body, size_t len, char *why, size_t size)
{
    char text[WHY_MAX];

    (void)snprintf(text, sizeof(text), "HTTP status %u", status);
    read_status(body, len, text);
    copy_text(why, size, text);
}

/* Ends a request. It is freed before the callback, which may do anything. */
static void request_answer(struct kube_request *request, int error, unsigned status,
                           const char *why)
{
    AUTOFREE char *body = TAKE(request->body);
    unsigned retry_after_s = transfer_retry_after(&request->transfer);
    kube_answer_fn fn = request->fn;
    void *data = request->data;
    struct kube_answer got = {
        .error = error,
        .status = error ? 0 : status,
        .body = body ? body : "",
        .len = body ? request->len : 0,
        .why = why,
        .retry_after_s = retry_after_s,
    };

    request_free(request);
    fn(data, &got);
}

static void client_on_retry(uv_timer_t *timer);

static void set_retry_timer(struct kube_client *client)
{
    int64_t earliest = INT64_MAX, pause;

    for (struct kube_request *request = client->requests; request; request = request->next) {
        if (request->retry_ns)
            earliest = MIN(earliest, request->retry_ns);
    }
    if (earliest == INT64_MAX)
        return;
    pause = MAX(earliest - clock_now_ns(), INT64_C(0));
    /* With the loop's time lagging behind, the timer would end early. */
    uv_update_time(transport_loop(client->transport));
    (void)uv_timer_start(&client->timer, client_on_retry, (uint64_t)(pause / NS_PER_MS) + 1, 0);
}

static int request_start(struct kube_request *request)
{
    int64_t left = request->deadline_ns - clock_now_ns();

    request->len = 0;
    request->too_long = false;
    request->retry_ns = 0;
    request->spec.timeout_ms = (unsigned)(MAX(left, NS_PER_MS) / NS_PER_MS);
    return transfer_start(&request->transfer, request->client->transport, &request->spec);
}

static struct kube_request *find_due(const struct kube_client *client, int64_t now)
{
    struct kube_request *request = client->requests;

    while (request && (!request->retry_ns || request->retry_ns > now))
        request = request->next;
    return request;
}

static void client_on_retry(uv_timer_t *timer)
{
    struct kube_client *client = timer->data;
    struct kube_request *request;
    int r;

    /* Searched from the start each time: a callback may change the list. */
    while (!client->closed && (request = find_due(client, clock_now_ns()))) {
        r = request_start(request);
        if (r < 0)
            request_answer(request, r, 0, strerror(-r));
    }
    if (!client->closed)
        set_retry_timer(client);
}

/* Whether an ended request may be tried again, and after what pause. */
static bool should_retry(struct kube_request *request, CURLcode result, unsigned status,
                         unsigned *ret_pause_ms)
{
    unsigned after_s = transfer_retry_after(&request->transfer);
    bool idempotent = request->spec.method != KUBE_POST;
    int error = transfer_errno(result);

    *ret_pause_ms = after_s ? after_s * 1000 + retry_pause_ms(0) : retry_pause_ms(request->attempt);
    if (request->too_long || error == -ENOMEM || error == -EKEYREJECTED || error == -ECANCELED)
        return false;
    if (error)
        return error == -ECONNREFUSED || idempotent;
    if (status == 401 && !request->token_refused) {
        request->token_refused = true;
        transport_forget_token(request->client->transport);
        return true;
    }
    return status == 429 || (status == 503 && idempotent);
}

static void request_finish(struct kube_request *request, CURLcode result, unsigned status)
{
    char why[WHY_MAX] = "";

    if (request->too_long) {
        (void)snprintf(why, sizeof(why), "the answer is longer than %zu bytes",
                       request->max_answer);
        request_answer(request, -EFBIG, 0, why);
        return;
    }
    if (result != CURLE_OK) {
        COPY_TEXT(why, transfer_reason(&request->transfer, result));
        request_answer(request, transfer_errno(result), 0, why);
        return;
    }
    if (status < 200 || status >= 300)
        kube_describe_failure(status, request->body, request->len, why, sizeof(why));
    request_answer(request, 0, status, why);
}

static void request_on_done(struct transfer *transfer, CURLcode result)
{
    struct kube_request *request = (struct kube_request *)transfer;
    unsigned status = transfer_status(transfer), pause_ms;
    int64_t at;

    if (!should_retry(request, result, status, &pause_ms)) {
        request_finish(request, result, status);
        return;
    }
    at = clock_now_ns() + (int64_t)pause_ms * NS_PER_MS;
    if (at >= request->deadline_ns) {
        request_finish(request, result, status);
        return;
    }
    log_debug("%s: %s; trying again in %u ms", request->spec.path,
              result == CURLE_OK ? "refused for now" : transfer_reason(transfer, result), pause_ms);
    transfer_stop(transfer);
    request->attempt++;
    request->retry_ns = at;
    request->client->counts.retried++;
    set_retry_timer(request->client);
}

static size_t request_on_body(struct transfer *transfer, const char *bytes, size_t len)
{
    struct kube_request *request = (struct kube_request *)transfer;
    size_t want = request->len + len + 1, size = request->size ? request->size : 1024;
    char *body;

    if (request->len + len > request->max_answer) {
        request->too_long = true;
        return 0;
    }
    while (size < want)
        size *= 2;
    if (size != request->size) {
        body = realloc(request->body, size);
        if (!body)
            return 0;
        request->body = body;
        request->size = size;
    }
    memcpy(request->body + request->len, bytes, len);
    request->len += len;
    request->body[request->len] = '\0';
    return len;
}

static int request_copy(struct kube_request *request, const struct kube_call *call)
{
    struct transfer_spec *spec = &request->spec;

    spec->method = call->method;
    spec->may_send = call->may_send;
    spec->may_send_data = request->data;
    spec->path = strdup(call->path);
    spec->accept = strdup(call->accept ? call->accept : KUBE_JSON);
    spec->content_type = strdup(call->content_type ? call->content_type : KUBE_JSON);
    if (call->body) {
        spec->body = malloc(call->body_len + 1);
        if (spec->body)
            memcpy((char *)spec->body, call->body, call->body_len);
        spec->body_len = call->body_len;
    }
    if (!spec->path || !spec->accept || !spec->content_type || (call->body && !spec->body))
        return -ENOMEM;
    return 0;
}

int kube_request(struct kube_client *client, const struct kube_call *call, kube_answer_fn fn,
                 void *data, struct kube_request **ret_request)
{
    unsigned timeout_ms = call->timeout_ms ? call->timeout_ms : KUBE_TIMEOUT_MS;
    struct kube_request *request;
    int r;

    if (call->method < KUBE_GET || call->method > KUBE_DELETE || !call->path ||
        call->path[0] != '/')
        return -EINVAL;
    request = calloc(1, sizeof(*request));
    if (!request)
        return -ENOMEM;
    request->client = client;
    request->fn = fn;
    request->data = data;
    request->max_answer = call->max_answer ? call->max_answer : KUBE_ANSWER_MAX;
    request->deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    request->transfer.write = request_on_body;
    request->transfer.done = request_on_done;
    request->next = client->requests;
    request->link = &client->requests;
    if (request->next)
        request->next->link = &request->next;
    client->requests = request;
    client->counts.running++;

    r = request_copy(request, call);
    if (r == 0)
        r = request_start(request);
    if (r < 0) {
        request_free(request);
        return r;
    }
    client->counts.started[call->method]++;
    if (ret_request)
        *ret_request = request;
    return 0;
}

int kube_client_new(uv_loop_t *loop, const struct kube_config *config, const char *agent,
                    struct kube_client **ret_client, struct error *err)
{
    struct kube_client *client = calloc(1, sizeof(*client));
    int r;

    if (!client)
        return error_set(err, -ENOMEM, "no memory");
    r = transport_new(loop, config, agent, &client->transport, err);
    if (r < 0) {
        free(client);
        return r;
    }
    (void)uv_timer_init(loop, &client->timer);
    client->timer.data = client;
    *ret_client = client;
    return 0;
}

static void client_on_closed(uv_handle_t *handle)
{
    struct kube_client *client = handle->data;

    transport_free(client->transport);
    free(client);
}

void kube_client_free(struct kube_client *client)
{
    if (!client || client->closed)
        return;
    client->closed = true;
    while (client->requests)
        request_free(client->requests);
    uv_close((uv_handle_t *)&client->timer, client_on_closed);
}

void kube_client_counts(const struct kube_client *client, struct kube_counts *ret_counts)
{
    *ret_counts = client->counts;
}

char *kube_escape(const char *text, char *to, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char plain[] = "-._~";
    size_t len = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                      (*p >= '0' && *p <= '9') || strchr(plain, *p);

        if (len + 4 > size)
            return NULL;
        if (letter) {
            to[len++] = (char)*p;
            continue;
        }
        to[len++] = '%';
        to[len++] = digits[*p >> 4];
        to[len++] = digits[*p & 15];
    }
    if (!size)
        return NULL;
    to[len] = '\0';
    return to;
}

char *kube_pod_path(const char *namespace, const char *name, const char *part,
                    char to[static KUBE_PATH_SIZE])
{
    char escaped_namespace[KUBE_PATH_SIZE], escaped_name[KUBE_PATH_SIZE];
    int len;

    if (!kube_escape(namespace, escaped_namespace, sizeof(escaped_namespace)) ||
        !kube_escape(name, escaped_name, sizeof(escaped_name)))
        return NULL;
    len = snprintf(to, KUBE_PATH_SIZE, "/api/v1/namespaces/%s/pods/%s%s", escaped_namespace,
                   escaped_name, part);
    return len < KUBE_PATH_SIZE ? to : NULL;
}
