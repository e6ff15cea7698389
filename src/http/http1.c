/* SPDX-License-Identifier: Apache-2.0 */

/* HTTP/1.1 by libmicrohttpd, on connections that it is given. */

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>

#include "base/util.h"
#include "http/internal.h"

enum {
    CONNECTION_MEMORY = 32 << 10,
    SOURCE_BLOCK = 16 << 10,
    LAST_TURNS = 4, /* to wake a connection, to queue its answer, to send it */
};

struct http1 {
    struct http_server *server;
    struct MHD_Daemon *daemon;

    /*
     * libmicrohttpd must run when its epoll descriptor is readable, when a time is over, and when a
     * suspended connection was resumed, which the descriptor does not show in time. After each turn
     * we ask it when it wants the next one.
     */
    uv_poll_t poll;
    uv_timer_t timer;
    uv_idle_t idle;
    unsigned closing; /* handles that are not closed yet */
};

struct http1_request {
    struct http_request request; /* first */
    struct http1 *http1;
    struct MHD_Connection *connection;
    bool complete;
};

static void http1_take_turn(struct http1 *http1);

static void on_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    http1_take_turn(handle->data);
}

static void on_timer(uv_timer_t *handle)
{
    http1_take_turn(handle->data);
}

static void on_idle(uv_idle_t *handle)
{
    http1_take_turn(handle->data);
}

static void http1_take_turn(struct http1 *http1)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;

    (void)uv_idle_stop(&http1->idle);
    (void)MHD_run(http1->daemon);
    if (MHD_get_timeout(http1->daemon, &wait_ms) != MHD_YES)
        (void)uv_timer_stop(&http1->timer);
    else if (wait_ms == 0)
        (void)uv_idle_start(&http1->idle, on_idle);
    else
        (void)uv_timer_start(&http1->timer, on_timer, wait_ms, 0);
}

/* Connections */

static bool is_loopback(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    return info && info->client_addr && address_is_loopback(info->client_addr);
}

static void on_connection(void *data, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode what)
{
    struct http1 *http1 = data;
    const union MHD_ConnectionInfo *info;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *slot = info ? calloc(1, sizeof(struct peer)) : NULL;
        if (*slot)
            peer_add(http1->server, *slot, info->connect_fd, is_loopback(connection));
        return;
    }
    if (*slot)
        peer_remove(http1->server, *slot);
    free(*slot);
    *slot = NULL;
}

/* NULL: there was no memory for it. */
static struct peer *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* Requests */

static ssize_t http1_read_source(void *data, uint64_t position, char *to, size_t size)
{
    const struct http_source *source = data;
    ssize_t n = source->read(source->data, to, size);

    (void)position;
    if (n < 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    return n ? n : MHD_CONTENT_READER_END_OF_STREAM;
}

/* A page and a source live as long as the request, which outlives the sending; a body is given to
 * the response. */
static struct MHD_Response *body_of(struct http_request *request)
{
    struct MHD_Response *response;

    if (request->answer.source.read)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SOURCE_BLOCK, http1_read_source,
                                                 &request->answer.source, NULL);
    response = MHD_create_response_from_buffer(request->answer.len, request->answer.body,
                                               request->answer.page ? MHD_RESPMEM_PERSISTENT
                                                                    : MHD_RESPMEM_MUST_FREE);
    if (response)
        request->answer.body = NULL;
    return response;
}

static struct MHD_Response *response_of(struct http_request *request)
{
    struct MHD_Response *response = body_of(request);

    if (!response)
        return NULL;
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                  request->answer.content_type);
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (request->answer.status == 503)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return response;
}

static enum MHD_Result send_answer(struct http1_request *request)
{
    struct MHD_Response *response = response_of(&request->request);
    enum MHD_Result queued;

    if (!response)
        return MHD_NO; /* no memory for an answer: the connection is closed */
    queued = MHD_queue_response(request->connection, request->request.answer.status, response);
    MHD_destroy_response(response);
    return queued;
}

