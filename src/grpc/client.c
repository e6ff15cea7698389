/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/util.h"
#include "grpc/grpc.h"
#include "grpc/h2.h"

enum {
    WINDOW = 4 << 20, /* so that a long answer needs no round trips */
};

struct grpc_request {
    struct h2 h2; /* first */
    uv_connect_t connect;
    uv_timer_t timer;
    unsigned open_handles;
    char *method;
    uint8_t *message; /* framed */
    size_t len, sent;
    int32_t stream;

    struct grpc_frame frame;
    bool has_status;
    bool answered; /* or cancelled */
    enum grpc_status status;
    char why[512];
    int failure;

    grpc_answer_fn fn;
    void *data;
};

static void request_release(struct grpc_request *request)
{
    if (--request->open_handles)
        return;
    grpc_frame_deinit(&request->frame);
    free(request->method);
    free(request->message);
    free(request);
}

static void on_timer_closed(uv_handle_t *handle)
{
    request_release(handle->data);
}

static void on_h2_closed(struct h2 *h2)
{
    request_release((struct grpc_request *)h2);
}

static void close_handles(struct grpc_request *request)
{
    h2_close(&request->h2);
    if (!uv_is_closing((uv_handle_t *)&request->timer))
        uv_close((uv_handle_t *)&request->timer, on_timer_closed);
}

void grpc_request_cancel(struct grpc_request *request)
{
    if (!request)
        return;
    request->answered = true;
    close_handles(request);
}

static void request_answer(struct grpc_request *request, int error, const char *why)
{
    struct grpc_answer got = {.error = error, .status = GRPC_UNAVAILABLE, .why = why};

    if (request->answered)
        return;
    request->answered = true;
    if (error == 0) {
        got.status = request->status;
        got.why = request->why;
    }
    if (error == 0 && got.status == GRPC_OK)
        got.message = grpc_frame_message(&request->frame, &got.len);
    close_handles(request);
    request->fn(request->data, &got);
}

/* The stream's end: finds out how the call ended. */
static void request_conclude(struct grpc_request *request)
{
    if (request->failure)
        request_answer(request, request->failure, strerror(-request->failure));
    else if (!request->has_status)
        request_answer(request, -ECONNRESET, "the connection ended without an answer");
    else if (request->status == GRPC_OK && !grpc_frame_is_done(&request->frame))
        request_answer(request, -EPROTO, "the answer is cut short");
    else
        request_answer(request, 0, "");
}

static void on_ended(struct h2 *h2)
{
    struct grpc_request *request = (struct grpc_request *)h2;

    if (request->answered)
        close_handles(request);
    else
        request_conclude(request);
}

static int client_on_header(nghttp2_session *session, const nghttp2_frame *frame,
                            const uint8_t *name, size_t name_len, const uint8_t *value,
                            size_t value_len, uint8_t flags, void *data)
{
    struct grpc_request *request = data;
    unsigned status = 0;

    (void)session;
    (void)flags;
    if (frame->hd.stream_id != request->stream)
        return 0;
    if (name_len == strlen("grpc-status") && memcmp(name, "grpc-status", name_len) == 0) {
        for (size_t i = 0; i < value_len && i < 3; i++)
            status = status * 10 + (unsigned)(value[i] - '0');
        request->status = (enum grpc_status)status;
        request->has_status = value_len > 0 && value_len < 3;
    }
    if (name_len == strlen("grpc-message") && memcmp(name, "grpc-message", name_len) == 0)
        grpc_decode_message((const char *)value, value_len, request->why, sizeof(request->why));
    return 0;
}

static int client_on_data(nghttp2_session *session, uint8_t flags, int32_t stream,
                          const uint8_t *bytes, size_t len, void *data)
{
    struct grpc_request *request = data;
    int r;

    (void)session;
    (void)flags;
    if (stream != request->stream || request->failure)
        return 0;
    r = grpc_frame_add(&request->frame, bytes, len);
    if (r < 0)
        request->failure = r;
    return 0;
}

