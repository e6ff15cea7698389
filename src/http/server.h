/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An HTTP server, with TLS or without, on a libuv loop: HTTP/1.1, and HTTP/2 for those that offer
 * it over TLS.
 *
 * A table of routes says who answers what. A handler is called in the loop's thread once a
 * request's body is there, and answers at once or later. A body is bounded by its route, and so are
 * all bodies of a route together: then the one that has been incomplete longest gives way (it is
 * answered 503). Connections are bounded in number: then the one that was idle longest gives way. A
 * body must be there within 10 s, an answer taken within 30 s, the first request come within 30 s.
 * Certificates are read again within a second of their change.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
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
    size_t max_held;    /* bytes of all bodies and answers of the route, at which a body waits */
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

/*
 * A page that several answers share. The bytes are taken, and free()d with the last reference;
 * NULL: there is no memory, and they are free()d.
 */
struct http_page;
struct http_page *http_page_new(char *bytes, size_t len);
struct http_page *http_page_ref(struct http_page *page);
void http_page_unref(struct http_page *page); /* NULL is fine */

/*
 * A large page as of now, for clients of which some are slow: two are in memory at most. While both
 * are read still, newcomers get the later one again.
 */
struct http_pages {
    struct http_page *current, *before;
};
/* The page to answer with; NULL: another is to be made, and put. One is made at a time. */
struct http_page *http_pages_get(struct http_pages *pages);
void http_pages_put(struct http_pages *pages, struct http_page *page); /* takes the reference */
/* Drops those that nobody reads any more. */
void http_pages_tidy(struct http_pages *pages);
void http_pages_deinit(struct http_pages *pages);

/* Answers with a page, of which the answer takes a reference of its own. */
void http_answer_page(struct http_request *request, const char *content_type,
                      struct http_page *page);

/*
 * An answer that is made while it is sent, as the client takes it. read() fills in up to size
 * bytes: how many, 0 at the end, negative where it can't go on, and the client sees a broken
 * answer. It is called from the loop and works for a fraction of a millisecond. free() is called in
 * any case.
 */
struct http_source {
    ssize_t (*read)(void *data, char *to, size_t size);
    void (*free)(void *data);
    void *data;
};
void http_answer_source(struct http_request *request, const char *content_type,
                        const struct http_source *source);

#define HTTP_JSON "application/json"
#define HTTP_TEXT "text/plain; charset=utf-8"
#define HTTP_METRICS "text/plain; version=0.0.4; charset=utf-8"
