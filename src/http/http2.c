/* SPDX-License-Identifier: Apache-2.0 */

/* HTTP/2 by nghttp2: a session, independent of the transport. */

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/util.h"
#include "http/internal.h"

enum {
    STREAMS_MAX = 256, /* requests at once on a connection of this machine: binds come in bursts */
    STREAMS_ELSEWHERE = 32, /* of other machines; each holds 1 KiB */
    WINDOW = 1 << 20,       /* bytes of bodies that a client may send ahead */
    HEADERS_MAX = 16 << 10,
    METHOD_MAX = 16,
    LONGEST_PATH = 256,
};

/* A stream. */
struct http2_request {
    struct http_request request; /* first */
    struct http2 *session;       /* NULL: the stream has gone */
    struct http2_request *prev, *next;
    int32_t stream;
    bool begun, complete;
    char method[METHOD_MAX], path[LONGEST_PATH];
    size_t sent; /* bytes of the answer's body */
};

struct http2 {
    nghttp2_session *nghttp2;
    struct http_server *server;
    struct http2_owner owner;
    struct http2_request *requests;
    bool broken; /* there was no memory for something that must be sent */
};

/* Answers */

static ssize_t read_body(nghttp2_session *nghttp2, int32_t stream, uint8_t *to, size_t size,
                         uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct http2_request *request = source->ptr;
    size_t len = MIN(size, request->request.answer.len - request->sent);

    (void)nghttp2;
    (void)stream;
    (void)data;
    if (len)
        memcpy(to, request->request.answer.body + request->sent, len);
    request->sent += len;
    if (request->sent == request->request.answer.len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static ssize_t http2_read_source(nghttp2_session *nghttp2, int32_t stream, uint8_t *to, size_t size,
                                 uint32_t *flags, nghttp2_data_source *source, void *data)
{
    struct http2_request *request = source->ptr;
    const struct http_source *from = &request->request.answer.source;
    ssize_t n = from->read(from->data, (char *)to, size);

    (void)nghttp2;
    (void)stream;
    (void)data;
    if (n < 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (n == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return n;
}

static nghttp2_nv http2_header(const char *name, const char *value)
{
    return (nghttp2_nv){
        .name = (uint8_t *)name,
        .namelen = strlen(name),
        .value = (uint8_t *)value,
        .valuelen = strlen(value),
    };
}

static void http2_submit(struct http2_request *request)
{
    bool made_later = request->request.answer.source.read;
    nghttp2_data_provider provider = {
        .source.ptr = request,
        .read_callback = made_later ? http2_read_source : read_body,
    };
    bool head = strcmp(request->method, "HEAD") == 0;
    char status[16], length[24];
    nghttp2_nv headers[5];
    size_t count = 0;

    (void)snprintf(status, sizeof(status), "%u", request->request.answer.status);
    (void)snprintf(length, sizeof(length), "%zu", request->request.answer.len);
    headers[count++] = http2_header(":status", status);
    headers[count++] = http2_header("content-type", request->request.answer.content_type);
    if (!made_later)
        headers[count++] = http2_header("content-length", length);
    headers[count++] = http2_header("x-content-type-options", "nosniff");
    if (request->request.answer.status == 503)
        headers[count++] = http2_header("retry-after", "1");
    if (nghttp2_submit_response(request->session->nghttp2, request->stream, headers, count,
                                head ? NULL : &provider) != 0)
        request->session->broken = true;
}

static void request_free(struct http2_request *request)
{
    request_deinit(&request->request);
    free(request);
}

static void http2_on_answered_late(struct http_request *base)
{
    struct http2_request *request = (struct http2_request *)base;

    if (!request->session) {
        request_free(request);
        return;
    }
    peer_used(request->request.server, request->request.peer);
    http2_submit(request);
    request->session->owner.wants_to_send(request->session->owner.peer);
}

/* The stream is closed. If a handler holds the request, it stays until the answer. */
static void let_go(struct http2_request *request)
{
    bool kept = request->request.awaited;

    DL_DELETE(request->session->requests, request);
    request->session = NULL;
    if (!kept) {
        request_free(request);
        return;
    }
    request->request.peer->awaited--;
    request->request.peer = NULL;
}

/* Requests */

static int on_begin_headers(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *data)
{
    struct http2 *session = data;
    struct http2_request *request;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    request = calloc(1, sizeof(*request));
    if (!request)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    request->session = session;
    request->stream = frame->hd.stream_id;
    request_init(&request->request, session->server, session->owner.peer);
    request->request.answered_late = http2_on_answered_late;
    DL_APPEND(session->requests, request);
    return nghttp2_session_set_stream_user_data(nghttp2, frame->hd.stream_id, request);
}

/* A text that is too long is left out: no route or method of ours is that long. */
static void keep_text(char *to, size_t size, const uint8_t *value, size_t len)
{
    if (len >= size)
        return;
    memcpy(to, value, len);
    to[len] = '\0';
}

static int on_header(nghttp2_session *nghttp2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *data)
{
    struct http2_request *request =
        nghttp2_session_get_stream_user_data(nghttp2, frame->hd.stream_id);

    (void)flags;
    (void)data;
    if (!request || request->begun)
        return 0;
    if (name_len == strlen(":method") && memcmp(name, ":method", name_len) == 0)
        keep_text(request->method, sizeof(request->method), value, value_len);
    if (name_len == strlen(":path") && memcmp(name, ":path", name_len) == 0)
        keep_text(request->path, sizeof(request->path), value, strcspn((const char *)value, "?"));
    return 0;
}

static int on_data(nghttp2_session *nghttp2, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t len, void *data)
{
    struct http2_request *request = nghttp2_session_get_stream_user_data(nghttp2, stream);

    (void)flags;
    (void)data;
    if (request && request->begun && !request->complete)
        request_add(&request->request, bytes, len);
    return 0;
}

static int on_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame, void *data)
{
    struct http2_request *request;

    (void)data;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    request = nghttp2_session_get_stream_user_data(nghttp2, frame->hd.stream_id);
    if (!request)
        return 0;
    if (!request->begun)
        request_begin(&request->request, request->method, request->path);
    request->begun = true;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || request->complete)
        return 0;
    request->complete = true;
    request_handle(&request->request);
    if (request->request.answered)
        http2_submit(request);
    return 0;
}

static int on_stream_close(nghttp2_session *nghttp2, int32_t stream, uint32_t code, void *data)
{
    struct http2_request *request = nghttp2_session_get_stream_user_data(nghttp2, stream);

    (void)code;
    (void)data;
    if (request)
        let_go(request);
    return 0;
}

/* Sessions */

static int make_session(struct http2 *session)
{
    nghttp2_session_callbacks *callbacks;
    int r;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    r = nghttp2_session_server_new(&session->nghttp2, callbacks, session);
    nghttp2_session_callbacks_del(callbacks);
    return r == 0 ? 0 : -ENOMEM;
}

int http2_new(struct http_server *server, const struct http2_owner *owner,
              struct http2 **ret_session)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
         owner->peer->loopback ? STREAMS_MAX : STREAMS_ELSEWHERE},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX},
    };
    struct http2 *session = calloc(1, sizeof(*session));

    if (!session)
        return -ENOMEM;
    session->server = server;
    session->owner = *owner;
    if (make_session(session) < 0 ||
        nghttp2_submit_settings(session->nghttp2, NGHTTP2_FLAG_NONE, settings,
                                ARRAY_SIZE(settings)) != 0 ||
        nghttp2_session_set_local_window_size(session->nghttp2, NGHTTP2_FLAG_NONE, 0, WINDOW) !=
            0) {
        http2_free(session);
        return -ENOMEM;
    }
    *ret_session = session;
    return 0;
}

void http2_free(struct http2 *session)
{
    if (!session)
        return;
    nghttp2_session_del(session->nghttp2);
    while (session->requests)
        let_go(session->requests);
    free(session);
}

int http2_receive(struct http2 *session, const void *bytes, size_t len)
{
    return nghttp2_session_mem_recv(session->nghttp2, bytes, len) < 0 ? -EPROTO : 0;
}

size_t http2_gather(struct http2 *session, void *to, size_t size)
{
    size_t len = 0;

    while (size - len >= HTTP2_OUT_MIN) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(session->nghttp2, &bytes);

        session->broken |= n < 0;
        if (n <= 0 || (size_t)n > size - len)
            break;
        memcpy((char *)to + len, bytes, (size_t)n);
        len += (size_t)n;
    }
    return len;
}

bool http2_is_over(struct http2 *session)
{
    return session->broken || (!nghttp2_session_want_read(session->nghttp2) &&
                               !nghttp2_session_want_write(session->nghttp2));
}

void http2_end(struct http2 *session)
{
    (void)nghttp2_session_terminate_session(session->nghttp2, NGHTTP2_NO_ERROR);
}
