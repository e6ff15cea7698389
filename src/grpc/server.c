/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "grpc/grpc.h"
#include "grpc/h2.h"

enum {
    BACKLOG = 16,
    CONNECTIONS_MAX = 32,
    STREAMS_MAX = 128,
    QUEUE_MAX = 16 << 20, /* bytes waiting for a peer that does not read */
    HEADERS_MAX = 16 << 10,
};

struct grpc_server {
    uv_pipe_t pipe;
    uv_loop_t *loop;
    const struct grpc_service *service;
    void *data;
    struct connection *connections;
    unsigned connection_count;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    dev_t dev; /* of our socket, so that another server's is not removed */
    ino_t ino;
    bool closing;
    bool pipe_closed;
};

struct connection {
    struct h2 h2; /* first */
    struct grpc_server *server;
    struct connection *next, **link;
    struct grpc_call *calls;
};

/* A stream. Its owner has it from call() to grpc_call_end() or gone(). */
struct grpc_call {
    struct connection *connection;
    struct grpc_call *next, **link;
    int32_t stream;

    const struct grpc_method *method;
    bool is_post, is_grpc, has_path;
    struct grpc_frame request;

    bool owned;   /* call() was called, and the call did not end since */
    bool started; /* the response's headers were submitted */
    bool ended;
    enum grpc_status status;
    char why[512];
    uint8_t *queue;
    size_t queue_start, queue_len, queue_size;
};

/* Streams */

static struct grpc_call *call_new(struct connection *connection, int32_t stream)
{
    struct grpc_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->connection = connection;
    call->stream = stream;
    call->request.max = GRPC_REQUEST_MAX;
    call->next = connection->calls;
    call->link = &connection->calls;
    if (call->next)
        call->next->link = &call->next;
    connection->calls = call;
    return call;
}

static void call_free(struct grpc_call *call)
{
    struct grpc_server *server = call->connection->server;

    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    if (call->owned)
        server->service->gone(server->data, call);
    grpc_frame_deinit(&call->request);
    free(call->queue);
    free(call);
}

static void submit_trailer(struct grpc_call *call)
{
    char status[16], why[3 * sizeof(call->why)];
    nghttp2_nv headers[2];

    (void)snprintf(status, sizeof(status), "%d", (int)call->status);
    grpc_encode_message(call->why, why, sizeof(why));
    headers[0] = h2_header("grpc-status", status);
    headers[1] = h2_header("grpc-message", why);
    (void)nghttp2_submit_trailer(call->connection->h2.session, call->stream, headers, *why ? 2 : 1);
}

static ssize_t read_queue(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t len,
                          uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct grpc_call *call = source->ptr;
    size_t n = MIN(len, call->queue_len - call->queue_start);

    (void)session;
    (void)stream;
    (void)data;
    memcpy(buf, call->queue ? call->queue + call->queue_start : buf, n);
    call->queue_start += n;
    if (call->queue_start < call->queue_len)
        return (ssize_t)n;
    call->queue_start = call->queue_len = 0;
    if (call->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailer(call);
        return (ssize_t)n;
    }
    return n ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

/* Has nghttp2 send the call's queue and its end. */
static void call_push(struct grpc_call *call)
{
    nghttp2_session *session = call->connection->h2.session;
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_queue};
    nghttp2_nv headers[] = {
        h2_header(":status", "200"),
        h2_header("content-type", "application/grpc"),
    };

    if (!call->started)
        (void)nghttp2_submit_response(session, call->stream, headers, ARRAY_SIZE(headers),
                                      &provider);
    else
        (void)nghttp2_session_resume_data(session, call->stream);
    call->started = true;
    h2_send(&call->connection->h2);
}