/* The connection is suspended since its handler returned, and must be woken. */
static void http1_on_answered_late(struct http_request *base)
{
    struct http1_request *request = (struct http1_request *)base;

    MHD_resume_connection(request->connection);
    (void)uv_idle_start(&request->http1->idle, on_idle);
}

static struct http1_request *http1_begin(struct http1 *http1, struct MHD_Connection *connection,
                                         const char *method, const char *path)
{
    struct peer *peer = peer_of(connection);
    struct http1_request *request = peer ? calloc(1, sizeof(*request)) : NULL;

    if (!request)
        return NULL;
    request->http1 = http1;
    request->connection = connection;
    request->request.answered_late = http1_on_answered_late;
    request_init(&request->request, http1->server, peer);
    request_begin(&request->request, method, path);
    return request;
}

/* libmicrohttpd calls this first with the headers, then with pieces of the body, then without any.
 */
static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *len, void **state)
{
    struct http1_request *request = *state;

    (void)version;
    if (!request) {
        *state = http1_begin(data, connection, method, path);
        return *state ? MHD_YES : MHD_NO;
    }
    if (*len) {
        request_add(&request->request, bytes, *len);
        *len = 0;
        return MHD_YES;
    }
    if (!request->complete) {
        request->complete = true;
        request_handle(&request->request);
    }
    if (request->request.answered)
        return send_answer(request);
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *data, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct http1_request *request = *state;

    (void)data;
    (void)connection;
    (void)code;
    if (request)
        request_deinit(&request->request);
    free(request);
    *state = NULL;
}

/* Life */

static int start_daemon(struct http1 *http1, struct error *err)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)give_certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    bool secured = http1->server->certificate;

    if (secured)
        flags |= MHD_USE_TLS;
    http1->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, http1, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http1, MHD_OPTION_ARRAY,
        secured ? tls : none, MHD_OPTION_END);
    return http1->daemon ? 0 : error_set(err, -EIO, "the HTTP server can't be started");
}

static int http1_join_loop(struct http1 *http1, struct error *err)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http1->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_loop_t *loop = http1->server->loop;
    int r = -EIO;

    if (info)
        r = uv_poll_init(loop, &http1->poll, info->epoll_fd);
    if (r < 0)
        return error_set(err, r, "the HTTP server can't join the loop");
    (void)uv_timer_init(loop, &http1->timer);
    (void)uv_idle_init(loop, &http1->idle);
    http1->poll.data = http1->timer.data = http1->idle.data = http1;
    http1->closing = 3;
    (void)uv_poll_start(&http1->poll, UV_READABLE, on_poll);
    http1_take_turn(http1);
    return 0;
}

int http1_new(struct http_server *server, struct error *err)
{
    struct http1 *http1 = calloc(1, sizeof(*http1));
    int r;

    if (!http1)
        return -ENOMEM;
    http1->server = server;
    r = start_daemon(http1, err);
    if (r == 0)
        r = http1_join_loop(http1, err);
    if (r < 0) {
        if (http1->daemon)
            MHD_stop_daemon(http1->daemon);
        free(http1);
        return r;
    }
    server->http1 = http1;
    return 0;
}

void http1_take(struct http1 *http1, int fd, const struct sockaddr *address, socklen_t len)
{
    /* On failure libmicrohttpd closes the descriptor. */
    (void)MHD_add_connection(http1->daemon, fd, address, len);
    http1_take_turn(http1);
}

static void http1_on_closed(uv_handle_t *handle)
{
    struct http1 *http1 = handle->data;

    if (--http1->closing == 0)
        free(http1);
}

void http1_free(struct http1 *http1)
{
    if (!http1)
        return;
    (void)uv_poll_stop(&http1->poll);
    /* The last answers are queued, not yet sent. */
    for (unsigned turn = 0; turn < LAST_TURNS; turn++)
        (void)MHD_run(http1->daemon);
    MHD_stop_daemon(http1->daemon);
    uv_close((uv_handle_t *)&http1->poll, http1_on_closed);
    uv_close((uv_handle_t *)&http1->timer, http1_on_closed);
    uv_close((uv_handle_t *)&http1->idle, http1_on_closed);
}
