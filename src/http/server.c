/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "base/log.h"
#include "base/util.h"
#include "http/certificate.h"

enum {
    CONNECTIONS_MAX = 512,
    CONNECTIONS_KEPT = CONNECTIONS_MAX - 16, /* beyond, the idlest gives way to who comes */
    BODIES_MAX = 64 << 20,                   /* bytes of all requests' bodies together */
    IDLE_SECONDS = 120,
    CONNECTION_MEMORY = 32 << 10,
    CERTIFICATE_CHECK_MS = 1000,
    BODY_FIRST = 8 << 10,
    LAST_TURNS = 4, /* to wake a connection, to queue its answer, to send it */
};

/* A client's connection. */
struct peer {
    struct peer *prev, *next; /* in the order of their last request's beginning */
    int fd;
    bool answered_late; /* a handler has its request, and will answer */
    bool ended;         /* by us, to make room */
};

struct http_server {
    struct MHD_Daemon *daemon;
    const struct http_route *routes;
    void *data;
    struct certificate *certificate; /* NULL: plain HTTP */
    int listener;
    struct peer *peers;
    unsigned peer_count; /* of those not ended */
    size_t held;         /* bytes of bodies */

    /*
     * libmicrohttpd does its work when its epoll descriptor says so, when a time is over, and when
     * a suspended connection was resumed, which no descriptor tells in time. After each turn it is
     * asked anew when it wants the next.
     */
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t idle;
    uv_timer_t refresh;
    unsigned closing; /* handles that are not closed yet */
};

struct http_request {
    struct http_server *server;
    struct MHD_Connection *connection;
    struct peer *peer;
    const struct http_route *route;
    char *body;
    size_t len, size;
    unsigned refused; /* a status, when it is to be answered without its handler */
    bool complete;    /* its body is there, its handler was called */
    bool in_handler;
    struct MHD_Response *response; /* when it was answered */
    unsigned status;
};

/* gnutls asks for the certificate without saying for whom: there is one TLS server a process. */
static struct certificate *certificate_in_force;

static void take_turn(struct http_server *server);

static void on_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    take_turn(handle->data);
}

static void on_timer(uv_timer_t *handle)
{
    take_turn(handle->data);
}

static void on_idle(uv_idle_t *handle)
{
    take_turn(handle->data);
}

static void on_refresh(uv_timer_t *handle)
{
    struct http_server *server = handle->data;

    certificate_refresh(server->certificate);
}

static void take_turn(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;

    (void)uv_idle_stop(&server->idle);
    (void)MHD_run(server->daemon);
    if (MHD_get_timeout(server->daemon, &wait_ms) != MHD_YES)
        (void)uv_timer_stop(&server->timer);
    else if (wait_ms == 0)
        (void)uv_idle_start(&server->idle, on_idle);
    else
        (void)uv_timer_start(&server->timer, on_timer, wait_ms, 0);
}

/* Its end is seen by libmicrohttpd as if the client had closed it. */
static void end_idlest(struct http_server *server)
{
    struct peer *peer;

    DL_FOREACH(server->peers, peer)
    {
        if (peer->answered_late || peer->ended)
            continue;
        peer->ended = true;
        server->peer_count--;
        (void)shutdown(peer->fd, SHUT_RDWR);
        return;
    }
}

static void add_peer(struct http_server *server, struct MHD_Connection *connection, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct peer *peer = info ? calloc(1, sizeof(*peer)) : NULL;

    *slot = peer;
    if (!peer)
        return;
    peer->fd = info->connect_fd;
    if (server->peer_count >= CONNECTIONS_KEPT)
        end_idlest(server);
    DL_APPEND(server->peers, peer);
    server->peer_count++;
}

static void on_connection(void *data, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http_server *server = data;
    struct peer *peer = *slot;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        add_peer(server, connection, slot);
        return;
    }
    if (!peer)
        return;
    server->peer_count -= !peer->ended;
    DL_DELETE(server->peers, peer);
    free(peer);
    *slot = NULL;
}

/* NULL where there was no memory for one. */
static struct peer *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static bool is_loopback(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    const struct in6_addr *six;

    if (!address)
        return false;
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family != AF_INET6)
        return false;
    six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

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