int grpc_call_send(struct grpc_call *call, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    size_t want = call->queue_len + GRPC_PREFIX + len;
    uint8_t *queue, *p;

    if (want > QUEUE_MAX)
        return -ENOBUFS;
    if (want > call->queue_size) {
        queue = realloc(call->queue, want);
        if (!queue)
            return -ENOMEM;
        call->queue = queue;
        call->queue_size = want;
    }
    p = call->queue + call->queue_len;
    p[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        p[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    (void)protobuf_c_message_pack(message, p + GRPC_PREFIX);
    call->queue_len = want;
    call_push(call);
    return 0;
}

void grpc_call_end(struct grpc_call *call, enum grpc_status status, const char *why)
{
    call->owned = false;
    call->ended = true;
    call->status = status;
    COPY_TEXT(call->why, why ? why : "");
    call_push(call);
}

int grpc_call_fd(const struct grpc_call *call)
{
    uv_os_fd_t fd;
    int r = uv_fileno((const uv_handle_t *)&call->connection->h2.pipe, &fd);

    return r < 0 ? -EBADF : fd;
}

/* Requests */

static bool name_is(const uint8_t *name, size_t len, const char *wanted)
{
    return len == strlen(wanted) && memcmp(name, wanted, len) == 0;
}

static const struct grpc_method *find_method(const struct grpc_server *server, const uint8_t *path,
                                             size_t len)
{
    for (size_t i = 0; i < server->service->method_count; i++) {
        if (name_is(path, len, server->service->methods[i].path))
            return &server->service->methods[i];
    }
    return NULL;
}

/* nghttp2's checks of headers are off, since older versions of kubelet send a bad :authority. The
 * headers that we need are checked here. */
static int server_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                            const uint8_t *name, size_t name_len, const uint8_t *value,
                            size_t value_len, uint8_t flags, void *data)
{
    static const char type[] = "application/grpc";
    struct grpc_call *call;
    struct connection *connection = data;

    (void)flags;
    if (connection->h2.closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!call)
        return 0;
    if (name_is(name, name_len, ":method"))
        call->is_post = name_is(value, value_len, "POST");
    if (name_is(name, name_len, ":path")) {
        call->has_path = true;
        call->method = find_method(connection->server, value, value_len);
    }
    if (name_is(name, name_len, "content-type"))
        call->is_grpc = value_len >= strlen(type) && memcmp(value, type, strlen(type)) == 0;
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct connection *connection = data;
    struct grpc_call *call;

    if (connection->h2.closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    call = call_new(connection, frame->hd.stream_id);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
}

static void call_refuse(struct grpc_call *call, int r)
{
    if (r == -EFBIG)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the request is too long");
    else if (r == -EPROTO)
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "compressed or more than one message");
    else
        grpc_call_end(call, GRPC_INTERNAL, strerror(-r));
}

static int server_on_data(nghttp2_session *session, uint8_t flags, int32_t stream,
                          const uint8_t *bytes, size_t len, void *data)
{
    struct connection *connection = data;
    struct grpc_call *call;
    int r;

    (void)flags;
    if (connection->h2.closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    call = nghttp2_session_get_stream_user_data(session, stream);
    if (!call || call->ended)
        return 0;
    r = grpc_frame_add(&call->request, bytes, len);
    if (r < 0)
        call_refuse(call, r);
    return 0;
}

static void call_dispatch(struct grpc_call *call)
{
    struct grpc_server *server = call->connection->server;
    const uint8_t *message;
    size_t len;

    if (!call->is_post || !call->has_path || !call->is_grpc) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "not a gRPC request");
        return;
    }
    if (!call->method) {
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "unknown method");
        return;
    }
    if (!grpc_frame_is_done(&call->request)) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "the request is cut short");
        return;
    }
    call->owned = true;
    message = grpc_frame_message(&call->request, &len);
    call->method->call(server->data, call, message, len);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct connection *connection = data;
    struct grpc_call *call;

    if (connection->h2.closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call && !call->ended && !call->owned)
        call_dispatch(call);
    /* The callback may have freed the server, and with it the streams' data. */
    return connection->h2.closing ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int server_on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code,
                                  void *data)
{
    struct connection *connection = data;
    struct grpc_call *call;

    (void)code;
    if (connection->h2.closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    call = nghttp2_session_get_stream_user_data(session, stream);
    if (call)
        call_free(call);
    return connection->h2.closing ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* Connections */

static void server_release(struct grpc_server *server)
{
    if (server->pipe_closed && !server->connections)
        free(server);
}

static void on_connection_closed(struct h2 *h2)
{
    struct connection *connection = (struct connection *)h2;
    struct grpc_server *server = connection->server;

    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    server->connection_count--;
    free(connection);
    if (server->closing)
        server_release(server);
}

static void connection_close(struct connection *connection)
{
    while (connection->calls)
        call_free(connection->calls);
    h2_close(&connection->h2);
}

static void on_connection_ended(struct h2 *h2)
{
    connection_close((struct connection *)h2);
}

static int server_session_new(struct connection *connection)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX},
    };
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    int r;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    if (nghttp2_option_new(&option) != 0) {
        nghttp2_session_callbacks_del(callbacks);
        return -ENOMEM;
    }
    nghttp2_option_set_no_http_messaging(option, 1);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, server_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, server_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, server_on_stream_close);
    r = nghttp2_session_server_new2(&connection->h2.session, callbacks, connection, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (r == 0)
        r = nghttp2_submit_settings(connection->h2.session, NGHTTP2_FLAG_NONE, settings,
                                    ARRAY_SIZE(settings));
    return r == 0 ? 0 : -ENOMEM;
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct grpc_server *server = (struct grpc_server *)stream;
    struct connection *connection;

    if (status < 0 || server->closing)
        return;
    connection = calloc(1, sizeof(*connection));
    if (!connection)
        return;
    connection->server = server;
    connection->h2.ended = on_connection_ended;
    connection->h2.closed = on_connection_closed;
    if (h2_init(&connection->h2, server->loop) < 0) {
        free(connection);
        return;
    }
    connection->next = server->connections;
    connection->link = &server->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    server->connections = connection;
    server->connection_count++;
    if (uv_accept(stream, (uv_stream_t *)&connection->h2.pipe) < 0 ||
        server->connection_count > CONNECTIONS_MAX || server_session_new(connection) < 0 ||
        h2_start(&connection->h2) < 0)
        connection_close(connection);
}