/* Only ends the session: the callback is called from on_ended(), with no function of nghttp2 on the
 * stack. */
static int client_on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code,
                                  void *data)
{
    struct grpc_request *request = data;

    (void)code;
    if (stream == request->stream)
        (void)nghttp2_session_terminate_session(session, NGHTTP2_NO_ERROR);
    return 0;
}

static ssize_t read_message(nghttp2_session *session, int32_t stream, uint8_t *buf, size_t len,
                            uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct grpc_request *request = source->ptr;
    size_t n = MIN(len, request->len - request->sent);

    (void)session;
    (void)stream;
    (void)data;
    memcpy(buf, request->message + request->sent, n);
    request->sent += n;
    if (request->sent == request->len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int client_session_new(struct grpc_request *request)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    nghttp2_session_callbacks *callbacks;
    int r;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, client_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, client_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, client_on_stream_close);
    r = nghttp2_session_client_new(&request->h2.session, callbacks, request);
    nghttp2_session_callbacks_del(callbacks);
    if (r == 0)
        r = nghttp2_submit_settings(request->h2.session, NGHTTP2_FLAG_NONE, settings,
                                    ARRAY_SIZE(settings));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(request->h2.session, NGHTTP2_FLAG_NONE, 0,
                                                  WINDOW);
    return r == 0 ? 0 : -ENOMEM;
}

static int request_submit(struct grpc_request *request)
{
    nghttp2_data_provider provider = {.source.ptr = request, .read_callback = read_message};
    const nghttp2_nv headers[] = {
        h2_header(":method", "POST"),
        h2_header(":scheme", "http"),
        h2_header(":path", request->method),
        h2_header(":authority", "localhost"),
        h2_header("content-type", "application/grpc"),
        h2_header("te", "trailers"),
        h2_header("user-agent", "hami"),
    };

    request->stream = nghttp2_submit_request(request->h2.session, NULL, headers,
                                             ARRAY_SIZE(headers), &provider, NULL);
    return request->stream > 0 ? 0 : -ENOMEM;
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct grpc_request *request = connect->data;
    int r = status;

    if (request->answered)
        return;
    if (r == 0)
        r = client_session_new(request);
    if (r == 0)
        r = request_submit(request);
    if (r == 0)
        r = h2_start(&request->h2);
    if (r < 0)
        request_answer(request, r, uv_strerror(r));
}

static void on_timeout(uv_timer_t *timer)
{
    request_answer(timer->data, -ETIMEDOUT, "no answer in time");
}

static int frame_message(struct grpc_request *request, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);

    request->message = malloc(GRPC_PREFIX + len);
    if (!request->message)
        return -ENOMEM;
    request->message[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        request->message[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    (void)protobuf_c_message_pack(message, request->message + GRPC_PREFIX);
    request->len = GRPC_PREFIX + len;
    return 0;
}

int grpc_request(uv_loop_t *loop, const char *socket, const char *method,
                 const ProtobufCMessage *message, unsigned timeout_ms, grpc_answer_fn fn,
                 void *data, struct grpc_request **ret_request)
{
    struct grpc_request *request;

    if (strlen(socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -ENAMETOOLONG;
    request = calloc(1, sizeof(*request));
    if (!request)
        return -ENOMEM;
    request->method = strdup(method);
    if (!request->method || frame_message(request, message) < 0) {
        free(request->method);
        free(request);
        return -ENOMEM;
    }
    request->fn = fn;
    request->data = data;
    request->frame.max = GRPC_ANSWER_MAX;
    request->h2.ended = on_ended;
    request->h2.closed = on_h2_closed;
    request->connect.data = request->timer.data = request;
    request->open_handles = 2;
    (void)h2_init(&request->h2, loop);
    (void)uv_timer_init(loop, &request->timer);
    (void)uv_timer_start(&request->timer, on_timeout, timeout_ms, 0);
    uv_pipe_connect(&request->connect, &request->h2.pipe, socket, on_connected);
    if (ret_request)
        *ret_request = request;
    return 0;
}