static void set_answer(struct http_request *request, unsigned status, const char *content_type,
                       char *body, size_t len, enum MHD_ResponseMemoryMode mode)
{
    request->status = status;
    request->response = MHD_create_response_from_buffer(len, body, mode);
    if (!request->response) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(body);
        return;
    }
    (void)MHD_add_response_header(request->response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    (void)MHD_add_response_header(request->response, "X-Content-Type-Options", "nosniff");
    if (status == 503)
        (void)MHD_add_response_header(request->response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

/* Within its handler the connection is libmicrohttpd's already; later it has to be woken. */
static void wake(struct http_request *request)
{
    struct http_server *server = request->server;

    if (request->in_handler)
        return;
    MHD_resume_connection(request->connection);
    (void)uv_idle_start(&server->idle, on_idle);
}

void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const char *body, size_t len)
{
    set_answer(request, status, content_type, (char *)body, len, MHD_RESPMEM_MUST_COPY);
    wake(request);
}

void http_answer_take(struct http_request *request, unsigned status, const char *content_type,
                      char *body, size_t len)
{
    set_answer(request, status, content_type, body, len, MHD_RESPMEM_MUST_FREE);
    wake(request);
}

char *http_request_body(const struct http_request *request, size_t *ret_len)
{
    *ret_len = request->len;
    return request->body;
}

static enum MHD_Result send_answer(struct http_request *request)
{
    enum MHD_Result queued;

    if (!request->response)
        return MHD_NO; /* no memory for an answer: the connection is closed */
    queued = MHD_queue_response(request->connection, request->status, request->response);
    MHD_destroy_response(request->response);
    request->response = NULL;
    return queued;
}

static enum MHD_Result refuse(struct http_request *request)
{
    const char *words = status_words(request->refused);

    set_answer(request, request->refused, HTTP_TEXT, (char *)words, strlen(words),
               MHD_RESPMEM_PERSISTENT);
    return send_answer(request);
}

static enum MHD_Result call_handler(struct http_request *request)
{
    request->complete = true;
    request->in_handler = true;
    request->route->handle(request->server->data, request);
    request->in_handler = false;
    if (request->response)
        return send_answer(request);
    if (request->peer)
        request->peer->answered_late = true;
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

/* Makes room for len bytes and a NUL; false: no memory, or too much is held by all together. */
static bool make_room(struct http_request *request, size_t len)
{
    struct http_server *server = request->server;
    size_t size = MAX(len + 1, MAX((size_t)BODY_FIRST, 2 * request->size));
    char *body;

    if (len < request->size)
        return true;
    size = MIN(size, MAX(request->route->max_body, len) + 1);
    if (server->held - request->size + size > BODIES_MAX)
        return false;
    body = realloc(request->body, size);
    if (!body)
        return false;
    server->held += size - request->size;
    request->body = body;
    request->size = size;
    return true;
}

static void keep_body(struct http_request *request, const char *bytes, size_t len)
{
    if (request->refused)
        return;
    if (request->len + len > request->route->max_body) {
        request->refused = 413;
        return;
    }
    if (!make_room(request, request->len + len)) {
        request->refused = 503;
        return;
    }
    memcpy(request->body + request->len, bytes, len);
    request->len += len;
    request->body[request->len] = '\0';
}

static struct http_request *begin(struct http_server *server, struct MHD_Connection *connection,
                                  const char *method, const char *path)
{
    struct http_request *request = calloc(1, sizeof(*request));

    if (!request)
        return NULL;
    request->server = server;
    request->connection = connection;
    request->peer = peer_of(connection);
    if (request->peer) {
        DL_DELETE(server->peers, request->peer);
        DL_APPEND(server->peers, request->peer);
    }
    request->route = find_route(server, method, path, &request->refused);
    if (!request->route)
        return request;
    request->refused = 0;
    if (request->route->loopback_only && !is_loopback(connection))
        request->refused = 403;
    return request;
}

/* libmicrohttpd calls this first with the headers, then with pieces of the body, then without any.
 */
static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *len, void **state)
{
    struct http_request *request = *state;

    (void)version;
    if (!request) {
        *state = begin(data, connection, method, path);
        return *state ? MHD_YES : MHD_NO;
    }
    if (*len) {
        keep_body(request, bytes, *len);
        *len = 0;
        return MHD_YES;
    }
    if (request->complete)
        return send_answer(request);
    if (!request->refused && !request->body)
        keep_body(request, "", 0);
    return request->refused ? refuse(request) : call_handler(request);
}

static void on_completed(void *data, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct http_request *request = *state;

    (void)data;
    (void)connection;
    (void)code;
    if (!request)
        return;
    if (request->response)
        MHD_destroy_response(request->response);
    if (request->peer)
        request->peer->answered_late = false;
    request->server->held -= request->size;
    free(request->body);
    free(request);
    *state = NULL;
}

static int give_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                            int authority_count, const gnutls_pk_algorithm_t *algorithms,
                            int algorithm_count, gnutls_pcert_st **ret_chain, unsigned *ret_count,
                            gnutls_privkey_t *ret_key)
{
    struct certificate_pair *pair = certificate_current(certificate_in_force);

    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    *ret_chain = pair->chain;
    *ret_count = pair->count;
    *ret_key = pair->key;
    return 0;
}

