/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "grpc/h2.h"

static size_t message_length(const struct grpc_frame *frame)
{
    const uint8_t *p = frame->bytes;

    return (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
}

static int frame_reserve(struct grpc_frame *frame, size_t size)
{
    uint8_t *bytes;

    if (size <= frame->size)
        return 0;
    bytes = realloc(frame->bytes, size);
    if (!bytes)
        return -ENOMEM;
    frame->bytes = bytes;
    frame->size = size;
    return 0;
}

static int add_prefix(struct grpc_frame *frame, const uint8_t **bytes, size_t *len)
{
    size_t n = MIN(*len, GRPC_PREFIX - frame->len);
    int r;

    r = frame_reserve(frame, GRPC_PREFIX);
    if (r < 0)
        return r;
    memcpy(frame->bytes + frame->len, *bytes, n);
    frame->len += n;
    *bytes += n;
    *len -= n;
    if (frame->len < GRPC_PREFIX)
        return 0;
    if (frame->bytes[0] != 0)
        return -EPROTO;
    return message_length(frame) > frame->max ? -EFBIG : 0;
}

int grpc_frame_add(struct grpc_frame *frame, const uint8_t *bytes, size_t len)
{
    size_t want;
    int r;

    if (frame->len < GRPC_PREFIX) {
        r = add_prefix(frame, &bytes, &len);
        if (r < 0 || frame->len < GRPC_PREFIX)
            return r < 0 ? r : GRPC_FRAME_MORE;
    }
    want = GRPC_PREFIX + message_length(frame);
    if (len > want - frame->len)
        return -EPROTO;
    /* Grows with the received bytes: a large length alone takes no memory. */
    if (frame->len + len > frame->size) {
        r = frame_reserve(frame, MIN(want, MAX((frame->len + len) * 2, (size_t)1024)));
        if (r < 0)
            return r;
    }
    if (len)
        memcpy(frame->bytes + frame->len, bytes, len);
    frame->len += len;
    return frame->len == want ? GRPC_FRAME_DONE : GRPC_FRAME_MORE;
}

bool grpc_frame_is_done(const struct grpc_frame *frame)
{
    return frame->len >= GRPC_PREFIX && frame->len == GRPC_PREFIX + message_length(frame);
}

const uint8_t *grpc_frame_message(const struct grpc_frame *frame, size_t *ret_len)
{
    *ret_len = frame->len - GRPC_PREFIX;
    return frame->bytes + GRPC_PREFIX;
}

void grpc_frame_deinit(struct grpc_frame *frame)
{
    free(frame->bytes);
    *frame = (struct grpc_frame){.max = frame->max};
}

void grpc_encode_message(const char *text, char *to, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p && len + 4 <= size; p++) {
        if (*p >= 0x20 && *p < 0x7f && *p != '%') {
            to[len++] = (char)*p;
            continue;
        }
        to[len++] = '%';
        to[len++] = digits[*p >> 4];
        to[len++] = digits[*p & 15];
    }
    to[len] = '\0';
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

void grpc_decode_message(const char *text, size_t len, char *to, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < len && n + 1 < size; i++) {
        int high = i + 2 < len ? hex_value(text[i + 1]) : -1;
        int low = i + 2 < len ? hex_value(text[i + 2]) : -1;

        if (text[i] == '%' && high >= 0 && low >= 0) {
            to[n++] = (char)(high << 4 | low);
            i += 2;
        } else {
            to[n++] = text[i];
        }
    }
    to[n] = '\0';
}
