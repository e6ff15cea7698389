/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whatever frames a client sends, in whatever pieces: requests are answered once, bodies stay in
 * their bounds, and nothing is left when the connection and the handlers are done.
 */

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "http/internal.h"

enum {
    KEPT_MAX = 64,
    MAX_BODY = 100,
    MAX_HELD = 4096,
};

static struct http_request *kept[KEPT_MAX];
static size_t kept_count;

static void check_body(struct http_request *request)
{
    size_t len;
    const char *body = http_request_body(request, &len);

    if (len > MAX_BODY || body[len])
        abort();
}

static void answer_at_once(void *data, struct http_request *request)
{
    (void)data;
    check_body(request);
    http_answer(request, 200, HTTP_TEXT, "ok\n", 3);
}

static void answer_later(void *data, struct http_request *request)
{
    check_body(request);
    if (kept_count == KEPT_MAX)
        answer_at_once(data, request);
    else
        kept[kept_count++] = request;
}

static const struct http_route routes[] = {
    {"GET", "/a", 0, 0, false, answer_at_once},
    {"POST", "/a", MAX_BODY, MAX_HELD, false, answer_at_once},
    {"POST", "/b", MAX_BODY, MAX_HELD, false, answer_later},
    {"POST", "/c", MAX_BODY, MAX_HELD, true, answer_later},
    {0},
};

static void wants_to_send(struct peer *peer)
{
    (void)peer;
}

static void answer_one(void)
{
    if (kept_count)
        http_answer(kept[--kept_count], 503, HTTP_TEXT, "later\n", 6);
}

static void drain(struct http2 *session)
{
    static char out[2 * HTTP2_OUT_MIN];

    while (http2_gather(session, out, sizeof(out)))
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                  "\0\0\0\4\0\0\0\0\0";
    struct http_server server = {.routes = routes};
    struct peer peer = {0};
    const struct http2_owner owner = {.peer = &peer, .wants_to_send = wants_to_send};
    struct http2 *session;
    size_t piece = size ? (size_t)data[0] + 1 : 1, at = 1;
    int r;

    peer_add(&server, &peer, -1, false);
    if (http2_new(&server, &owner, &session) < 0)
        return 0;
    r = http2_receive(session, preface, sizeof(preface) - 1);
    while (r >= 0 && at < size) {
        size_t len = MIN(piece, size - at);

        r = http2_receive(session, data + at, len);
        at += len;
        if (data[at - 1] & 1)
            drain(session);
        if (data[at - 1] & 2)
            answer_one();
    }
    if (piece & 1)
        http2_end(session);
    drain(session);
    http2_free(session);
    if (peer.awaited)
        abort();
    while (kept_count)
        answer_one();
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (server.held[i])
            abort();
    }
    if (server.requests)
        abort();
    return 0;
}
