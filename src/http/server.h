/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An HTTP server, with TLS or without, on a libuv loop: HTTP/1.1, and HTTP/2 for those that offer
 * it over TLS.
 *
 * A table of routes names the handlers. A handler is called in the loop's thread once a request's
 * body is complete, and answers at once or later. A route bounds each body, and all its bodies
 * together: beyond that bound, the body that has been incomplete longest gives way (it is answered
 * 503). The number of connections is bounded: beyond it, the connection that was idle longest gives
 * way. A client has 30 s for its first request, 10 s for a body, 30 s to take an answer.
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
    size_t max_body;    /* bytes; beyond it the answer is 413 */
    size_t max_held;    /* bytes of all bodies and answers of the route */
    bool loopback_only; /* other clients are answered 403 */
    http_handler_fn *handle;
};

struct http_options {
    const char *address;              /* "127.0.0.1:8080", ":9395", "[::1]:80" */
    const char *cert_file, *key_file; /* PEM; both or none */
    const struct http_route *routes;  /* ends with a row without method; outlives the server */
    void *data;                       /* the handlers' */
};

/* A reader of base/options.h, whose member is an address: whether it has the form of one. */
int http_read_address(char *text, void *member, struct error *err);

/*
 * Listens. -EINVAL for an address or certificates that can't be used, -EADDRINUSE and the like;
 * err says which.
 */
int http_server_new(uv_loop_t *loop, const struct http_options *options,
                    struct http_server **ret_server, struct error *err);

/*
 * Stops listening and drops unfinished requests. A request that a handler holds must have been
 * answered before; its answer is sent as far as the client takes it at once. The memory goes once
 * the loop has closed the handles.
 */
void http_server_free(struct http_server *server);
DEFINE_CLEANUP(struct http_server *, http_server_free);

/* The port that it listens on, which the system chooses for port 0. */
unsigned http_server_port(const struct http_server *server);

/* A request's body, good until the answer; terminated, and may be written to. */
char *http_request_body(const struct http_request *request, size_t *ret_len);

/*
 * Answers; the request is gone after it. The body is copied, or taken and free()d. Status 503 asks
 * the client to retry in a second.
 */
void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const char *body, size_t len);
void http_answer_take(struct http_request *request, unsigned status, const char *content_type,
                      char *body, size_t len);

/*
 * A page that several answers share. Takes the bytes, which are free()d with the last reference, or
 * at once where there is no memory (NULL).
 */
struct http_page;
struct http_page *http_page_new(char *bytes, size_t len);
struct http_page *http_page_ref(struct http_page *page);
void http_page_unref(struct http_page *page); /* NULL is fine */

/*
 * A large page that is made anew for each client, but at most two are in memory, since clients may
 * be slow: while both are still being read, a further client gets the later one again.
 */
struct http_pages {
    struct http_page *current, *before;
};
/* The page to answer with; NULL: the caller makes a new one and puts it, one at a time. */
struct http_page *http_pages_get(struct http_pages *pages);
void http_pages_put(struct http_pages *pages, struct http_page *page); /* takes the reference */
/* Drops pages that no client reads any more. */
void http_pages_drop_unread(struct http_pages *pages);
void http_pages_deinit(struct http_pages *pages);

/* Answers with a page, of which the answer takes a reference of its own. */
void http_answer_page(struct http_request *request, const char *content_type,
                      struct http_page *page);

/*
 * An answer that is made while it is sent, as fast as the client takes it. read() fills in up to
 * size bytes and returns their number; 0 at the end; negative on failure, and the client sees a
 * broken answer. It is called from the loop and works for a fraction of a millisecond. free() is
 * called in any case.
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
