/* SPDX-License-Identifier: Apache-2.0 */

/* Requests of either engine: their route, their body, their answer. */

#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/util.h"
#include "http/internal.h"

enum {
    BODY_FIRST = 8 << 10,
};

static const struct http_route *find_route(const struct http_server *server, const char *method,
                                           const char *path, unsigned *ret_status)
{
    *ret_status = 404;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (const struct http_route *route = server->routes; route->method; route++) {
        if (strcmp(route->path, path) != 0)
            continue;
        if (strcmp(route->method, method) == 0)
            return route;
        *ret_status = 405;
    }
    return NULL;
}

void request_init(struct http_request *request, struct http_server *server, struct peer *peer)
{
    request->server = server;
    request->peer = peer;
    request->since_ns = clock_now_ns();
    DL_APPEND(server->requests, request);
}

void request_begin(struct http_request *request, const char *method, const char *path)
{
    struct http_server *server = request->server;

    request->since_ns = clock_now_ns();
    peer_used(server, request->peer);
    request->route = find_route(server, method, path, &request->refused);
    if (!request->route)
        return;
    request->refused = request->route->loopback_only && !request->peer->loopback ? 403 : 0;
}

static size_t *held_by(const struct http_request *request)
{
    const struct http_server *server = request->server;

    return (size_t *)&server->held[request->route - server->routes];
}

static struct http_request **half_sent_of(const struct http_request *request)
{
    struct http_server *server = request->server;

    return &server->half_sent[request->route - server->routes];
}

static void begin_half_sent(struct http_request *request)
{
    if (!request->half_sent)
        DL_APPEND2(*half_sent_of(request), request, prev_half, next_half);
    request->half_sent = true;
}

static void end_half_sent(struct http_request *request)
{
    if (request->half_sent)
        DL_DELETE2(*half_sent_of(request), request, prev_half, next_half);
    request->half_sent = false;
}

static void drop_body(struct http_request *request)
{
    end_half_sent(request);
    if (request->size)
        *held_by(request) -= request->size;
    free(request->body);
    request->body = NULL;
    request->len = request->size = 0;
}

static void request_refuse(struct http_request *request, unsigned status)
{
    request->refused = status;
    drop_body(request);
}

/* An honest client's body is complete within milliseconds, so the oldest incomplete body gives
 * way. */
static bool refuse_oldest_but(const struct http_request *request)
{
    struct http_request *oldest = *half_sent_of(request);

    if (oldest == request)
        oldest = oldest->next_half;
    if (!oldest)
        return false;
    request_refuse(oldest, 503);
    return true;
}

/* Makes room for len bytes and a NUL; false: no memory, or too much is held by the route. */
static bool body_grow(struct http_request *request, size_t len)
{
    size_t size = MAX(len + 1, MAX((size_t)BODY_FIRST, 2 * request->size));
    char *body;

    if (len < request->size)
        return true;
    size = len ? MIN(size, MAX(request->route->max_body, len) + 1) : 1;
    while (len && *held_by(request) - request->size + size > request->route->max_held) {
        if (!refuse_oldest_but(request))
            return false;
    }
    body = realloc(request->body, size);
    if (!body)
        return false;
    *held_by(request) += size - request->size;
    request->body = body;
    request->size = size;
    begin_half_sent(request);
    return true;
}

void request_add(struct http_request *request, const void *bytes, size_t len)
{
    if (request->refused)
        return;
    if (request->len + len > request->route->max_body) {
        request_refuse(request, 413);
        return;
    }
    if (!body_grow(request, request->len + len)) {
        request_refuse(request, 503);
        return;
    }
    memcpy(request->body + request->len, bytes, len);
    request->len += len;
    request->body[request->len] = '\0';
}

char *http_request_body(const struct http_request *request, size_t *ret_len)
{
    *ret_len = request->len;
    return request->body;
}

static const char *status_words(unsigned status)
{
    switch (status) {
    case 403:
        return "for this machine only\n";
    case 404:
        return "not found\n";
    case 405:
        return "method not allowed\n";
    case 413:
        return "the body is too long\n";
    default:
        return "out of memory\n";
    }
}

void request_handle(struct http_request *request)
{
    if (!request->refused && !request->body)
        request_add(request, "", 0);
    end_half_sent(request);
    request->in_handler = true;
    if (request->refused) {
        const char *words = status_words(request->refused);

        http_answer(request, request->refused, HTTP_TEXT, words, strlen(words));
    } else {
        request->route->handle(request->server->data, request);
    }
    request->in_handler = false;
    request->awaited = !request->answered;
    request->peer->awaited += request->awaited;
}

void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const char *body, size_t len)
{
    char *copy = malloc(len ? len : 1);

    if (copy)
        memcpy(copy, body, len);
    http_answer_take(request, copy ? status : 503, content_type, copy, copy ? len : 0);
}

static void request_answer(struct http_request *request, unsigned status, const char *content_type)
{
    drop_body(request);
    /* From here on we wait for the client. */
    if (request->awaited && request->peer)
        request->peer->awaited--;
    request->awaited = false;
    request->since_ns = clock_now_ns();
    request->answer.status = status;
    request->answer.content_type = content_type;
    request->answered = true;
    if (!request->in_handler)
        request->answered_late(request);
}

void http_answer_take(struct http_request *request, unsigned status, const char *content_type,
                      char *body, size_t len)
{
    request->answer.body = body;
    request->answer.len = len;
    if (request->route)
        *held_by(request) += len;
    request_answer(request, status, content_type);
}

void http_answer_page(struct http_request *request, const char *content_type,
                      struct http_page *page)
{
    request->answer.page = http_page_ref(page);
    request->answer.body = page->bytes;
    request->answer.len = page->len;
    request_answer(request, 200, content_type);
}

void http_answer_source(struct http_request *request, const char *content_type,
                        const struct http_source *source)
{
    request->answer.source = *source;
    request_answer(request, 200, content_type);
}

void request_deinit(struct http_request *request)
{
    if (request->peer)
        request->peer->awaited -= request->awaited;
    DL_DELETE(request->server->requests, request);
    drop_body(request);
    if (request->answer.source.free)
        request->answer.source.free(request->answer.source.data);
    if (request->answer.page) {
        http_page_unref(request->answer.page);
        return;
    }
    if (request->route)
        *held_by(request) -= request->answer.len;
    free(request->answer.body);
}
