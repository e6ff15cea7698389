/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An HTTP/2 session on a unix socket: bytes in and out, for both the server and the client. */

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include "base/strbuf.h"

enum {
    H2_READ_SIZE = 16 << 10,
    H2_WRITE_SIZE = 64 << 10, /* gathered for one write */
};

struct h2 {
    uv_pipe_t pipe; /* first: closed() gets it */
    nghttp2_session *session;
    bool reading; /* nghttp2 is at work: it must not be asked for output */
    bool writing; /* a write is under way */
    bool closing;
    uv_write_t write;
    char in[H2_READ_SIZE];
    char out[H2_WRITE_SIZE + (17 << 10)]; /* and a frame */
    /* The connection ended, or can't go on. Called once, never from inside nghttp2 or h2_send(). */
    void (*ended)(struct h2 *h2);
    /* The handle is closed: the memory may go. */
    void (*closed)(struct h2 *h2);
};

/* The owner makes the session, and sets ended and closed, before. */
int h2_init(struct h2 *h2, uv_loop_t *loop);
int h2_start(struct h2 *h2);

/* Sends the session's output; called within nghttp2's callbacks, it does so after them. */
void h2_send(struct h2 *h2);

/* Ends the connection; closed() follows. May be called without a session. */
void h2_close(struct h2 *h2);

/* Both texts stay the caller's. */
static inline nghttp2_nv h2_header(const char *name, const char *value)
{
    return (nghttp2_nv){
        .name = (uint8_t *)name,
        .namelen = strlen(name),
        .value = (uint8_t *)value,
        .valuelen = strlen(value),
    };
}

/* gRPC's framing: a byte (compressed or not), four of length, the message. */

enum {
    GRPC_PREFIX = 5,
};

struct grpc_frame {
    uint8_t *bytes; /* prefix and message, as received */
    size_t len, size;
    size_t max; /* of the message */
};

enum grpc_frame_outcome {
    GRPC_FRAME_MORE = 1,
    GRPC_FRAME_DONE, /* one message is complete */
};

/*
 * Adds bytes of a stream that carries one message. Returns an outcome, -EFBIG for a message beyond
 * max, -EPROTO for a message that is compressed or followed by another, -ENOMEM.
 */
int grpc_frame_add(struct grpc_frame *frame, const uint8_t *bytes, size_t len);
bool grpc_frame_is_done(const struct grpc_frame *frame);
const uint8_t *grpc_frame_message(const struct grpc_frame *frame, size_t *ret_len);
void grpc_frame_deinit(struct grpc_frame *frame);

/* grpc-message: bytes that are not printable ASCII, and "%", as %XX. Cut to fit. */
void grpc_encode_message(const char *text, char *to, size_t size);
void grpc_decode_message(const char *text, size_t len, char *to, size_t size);
