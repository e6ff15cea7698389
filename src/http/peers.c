/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Clients' connections: which one gives way to a new one, and how long a slow one may take. Sending
 * byte by byte does not prolong any of these times.
 */

#include <sys/socket.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/util.h"
#include "http/internal.h"

enum {
    FIRST_SECONDS = 30,                 /* for the handshake and the first request's headers */
    UNUSED_SECONDS = IDLE_SECONDS + 30, /* since the last request began; silent ones end earlier */
    BODY_SECONDS = 10,                  /* an API server waits for a webhook as long */
    SEND_SECONDS = 30,
};

/* To its engine the connection looks as if the client had closed it. */
static void peer_end(struct http_server *server, struct peer *peer)
{
    if (peer->ended)
        return;
    peer->ended = true;
    server->kept_count--;
    server->elsewhere_count -= !peer->loopback;
    (void)shutdown(peer->fd, SHUT_RDWR);
}

/* This machine's own connections give way last: they may be kube-scheduler's. */
static void end_idlest(struct http_server *server)
{
    struct peer *peer, *local = NULL;

    DL_FOREACH(server->peers, peer)
    {
        if (peer->awaited || peer->ended)
            continue;
        if (!peer->loopback) {
            peer_end(server, peer);
            return;
        }
        if (!local)
            local = peer;
    }
    if (local)
        peer_end(server, local);
}

void peer_add(struct http_server *server, struct peer *peer, int fd, bool loopback)
{
    peer->fd = fd;
    peer->loopback = loopback;
    peer->used_ns = clock_now_ns();
    if (server->kept_count >= CONNECTIONS_KEPT ||
        (!loopback && server->elsewhere_count >= ELSEWHERE_KEPT))
        end_idlest(server);
    DL_APPEND(server->peers, peer);
    server->peer_count++;
    server->kept_count++;
    server->elsewhere_count += !loopback;
}

void peer_used(struct http_server *server, struct peer *peer)
{
    peer->used = true;
    peer->used_ns = clock_now_ns();
    DL_DELETE(server->peers, peer);
    DL_APPEND(server->peers, peer);
}

void peer_remove(struct http_server *server, struct peer *peer)
{
    DL_DELETE(server->peers, peer);
    server->peer_count--;
    server->kept_count -= !peer->ended;
    server->elsewhere_count -= !peer->ended && !peer->loopback;
    server->left = true;
    server_go_on_accepting(server);
}

static int64_t most_seconds(const struct http_request *request)
{
    return request->answered ? SEND_SECONDS : BODY_SECONDS;
}

/* The kernel drops the unsent bytes, too. */
static void reset(struct http_server *server, struct peer *peer)
{
    const struct linger none = {.l_onoff = 1};

    (void)setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    peer_end(server, peer);
}

static void end_slow(struct http_server *server, int64_t now_ns)
{
    struct http_request *request;

    DL_FOREACH(server->requests, request)
    {
        if (request->peer && !request->awaited &&
            now_ns - request->since_ns > most_seconds(request) * NS_PER_S)
            reset(server, request->peer);
    }
}

static void end_unused(struct http_server *server, int64_t now_ns)
{
    struct peer *peer;

    DL_FOREACH(server->peers, peer)
    {
        int64_t most = peer->used ? UNUSED_SECONDS : FIRST_SECONDS;

        if (!peer->awaited && !(peer->used && peer->loopback) &&
            now_ns - peer->used_ns > most * NS_PER_S)
            peer_end(server, peer);
    }
}

void peers_tick(struct http_server *server)
{
    int64_t now_ns = clock_now_ns();

    end_slow(server, now_ns);
    end_unused(server, now_ns);
}
