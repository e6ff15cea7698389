/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Within the HTTP server: what its engines share. An engine speaks one version of HTTP on the
 * connections that it is given; requests, their bodies and answers are the same for both.
 */

#include <netinet/in.h>
#include <sys/socket.h>

#include "http/certificate.h"
#include "http/server.h"

enum {
    CONNECTIONS_MAX = 512,
    CONNECTIONS_KEPT = CONNECTIONS_MAX - 16, /* beyond, the idlest gives way to a newcomer */
    ELSEWHERE_KEPT = 128, /* of those from other machines, likewise: of each some 35 KiB are held */
    IDLE_SECONDS = 120,
    ROUTES_MAX = 16,
};

/* Without RSA key exchange: a handshake that needs the key late could outlive its renewal. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1:-RSA"

/* A client's connection, the first member of an engine's own. */
struct peer {
    struct peer *prev, *next; /* in the order of their last request's beginning */
    int fd;
    bool loopback;
    bool used;        /* a request was begun on it */
    int64_t used_ns;  /* when the last was begun; when it came */
    unsigned awaited; /* requests whose handlers answer later; it is not ended meanwhile */
    bool ended;       /* by us, to make room */
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
    unsigned peer_count, kept_count;            /* all; those not ended */
    unsigned elsewhere_count;                   /* of those not ended, from other machines */
    struct http_request *requests;              /* in the order of their beginning */
    struct http_request *half_sent[ROUTES_MAX]; /* of each route, whose bodies are not whole yet:
                                                   the one that began to come first is the first */
    size_t held[ROUTES_MAX];                    /* of each route: bytes of its bodies and answers */
    struct http1 *http1;
    struct tls_connection *tls;
    bool left; /* a connection, since the last tick */
};

/* peers.c */
void peer_add(struct http_server *server, struct peer *peer, int fd, bool loopback);
void peer_used(struct http_server *server, struct peer *peer); /* a request begins */
void peer_remove(struct http_server *server, struct peer *peer);
/* Each second: ends connections of those that are too slow, or do nothing. */
void peers_tick(struct http_server *server);

/* server.c */
void server_go_on_accepting(struct http_server *server);
bool address_is_loopback(const struct sockaddr *address);
/* GnuTLS' question for the certificate; there is one TLS server a process. */
gnutls_certificate_retrieve_function2 give_certificate;

/* listen.c: the descriptor, or negative as http_server_new(). */
int http_listen(const char *address, struct error *err);

/* Requests: request.c */

struct http_request {
    struct http_request *prev, *next;           /* of the server's */
    struct http_request *prev_half, *next_half; /* of its route's, while half_sent */
    struct http_server *server;
    struct peer *peer;              /* NULL: the client has gone */
    const struct http_route *route; /* NULL: none of that name; then it holds nothing */
    int64_t since_ns;               /* when it began; when it was answered */
    char *body;
    size_t len, size;
    unsigned refused; /* a status, when it is to be answered without its handler */
    bool half_sent;   /* it holds a body that is not whole yet */
    bool in_handler;
    bool awaited; /* it returned without an answer */
    bool answered;
    struct {
        unsigned status;
        const char *content_type;
        char *body; /* its own, or the page's */
        size_t len;
        struct http_page *page;    /* NULL: the body is its own */
        struct http_source source; /* in place of a body, where it has read() */
    } answer;
    /* The handler answered after it had returned. */
    void (*answered_late)(struct http_request *request);
};

/* Bytes that several answers share. */
struct http_page {
    unsigned refs;
    char *bytes;
    size_t len;
};

/* To be called before any of these below. */
void request_init(struct http_request *request, struct http_server *server, struct peer *peer);
/* Its headers are there. The path is without its query. */
void request_begin(struct http_request *request, const char *method, const char *path);
void request_add(struct http_request *request, const void *bytes, size_t len);
/* It is complete: answered when this returns, or handed to who calls answered_late(). */
void request_handle(struct http_request *request);
/* Gives back what it holds, not itself; after request_init() alone, too. */
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
/* Bytes that came; negative when the session can't go on. Handlers are called. */
int http2_receive(struct http2 *session, const void *bytes, size_t len);
/* Fills a buffer of at least HTTP2_OUT_MIN bytes with what is to be sent; how much. */
size_t http2_gather(struct http2 *session, void *to, size_t size);
/* Nothing is left to say or to hear. */
bool http2_is_over(struct http2 *session);
/* Tells the client that it ends. */
void http2_end(struct http2 *session);

enum {
    HTTP2_OUT_MIN = 17 << 10, /* a frame */
};

/* tls.c: connections; HTTP/2 on those that offer it, the others are http1.c's. */
int tls_take(struct http_server *server, int fd, const struct sockaddr *address, socklen_t len);
/* Ends those that were idle too long. */
void tls_tick(struct http_server *server);
/* Sends what it can, and drops the rest. The memory goes once its handles are closed. */
void tls_free(struct http_server *server);

/* hello.c */

enum {
    HELLO_MAX = 4096, /* bytes of a ClientHello that is read; a longer one is none that offers */
};

/*
 * Whether the first bytes of a TLS connection, not yet taken from it, offer HTTP/2. More bytes are
 * wanted where *ret_want is not 0: so many in all.
 */
bool hello_offers_h2(const unsigned char *bytes, size_t len, size_t *ret_want);
