/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An HTTP server, with TLS or without, on a libuv loop: HTTP/1.1, and HTTP/2 for those that offer
 * it over TLS.
 *
 * A table of routes says who answers what. A handler is called in the loop's thread once a
 * request's body is there, and answers at once or later. A body is bounded by its route, all bodies
 * together by 64 MiB (503 is answered beyond), connections in number: then the one that was idle
 * longest gives way to who comes. Certificates are read again within a second of their change.
 */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/error.h"

struct http_server;
struct http_request;

typedef void http_handler_fn(void *data, struct http_request *request);

struct http_route {
    const char *method; /* "GET"; HEAD is answered by GET's */
    const char *path;
    size_t max_body;    /* bytes; beyond, 413 is answered */
    bool loopback_only; /* others are answered 403 */
    http_handler_fn *handle;
};

struct http_options {
    const char *address;              /* "127.0.0.1:8080", ":9395", "[::1]:80" */
    const char *cert_file, *key_file; /* PEM; both or none */
    const struct http_route *routes;  /* ends with a row without method; outlives the server */
    void *data;                       /* the handlers' */
};

/*
 * Listens. -EINVAL for an address or certificates that can't be used, -EADDRINUSE and the like;
 * err says which.
 */
int http_server_new(uv_loop_t *loop, const struct http_options *options,
                    struct http_server **ret_server, struct error *err);

/*
 * Stops listening and drops what is not answered. Requests that wait for their answer must have
 * got it before; it is sent as far as the clients take it at once. The memory goes once the loop
 * has closed the handles.
 */
void http_server_free(struct http_server *server);
DEFINE_CLEANUP(struct http_server *, http_server_free);

/* The port that it listens on, for those who asked for port 0. */
unsigned http_server_port(const struct http_server *server);

/* Of a request, until it is answered. The body is terminated, and may be written to. */
char *http_request_body(const struct http_request *request, size_t *ret_len);

/*
 * Answers; the request is gone after it. The body is copied, or taken: then it is free()d. Of
 * status 503 a retry in a second is asked for.
 */
void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const char *body, size_t len);
void http_answer_take(struct http_request *request, unsigned status, const char *content_type,
                      char *body, size_t len);

#define HTTP_JSON "application/json"
#define HTTP_TEXT "text/plain; charset=utf-8"
#define HTTP_METRICS "text/plain; version=0.0.4; charset=utf-8"
