/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared by the server's engines; inside http only. An engine speaks one version of HTTP on the
 * connections that it is given; requests, their bodies and answers are the same for both.
 */

#include <netinet/in.h>
#include <sys/socket.h>

#include "http/certificate.h"
#include "http/server.h"

enum {
    CONNECTIONS_MAX = 512,
    CONNECTIONS_KEPT = CONNECTIONS_MAX - 16, /* beyond, the idlest gives way to a new one */
    ELSEWHERE_KEPT = 128, /* of other machines, likewise; each holds some 35 KiB */
    IDLE_SECONDS = 120,
    ROUTES_MAX = 16,
};

/* Without RSA key exchange: a handshake that needs the key late could outlive its renewal. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:-RSA"

/* A client's connection, the first member of an engine's own. */
struct peer {
    struct peer *prev, *next; /* in the order of their last requests */
    int fd;
    bool loopback;
    bool used;        /* a request was begun on it */
    int64_t used_ns;  /* when its last request began; before the first, when it was accepted */
    unsigned awaited; /* requests that handlers hold; the connection is not ended meanwhile */
    bool ended;       /* we have shut it down */
};

struct http1;
struct http2;
struct tls_connection;

struct http_server {
    const struct http_route *routes;
    void *data;
    struct certificate *certificate; /* NULL: plain HTTP */
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
    uv_loop_t *loop;
    int listener;
    uv_poll_t accept;
    uv_timer_t tick;  /* each second */
    unsigned closing; /* handles that are not closed yet */
    struct peer *peers;
    unsigned peer_count, kept_count;            /* all; all that are not ended */
    unsigned elsewhere_count;                   /* of kept_count, from other machines */
    struct http_request *requests;              /* in the order of their beginning */
    struct http_request *half_sent[ROUTES_MAX]; /* for each route, requests with incomplete bodies,
                                                   the oldest first */
    size_t held[ROUTES_MAX]; /* for each route, bytes of its bodies and answers */
    struct http1 *http1;
    struct tls_connection *tls;
    bool left; /* a connection, since the last tick */
};

/* peers.c */
void peer_add(struct http_server *server, struct peer *peer, int fd, bool loopback);
void peer_used(struct http_server *server, struct peer *peer); /* a request begins */
void peer_remove(struct http_server *server, struct peer *peer);
/* Each second: ends connections that are too slow or unused. */
void peers_tick(struct http_server *server);

/* server.c */
void server_go_on_accepting(struct http_server *server);
bool address_is_loopback(const struct sockaddr *address);
/* GnuTLS' callback for the certificate; there is one TLS server a process. */
gnutls_certificate_retrieve_function2 give_certificate;

/* listen.c: the descriptor, or negative as http_server_new(). */
int http_listen(const char *address, struct error *err);

/* Requests: request.c */

struct http_request {
    struct http_request *prev, *next;           /* of the server's */
    struct http_request *prev_half, *next_half; /* of its route's, while half_sent */
    struct http_server *server;
    struct peer *peer;              /* NULL: the client has gone */
    const struct http_route *route; /* NULL: no such route; then the request holds no body */
    int64_t since_ns;               /* when it began; when it was answered */
    char *body;
    size_t len, size;
    unsigned refused; /* 0, or the status with which it is answered instead of by its handler */
    bool half_sent;   /* its body is incomplete */
    bool in_handler;
    bool awaited; /* its handler returned without an answer */
    bool answered;
    struct {
        unsigned status;
        const char *content_type;
        char *body; /* the request's own, or the page's */
        size_t len;
        struct http_page *page;    /* NULL: the body is the request's own */
        struct http_source source; /* in place of a body, if read is set */
    } answer;
    /* The engine's: the handler answered after it had returned. */
    void (*answered_late)(struct http_request *request);
};

/* Bytes that several answers share. */
struct http_page {
    unsigned refs;
    char *bytes;
    size_t len;
};

/* To be called before the functions below. */
void request_init(struct http_request *request, struct http_server *server, struct peer *peer);
/* The headers are complete. The path is without its query. */
void request_begin(struct http_request *request, const char *method, const char *path);
void request_add(struct http_request *request, const void *bytes, size_t len);
/* The request is complete: on return it is answered, or the handler holds it and answered_late()
 * will be called. */
void request_handle(struct http_request *request);
/* Frees the request's parts, not the struct; may follow request_init() directly. */
void request_deinit(struct http_request *request);

/* http1.c, over libmicrohttpd. */
int http1_new(struct http_server *server, struct error *err);
/* Takes a connection over. */
void http1_take(struct http1 *http1, int fd, const struct sockaddr *address, socklen_t len);
/* Sends what it can, and drops the rest. The memory goes once its handles are closed. */
void http1_free(struct http1 *http1);

/* http2.c, over nghttp2: a session, whatever carries its bytes. */

struct http2_owner {
    struct peer *peer;
    /* An answer came late: there is something to send. Not called from inside http2_receive(). */
    void (*wants_to_send)(struct peer *peer);
};

int http2_new(struct http_server *server, const struct http2_owner *owner,
              struct http2 **ret_session);
void http2_free(struct http2 *session);
/* Takes received bytes and calls handlers; negative when the session can't go on. */
int http2_receive(struct http2 *session, const void *bytes, size_t len);
/* Fills a buffer of at least HTTP2_OUT_MIN bytes with output; returns its length. */
size_t http2_gather(struct http2 *session, void *to, size_t size);
/* Neither side has anything to send any more. */
bool http2_is_over(struct http2 *session);
/* Tells the client that the session ends. */
void http2_end(struct http2 *session);

enum {
    HTTP2_OUT_MIN = 17 << 10, /* a frame */
};

/* tls.c: connections. Clients that offer HTTP/2 get it, the others go to http1.c. */
int tls_take(struct http_server *server, int fd, const struct sockaddr *address, socklen_t len);
/* Ends connections that were idle too long. */
void tls_tick(struct http_server *server);
/* Sends what it can, and drops the rest. The memory goes once its handles are closed. */
void tls_free(struct http_server *server);

/* hello.c */

enum {
    HELLO_MAX = 4096, /* bytes of a ClientHello; a longer one counts as not offering HTTP/2 */
};

/*
 * Whether the first bytes of a TLS connection, which were only peeked at, offer HTTP/2. *ret_want
 * is not 0 where more bytes are needed: so many in all.
 */
bool hello_offers_h2(const unsigned char *bytes, size_t len, size_t *ret_want);
