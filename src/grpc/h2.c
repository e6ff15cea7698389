/* SPDX-License-Identifier: Apache-2.0 */
#include "grpc/h2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

int h2_init(struct h2 *h2, uv_loop_t *loop)
{
    return uv_pipe_init(loop, &h2->pipe, 0);
}

static void on_closed(uv_handle_t *handle)
{
    struct h2 *h2 = (struct h2 *)handle;

    nghttp2_session_del(h2->session);
    h2->session = NULL;
    h2->closed(h2);
}

void h2_close(struct h2 *h2)
{
    if (h2->closing)
        return;
    h2->closing = true;
    uv_close((uv_handle_t *)&h2->pipe, on_closed);
}

static void h2_end(struct h2 *h2)
{
    if (!h2->closing)
        h2->ended(h2);
}

static void on_written(uv_write_t *write, int status)
{
    struct h2 *h2 = write->data;

    h2->writing = false;
    if (h2->closing)
        return;
    if (status < 0) {
        h2_end(h2);
        return;
    }
    h2_send(h2);
    /* Neither side has anything to send any more: GOAWAY was received or sent. */
    if (!h2->writing && !nghttp2_session_want_read(h2->session) &&
        !nghttp2_session_want_write(h2->session))
        h2_end(h2);
}

/* Output is gathered into one buffer for one write; -EPIPE when the session is broken. */
static ssize_t h2_gather(struct h2 *h2)
{
    size_t len = 0;

    while (len < H2_WRITE_SIZE) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(h2->session, &bytes);

        if (n < 0 || (size_t)n > sizeof(h2->out) - len)
            return -EPIPE;
        if (n == 0)
            break;
        memcpy(h2->out + len, bytes, (size_t)n);
        len += (size_t)n;
    }
    return (ssize_t)len;
}

void h2_send(struct h2 *h2)
{
    uv_buf_t buf;
    ssize_t len;

    if (h2->reading || h2->writing || h2->closing || !h2->session)
        return;
    len = h2_gather(h2);
    if (len == 0)
        return;
    buf = uv_buf_init(h2->out, len > 0 ? (unsigned)len : 0);
    h2->write.data = h2;
    /* A failure here repeats at the next read, which calls ended(). */
    if (len < 0 || uv_write(&h2->write, (uv_stream_t *)&h2->pipe, &buf, 1, on_written) < 0)
        (void)nghttp2_session_terminate_session(h2->session, NGHTTP2_INTERNAL_ERROR);
    else
        h2->writing = true;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct h2 *h2 = (struct h2 *)handle;

    (void)suggested;
    *buf = uv_buf_init(h2->in, sizeof(h2->in));
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct h2 *h2 = (struct h2 *)stream;
    ssize_t taken;

    if (len == 0)
        return;
    if (len < 0) {
        h2_end(h2);
        return;
    }
    h2->reading = true;
    taken = nghttp2_session_mem_recv(h2->session, (const uint8_t *)buf->base, (size_t)len);
    h2->reading = false;
    if (h2->closing)
        return;
    if (taken < 0) {
        h2_end(h2);
        return;
    }
    h2_send(h2);
    if (!h2->writing && !h2->closing && !nghttp2_session_want_read(h2->session) &&
        !nghttp2_session_want_write(h2->session))
        h2_end(h2);
}

int h2_start(struct h2 *h2)
{
    int r = uv_read_start((uv_stream_t *)&h2->pipe, on_alloc, on_read);

    if (r == 0)
        h2_send(h2);
    return r;
}