/* "HOST:PORT", the host perhaps in brackets or missing. */
static int split_address(const char *address, char host[static NI_MAXHOST], const char **ret_port,
                         struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon ? (size_t)(colon - address) : 0;

    if (!colon || !colon[1] || len >= NI_MAXHOST)
        return error_set(err, -EINVAL, "%s: not an address as HOST:PORT", address);
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int listen_on(const struct addrinfo *info)
{
    const int on = 1, off = 0;
    AUTOCLOSE int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (info->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Without a host both kinds of addresses are listened on, where the machine has both. */
static int open_listener(const char *address, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char host[NI_MAXHOST];
    const char *port = NULL;
    int fd = -EADDRNOTAVAIL, r;

    r = split_address(address, host, &port, err);
    if (r < 0)
        return r;
    hints.ai_family = host[0] ? AF_UNSPEC : AF_INET6;
    r = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
    if (r != 0)
        return error_set(err, -EINVAL, "%s: %s", address, gai_strerror(r));
    for (const struct addrinfo *info = list; info && fd < 0; info = info->ai_next)
        fd = listen_on(info);
    freeaddrinfo(list);
    if (fd < 0 && !host[0] && fd != -EADDRINUSE) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct addrinfo any = {
            .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&four, .ai_addrlen = sizeof(four)};

        four.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
        fd = listen_on(&any);
    }
    return fd < 0 ? error_set(err, fd, "listening on %s: %s", address, strerror(-fd)) : fd;
}

static int start_daemon(struct http_server *server, struct error *err)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)give_certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

    if (server->certificate)
        flags |= MHD_USE_TLS;
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, server->listener,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_ARRAY, server->certificate ? tls : none, MHD_OPTION_END);
    return server->daemon ? 0 : error_set(err, -EIO, "the HTTP server can't be started");
}

static int join_loop(struct http_server *server, uv_loop_t *loop, struct error *err)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int r = -EIO;

    if (info)
        r = uv_poll_init(loop, &server->poll, info->epoll_fd);
    if (r < 0)
        return error_set(err, r, "the HTTP server can't join the loop");
    (void)uv_timer_init(loop, &server->timer);
    (void)uv_timer_init(loop, &server->refresh);
    (void)uv_idle_init(loop, &server->idle);
    server->poll.data = server->timer.data = server->refresh.data = server->idle.data = server;
    server->closing = 4;
    (void)uv_poll_start(&server->poll, UV_READABLE, on_poll);
    if (server->certificate)
        (void)uv_timer_start(&server->refresh, on_refresh, CERTIFICATE_CHECK_MS,
                             CERTIFICATE_CHECK_MS);
    return 0;
}

static void forget(struct http_server *server)
{
    if (certificate_in_force == server->certificate)
        certificate_in_force = NULL;
    certificate_free(server->certificate);
    free(server);
}

static int start(struct http_server *server, uv_loop_t *loop, const struct http_options *options,
                 struct error *err)
{
    int r;

    if (options->cert_file) {
        r = certificate_new(options->cert_file, options->key_file, &server->certificate, err);
        if (r < 0)
            return r;
        certificate_in_force = server->certificate;
    }
    server->listener = open_listener(options->address, err);
    if (server->listener < 0)
        return server->listener;
    r = start_daemon(server, err);
    if (r < 0) {
        (void)close(server->listener);
        return r;
    }
    r = join_loop(server, loop, err);
    if (r < 0)
        MHD_stop_daemon(server->daemon);
    return r;
}

int http_server_new(uv_loop_t *loop, const struct http_options *options,
                    struct http_server **ret_server, struct error *err)
{
    struct http_server *server = calloc(1, sizeof(*server));
    int r;

    if (!server)
        return -ENOMEM;
    server->routes = options->routes;
    server->data = options->data;
    r = start(server, loop, options, err);
    if (r < 0) {
        forget(server);
        return r;
    }
    take_turn(server);
    *ret_server = server;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;

    if (--server->closing == 0)
        forget(server);
}

/* What was answered last was not yet put on its way. */
static void send_answers(struct http_server *server)
{
    for (unsigned turn = 0; turn < LAST_TURNS; turn++)
        (void)MHD_run(server->daemon);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    (void)uv_poll_stop(&server->poll);
    send_answers(server);
    MHD_stop_daemon(server->daemon);
    uv_close((uv_handle_t *)&server->poll, on_closed);
    uv_close((uv_handle_t *)&server->timer, on_closed);
    uv_close((uv_handle_t *)&server->refresh, on_closed);
    uv_close((uv_handle_t *)&server->idle, on_closed);
}

unsigned http_server_port(const struct http_server *server)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);

    if (getsockname(server->listener, (struct sockaddr *)&address, &len) < 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}