/* The server */

/*
 * Not bound by libuv, which would remove the name on closing, even if it is another server's socket
 * by then. The socket is renamed into place, so that there is one at every moment.
 */
static int bind_socket(struct grpc_server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    AUTOCLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat st;
    int r;

    if (fd < 0)
        return -errno;
    r = snprintf(address.sun_path, sizeof(address.sun_path), "%s.%d", server->path, (int)getpid());
    if (r >= (int)sizeof(address.sun_path))
        return -ENAMETOOLONG;
    (void)unlink(address.sun_path);
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    if (chmod(address.sun_path, 0600) < 0 || lstat(address.sun_path, &st) < 0 ||
        rename(address.sun_path, server->path) < 0) {
        r = -errno;
        (void)unlink(address.sun_path);
        return r;
    }
    server->dev = st.st_dev;
    server->ino = st.st_ino;
    r = uv_pipe_open(&server->pipe, fd);
    if (r == 0)
        (void)take_fd(&fd);
    return r;
}

static int listen_on(struct grpc_server *server, struct error *err)
{
    int r;

    r = bind_socket(server);
    if (r == 0)
        r = uv_listen((uv_stream_t *)&server->pipe, BACKLOG, on_connection);
    if (r < 0)
        return error_set(err, r, "cannot listen on %s: %s", server->path, uv_strerror(r));
    return 0;
}

int grpc_server_new(uv_loop_t *loop, const char *path, const struct grpc_service *service,
                    void *data, struct grpc_server **ret_server, struct error *err)
{
    struct grpc_server *server;
    int r;

    if (strlen(path) >= sizeof(server->path))
        return error_set(err, -ENAMETOOLONG, "cannot listen on %s: the path is too long", path);
    server = calloc(1, sizeof(*server));
    if (!server)
        return error_set(err, -ENOMEM, "cannot listen on %s: no memory", path);
    server->loop = loop;
    server->service = service;
    server->data = data;
    COPY_TEXT(server->path, path);
    (void)uv_pipe_init(loop, &server->pipe, 0);
    r = listen_on(server, err);
    if (r < 0) {
        grpc_server_free(server);
        return r;
    }
    *ret_server = server;
    return 0;
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct grpc_server *server = (struct grpc_server *)handle;

    server->pipe_closed = true;
    server_release(server);
}

bool grpc_server_is_reachable(const struct grpc_server *server)
{
    struct stat st;

    return server->ino && lstat(server->path, &st) == 0 && st.st_dev == server->dev &&
           st.st_ino == server->ino;
}

void grpc_server_free(struct grpc_server *server)
{
    if (!server || server->closing)
        return;
    server->closing = true;
    for (struct connection *it = server->connections, *next; it; it = next) {
        next = it->next;
        connection_close(it);
    }
    if (grpc_server_is_reachable(server))
        (void)unlink(server->path);
    uv_close((uv_handle_t *)&server->pipe, on_pipe_closed);
}
