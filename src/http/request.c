/* SPDX-License-Identifier: Apache-2.0 */

/* Requests, whatever they came by: their route, their body, their answer. */

#include <string.h>

#include "base/util.h"
#include "http/internal.h"

enum {
    HELD_MAX = 64 << 20, /* bytes of all bodies and answers together, when a body asks for more */
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

void request_begin(struct http_request *request, struct http_server *server, struct peer *peer,
                   const char *method, const char *path, bool loopback)
{
    request->server = server;
    request->peer = peer;
    peer_used(server, peer);
    request->route = find_route(server, method, path, &request->refused);
    if (!request->route)
        return;
    request->refused = request->route->loopback_only && !loopback ? 403 : 0;
}

/* Makes room for len bytes and a NUL; false: no memory, or too much is held by all together. */
static bool make_room(struct http_request *request, size_t len)
{
    struct http_server *server = request->server;
    size_t size = MAX(len + 1, MAX((size_t)BODY_FIRST, 2 * request->size));
    char *body;

    if (len < request->size)
        return true;
    size = len ? MIN(size, MAX(request->route->max_body, len) + 1) : 1;
    if (len && server->held - request->size + size > HELD_MAX)
        return false;
    body = realloc(request->body, size);
    if (!body)
        return false;
    server->held += size - request->size;
    request->body = body;
    request->size = size;
    return true;
}

static void drop_body(struct http_request *request)
{
    request->server->held -= request->size;
    free(request->body);
    request->body = NULL;
    request->len = request->size = 0;
}

static void refuse(struct http_request *request, unsigned status)
{
    request->refused = status;
    drop_body(request);
}

void request_add(struct http_request *request, const void *bytes, size_t len)
{
    if (request->refused)
        return;
    if (request->len + len > request->route->max_body) {
        refuse(request, 413);
        return;
    }
    if (!make_room(request, request->len + len)) {
        refuse(request, 503);
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

void http_answer_take(struct http_request *request, unsigned status, const char *content_type,
                      char *body, size_t len)
{
    request->answer.status = status;
    request->answer.content_type = content_type;
    request->answer.body = body;
    request->answer.len = len;
    request->server->held += len;
    drop_body(request);
    request->answered = true;
    if (!request->in_handler)
        request->answered_late(request);
}

void request_deinit(struct http_request *request)
{
    if (request->peer)
        request->peer->awaited -= request->awaited;
    drop_body(request);
    request->server->held -= request->answer.len;
    free(request->answer.body);
}
